"""``textpriv privatize``: the options of a run over a corpus, and what it says when it is done.

The run itself is the matter of ``corpus``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import typer

from textpriv.cli.messages import console, print_json, say, warn
from textpriv.cli.options import FileFormat, ForceFile, Json, ReleaseOptions
from textpriv.errors import TextprivError

if TYPE_CHECKING:
    from textpriv.corpus.report import CorpusReport
    from textpriv.run_key import RunKey
    from textpriv.statement import PrivacyStatement

__all__ = ["privatize"]

_COLUMN = "column:"
_DETECT = (
    "Find names, dates, numbers and the like by patterns, presidio, or spacy:PIPELINE (spacy alone: the small pipeline of "
    "the language)"
)
_REPEAT = "Repeat for several. What is not found is drawn word by word."


@dataclass(frozen=True, kw_only=True)
class FileOptions:
    """How the files are read, and which columns are passed on."""

    text_column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Field or column that holds the text; repeat for several. Others are not protected. Default: text.",
        ),
    ] = None
    format: Annotated[
        FileFormat | None,
        typer.Option(
            help="Format of IN and OUT, where their names do not say. With - at both ends: text."
        ),
    ] = None
    on_error: Annotated[
        Literal["fail", "skip", "quarantine"],
        typer.Option(
            help="At a bad record: stop, leave it out and count it, or also set it aside in "
            "OUT.quarantine.jsonl (raw text, readable by you alone)."
        ),
    ] = "fail"
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Pass on only these other columns; * and ? match. Repeat for several.",
        ),
    ] = None
    drop: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Leave out these other columns; --drop '*' leaves the text alone.",
        ),
    ] = None

    def arguments(self) -> dict[str, Any]:
        """Return arguments of privatize_corpus."""
        from textpriv.corpus import ColumnRule

        keep = None if self.keep is None else tuple(self.keep)
        return {
            "format": self.format,
            "text_column": self.text_column or ("text",),
            "on_error": self.on_error,
            "columns": ColumnRule(keep, tuple(self.drop or ())),
        }


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Where the work is done, and under which key."""

    panel: ClassVar[str] = "Run"

    engine: Annotated[
        Literal["local", "spark", "ray"], typer.Option(help="Where the work is done.")
    ] = "local"
    address: Annotated[
        str | None,
        typer.Option(
            "--address",
            "--master",
            help="Spark master or Ray cluster; without one, an engine of this machine is started.",
        ),
    ] = None
    workers: Annotated[int, typer.Option(help="Processes that work at a time.", min=1)] = 1
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Continue a run that was cut short; needs its key. Begins one if there is none.",
        ),
    ] = False
    key: Annotated[
        Path | None,
        typer.Option(
            "--key",
            help="File of the run key, made if missing (default OUT.key). The same documents come out "
            "the same under the same key; whoever has it can undo the protection.",
        ),
    ] = None
    forget_key: Annotated[
        bool, typer.Option("--forget-key", help="Destroy the run key when all is done.")
    ] = False
    batch_size: Annotated[
        int, typer.Option(help="Documents at a time. The output does not depend on it.", min=1)
    ] = 500
    seed: Annotated[
        int | None,
        typer.Option(
            help="Repeatable output, for experiments only: whoever knows the seed can undo it."
        ),
    ] = None

    def check(self) -> None:
        """Refuse an address that nothing would use."""
        if self.address is not None and self.engine == "local":
            raise typer.BadParameter(
                "--address belongs to --engine spark or ray: add it, or leave it out"
            )

    def arguments(self) -> dict[str, Any]:
        """Return arguments of privatize_corpus."""
        return {
            "batch_size": self.batch_size,
            "workers": self.workers,
            "engine": self.engine,
            "address": self.address,
        }

    def open_key(self, source: str, target: str, ledger: Path | None) -> RunKey | None:
        """Open the key of a run that has one: a stream is never resumed, a ledger keeps keys, and a seed is one."""
        from textpriv.run_key import RunKey

        if ledger is not None or self.seed is not None or not can_resume(source, target):
            if self.key is not None:
                raise typer.BadParameter("--key: a stream, --seed and --ledger have no run key")
            if self.forget_key:
                raise typer.BadParameter(
                    "--forget-key: a stream, --seed and --ledger have no run key"
                )
            return None
        return RunKey.beside(target) if self.key is None else RunKey.open(self.key)


