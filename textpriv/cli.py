"""The ``textpriv`` command: results on standard output, everything else on standard error.

What lives here: the commands, what they print, and the exit codes (0 done, 1 the job failed, 2
usage, 130 Ctrl-C). What does not: any work on text, words or files, which the library does. Heavy
packages are imported inside the commands, so that ``--help`` answers at once.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from textpriv.errors import IndexFolderError, TextprivError

if TYPE_CHECKING:
    from rich.console import Console

    from textpriv.certificate import Certificate
    from textpriv.corpus import CorpusReport
    from textpriv.statement import PrivacyStatement

__all__ = ["app", "main"]

app = typer.Typer(
    add_completion=False,
    help="Private text with a proved metric-differential-privacy guarantee.\n\n"
    "Start with: textpriv demo",
    no_args_is_help=True,
    rich_markup_mode="rich",
    # A traceback with local variables would print private text.
    pretty_exceptions_enable=False,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_INTERRUPTED = 130


class _Mechanism(str, Enum):
    TEM = "tem"
    MADLIB = "madlib"


class _Rate(str, Enum):
    HALF = "half"
    CALIBRATED = "calibrated"
    BEST = "best"


class _Search(str, Enum):
    EXACT = "exact"
    HNSW = "hnsw"


class _Format(str, Enum):
    JSONL = "jsonl"
    CSV = "csv"
    TEXT = "text"


class _Action(str, Enum):
    SAMPLE = "sample"
    MASK = "mask"
    DROP = "drop"
    KEEP = "keep"


class _Case(str, Enum):
    LOWER = "lower"
    KEEP = "keep"


class _OnError(str, Enum):
    FAIL = "fail"
    SKIP = "skip"


_REGISTERED = {_Mechanism.TEM: "textpriv.TEM.v1", _Mechanism.MADLIB: "textpriv.Madlib.v1"}


# ----------------------------------------------------------------------------------------------
# The screen
# ----------------------------------------------------------------------------------------------


def _messages() -> Console:
    """Return the console of standard error."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def _say(style: str, label: str, message: str) -> None:
    """Print a message on standard error; a long one is never cut at a terminal's width."""
    from rich.text import Text

    text = Text.assemble((label, style), message) if label else Text(message)
    _messages().print(text, soft_wrap=True)


