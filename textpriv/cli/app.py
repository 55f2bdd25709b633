"""The ``textpriv`` command: results on standard output, everything else on standard error.

What lives here: the commands, what they print, and the exit codes (0 done, 1 the job failed, 2
usage, 130 Ctrl-C). What does not: any work on text, words or files, which the library does. Heavy
packages are imported inside the commands, so that ``--help`` answers at once.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from textpriv.cli.messages import _job, _messages, _print_json, _say
from textpriv.cli.options import (
    _NAMES,
    _Action,
    _Beta,
    _Case,
    _CaseOption,
    _Command,
    _Device,
    _Engine,
    _Epsilon,
    _Folder,
    _Format,
    _Gamma,
    _given,
    _IndexFolder,
    _Json,
    _MechanismOption,
    _Number,
    _number,
    _OnError,
    _policy,
    _Prior,
    _Projection,
    _Punctuation,
    _Rate,
    _RateOption,
    _Search,
    _SearchOption,
    _Share,
    _Space,
    _Stopword,
    _Unknown,
)
from textpriv.errors import IndexFolderError, LedgerError, TextprivError

if TYPE_CHECKING:
    from textpriv.corpus.report import CorpusReport
    from textpriv.doctor import Check
    from textpriv.guarantees.certificate import Certificate
    from textpriv.run_key import RunKey
    from textpriv.statement import PrivacyStatement

__all__ = ["app", "main"]


app = typer.Typer(
    help="Private text with a proved metric-differential-privacy guarantee.\n\n"
    "Start with: textpriv demo",
    no_args_is_help=True,
    rich_markup_mode="rich",
    # A traceback with local variables would print private text.
    pretty_exceptions_enable=False,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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


@app.command()
@_job
def demo(
    save: Annotated[
        Path | None,
        typer.Option(help="Also keep the demo's index in this new folder, to go on with."),
    ] = None,
) -> None:
    """See private text within a minute, made from public news that is already on this machine.

    [bold]Example:[/bold] textpriv demo --save demo.idx
    """
    from rich.console import Console

    from textpriv.demo import run_demo

    run_demo(Console(), save=save)


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
    device: _Device = "cpu",
    force: Annotated[bool, typer.Option("--force", help="Replace OUT if it exists.")] = False,
    as_json: _Json = False,
) -> None:
    """Make an index folder from public word vectors; needed once for each set of vectors.

    [bold]Example:[/bold] textpriv index glove.6B.300d.txt.gz glove.idx --limit 100000
    """
    from textpriv.index.index import Index
    from textpriv.vocabulary.vocabulary import Vocabulary

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
        device=device,
    )
    from textpriv.tokenization.encoder import find_words_cut

    cut = find_words_cut(built)
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
                "words_cut": cut["count"],
                "seconds": round(seconds, 3),
            }
        )
        return
    print(f"{out}: {words:,} words, {dimensions} dimensions, {built.metric.name}, {seconds:.1f} s")
    if cut["count"]:
        print(
            f"{cut['count']:,} of the words are not read as one token of English where they stand between blanks, such as "
            f'"{cut["example"]}": there they are protected as the tokens that are read in their place.'
        )
    _say("", "", f"Next: textpriv explain {out} WORD --epsilon 6")


@app.command()
@_job
def privatize(
    source: Annotated[
        str,
        typer.Argument(
            metavar="IN",
            help="Texts: .jsonl, .csv or .txt (a document a line), perhaps with .gz or .zst after "
            "it, or .parquet; a folder of such files; - is standard input.",
            show_default=False,
        ),
    ],
    target: Annotated[
        str,
        typer.Argument(
            metavar="OUT",
            help="File to write, of the same format, or folder to make; - is standard output.",
            show_default=False,
        ),
    ],
    index: _IndexFolder,
    epsilon: _Epsilon,
    mechanism: _MechanismOption = "tem",
    prior: _Prior = None,
    gamma: _Gamma = None,
    beta: _Beta = None,
    rate: _RateOption = None,
    share: _Share = None,
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
    unknown: _Unknown = _Action.SAMPLE,
    number: _Number = _Action.SAMPLE,
    punctuation: _Punctuation = _Action.KEEP,
    space: _Space = _Action.KEEP,
    stopword: _Stopword = _Action.SAMPLE,
    case: _CaseOption = _Case.LOWER,
    on_error: Annotated[
        _OnError,
        typer.Option(
            help="At a bad record: stop, leave it out and count it, or also set it aside in "
            "OUT.quarantine.jsonl (raw text, readable by you alone)."
        ),
    ] = _OnError.FAIL,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Pass on only these other columns; * and ? match. Repeat for several.",
            show_default=False,
        ),
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Leave out these other columns; --drop '*' leaves the text alone.",
            show_default=False,
        ),
    ] = None,
    engine: Annotated[
        _Engine, typer.Option(help="Where the work is done.", rich_help_panel="Run")
    ] = _Engine.LOCAL,
    address: Annotated[
        str | None,
        typer.Option(
            "--address",
            "--master",
            help="Spark master or Ray cluster; without one, an engine of this machine is started.",
            show_default=False,
            rich_help_panel="Run",
        ),
    ] = None,
    workers: Annotated[
        int,
        typer.Option(help="Processes that work at a time.", min=1, rich_help_panel="Run"),
    ] = 1,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Continue a run that was cut short; needs its key. Begins one if there is none.",
            rich_help_panel="Run",
        ),
    ] = False,
    key: Annotated[
        Path | None,
        typer.Option(
            "--key",
            help="File of the run key, made if missing (default OUT.key). The same documents come out "
            "the same under the same key; whoever has it can undo the protection.",
            show_default=False,
            rich_help_panel="Run",
        ),
    ] = None,
    forget_key: Annotated[
        bool,
        typer.Option(
            "--forget-key",
            help="Destroy the run key when all is done.",
            rich_help_panel="Run",
        ),
    ] = False,
    batch_size: Annotated[
        int, typer.Option(help="Documents at a time. The output does not depend on it.", min=1)
    ] = 500,
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
            help="Field or column with the name of each document, by which it is known again "
            "wherever it stands; otherwise it is known by its number.",
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
            help="Stop before a document's releases under one index pass this epsilon in all, per unit of "
            "its distance. Another index begins anew: see --document-nats-limit.",
            show_default=False,
            rich_help_panel="Account",
        ),
    ] = None,
    document_nats_limit: Annotated[
        float | None,
        typer.Option(
            metavar="NATS",
            help="Stop before a document's releases under all indexes pass this worst-case loss in all.",
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

    OUT appears when all is done, or not at all; a run that was cut short goes on with --resume. The
    last lines say in plain words what is guaranteed, and what is not.

    [bold]Example:[/bold] textpriv privatize reviews.csv private.csv --index glove.idx --epsilon 6
    --text-column review
    """
    from textpriv.cli.progress import shown_progress, write_event
    from textpriv.corpus import (
        STANDARD_STREAM,
        ColumnRule,
        PrivatizerSettings,
        privatize_corpus,
    )

    if as_json and target == STANDARD_STREAM:
        raise typer.BadParameter(
            "with --json the texts cannot go to standard output, too: name a file"
        )
    _check_account(
        ledger,
        seed,
        {
            "--document": document,
            "--author": author,
            "--document-limit": document_limit,
            "--document-nats-limit": document_nats_limit,
            "--author-limit": author_limit,
        },
    )
    if address is not None and engine is _Engine.LOCAL:
        raise typer.BadParameter(
            "--address belongs to --engine spark or ray: add it, or leave it out"
        )
    options = _given(
        mechanism,
        prior=prior,
        gamma=gamma,
        beta=beta,
        rate=rate,
        share=share,
        search=search,
        projection=projection,
    )
    run_key = _run_key(source, target, key, ledger, seed)
    if forget_key and run_key is None:
        raise typer.BadParameter("--forget-key: a stream, --seed and --ledger have no run key")
    settings = PrivatizerSettings(
        index=str(index),
        mechanism=mechanism,
        options={"epsilon": epsilon, **options},
        policy=_policy(unknown, number, punctuation, space, stopword, case),
        seed=seed,
        ledger=None if ledger is None else str(ledger),
        document_limit=document_limit,
        document_nats_limit=document_nats_limit,
        author_limit=author_limit,
    )
    if run_key is not None:
        settings = replace(settings, run_key=run_key.secret)
    _announce(mechanism, rate)
    privatizer = settings.build()
    with _saying_what_is_left(target), shown_progress(_messages(), as_json) as advance:
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
            columns=ColumnRule(None if keep is None else tuple(keep), tuple(drop or ())),
            engine=engine.value,
            address=address,
            key=run_key,
            resume=resume or (False if _can_resume(source, target) else None),
            on_progress=advance,
            on_unprotected=_warn_unprotected
            if not as_json
            else lambda columns: write_event("unprotected", columns=list(columns)),
        )
    if forget_key and run_key is not None:
        run_key.forget()
    if as_json:
        _print_json(
            {
                "output": target,
                "report": report.to_dict(),
                "statement": privatizer.statement.to_dict(),
                "seed": seed,
                "key": None if run_key is None or forget_key else str(run_key.path),
            }
        )
        return
    _tell(report, privatizer.statement, target, seed)
    if run_key is not None:
        _tell_key(run_key.path, forget_key)