@dataclass(frozen=True, kw_only=True)
class SpanOptions:
    """What finds typed spans, and which law each kind goes to."""

    panel: ClassVar[str] = "Spans"

    detect: Annotated[
        list[str] | None,
        typer.Option(metavar="DETECTOR", help=f"{_DETECT}. {_REPEAT}"),
    ] = None
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="POLICY",
            help="What becomes of each kind that is found: notes, tickets, chat, or a TOML file.",
        ),
    ] = None

    @property
    def _columns(self) -> list[str]:
        return [each[len(_COLUMN) :] for each in self.detect or () if each.startswith(_COLUMN)]

    def settings(self) -> dict[str, Any]:
        """Return the fields of PrivatizerSettings, whose spans detectors alone find."""
        if self._columns:
            raise typer.BadParameter(
                "--detect column:NAME is for privatize: here detectors alone find spans"
            )
        return self._settings()

    def _settings(self) -> dict[str, Any]:
        if self.detect is None and self.policy is None:
            return {}
        if self.detect is None or self.policy is None:
            raise typer.BadParameter(
                "--detect finds spans and --policy says what becomes of them: give both"
            )
        from textpriv.spans.policy import SpanPolicy

        policy = SpanPolicy.of(self.policy)
        detectors = (each for each in self.detect if not each.startswith(_COLUMN))
        return {"spans": policy.to_dict(), "detect": tuple(detectors)}


@dataclass(frozen=True, kw_only=True)
class FileSpanOptions(SpanOptions):
    """The same where records may bring spans of their own, and a file can say where all went."""

    detect: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DETECTOR",
            help=f"{_DETECT}, or take them from column:NAME, a JSON list of objects with start, end and label. {_REPEAT}",
        ),
    ] = None
    offsets: Annotated[
        Path | None,
        typer.Option(
            help="File that says where each span stood and where it stands now, to carry annotations over. As secret as "
            "the texts: for you alone."
        ),
    ] = None

    def arguments(self) -> dict[str, Any]:
        """Return arguments of privatize_corpus."""
        return {"labels_column": next(iter(self._columns), None), "offsets": self.offsets}

    def settings(self) -> dict[str, Any]:
        """Return the fields of PrivatizerSettings."""
        if len(self._columns) > 1:
            raise typer.BadParameter("--detect column:NAME names one column: put all labels there")
        if self.offsets is not None and self.detect is None and self.policy is None:
            raise typer.BadParameter("--offsets are those of spans: add --detect and --policy")
        read = None if self.policy is None else Path(self.policy).resolve()
        if self.offsets is not None and self.offsets.resolve() == read:
            raise typer.BadParameter(
                "--offsets would be written over the --policy: name another file"
            )
        return self._settings()


