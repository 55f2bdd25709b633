"""``textpriv privatize``: a run over a corpus, and what it prints when it is done."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from textpriv.cli.messages import SKIPPED, print_json, say, warn
from textpriv.cli.options import (
    COLUMN,
    FileFormat,
    Force,
    Json,
    Options,
    ReleaseOptions,
    flag,
    option,
    rare,
)
from textpriv.cli.progress import shown_progress, write_event
from textpriv.errors import TextprivError

if TYPE_CHECKING:
    from textpriv.corpus.report import CorpusReport
    from textpriv.run_key import RunKey
    from textpriv.statement import PrivacyStatement

_SHOWN = 8  # names of columns


class FileOptions(Options):
    """How the files are read, and which columns are copied."""

    text_column: list[str] | None = option(
        metavar="COLUMN", help="Column that contains the text (default: text). Repeat for several."
    )
    keep: list[str] | None = option(
        metavar="COLUMN", help="Copy only these other columns, unprotected; * and ? match."
    )
    drop: list[str] | None = option(
        metavar="COLUMN", help="Leave out these other columns; '*' leaves out all."
    )
    format: FileFormat = None
    on_error: Literal["fail", "skip", "quarantine"] = option(
        default="fail",
        help="At a bad record: stop, leave it out, or also keep it raw in OUT.quarantine.jsonl.",
    )
    null: Literal["keep", "fail", "empty"] = rare(
        default="keep", help="A null text stays null, is a bad record, or becomes an empty text."
    )
    on_new_column: Literal["fail", "keep"] = rare(
        default="fail",
        help="At a column that first appears after 1,000 records and that neither --keep nor --drop names.",
    )

    def arguments(self, detect: list[str] | None) -> dict[str, Any]:
        """Return fields of Release."""
        from textpriv.corpus import ColumnRule

        labels = [each.removeprefix(COLUMN) for each in detect or () if each.startswith(COLUMN)]
        if len(labels) > 1:
            raise typer.BadParameter("--detect column:NAME names one column: put all labels there")
        keep = None if self.keep is None else tuple(self.keep)
        return {
            "format": self.format,
            "text_column": self.text_column or ("text",),
            "on_error": self.on_error,
            "null": self.null,
            "columns": ColumnRule(keep, tuple(self.drop or ()), self.on_new_column),
            "labels_column": labels[0] if labels else None,
        }


class RunOptions(Options):
    """Where the work is done, and with which key."""

    workers: int = option(default=1, help="Processes that work at a time.", min=1)
    resume: bool = flag("--resume", "Continue a run that was interrupted.")
    engine: Literal["local", "spark", "ray"] = rare(default="local", help="Where the work is done.")
    address: str | None = rare("--address", "--master", help="Spark master or Ray cluster.")
    key: Path | None = rare(
        help="File of the run key, made if missing (default OUT.key), or env:NAME. It repeats the output, and can undo it."
    )
    forget_key: bool = flag("--forget-key", "Destroy the run key when all is done.")
    log_json: bool = flag(
        "--log-json", "Write what happens as lines of JSON on standard error.", hidden=True
    )
    seed: int | None = rare(help="Repeatable output, for experiments only: anyone can undo it.")

    def arguments(self) -> dict[str, Any]:
        """Return fields of Release."""
        if self.address is not None and self.engine == "local":
            raise typer.BadParameter("--address needs --engine spark or ray")
        names = ("workers", "engine", "address", "resume")
        return {name: getattr(self, name) for name in names}

    def open_key(self, source: str, target: str, ledger: Path | None) -> RunKey | None:
        """Open the run key. A stream has none; a ledger or a seed replaces it."""
        from textpriv.run_key import RunKey

        if ledger is not None or self.seed is not None or not can_resume(source, target):
            if self.key is not None or self.forget_key:
                name = "--forget-key" if self.forget_key else "--key"
                raise typer.BadParameter(f"{name}: a stream, --seed and --ledger have no run key")
            return None
        return RunKey.beside(target) if self.key is None else RunKey.open(self.key)


class AccountOptions(Options):
    """How documents and authors are named, and what the ledger counts."""

    ledger: Path | None = option(
        help="File that counts what each document spends, made if missing. As secret as the texts."
    )
    document: str | None = option(metavar="COLUMN", help="Column with each document's name.")
    author: str | None = rare(metavar="COLUMN", help="Column with each author's name.")
    document_limit: float | None = rare(help="Largest epsilon of a document under one index.")
    document_nats_limit: float | None = rare(help="Largest loss of a document, in nats.")
    document_rho_limit: float | None = rare(help="Largest loss of a document, in rho (zCDP).")
    author_limit: float | None = rare(help="Largest loss of an author, in nats.")
    author_rho_limit: float | None = rare(help="Largest loss of an author, in rho (zCDP).")

    def settings(self, seed: int | None, has_spans: bool) -> dict[str, Any]:
        """Return fields of PrivatizerSettings; refuse options that mean nothing without each other."""
        limits = {name: value for name, value in vars(self).items() if name.endswith("_limit")}
        given = [name for name, value in limits.items() if value is not None]
        if self.ledger is None:
            # Authors are also named for spans that are replaced the same way for a person.
            needless = [*given, *(["author"] if self.author and not has_spans else [])]
            if needless:
                option = needless[0].replace("_", "-")
                raise typer.BadParameter(f"--{option} needs a ledger: add --ledger FILE")
            return {}
        if self.document is None:
            raise typer.BadParameter("--ledger counts documents by name: add --document COLUMN")
        if self.author is None and any(name.startswith("author") for name in given):
            raise typer.BadParameter("limits of authors need --author COLUMN")
        if seed is not None:
            raise typer.BadParameter("--seed is for experiments, --ledger for releases. Use one")
        return {"ledger": str(self.ledger), "limits": {name: limits[name] for name in given}}


def privatize(
    source: Annotated[
        str,
        typer.Argument(
            metavar="IN",
            help=".jsonl, .csv, .tsv or .txt (a document a line), also with .gz; .parquet; a folder of them; a URL; "
            "or - for standard input.",
        ),
    ],
    target: Annotated[
        str,
        typer.Argument(
            metavar="OUT", help="File or folder of the same format; - is standard output."
        ),
    ],
    *,
    release: ReleaseOptions,
    files: FileOptions,
    run: RunOptions,
    account: AccountOptions,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Replace every word of the texts by a private one.

    OUT appears when all is done, or not at all. The last lines say what is guaranteed, and what is not.
    Ends with 0 if done, 1 if it failed, 2 for wrong usage, 3 if records were left out.

    [bold]Example:[/bold] textpriv privatize reviews.csv private.csv --epsilon 3 --text-column review
    """
    from textpriv.corpus import STANDARD_STREAM, Release, check_corpus, privatize_corpus

    if as_json and target == STANDARD_STREAM:
        raise typer.BadParameter("--json and the texts cannot share standard output: name a file")
    counted = account.settings(run.seed, release.detect is not None)
    settings = release.release(labels=True, seed=run.seed, **counted)
    key = run.open_key(source, target, account.ledger)
    if key is not None:
        settings = replace(settings, run_key=key.secret)
    has_events = as_json or run.log_json
    options = Release(
        **files.arguments(release.detect),
        **run.arguments(),
        document_column=account.document,
        author_column=account.author,
        settings=settings,
        key=key,
        overwrite=force,
        on_progress=shown_progress(has_events),
        on_unprotected=lambda names: _warn_unprotected(names, has_events),
    )
    # The ledger is made by being opened, so all else is checked before.
    check_corpus(
        source, target, options, ledger=account.ledger, read=filter(None, [release.policy])
    )
    privatizer = settings.build()
    with _telling_of_failures(target, run.log_json):
        report = privatize_corpus(source, target, privatizer, options)
    if run.forget_key and key is not None:
        key.forget()
    statement = report.stated(privatizer.statement)
    kept = None if key is None or run.forget_key else key.path
    told: dict[str, Any] = {
        "output": target,
        "report": report.to_dict(),
        "statement": statement.to_dict(),
    }
    told |= {"seed": run.seed, "key": None if kept is None else str(kept)}
    if run.log_json:
        write_event("done", **told)
    if as_json:
        print_json(told)
    elif not run.log_json:
        _print_report(report, statement, target, run.seed)
        if kept is not None:
            warn(
                f"the run key is in {kept}. It can repeat this release, and undo it. Keep it as secret as the texts, or "
                "destroy it with --forget-key."
            )
        elif key is not None and key.path is not None:
            say(f"The run key {key.path} was destroyed. This release cannot be repeated or undone.")
    if report.skipped:
        raise typer.Exit(SKIPPED)