@app.command()
@_job
def explain(
    folder: _Folder,
    word: Annotated[str, typer.Argument(help="A word of its vocabulary.", show_default=False)],
    epsilon: _Epsilon,
    mechanism: _MechanismOption = "tem",
    prior: _Prior = None,
    gamma: _Gamma = None,
    beta: _Beta = None,
    rate: _RateOption = None,
    share: _Share = None,
    n: Annotated[int, typer.Option("-n", help="How many outputs to show.", min=1)] = 10,
    as_json: _Json = False,
) -> None:
    """Show what a word is likely to become, most likely first. Not for madlib, whose law has no closed form.

    [bold]Example:[/bold] textpriv explain glove.idx movie --epsilon 6
    """
    import numpy as np

    from textpriv.index.index import Index
    from textpriv.mechanisms import registry

    options = _given(mechanism, prior=prior, gamma=gamma, beta=beta, rate=rate, share=share)
    loaded = Index.load(folder)
    _announce(mechanism, rate)
    made = registry.get(mechanism)(epsilon=epsilon, **options)(loaded)
    kept = float(np.exp(made.log_prob(word)[loaded.vocabulary.id(word)]))
    outputs = made.explain(word, n=n)
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
                "statement": made.statement.to_dict(),
            }
        )
        return
    _print_outputs(word, epsilon, kept, outputs)
    print(made.statement.typical_odds)