@dataclass(frozen=True, kw_only=True)
class AccountOptions:
    """What the ledger counts, and where it stops."""

    panel: ClassVar[str] = "Account"

    ledger: Annotated[
        Path | None,
        typer.Option(
            help="File that counts what each document spends, made if missing. A document that was "
            "released before is released the same way and costs nothing. As secret as the texts."
        ),
    ] = None
    document: Annotated[
        str | None,
        typer.Option(
            help="Field or column with the name of each document, by which it is known again "
            "wherever it stands; otherwise it is known by its own text."
        ),
    ] = None
    author: Annotated[
        str | None, typer.Option(help="Field or column with the name of each document's author.")
    ] = None
    document_limit: Annotated[
        float | None,
        typer.Option(
            metavar="EPSILON",
            help="Stop before a document's releases under one index pass this epsilon in all, per unit of "
            "its distance. Another index begins anew: see --document-nats-limit.",
        ),
    ] = None
    document_nats_limit: Annotated[
        float | None,
        typer.Option(
            metavar="NATS",
            help="Stop before a document's releases under all indexes pass this worst-case loss in all.",
        ),
    ] = None
    author_limit: Annotated[
        float | None,
        typer.Option(
            metavar="NATS",
            help="Stop before an author's documents pass this worst-case loss in all.",
        ),
    ] = None
    document_rho_limit: Annotated[
        float | None,
        typer.Option(
            metavar="RHO",
            help="Stop before a document's releases under all indexes pass this rho of zCDP, which many words spend "
            "more slowly than nats.",
        ),
    ] = None
    author_rho_limit: Annotated[
        float | None,
        typer.Option(
            metavar="RHO", help="Stop before an author's documents pass this rho of zCDP in all."
        ),
    ] = None

    @property
    def limits(self) -> dict[str, float | None]:
        """The limits, by the names of PrivatizerSettings."""
        names = [each.name for each in fields(self) if each.name.endswith("_limit")]
        return {name: getattr(self, name) for name in names}

    def check(self, seed: int | None, has_spans: bool) -> None:
        """Refuse options that mean nothing without each other."""
        if self.ledger is None:
            # A column of names also names documents under a run key, and authors for laws of spans.
            for name in (*(("author",) if not has_spans else ()), *self.limits):
                if getattr(self, name) is not None:
                    raise typer.BadParameter(
                        f"--{name.replace('_', '-')} needs a ledger to count in: add --ledger FILE"
                    )
            return
        if self.document is None:
            raise typer.BadParameter(
                "--ledger needs --document COLUMN: it counts documents by name"
            )
        for name in ("author_limit", "author_rho_limit"):
            if getattr(self, name) is not None and self.author is None:
                option = f"--{name.replace('_', '-')}"
                raise typer.BadParameter(f"{option} counts by author: add --author COLUMN")
        if seed is not None:
            raise typer.BadParameter(
                "--seed is for experiments, and --ledger for releases: use one"
            )

    def arguments(self) -> dict[str, Any]:
        """Return arguments of privatize_corpus."""
        return {"document_column": self.document, "author_column": self.author}

    def settings(self) -> dict[str, Any]:
        """Return the fields of PrivatizerSettings."""
        return {"ledger": None if self.ledger is None else str(self.ledger), **self.limits}


Source = Annotated[
    str,
    typer.Argument(
        metavar="IN",
        help="Texts: .jsonl, .csv, .tsv or .txt (a document a line), perhaps with .gz or .zst after "
        "it, or .parquet; a folder of such files, also at a URL such as s3://bucket/raw; - is standard input.",
    ),
]
Target = Annotated[
    str,
    typer.Argument(
        metavar="OUT",
        help="File to write, of the same format, or folder to make, also at a URL; - is standard output.",
    ),
]


