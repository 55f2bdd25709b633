"""``textpriv privatize`` and ``textpriv decode``: files of texts in, files of private texts or of guesses out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from textpriv.cli.messages import (
    SKIPPED,
    events,
    print_json,
    quiet,
    refuse_mixed,
    say,
    shown_progress,
    waiting,
    warn,
    warn_left_out,
    write_event,
)
from textpriv.cli.options import (
    COLUMN,
    FORCE,
    FORMAT,
    JSON,
    TEXT_COLUMN,
    OptionGroup,
    ReleaseOptions,
    RunningOptions,
    flag,
    option,
    public_texts,
    rare,
)
from textpriv.errors import CorpusError, TextprivError
from textpriv.files import is_url, local_path

if TYPE_CHECKING:
    from textpriv.corpus.report import CorpusReport
    from textpriv.mechanisms.base import Mechanism
    from textpriv.run_key import RunKey
    from textpriv.statement import PrivacyStatement

_SOURCE = typer.Argument(
    metavar="IN",
    help=".jsonl, .csv, .tsv or .txt (a document a line), also .gz, .bz2 or .zst; .parquet; a folder; a URL; - for input.",
)
_SOURCES = typer.Argument(metavar="IN...", help=f"{_SOURCE.help} Several files make a folder.")
_SAMPLED = 128  # words of a sample that estimates how many stay
_MOST = 0.5  # share of words that stay or are recovered, above which a run warns
_DECODED = 50  # documents between two reports of progress
_DOCUMENT_LIMITS = "document_limit", "document_nats_limit", "document_rho_limit"
_AUTHOR_LIMITS = "author_limit", "author_rho_limit"

_TARGET = typer.Argument(metavar="OUT", help="File or folder of the same format, or - for output.")


class CorpusOptions(RunningOptions):
    """How records are read, and how a run goes on: fields of RunOptions."""

    on_error: Literal["fail", "skip", "quarantine"] = option(
        default="fail",
        help="At a bad record: stop, leave it out, or also keep it raw in OUT.quarantine.jsonl.",
    )
    resume: bool = flag("--resume", "Continue a run that was interrupted.")
    rotates: bool = flag("--rotates", "Finished shards may be gone from the input.", hidden=True)


class ColumnOptions(OptionGroup):
    """What the columns hold, and which are copied."""

    text_column: list[str] | None = option(
        metavar="COLUMN", help="Column that contains the text (default: text). Repeat for several."
    )
    keep: list[str] | None = option(
        metavar="COLUMN", help="Copy only these other columns, unprotected; * and ? match."
    )
    drop: list[str] | None = option(
        metavar="COLUMN", help="Leave out these other columns; '*' leaves out all."
    )
    document: str | None = option(metavar="COLUMN", help="Column with each document's name.")
    author: str | None = rare(metavar="COLUMN", help="Column with each author's name.")

    def fields(self, detect: list[str] | None) -> dict[str, Any]:
        """Return fields of RunOptions."""
        from textpriv.corpus import ColumnRule

        spans = [each.removeprefix(COLUMN) for each in detect or () if each.startswith(COLUMN)]
        if len(spans) > 1:
            raise typer.BadParameter("--detect column:NAME names one column: put all labels there")
        keep = None if self.keep is None else tuple(self.keep)
        return {
            "text_column": self.text_column or ("text",),
            "document_column": self.document,
            "author_column": self.author,
            "labels_column": spans[0] if spans else None,
            "columns": ColumnRule(keep, tuple(self.drop or ())),
        }


class AccountOptions(OptionGroup):
    """From which secret the draws follow, and what the ledger counts."""

    key: Path | None = rare(
        help="File of the run key, made if missing (default OUT.key), or env:NAME. With the key, anyone can undo the output."
    )
    forget_key: bool = flag("--forget-key", "Destroy the run key when the run is complete.")
    seed: int | None = rare(help="Repeatable output that anyone can undo: for experiments only.")
    ledger: Path | None = option(help="File that counts what each document spends. Keep it secret.")
    document_limit: float | None = rare(help="Largest epsilon of a document under one index.")
    document_nats_limit: float | None = rare(help="Largest loss of a document, in nats.")
    document_rho_limit: float | None = rare(help="Largest loss of a document, in rho (zCDP).")
    author_limit: float | None = rare(help="Largest loss of an author, in nats.")
    author_rho_limit: float | None = rare(help="Largest loss of an author, in rho (zCDP).")

    def open_key(self, ends: list[str]) -> RunKey | None:
        """Open the run key. A stream has none; a ledger or a seed replaces it."""
        from textpriv.corpus.stores import is_stream
        from textpriv.run_key import RunKey

        if self.seed is not None or self.ledger is not None or any(map(is_stream, ends)):
            if self.key is not None or self.forget_key:
                raise typer.BadParameter(
                    "a stream and --seed have no run key, and --ledger keeps one of its own for each document. Leave out "
                    "--key and --forget-key"
                )
            return None
        return RunKey.beside(ends[-1]) if self.key is None else RunKey.open(self.key)

    def ledger_fields(self, columns: ColumnOptions) -> dict[str, Any]:
        """Return fields of PrivatizerSettings; refuse a limit that would not be kept."""
        given = {name: getattr(self, name) for name in (*_DOCUMENT_LIMITS, *_AUTHOR_LIMITS)}
        limits = {name: limit for name, limit in given.items() if limit is not None}
        if self.ledger is None:
            if limits:
                raise typer.BadParameter("a limit needs a ledger: add --ledger FILE")
            return {}
        if columns.document is None:
            raise typer.BadParameter("--ledger counts documents by name: add --document COLUMN")
        if columns.author is None and not limits.keys().isdisjoint(_AUTHOR_LIMITS):
            raise typer.BadParameter("limits of authors need --author COLUMN")
        if self.seed is not None:
            raise typer.BadParameter("--seed is for experiments, --ledger for releases. Use one")
        return {"ledger": str(self.ledger), "limits": limits}


class OutputOptions(OptionGroup):
    """What is written, and what is said."""

    force: bool = FORCE
    as_json: bool = JSON
    log_json: bool = flag("--log-json", "Write messages as lines of JSON.", hidden=True)
    quiet: bool = flag("--quiet", "Write only warnings and errors.", hidden=True)


def privatize(
    source: list[str] = _SOURCES,
    target: str = _TARGET,
    *,
    release: ReleaseOptions,
    columns: ColumnOptions,
    run: CorpusOptions,
    account: AccountOptions,
    output: OutputOptions,
) -> None:
    """Redraw every word of the texts at random; some come out unchanged.

    You get the complete output or none. The last lines say what is guaranteed, and what is not.
    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 done but records were left out.

    **Example:** textpriv privatize reviews.csv private.csv --recovery 0.1 --text-column review
    """
    from textpriv.corpus import RunOptions, check_corpus, run_corpus
    from textpriv.corpus.checkpoint import Checkpoint

    refuse_mixed(target, output.as_json)
    release.refuse_private(source)
    events.set(output.log_json)
    quiet.set(output.quiet)
    key, more = account.open_key([*source, target]), account.ledger_fields(columns)
    if key is not None:
        more["run_key"] = key.secret
    has_events = output.as_json or output.log_json
    settings = release.privatizer_settings(labels=True, seed=account.seed, **more)
    options = RunOptions(
        **vars(run),
        **columns.fields(release.detect),
        settings=settings,
        key=key,
        overwrite=output.force,
        on_progress=None if output.quiet else shown_progress(has_events),
        on_unprotected=lambda names: _warn_unprotected(names, has_events),
    )
    # The ledger is made by being opened, so all else is checked before.
    plan = check_corpus(source, target, options, release.read)
    privatizer = settings.build(release.opened)
    try:
        report = run_corpus(plan, privatizer)
    except (TextprivError, OSError, KeyboardInterrupt, SystemExit) as error:
        left = Checkpoint(Path(f"{local_path(target)}.partial"))
        if left.begun[0] and "--resume" not in str(error):  # else the error says so
            say(f"What was done is kept in {left.path}: continue with --resume.")
        raise
    _tell_stay(privatizer.mechanism, release.recovery is None and not has_events)
    if not (report.documents or report.skipped or output.as_json):
        warn("the input has no records, so the output has none")
    if account.forget_key and key is not None:
        key.forget()
    _print_done(report, report.stated(privatizer.statement), target, key, account, output)
    if report.skipped:
        raise typer.Exit(SKIPPED)


def _warn_unprotected(columns: tuple[str, ...], as_json: bool) -> None:
    if as_json:
        write_event("unprotected", columns=list(columns))
        return
    warn(f"only the text is made private. These columns are copied unchanged: {', '.join(columns)}")


def _tell_stay(mechanism: Mechanism, is_asked: bool) -> None:
    """Say how many content words stay as they are, if asked; warn if it is most: no bound of a statement says so."""
    from textpriv.guarantees.epsilon import keep_share

    try:
        share = keep_share(mechanism, _SAMPLED, of="content")[0]
    except TextprivError:  # no output distribution, or no content words
        return
    if share > _MOST:
        warn(
            f"at this epsilon some {share:.0%} of content words stay as they are, and so do names: most of the text can be "
            "read. Choose a smaller epsilon, or --recovery 0.1."
        )
    elif is_asked:
        say(
            f"At this epsilon some {share:.0%} of content words stay as they are, so attackers recover at least as many."
        )


def _print_done(
    report: CorpusReport,
    statement: PrivacyStatement,
    target: str,
    key: RunKey | None,
    account: AccountOptions,
    output: OutputOptions,
) -> None:
    """Print what was made, and what is guaranteed."""
    kept = None if key is None or account.forget_key else key.path
    told: dict[str, Any] = {"output": target, "report": report.to_dict()}
    told |= {"statement": statement.to_dict(), "seed": account.seed, "key": kept and str(kept)}
    if output.log_json:
        write_event("done", **told)
    if output.as_json:
        print_json(told)
    if output.as_json or output.log_json:
        return
    documents = "1 document" if report.documents == 1 else f"{report.documents:,} documents"
    say(f"{target}: {documents}, {sum(report.tokens.values()):,} tokens, {report.seconds:.1f} s")
    warn_left_out(report.skipped)
    if report.refused:
        warn(f"over a limit of the ledger: {'; '.join(report.refused)}")
    if report.quarantine is not None:
        warn(f"bad records are kept, as raw text, in {report.quarantine}")
    if report.resumed:
        say(f"{report.resumed:,} of them were done by the earlier run.")
    if account.seed is not None:
        warn(
            "made with --seed, for experiments only: anyone can undo the protection. Do not release this."
        )
    say(f"\n{statement}")
    if kept is not None and kept.exists():
        warn(
            f"the run key is in {kept}. Anyone with the key and the output can undo the protection. Keep the key as "
            "secret as the texts, or destroy it with --forget-key."
        )
    elif key is not None and key.path is not None:
        say(
            f"The run key {key.path} was destroyed: without a copy of it nobody can repeat this release. Words can "
            "still be guessed from the output: the statement above bounds what each one gives away."
        )


class ReadingOptions(OptionGroup):
    """With which public model the words are guessed."""

    model: Path | None = option(
        help="Public language model (ARPA file). Default: that of the index, else general English."
    )
    public: str | None = option(
        metavar="FILE",
        help="Instead of a model: public texts like yours. A model is counted in them and tried on them.",
    )


def decode(
    source: str = _SOURCE,
    target: str = _TARGET,
    *,
    release: ReleaseOptions,
    reading: ReadingOptions,
    text_column: str = TEXT_COLUMN,
    format: str | None = FORMAT,
    force: bool = FORCE,
    as_json: bool = JSON,
) -> None:
    """Rewrite private texts as fluent guesses, for people to read. The guarantee stays the same.

    Use the settings that made the texts private. Every written text begins with [decoded]. The last lines
    say how often decoding recovers the original.

    **Example:** textpriv decode private.csv readable.csv --epsilon 2 --text-column review
    """
    from textpriv.corpus import RunOptions, check_corpus, files_of, rewrite_file
    from textpriv.evaluation.best_attacker import PublicText, sampled_text, text_of
    from textpriv.evaluation.decoding import Decoder, expected_recovery
    from textpriv.language.arpa import read_arpa

    refuse_mixed(target, as_json)
    settings = release.privatizer_settings()
    options = RunOptions(
        text_column=text_column, format=format, overwrite=force, batch_size=_DECODED
    )
    read = [reading.model, reading.public, *release.read, *files_of(settings)]
    plan = check_corpus(source, target, options, read=filter(None, read))
    if plan.is_folder or is_url(target):
        raise CorpusError("decode reads one file, and writes one of this machine. Name a file.")
    privatizer = settings.build(release.opened)
    index, origin = privatizer.mechanism.index, "sampled from the language model (no real text)"
    if (texts := public_texts(reading.public, text_column)) is not None:
        tried, origin = PublicText.read(texts, index), "of public text"
    elif reading.model is not None:
        tried = sampled_text(read_arpa(reading.model, index.vocabulary.words))
    else:
        tried = text_of(index)
    with waiting("weighing originals of each word"):
        decoder = Decoder(privatizer, tried.model)
        ids = tried.ids.clip(-1)  # marks are no words
        recovery = expected_recovery(decoder, ids, tried.offsets)
    documents, columns = rewrite_file(plan, decoder.texts, shown_progress(as_json))
    statement = decoder.statement.with_columns(columns)
    if as_json:
        measured = {**recovery._asdict(), "measured_on": f"words {origin}"}
        told = {"output": target, "documents": documents, "recovery": measured}
        print_json({**told, "statement": statement.to_dict()})
        return
    say(
        f"{target}: {documents:,} decoded documents. Decoding recovers {recovery.content_restored:.1%} of content words. "
        f"Of all {recovery.words:,} words {origin}, function words too, {recovery.kept:.1%} stay as they are, and decoding "
        f"recovers {recovery.restored:.1%}."
    )
    if recovery.content_restored > _MOST:
        warn("with these settings decoding recovers most content words")
    say(f"\n{statement}")