@app.command()
@_job
def certify(
    folder: _Folder,
    epsilon: _Epsilon,
    mechanism: _MechanismOption = "tem",
    prior: _Prior = None,
    gamma: _Gamma = None,
    beta: _Beta = None,
    rate: _RateOption = None,
    share: _Share = None,
    search: _SearchOption = None,
    projection: _Projection = None,
    reuse: Annotated[
        bool,
        typer.Option(
            "--reuse", help="Take the certificate kept with the index, if it is for these settings."
        ),
    ] = False,
    device: _Device = "cpu",
    as_json: _Json = False,
) -> None:
    """Compute what a mechanism really guarantees on these vectors, and whether its claim holds.

    Ends with 0 if it holds and with 1 if not. The certificate is kept with the index.

    [bold]Example:[/bold] textpriv certify glove.idx --epsilon 6
    """
    from textpriv.guarantees.certificate import certify as compute
    from textpriv.index.index import Index
    from textpriv.mechanisms import registry

    options = _given(
        mechanism,
        prior=prior,
        gamma=gamma,
        beta=beta,
        rate=rate,
        share=share,
        search=search,
        projection=projection,
    )
    loaded = Index.load(folder)
    _announce(mechanism, rate)
    made = registry.get(mechanism)(epsilon=epsilon, **options)(loaded)
    certificate = compute(made, progress=_messages().is_terminal, reuse=reuse, device=device)
    if as_json:
        _print_json(certificate.to_dict())
    else:
        _print_certificate(certificate)
    if not certificate.holds:
        raise typer.Exit(1)