def privatize(
    source: Source,
    target: Target,
    *,
    release: ReleaseOptions,
    files: FileOptions,
    spans: FileSpanOptions,
    run: RunOptions,
    account: AccountOptions,
    force: ForceFile = False,
    as_json: Json = False,
) -> None:
    """Replace every word of the texts by a private one.

    OUT appears when all is done, or not at all; a run that was cut short goes on with --resume. A file that is there stays,
    unless its run key is beside it. The last lines say in plain words what is guaranteed, and what is not.

    [bold]Example:[/bold] textpriv privatize reviews.csv private.csv --epsilon 3 --text-column review
    """
    from textpriv.cli.progress import shown_progress, write_event
    from textpriv.corpus import STANDARD_STREAM, privatize_corpus
    from textpriv.corpus.job import check_files, files_of, planned

    if as_json and target == STANDARD_STREAM:
        raise typer.BadParameter(
            "with --json the texts cannot go to standard output, too: name a file"
        )
    typed = spans.settings()
    account.check(run.seed, bool(typed))
    run.check()
    settings = release.settings(seed=run.seed, **typed, **account.settings())
    run_key = run.open_key(source, target, account.ledger)
    if run_key is not None:
        settings = replace(settings, run_key=run_key.secret)
    arguments = {**files.arguments(), **spans.arguments(), **account.arguments()}
    check_files(  # before a ledger is made, which it is by being opened
        planned(source, target, **arguments),
        target,
        key=run_key,
        ledger=account.ledger,
        read=[*files_of(settings.index, settings), *filter(None, [spans.policy])],
        offsets=spans.offsets,
        resume=run.resume,
        overwrite=force,
    )
    privatizer = settings.build()
    with _saying_what_is_left(target), shown_progress(console(), as_json) as advance:
        report = privatize_corpus(
            source,
            target,
            privatizer,
            **arguments,
            **run.arguments(),
            settings=settings,
            key=run_key,
            resume=run.resume or (False if can_resume(source, target) else None),
            overwrite=force,
            on_progress=advance,
            on_unprotected=_warn_unprotected
            if not as_json
            else lambda columns: write_event("unprotected", columns=list(columns)),
        )
    if run.forget_key and run_key is not None:
        run_key.forget()
    kept = None if run_key is None or run.forget_key else run_key.path
    if as_json:
        print_json(
            {
                "output": target,
                "report": report.to_dict(),
                "statement": report.stated(privatizer.statement).to_dict(),
                "seed": run.seed,
                "key": None if kept is None else str(kept),
            }
        )
        return
    _print_report(report, report.stated(privatizer.statement), target, run.seed)
    if run_key is not None:
        _print_key(run_key.path, run.forget_key)


def can_resume(source: str, target: str) -> bool:
    """Whether a run can be continued: both ends are files."""
    from textpriv.corpus.records import is_stream

    return not (is_stream(source) or is_stream(target))


@contextlib.contextmanager
def _saying_what_is_left(target: str) -> Iterator[None]:
    """Say how to go on where a run fails that can be continued."""
    from textpriv.corpus.checkpoint import Checkpoint, checkpoint_path, is_being_written
    from textpriv.stores import local_path

    try:
        yield
    except (TextprivError, OSError, KeyboardInterrupt, SystemExit):
        final = local_path(target)
        left = checkpoint_path(final, resumable=True)
        if Checkpoint.is_run(left) and not is_being_written(final):
            say(f"What was done is kept in {left}: go on with --resume.")
        raise


def _print_key(path: Path, forgotten: bool) -> None:
    if forgotten:
        say(f"The run key {path} was destroyed: this release can be neither repeated nor undone.")
        return
    warn(
        f"the run key is in {path}: with it this release can be repeated, and undone. Keep it as secret as the texts, "
        "or destroy it with --forget-key."
    )


def _warn_unprotected(columns: tuple[str, ...]) -> None:
    shown = ", ".join(columns[:8]) + (", ..." if len(columns) > 8 else "")
    warn(f"only the text is made private; copied as they are: {shown}")


def _print_report(
    report: CorpusReport, statement: PrivacyStatement, target: str, seed: int | None
) -> None:
    """Say on standard error what was done, and what it guarantees."""
    tokens = sum(report.tokens.values())
    speed = ""
    if report.seconds > 0 and not report.resumed:  # else some were made in another time
        speed = f" ({tokens / report.seconds:,.0f} tokens per second)"
    where = "standard output" if target == "-" else target
    documents = "1 document" if report.documents == 1 else f"{report.documents:,} documents"
    say(f"{where}: {documents}, {tokens:,} tokens, {report.seconds:.1f} s{speed}")
    if report.skipped:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in report.skipped.items())
        warn(f"left out: {reasons}")
    if report.unmatched:
        warn(f"no other column was found for --drop or --keep: {', '.join(report.unmatched)}")
    if report.quarantine is not None:
        warn(f"set aside, as raw text: {report.quarantine}")
    if report.resumed:
        say(f"{report.resumed:,} of them were done by the run before")
    if seed is not None:
        warn(
            "made with --seed, for experiments only: whoever knows the seed can undo it. "
            "Do not release this output."
        )
    say("\n" + statement.paragraph())
