"""The ``textpriv`` command: results on standard output, everything else on standard error.

What lives here: the application, its commands by name, those that set up and check an installation, and the exit codes
(0 done, 1 the job failed, 2 usage, 130 Ctrl-C). What does not: any work on text, words or files, which the library does.
Heavy packages are imported inside the commands, so that ``--help`` answers at once.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from textpriv.cli.choosing import choose, distance, epsilon
from textpriv.cli.decode import decode
from textpriv.cli.inspect import audit, certify, explain, leaks, playground, report
from textpriv.cli.messages import as_job, console, print_json, say
from textpriv.cli.options import (
    Command,
    Force,
    Json,
    Limit,
    Metric,
    NewFolder,
    VectorLanguage,
    read_text,
    refuse_existing,
    with_groups,
)
from textpriv.cli.privatize import privatize
from textpriv.cli.tree import tree
from textpriv.cli.vectors import vectors
from textpriv.cli.warm import warm

if TYPE_CHECKING:
    from textpriv.doctor import Check

__all__ = ["app", "main"]


_MANY = 0.05  # of the words, with capitals

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
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def demo(
    save: Annotated[
        Path | None, typer.Option(help="Also keep a copy of the built-in index in this new folder.")
    ] = None,
) -> None:
    """See private text in seconds: a review, a ticket and a note at three amounts of privacy, and what each guarantees.

    [bold]Example:[/bold] textpriv demo --save demo.idx
    """
    from rich.console import Console

    from textpriv.demo import run_demo

    run_demo(Console(), save=save)


@dataclass(frozen=True, kw_only=True)
class IndexOptions:
    """Which words are taken, and how their neighbours are found."""

    metric: Metric = "euclidean"
    projection: Annotated[
        int | None,
        typer.Option(
            help="Project the vectors on so many of their principal directions first. No distance gets longer, so the "
            "promise holds for distances of the vectors themselves, too.",
            min=1,
        ),
    ] = None
    k: Annotated[int, typer.Option(help="Nearest words kept for each word.", min=1)] = 256
    limit: Limit = None
    prior: Annotated[
        Path | None,
        typer.Option(
            help="File of 'word count' lines from public text, kept in the index for "
            "--prior counts."
        ),
    ] = None
    lower: Annotated[
        bool,
        typer.Option(
            "--lower",
            help="Take the words in lower case, in which texts are read: for vectors with capitals, as of German nouns.",
        ),
    ] = False
    without: Annotated[
        Path | None,
        typer.Option(
            help="File of words to leave out, one a line; it must be public, as the words are."
        ),
    ] = None


def index(
    source: Annotated[
        str,
        typer.Argument(
            help="Word vectors: a GloVe, word2vec or fastText file, the name of an installed spaCy package or of a "
            "public set (see 'textpriv vectors'), or builtin:en."
        ),
    ],
    out: NewFolder,
    options: IndexOptions,
    language: VectorLanguage = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Make an index folder from public word vectors; needed once for each set of vectors.

    [bold]Example:[/bold] textpriv index glove.6B.300d.txt.gz glove.idx --limit 100000
    """
    from textpriv.index.index import Index
    from textpriv.vocabulary.vocabulary import Vocabulary

    refuse_existing(out, force, source, options.prior, options.without)
    started = time.perf_counter()
    terminal = console()
    with terminal.status("reading vectors"):
        vocabulary = Vocabulary.load(
            source, limit=options.limit, prior=options.prior, language=language
        )
    if options.lower:
        vocabulary = vocabulary.lowered()
    if options.without is not None:
        vocabulary = vocabulary.without(read_text(options.without).split("\n"))
    built = Index.build(
        vocabulary,
        options.metric,
        k=options.k,
        projection=options.projection,
        progress=terminal.is_terminal,
    )
    built.save(out, overwrite=force)
    done = {
        "index": str(out),
        "words": len(vocabulary),
        "dimensions": vocabulary.vectors.shape[1],
        "language": built.language,
        "metric": built.space,
        "k": built.k,
        "seconds": round(time.perf_counter() - started, 3),
    }
    if as_json:
        print_json(done)
        return
    print(
        "{index}: {words:,} words, {dimensions} dimensions, {metric}, {seconds:.1f} s".format(
            **done
        )
    )
    capitals = sum(word != word.lower() for word in vocabulary.words)
    if capitals > _MANY * len(vocabulary):
        say(
            f"{capitals:,} of the words have capitals, and texts are read in lower case: with --lower they are found there."
        )
    say(f"Next: textpriv explain {out} WORD --epsilon 6")


def doctor(as_json: Json = False) -> None:
    """Check this installation: compiled code, search, spaCy, randomness, memory, and each extra.

    Ends with 1 if something that is required does not work.

    [bold]Example:[/bold] textpriv doctor
    """
    from textpriv.doctor import examine

    with console().status("looking"):
        checks = list(examine())
    if as_json:
        print_json(
            {
                "sound": not any(check.fails for check in checks),
                "checks": [check.to_dict() for check in checks],
            }
        )
    else:
        _print_checks(checks)
    if any(check.fails for check in checks):
        raise typer.Exit(1)


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
        result = Text(check.found)
        if check.remedy:
            result.append(f"\n{check.remedy}", style="italic")
        table.add_row(check.name, Text(status, style=styles[check.status]), result)
    console = Console(highlight=False)
    console.print(table)
    broken = sum(check.fails for check in checks)
    if broken:
        console.print(Text(f"{broken} required checks failed.", style="bold red"))
    else:
        console.print(Text("Everything that is required works.", style="bold green"))


for _command in (
    demo,
    index,
    tree,
    vectors,
    privatize,
    decode,
    choose,
    epsilon,
    distance,
    explain,
    certify,
    audit,
    leaks,
    report,
    playground,
    warm,
    doctor,
):
    _trouble = 2 if _command in (certify, audit, doctor) else 1  # 1 is what they find
    app.command(cls=Command)(as_job(with_groups(_command), trouble=_trouble))


def main() -> None:
    """Run the command line."""
    import gc
    import signal

    def end(number: int, frame: object) -> None:
        # As an exception, so that a half-written file is removed on the way out.
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, end)
    try:
        app()
    finally:
        # The interpreter would look through all objects several times before it ends: a seventh of a short command.
        gc.freeze()