@app.command()
@_job
def audit(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[MECHANISM]",
            help="Registered name, such as textpriv.TEM.v1, or that of --mechanism elsewhere. All that are installed, "
            "if left out.",
            show_default=False,
        ),
    ] = None,
    epsilon: Annotated[
        float,
        typer.Option(
            "--epsilon", "-e", parser=_number, metavar="NUMBER", help="Asked of the mechanism."
        ),
    ] = 2.0,
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="A setting of the mechanism, such as prior=uniform; may be given several times.",
            show_default=False,
        ),
    ] = None,
    full: Annotated[
        bool,
        typer.Option("--full", help="Larger vocabularies and ten times the draws: minutes."),
    ] = False,
    index: Annotated[
        Path | None,
        typer.Option(help="Also search this index for pairs of words.", show_default=False),
    ] = None,
    as_json: _Json = False,
) -> None:
    """Attack an installed mechanism on small public vocabularies, and say what the attack could not have seen.

    Ends with 0 if every check passes and with 1 if not. Passing is no proof; failing is a refutation.

    [bold]Example:[/bold] textpriv audit tem --epsilon 4 --option prior=uniform
    """
    from textpriv.guarantees.audit import audit as attack
    from textpriv.index.index import Index
    from textpriv.mechanisms import registry

    settings = dict(_setting(given) for given in option or ())
    installed = sorted(registry.get_all())
    chosen = installed if name is None else [_NAMES.get(name, name)]
    if chosen[0] not in installed:
        raise typer.BadParameter(
            f"no mechanism is installed under the name {name}; there are {', '.join(installed)}",
            param_hint="MECHANISM",
        )
    if name is None and settings:
        raise typer.BadParameter("--option: name the mechanism whose setting it is")
    taken = inspect.signature(registry.get(chosen[0])).parameters
    for setting in settings:
        if setting not in taken:
            raise typer.BadParameter(
                f"--option: {chosen[0]} has no setting {setting}; there are {', '.join(taken)}"
            )
    searched = None if index is None else Index.load(index)
    reports = {}
    for each in chosen:
        with _messages().status(f"attacking {each}"):
            reports[each] = attack(
                each, epsilon=epsilon, quick=not full, index=searched, **settings
            )
    if as_json:
        _print_json({each: report.to_dict() for each, report in reports.items()})
    else:
        for report in reports.values():
            print(report)
        print("What this could not have seen:")
        for sentence in dict.fromkeys(s for report in reports.values() for s in report.unseen):
            print(f"- {sentence}")
    if not all(report.passed for report in reports.values()):
        raise typer.Exit(1)