def _print_json(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
    sys.stdout.flush()


@contextlib.contextmanager
def _warnings_as_messages() -> Iterator[None]:
    """Show the library's warnings as one line each, without the source line that raised them."""
    shown: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if str(message) not in shown:
            shown.add(str(message))
            _say("yellow", "warning: ", str(message))

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


_Command = TypeVar("_Command", bound=Callable[..., None])


def _job(command: _Command) -> _Command:
    """Turn what can go wrong in a command into a message and an exit code."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            with _warnings_as_messages():
                command(*args, **kwargs)
        except BrokenPipeError:
            # The reader of our output has gone (as "| head" does). Python would complain once more
            # at exit, when it flushes; so there is nothing left to flush.
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(1) from None
        except (TextprivError, OSError) as error:
            _say("bold red", "error: ", _describe(error))
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            _say("bold red", "", "\ninterrupted; no output file was written")
            raise typer.Exit(_INTERRUPTED) from None

    return run  # type: ignore[return-value]


def _describe(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.strerror}: {error.filename}"
    return str(error) or type(error).__name__


# ----------------------------------------------------------------------------------------------
# Options that several commands share
# ----------------------------------------------------------------------------------------------

_Epsilon = Annotated[
    float,
    typer.Option(
        "--epsilon",
        "-e",
        help="Privacy parameter, per unit of the vectors' distance. Smaller is more private.",
        show_default=False,
    ),
]
_Prior = Annotated[
    str | None,
    typer.Option(
        help="tem: how often each word is used in public text: zipf (by rank, the default), "
        "uniform (as published), counts (stored in the index), or a file of 'word count' lines.",
        show_default=False,
    ),
]
_Gamma = Annotated[
    float | None,
    typer.Option(help="tem: distance beyond which all words count alike.", show_default=False),
]
_Beta = Annotated[
    float | None,
    typer.Option(
        help="tem: chance of leaving gamma, from which gamma follows with --prior uniform "
        "(default 0.001).",
        show_default=False,
    ),
]
_RateOption = Annotated[
    _Rate | None,
    typer.Option(
        help="tem: how the exponent follows from epsilon: half of it (the default), calibrated (the most "
        "that these vectors allow), or best (which also moves the prior). Computed once for an index.",
        show_default=False,
    ),
]
_SearchOption = Annotated[
    _Search | None,
    typer.Option(help="madlib: how the nearest word is found (default hnsw).", show_default=False),
]
_Projection = Annotated[
    int | None,
    typer.Option(
        help="madlib: dimensions to project the vectors to first.", min=1, show_default=False
    ),
]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"textpriv {version('textpriv')}")
        raise typer.Exit


@app.callback()
def _textpriv(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    pass


# ----------------------------------------------------------------------------------------------
# Commands
# ----------------------------------------------------------------------------------------------


@app.command()
@_job
def demo() -> None:
    """See private text within a minute, made from public news that is already on this machine.

    [bold]Example:[/bold] textpriv demo
    """
    from rich.console import Console

    from textpriv.demo import run_demo

    run_demo(Console())


@app.command()
@_job
def index(
    source: Annotated[
        str,
        typer.Argument(
            help="Word vectors: a GloVe, word2vec or fastText file, a gensim file, or the name of "
            "an installed spaCy package.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Argument(help="Folder to make.", show_default=False)],
    metric: Annotated[str, typer.Option(help="Distance between vectors.")] = "euclidean",
    k: Annotated[int, typer.Option(help="Nearest words kept for each word.", min=1)] = 256,
    limit: Annotated[
        int | None,
        typer.Option(help="Take only the first words of SOURCE.", min=1, show_default=False),
    ] = None,
    prior: Annotated[
        Path | None,
        typer.Option(
            help="File of 'word count' lines from public text, kept in the index for "
            "--prior counts.",
            show_default=False,
        ),
    ] = None,
    backend: Annotated[
        _Search,
        typer.Option(
            help="How the nearest words are found. Only exact keeps the proved guarantee."
        ),
    ] = _Search.EXACT,
    hnsw: Annotated[
        bool,
        typer.Option(
            "--hnsw/--no-hnsw",
            help="Also store the graph that --mechanism madlib searches.",
        ),
    ] = True,
    force: Annotated[bool, typer.Option("--force", help="Replace OUT if it exists.")] = False,
    as_json: _Json = False,
) -> None:
    """Make an index folder from public word vectors; needed once for each set of vectors.

    [bold]Example:[/bold] textpriv index glove.6B.300d.txt.gz glove.idx --limit 100000
    """
    from textpriv.index import Index
    from textpriv.vocabulary import Vocabulary

    if out.exists() and not force:  # said before the long work, not after it
        raise IndexFolderError(f"{out} exists. Choose another folder, or replace it with --force.")
    started = time.perf_counter()
    console = _messages()
    with console.status("reading vectors") if console.is_terminal else contextlib.nullcontext():
        vocabulary = Vocabulary.load(source, limit=limit, prior=prior)
    built = Index.build(
        vocabulary,
        metric=metric,
        k=k,
        backend=backend.value,
        progress=console.is_terminal,
        hnsw=hnsw,
    )
    built.save(out, overwrite=force)
    words, dimensions = vocabulary.vectors.shape
    seconds = time.perf_counter() - started
    if as_json:
        _print_json(
            {
                "index": str(out),
                "words": words,
                "dimensions": dimensions,
                "metric": built.metric.name,
                "k": built.k,
                "backend": built.backend,
                "recall": built.recall,
                "seconds": round(seconds, 3),
            }
        )
        return
    print(f"{out}: {words:,} words, {dimensions} dimensions, {built.metric.name}, {seconds:.1f} s")
    _say("", "", f"Next: textpriv explain {out} WORD --epsilon 6")


@app.command()
@_job
def privatize(
    source: Annotated[
        str,
        typer.Argument(
            metavar="IN",
            help="Texts: .jsonl, .csv or .txt (a document a line), perhaps with .gz or .zst after "
            "it; - is standard input.",
            show_default=False,
        ),
    ],
    target: Annotated[
        str,
        typer.Argument(
            metavar="OUT",
            help="File to write, of the same format; - is standard output.",
            show_default=False,
        ),
    ],
    index: Annotated[
        Path,
        typer.Option("--index", help="Folder made by 'textpriv index'.", show_default=False),
    ],
    epsilon: _Epsilon,
    mechanism: Annotated[_Mechanism, typer.Option(help="How a word is replaced.")] = _Mechanism.TEM,
    prior: _Prior = None,
    gamma: _Gamma = None,
    beta: _Beta = None,
    rate: _RateOption = None,
    search: _SearchOption = None,
    projection: _Projection = None,
    text_column: Annotated[
        str, typer.Option(help="Field or column that holds the text. Others are not protected.")
    ] = "text",
    format: Annotated[
        _Format | None,
        typer.Option(
            help="Format of IN and OUT, where their names do not say. With - at both ends: text.",
            show_default=False,
        ),
    ] = None,
    unknown: Annotated[
        _Action, typer.Option(help="Words outside the vocabulary.")
    ] = _Action.SAMPLE,
    number: Annotated[_Action, typer.Option(help="Numbers.")] = _Action.SAMPLE,
    punctuation: Annotated[_Action, typer.Option(help="Punctuation.")] = _Action.KEEP,
    space: Annotated[_Action, typer.Option(help="Line breaks and runs of spaces.")] = _Action.KEEP,
    stopword: Annotated[_Action, typer.Option(help="Words such as 'the'.")] = _Action.SAMPLE,
    case: Annotated[_Case, typer.Option(help="Lower-case words before the look-up.")] = _Case.LOWER,
    on_error: Annotated[
        _OnError, typer.Option(help="At a bad record: stop, or leave it out and count it.")
    ] = _OnError.FAIL,
    workers: Annotated[int, typer.Option(help="Local processes.", min=1)] = 1,
    batch_size: Annotated[
        int, typer.Option(help="Documents at a time. The output does not depend on it.", min=1)
    ] = 1000,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Repeatable output, for experiments only: whoever knows the seed can undo it.",
            show_default=False,
        ),
    ] = None,
    ledger: Annotated[
        Path | None,
        typer.Option(
            help="File that counts what each document spends, made if missing. A document that was "
            "released before is released the same way and costs nothing. As secret as the texts.",
            show_default=False,
            rich_help_panel="Account",
        ),
    ] = None,
    document: Annotated[
        str | None,
        typer.Option(
            help="Field or column with the name of each document.",
            show_default=False,
            rich_help_panel="Account",
        ),
    ] = None,
    author: Annotated[
        str | None,
        typer.Option(
            help="Field or column with the name of each document's author.",
            show_default=False,
            rich_help_panel="Account",
        ),
    ] = None,
    document_limit: Annotated[
        float | None,
        typer.Option(
            metavar="EPSILON",
            help="Stop before a document's releases pass this epsilon in all.",
            show_default=False,
            rich_help_panel="Account",
        ),
    ] = None,
    author_limit: Annotated[
        float | None,
        typer.Option(
            metavar="NATS",
            help="Stop before an author's documents pass this worst-case loss in all.",
            show_default=False,
            rich_help_panel="Account",
        ),
    ] = None,
    as_json: _Json = False,
) -> None:
    """Replace every word of the texts by a private one.

    OUT appears when all is done, or not at all. The last lines say in plain words what is
    guaranteed, and what is not.

    [bold]Example:[/bold] textpriv privatize reviews.csv private.csv --index glove.idx --epsilon 6
    --text-column review
    """
    from textpriv.corpus import STANDARD_STREAM, PrivatizerSettings, privatize_corpus

    if as_json and target == STANDARD_STREAM:
        raise typer.BadParameter(
            "with --json the texts cannot go to standard output, too: name a file"
        )
    _check_account(ledger, document, author, document_limit, author_limit, seed)
    options: dict[_Mechanism, dict[str, Any]] = {
        _Mechanism.TEM: {"prior": prior, "gamma": gamma, "beta": beta, "rate": rate},
        _Mechanism.MADLIB: {"search": search, "projection": projection},
    }
    settings = PrivatizerSettings(
        index=str(index),
        mechanism=_REGISTERED[mechanism],
        options={"epsilon": epsilon, **_given(options, mechanism)},
        policy={
            "unknown": unknown.value,
            "number": number.value,
            "punctuation": punctuation.value,
            "space": space.value,
            "stopword": stopword.value,
            "case": case.value,
        },
        seed=seed,
        ledger=None if ledger is None else str(ledger),
        document_limit=document_limit,
        author_limit=author_limit,
    )
    _announce(rate)
    privatizer = settings.build()
    with _progress() as advance:
        report = privatize_corpus(
            source,
            target,
            privatizer,
            format=None if format is None else format.value,
            text_column=text_column,
            on_error=on_error.value,
            batch_size=batch_size,
            workers=workers,
            settings=settings,
            document_column=document,
            author_column=author,
            on_progress=advance,
            on_unprotected=_warn_unprotected,
        )
    if as_json:
        _print_json(
            {
                "output": target,
                "report": report.to_dict(),
                "statement": privatizer.statement.to_dict(),
                "seed": seed,
            }
        )
    _tell(report, privatizer.statement, target, seed)


@app.command()
@_job
def explain(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Folder made by 'textpriv index'.", show_default=False),
    ],
    word: Annotated[str, typer.Argument(help="A word of its vocabulary.", show_default=False)],
    epsilon: _Epsilon,
    prior: _Prior = None,
    gamma: _Gamma = None,
    beta: _Beta = None,
    rate: _RateOption = None,
    n: Annotated[int, typer.Option("-n", help="How many outputs to show.", min=1)] = 10,
    as_json: _Json = False,
) -> None:
    """Show what a word is likely to become: the most likely outputs of the tem mechanism.

    [bold]Example:[/bold] textpriv explain glove.idx movie --epsilon 6
    """
    import numpy as np

    from textpriv.index import Index
    from textpriv.mechanisms import registry

    own = {"prior": prior, "gamma": gamma, "beta": beta, "rate": rate}
    options = _given({_Mechanism.TEM: own}, _Mechanism.TEM)
    loaded = Index.load(folder)
    _announce(rate)
    mechanism = registry.get(_REGISTERED[_Mechanism.TEM])(epsilon=epsilon, **options)(loaded)
    kept = float(np.exp(mechanism.log_prob(word)[loaded.vocabulary.id(word)]))
    outputs = mechanism.explain(word, n=n)
    if as_json:
        _print_json(
            {
                "word": word,
                "epsilon": epsilon,
                "keep_probability": kept,
                "outputs": [
                    {"word": other, "probability": float(probability), "distance": float(distance)}
                    for other, probability, distance in outputs
                ],
                "statement": mechanism.statement.to_dict(),
            }
        )
        return
    _print_outputs(word, epsilon, kept, outputs)


@app.command()
@_job
def certify(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Folder made by 'textpriv index'.", show_default=False),
    ],
    epsilon: _Epsilon,
    mechanism: Annotated[_Mechanism, typer.Option(help="How a word is replaced.")] = _Mechanism.TEM,
    prior: _Prior = None,
    gamma: _Gamma = None,
    beta: _Beta = None,
    rate: _RateOption = None,
    search: _SearchOption = None,
    projection: _Projection = None,
    reuse: Annotated[
        bool,
        typer.Option(
            "--reuse", help="Take the certificate kept with the index, if it is for these settings."
        ),
    ] = False,
    as_json: _Json = False,
) -> None:
    """Compute what a mechanism really guarantees on these vectors, and whether its claim holds.

    Ends with 0 if it holds and with 1 if not. The certificate is kept with the index.

    [bold]Example:[/bold] textpriv certify glove.idx --epsilon 6
    """
    from textpriv.certificate import certify as compute
    from textpriv.index import Index
    from textpriv.mechanisms import registry

    options: dict[_Mechanism, dict[str, Any]] = {
        _Mechanism.TEM: {"prior": prior, "gamma": gamma, "beta": beta, "rate": rate},
        _Mechanism.MADLIB: {"search": search, "projection": projection},
    }
    given = _given(options, mechanism)
    loaded = Index.load(folder)
    _announce(rate)
    made = registry.get(_REGISTERED[mechanism])(epsilon=epsilon, **given)(loaded)
    certificate = compute(made, progress=_messages().is_terminal, reuse=reuse)
    if as_json:
        _print_json(certificate.to_dict())
    else:
        _print_certificate(certificate)
    if not certificate.holds:
        raise typer.Exit(1)


@app.command()
@_job
def leaks(
    source: Annotated[
        str,
        typer.Argument(
            metavar="IN",
            help="Texts, as for 'textpriv privatize'; - is standard input.",
            show_default=False,
        ),
    ],
    index: Annotated[
        Path,
        typer.Option("--index", help="Folder made by 'textpriv index'.", show_default=False),
    ],
    epsilon: _Epsilon,
    mechanism: Annotated[_Mechanism, typer.Option(help="How a word is replaced.")] = _Mechanism.TEM,
    prior: _Prior = None,
    text_column: Annotated[str, typer.Option(help="Field or column that holds the text.")] = "text",
    format: Annotated[
        _Format | None,
        typer.Option(help="Format of IN, where its name does not say.", show_default=False),
    ] = None,
    unknown: Annotated[
        _Action, typer.Option(help="Words outside the vocabulary.")
    ] = _Action.SAMPLE,
    number: Annotated[_Action, typer.Option(help="Numbers.")] = _Action.SAMPLE,
    punctuation: Annotated[_Action, typer.Option(help="Punctuation.")] = _Action.KEEP,
    space: Annotated[_Action, typer.Option(help="Line breaks and runs of spaces.")] = _Action.KEEP,
    stopword: Annotated[_Action, typer.Option(help="Words such as 'the'.")] = _Action.SAMPLE,
    case: Annotated[_Case, typer.Option(help="Lower-case words before the look-up.")] = _Case.LOWER,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare",
            help="Also draw every word once and tell how many stay as they are. As private as IN.",
        ),
    ] = False,
    as_json: _Json = False,
) -> None:
    """Count what a release of these texts would leave visible. The counts are as private as IN.

    [bold]Example:[/bold] textpriv leaks reviews.csv --index glove.idx --epsilon 6
    --text-column review
    """
    from textpriv.corpus import PrivatizerSettings, read_records
    from textpriv.evaluation.leaks import leak_report

    options: dict[_Mechanism, dict[str, Any]] = {
        _Mechanism.TEM: {"prior": prior},
        _Mechanism.MADLIB: {},
    }
    privatizer = PrivatizerSettings(
        index=str(index),
        mechanism=_REGISTERED[mechanism],
        options={"epsilon": epsilon, **_given(options, mechanism)},
        policy={
            "unknown": unknown.value,
            "number": number.value,
            "punctuation": punctuation.value,
            "space": space.value,
            "stopword": stopword.value,
            "case": case.value,
        },
    ).build()
    batches = read_records(source, None if format is None else format.value, text_column)
    report = leak_report(
        (text for batch in batches for text in batch.texts), privatizer, compare=compare
    )
    if as_json:
        _print_json(report.to_dict())
    else:
        print(report.table())
    _say("yellow", "warning: ", "counted on the raw text: as private as the text itself")


# ----------------------------------------------------------------------------------------------
# Parts of the commands
# ----------------------------------------------------------------------------------------------


def _given(options: dict[_Mechanism, dict[str, Any]], mechanism: _Mechanism) -> dict[str, Any]:
    """Return the mechanism's options that were given; those of another are a usage error."""
    for other, values in options.items():
        stray = [name for name, value in values.items() if value is not None]
        if other is not mechanism and stray:
            raise typer.BadParameter(
                f"--{stray[0]} belongs to --mechanism {other.value}, not to {mechanism.value}"
            )
    return {
        name: value.value if isinstance(value, Enum) else value
        for name, value in options[mechanism].items()
        if value is not None
    }


def _check_account(
    ledger: Path | None,
    document: str | None,
    author: str | None,
    document_limit: float | None,
    author_limit: float | None,
    seed: int | None,
) -> None:
    """Refuse options of the ledger that mean nothing without each other."""
    given = {
        "--document": document,
        "--author": author,
        "--document-limit": document_limit,
        "--author-limit": author_limit,
    }
    if ledger is None:
        stray = [name for name, value in given.items() if value is not None]
        if stray:
            raise typer.BadParameter(f"{stray[0]} needs --ledger FILE")
        return
    if document is None:
        raise typer.BadParameter("--ledger needs --document COLUMN: it counts documents by name")
    if author_limit is not None and author is None:
        raise typer.BadParameter("--author-limit needs --author COLUMN")
    if seed is not None:
        raise typer.BadParameter("--seed is for experiments, and --ledger for releases: use one")


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[int, float | None], None] | None]:
    """Yield what shows the progress, or None where nobody watches."""
    console = _messages()
    if not console.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("privatizing"),
        BarColumn(),
        TextColumn("{task.fields[documents]:,} documents"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("privatizing", total=None, documents=0)

        def advance(documents: int, fraction: float | None) -> None:
            if fraction is None:
                progress.update(task, documents=documents)
            else:
                progress.update(task, documents=documents, total=1.0, completed=fraction)

        yield advance


def _warn_unprotected(columns: tuple[str, ...]) -> None:
    shown = ", ".join(columns[:8]) + (", ..." if len(columns) > 8 else "")
    _say("yellow", "warning: ", f"only the text is made private; copied as they are: {shown}")


def _tell(report: CorpusReport, statement: PrivacyStatement, target: str, seed: int | None) -> None:
    """Say on standard error what was done, and what it guarantees."""
    tokens = sum(report.tokens.values())
    speed = tokens / report.seconds if report.seconds > 0 else 0.0
    where = "standard output" if target == "-" else target
    _say(
        "bold",
        "",
        f"{where}: {report.documents:,} documents, {tokens:,} tokens, {report.seconds:.1f} s "
        f"({speed:,.0f} tokens per second)",
    )
    if report.skipped:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in report.skipped.items())
        _say("yellow", "warning: ", f"left out: {reasons}")
    if seed is not None:
        _say(
            "yellow",
            "warning: ",
            "made with --seed, for experiments only: whoever knows the seed can undo it. "
            "Do not release this output.",
        )
    _say("", "", "\n" + statement.paragraph())