def can_resume(source: str, target: str) -> bool:
    """Whether a run can be continued: both ends are files."""
    from textpriv.corpus.records import is_stream

    return not (is_stream(source) or is_stream(target))


@contextlib.contextmanager
def _telling_of_failures(target: str, log_json: bool) -> Iterator[None]:
    """Say how to go on if a run fails that can be continued."""
    from textpriv.corpus.folder import unfinished
    from textpriv.files import local_path

    try:
        yield
    except (TextprivError, OSError, KeyboardInterrupt, SystemExit) as error:
        if log_json:
            write_event("failed", kind=type(error).__name__, error=str(error))
        if (left := unfinished(local_path(target))) is not None:
            say(f"What was done is kept in {left}: continue with --resume.")
        raise


def _warn_unprotected(columns: tuple[str, ...], as_json: bool) -> None:
    if as_json:
        write_event("unprotected", columns=list(columns))
        return
    shown = ", ".join(columns[:_SHOWN]) + (", ..." if len(columns) > _SHOWN else "")
    warn(f"only the text is made private; copied as they are: {shown}")


def _print_report(
    report: CorpusReport, statement: PrivacyStatement, target: str, seed: int | None
) -> None:
    """Say on standard error what was done, and what it guarantees."""
    tokens = sum(report.tokens.values())
    speed = ""
    if report.seconds > 0 and not report.resumed:  # the seconds are those of this run
        speed = f" ({tokens / report.seconds:,.0f} tokens per second)"
    where = "standard output" if target == "-" else target
    documents = f"{report.documents:,} document{'' if report.documents == 1 else 's'}"
    say(f"{where}: {documents}, {tokens:,} tokens, {report.seconds:.1f} s{speed}")
    if report.skipped:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in report.skipped.items())
        warn(f"left out: {reasons}")
    if report.unmatched:
        warn(f"no column matches --drop or --keep {', '.join(report.unmatched)}")
    if report.quarantine is not None:
        warn(f"bad records are kept, as raw text, in {report.quarantine}")
    if report.resumed:
        say(f"{report.resumed:,} of them were done by the run before.")
    if seed is not None:
        warn(
            "made with --seed, for experiments only. Anyone who knows the seed can undo it. Do not release this output."
        )
    say(f"\n{statement}")