def _setting(given: str) -> tuple[str, Any]:
    """A setting of a mechanism as it is written on the command line: a number if it reads as one, a word otherwise."""
    name, separator, value = given.partition("=")
    if not (name.isidentifier() and separator):
        raise typer.BadParameter(f"--option takes NAME=VALUE; got {given!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


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
    index: _IndexFolder,
    epsilon: _Epsilon,
    mechanism: _MechanismOption = "tem",
    prior: _Prior = None,
    text_column: Annotated[str, typer.Option(help="Field or column that holds the text.")] = "text",
    format: Annotated[
        _Format | None,
        typer.Option(help="Format of IN, where its name does not say.", show_default=False),
    ] = None,
    unknown: _Unknown = _Action.SAMPLE,
    number: _Number = _Action.SAMPLE,
    punctuation: _Punctuation = _Action.KEEP,
    space: _Space = _Action.KEEP,
    stopword: _Stopword = _Action.SAMPLE,
    case: _CaseOption = _Case.LOWER,
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

    privatizer = PrivatizerSettings(
        index=str(index),
        mechanism=mechanism,
        options={"epsilon": epsilon, **_given(mechanism, prior=prior)},
        policy=_policy(unknown, number, punctuation, space, stopword, case),
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


@app.command()
@_job
def report(
    folder: _Folder,
    epsilon: _Epsilon,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="HTML file to write; replaced if it exists."),
    ],
    mechanism: _MechanismOption = "tem",
    prior: _Prior = None,
    gamma: _Gamma = None,
    beta: _Beta = None,
    rate: _RateOption = None,
    share: _Share = None,
    search: _SearchOption = None,
    projection: _Projection = None,
    unknown: _Unknown = _Action.SAMPLE,
    number: _Number = _Action.SAMPLE,
    punctuation: _Punctuation = _Action.KEEP,
    space: _Space = _Action.KEEP,
    stopword: _Stopword = _Action.SAMPLE,
    case: _CaseOption = _Case.LOWER,
    words: Annotated[
        int, typer.Option(help="Words of the vocabulary that the page can look up.", min=2)
    ] = 600,
    word: Annotated[
        list[str] | None,
        typer.Option(help="A further public word to look up; may be repeated.", show_default=False),
    ] = None,
    certificate: Annotated[
        bool,
        typer.Option(
            help="Compute the certificate, or take the one kept with the index (about a minute for "
            "40,000 words)."
        ),
    ] = True,
    corpus: Annotated[
        Path | None,
        typer.Option(
            help="Texts, as for 'textpriv privatize': the page then counts their tokens by class, and is "
            "as private as they are.",
            show_default=False,
            rich_help_panel="Private parts",
        ),
    ] = None,
    text_column: Annotated[
        str,
        typer.Option(
            help="Field or column of the corpus that holds the text.",
            rich_help_panel="Private parts",
        ),
    ] = "text",
    format: Annotated[
        _Format | None,
        typer.Option(
            help="Format of the corpus, where its name does not say.",
            show_default=False,
            rich_help_panel="Private parts",
        ),
    ] = None,
    show_private_sample: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Show the first N raw texts of the corpus beside what is drawn for them.",
            min=0,
            rich_help_panel="Private parts",
        ),
    ] = 0,
    ledger: Annotated[
        Path | None,
        typer.Option(
            help="Ledger whose totals are shown.",
            show_default=False,
            rich_help_panel="Private parts",
        ),
    ] = None,
) -> None:
    """Write a page that shows what a mechanism guarantees and what it does to words, for any browser, offline.

    [bold]Example:[/bold] textpriv report glove.idx --epsilon 6 --output report.html
    """
    from textpriv.corpus import PrivatizerSettings, read_records
    from textpriv.evaluation.leaks import leak_report
    from textpriv.guarantees.certificate import certify as compute
    from textpriv.ledger.ledger import Ledger
    from textpriv.web.report import report_page, write_page

    if show_private_sample and corpus is None:
        raise typer.BadParameter("--show-private-sample shows texts of --corpus FILE: name it")
    if ledger is not None and not ledger.is_file():
        # Opening a ledger that is not there would make one.
        raise LedgerError(
            f"there is no ledger at {ledger}. Name the file given to --ledger before."
        )
    _announce(mechanism, rate)
    privatizer = PrivatizerSettings(
        index=str(folder),
        mechanism=mechanism,
        options={
            "epsilon": epsilon,
            **_given(
                mechanism,
                prior=prior,
                gamma=gamma,
                beta=beta,
                rate=rate,
                share=share,
                search=search,
                projection=projection,
            ),
        },
        policy=_policy(unknown, number, punctuation, space, stopword, case),
    ).build()
    samples: list[str] = []

    def texts() -> Iterator[str]:
        for batch in read_records(
            str(corpus), None if format is None else format.value, text_column
        ):
            for text in batch.texts:
                if len(samples) < show_private_sample:
                    samples.append(text)
                yield text

    leaks = None if corpus is None else leak_report(texts(), privatizer)
    found = None
    if certificate:
        found = compute(privatizer.mechanism, progress=_messages().is_terminal, reuse=True)
    spent = None
    if ledger is not None:
        with Ledger(ledger) as account:
            spent = account.totals()
    page = report_page(
        privatizer.mechanism,
        words=words,
        more=word or [],
        certificate=found,
        privatizer=privatizer,
        leaks=leaks,
        texts=samples,
        ledger=spent,
    )
    write_page(page, output, private=leaks is not None)
    print(f"{output}: {len(page.encode()) / 1e6:.2f} MB")
    if leaks is not None:
        _say(
            "yellow", "warning: ", f"made from raw text: {output} is as private as the text itself"
        )