def _print_outputs(
    word: str, epsilon: float, kept: float, outputs: list[tuple[str, float, float]]
) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    console.print(
        Text.assemble(
            (word, "bold"), f" stays as it is with probability {kept:.4f} (epsilon {epsilon:g})"
        )
    )
    table = Table()
    table.add_column("output")
    table.add_column("probability", justify="right")
    table.add_column("distance", justify="right")
    for other, probability, distance in outputs:
        name = Text(other, style="bold" if other == word else "")
        table.add_row(name, f"{probability:.4f}", f"{distance:.3f}")
    rest = max(0.0, 1.0 - sum(probability for _, probability, _ in outputs))
    table.add_section()
    table.add_row(Text("all other words", style="dim"), f"{rest:.4f}", "")
    console.print(table)


def _announce(rate: _Rate | None) -> None:
    """Say what the next step may take long for."""
    if rate is not None and rate is not _Rate.HALF:
        _say(
            "dim",
            "",
            "calibrating the rate (the first time about a minute for 40,000 words; kept with the index)",
        )


def _print_certificate(certificate: Certificate) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    verdict, style = (
        ("THE CLAIM HOLDS", "bold green")
        if certificate.holds
        else ("THE CLAIM DOES NOT HOLD", "bold red")
    )
    bound = "" if certificate.exact else "at least "
    first, second = certificate.worst_pair
    sure = (
        "" if certificate.confidence is None else f", with {certificate.confidence:.1%} confidence"
    )
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in (
        ("mechanism", certificate.mechanism),
        ("claimed", f"{certificate.epsilon:g} per unit of distance"),
        ("constant", f"{bound}{certificate.rho:.9g}{sure}"),
        ("with rounding", f"{bound}{certificate.rho_with_rounding:.9g}"),
        ("worst pair", f"{first} and {second}, at distance {certificate.distance:.6g}"),
        ("compared", f"{certificate.pairs:,} pairs of words"),
        ("method", certificate.method),
        ("seconds", f"{certificate.seconds:.1f}"),
    ):
        table.add_row(name, Text(value))
    console = Console(highlight=False)
    console.print(Text(verdict, style=style))
    console.print(table)
    for note in certificate.notes:
        console.print(Text(f"{note}."), soft_wrap=True)


def main() -> None:
    """Run the command line; the entry point of the ``textpriv`` script."""
    import signal

    def end(number: int, frame: object) -> None:
        # As an exception, so that a half-written file is removed on the way out.
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, end)
    app()