@app.command()
@_job
def playground(
    folder: _Folder,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port to listen on; 0 takes a free one.", min=0, max=65535)
    ] = 8765,
    allow_remote: Annotated[
        bool,
        typer.Option(
            "--allow-remote",
            help="Let other computers in, without a password and unencrypted.",
        ),
    ] = False,
) -> None:
    """Open a local page where a text is typed and its private form is seen at once. Ctrl-C ends it.

    Nothing typed is stored or logged.

    [bold]Example:[/bold] textpriv playground glove.idx
    """
    from textpriv.index.index import Index
    from textpriv.web.playground import serve

    if allow_remote:
        _say("yellow", "warning: ", "other computers can reach this page, and nothing is encrypted")
    serve(
        Index.load(folder),
        host=host,
        port=port,
        allow_remote=allow_remote,
        on_ready=lambda address: print(f"Playground: {address} (Ctrl-C ends it)", flush=True),
    )


@app.command()
@_job
def doctor(as_json: _Json = False) -> None:
    """Check this installation: compiled code, search, spaCy, randomness, memory, and each extra.

    Ends with 1 if something that is required does not work.

    [bold]Example:[/bold] textpriv doctor
    """
    from textpriv.doctor import examine

    console = _messages()
    waiting = console.status("looking") if console.is_terminal else contextlib.nullcontext()
    with waiting:
        checks = list(examine())
    if as_json:
        _print_json(
            {
                "sound": not any(check.fails for check in checks),
                "checks": [check.to_dict() for check in checks],
            }
        )
    else:
        _print_checks(checks)
    if any(check.fails for check in checks):
        raise typer.Exit(1)


def _check_account(ledger: Path | None, seed: int | None, given: dict[str, Any]) -> None:
    """Refuse options of the ledger that mean nothing without each other."""
    if ledger is None:
        # A column of names also names documents under a run key.
        stray = [
            name for name, value in given.items() if value is not None and name != "--document"
        ]
        if stray:
            raise typer.BadParameter(f"{stray[0]} needs a ledger to count in: add --ledger FILE")
        return
    if given["--document"] is None:
        raise typer.BadParameter("--ledger needs --document COLUMN: it counts documents by name")
    if given["--author-limit"] is not None and given["--author"] is None:
        raise typer.BadParameter("--author-limit counts by author: add --author COLUMN")
    if seed is not None:
        raise typer.BadParameter("--seed is for experiments, and --ledger for releases: use one")


def _can_resume(source: str, target: str) -> bool:
    from textpriv.corpus.records import is_stream

    return not (is_stream(source) or is_stream(target))


def _run_key(
    source: str, target: str, path: Path | None, ledger: Path | None, seed: int | None
) -> RunKey | None:
    """Open the key of a run that has one: a stream is never resumed, a ledger keeps keys, and a seed is one."""
    from textpriv.run_key import RunKey

    if ledger is not None or seed is not None or not _can_resume(source, target):
        if path is not None:
            raise typer.BadParameter("--key: a stream, --seed and --ledger have no run key")
        return None
    return RunKey.beside(target) if path is None else RunKey.open(path)


@contextlib.contextmanager
def _saying_what_is_left(target: str) -> Iterator[None]:
    """Say how to go on where a run fails that can be continued."""
    from textpriv.corpus.checkpoint import WorkFolder, is_being_written, work_path

    try:
        yield
    except (TextprivError, OSError, KeyboardInterrupt):
        final = Path(os.path.realpath(target))
        left = work_path(final, kept=True)
        if WorkFolder.is_run(left) and not is_being_written(final):
            _say("", "", f"What was done is kept in {left}: go on with --resume.")
        raise


def _tell_key(path: Path, forgotten: bool) -> None:
    if forgotten:
        _say(
            "",
            "",
            f"The run key {path} was destroyed: this release can be neither repeated nor undone.",
        )
        return
    _say(
        "yellow",
        "warning: ",
        f"the run key is in {path}: with it this release can be repeated, and undone. Keep it as secret as the texts, "
        "or destroy it with --forget-key.",
    )


def _warn_unprotected(columns: tuple[str, ...]) -> None:
    shown = ", ".join(columns[:8]) + (", ..." if len(columns) > 8 else "")
    _say("yellow", "warning: ", f"only the text is made private; copied as they are: {shown}")


def _tell(report: CorpusReport, statement: PrivacyStatement, target: str, seed: int | None) -> None:
    """Say on standard error what was done, and what it guarantees."""
    tokens = sum(report.tokens.values())
    speed = ""
    if report.seconds > 0 and not report.resumed:  # else some were made in another time
        speed = f" ({tokens / report.seconds:,.0f} tokens per second)"
    where = "standard output" if target == "-" else target
    _say(
        "bold",
        "",
        f"{where}: {report.documents:,} documents, {tokens:,} tokens, {report.seconds:.1f} s{speed}",
    )
    if report.skipped:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in report.skipped.items())
        _say("yellow", "warning: ", f"left out: {reasons}")
    if report.unmatched:
        _say(
            "yellow",
            "warning: ",
            f"no other column was found for --drop or --keep: {', '.join(report.unmatched)}",
        )
    if report.quarantine is not None:
        _say("yellow", "warning: ", f"set aside, as raw text: {report.quarantine}")
    if report.resumed:
        _say("", "", f"{report.resumed:,} of them were done by the run before")
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


def _announce(mechanism: str, rate: _Rate | None) -> None:
    """Say what the next step may take long for."""
    settles = mechanism in (_NAMES["smoothed"], _NAMES["balanced"])
    if settles or (rate is not None and rate is not _Rate.HALF):
        _say(
            "dim",
            "",
            "calibrating the law (the first time a minute or more for 40,000 words; kept with the index)",
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
        ("constant", f"{certificate.in_words(certificate.rho)}{sure}"),
        ("with rounding", certificate.in_words(certificate.rho_with_rounding)),
        ("worst pair", f"{first} and {second}, at distance {certificate.distance:.6g}"),
        ("compared", f"{certificate.pairs:,} pairs of words"),
        ("method", certificate.method),
        *(("also", sentence) for sentence in certificate.observed),
        ("seconds", f"{certificate.seconds:.1f}"),
    ):
        table.add_row(name, Text(value))
    console = Console(highlight=False)
    console.print(Text(verdict, style=style))
    console.print(table)
    for note in certificate.notes:
        console.print(Text(f"{note}."), soft_wrap=True)


def _print_checks(checks: list[Check]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    styles = {"ok": "green", "absent": "dim", "warning": "yellow", "broken": "bold red"}
    table = Table()
    for name in ("check", "result", "found"):
        table.add_column(name, no_wrap=name != "found", overflow="fold")
    for check in checks:
        status = check.status + (" (required)" if check.fails else "")
        found = Text(check.found)
        if check.remedy:
            found.append(f"\n{check.remedy}", style="italic")
        table.add_row(check.name, Text(status, style=styles[check.status]), found)
    console = Console(highlight=False)
    console.print(table)
    broken = sum(check.fails for check in checks)
    if broken:
        console.print(Text(f"{broken} required checks failed.", style="bold red"))
    else:
        console.print(Text("Everything that is required works.", style="bold green"))


for _registered in app.registered_commands:
    _registered.cls = _Command


def main() -> None:
    """Run the command line."""
    import signal

    def end(number: int, frame: object) -> None:
        # As an exception, so that a half-written file is removed on the way out.
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, end)
    app()
