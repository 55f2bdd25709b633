"""``textpriv synthesize``: files of private records in, one file of new records out."""

from __future__ import annotations

import contextlib
import math
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from textpriv.cli.messages import (
    SKIPPED,
    print_json,
    refuse_mixed,
    say,
    shown_progress,
    waiting,
    warn,
    warn_left_out,
)
from textpriv.cli.options import FORCE, INDEX, JSON, OptionGroup, RunningOptions, option, rare
from textpriv.errors import CorpusError, TextprivError

if TYPE_CHECKING:
    from textpriv.corpus.synthesis import Output, PrivateRecords
    from textpriv.synthesis.synthesizer import TextSynthesizer

_NO_LABELS = ("",)  # the one class of records without labels
_FEW = 1_000  # records of a class at epsilon 1, by the noisy count, below which texts are poor


class MeasureOptions(OptionGroup):
    """What is measured, and how well each record or author is protected."""

    epsilon: float | None = option(
        "--epsilon",
        "-e",
        help="Protection of one record, or of all records of one author. 1 is strong, 4 is weak.",
    )
    delta: float = option(default=1e-6, help="Chance beyond epsilon; far below 1 in all records.")
    text_column: str = option(default="text", help="Column that contains the text.")
    label_column: str | None = option(metavar="COLUMN", help="Column with each record's label.")
    labels: str | None = option(
        metavar="A,B,...", help="All labels that may occur. They are public."
    )
    author: str | None = option(
        metavar="COLUMN", help="Column with each record's author. Then authors are protected."
    )
    records_per_author: int = option(default=1, min=1, help="Records of one author that count.")
    ledger: Path | None = rare(help="File that counts what each author spends. Keep it secret.")
    author_rho_limit: float | None = rare(help="Largest loss of an author, in rho (zCDP).")
    new_words: float | None = rare(
        metavar="SHARE", help="Share of the budget that finds words outside the vocabulary: 0.1."
    )
    index: str | None = INDEX

    def classes(self) -> tuple[Any, ...]:
        """Return the declared labels; whole numbers where all of them are."""
        if (self.label_column is None) != (self.labels is None):
            raise typer.BadParameter(
                "name the column of labels and all labels: --label-column label --labels neg,pos"
            )
        if self.labels is None:
            return _NO_LABELS
        found = [each.strip() for each in self.labels.split(",")]
        if not all(found) or len(set(found)) < len(found):
            raise typer.BadParameter("--labels takes different names with commas between them")
        is_whole = all(each.isdecimal() and str(int(each)) == each for each in found)
        return tuple(map(int, found)) if is_whole else tuple(found)

    def columns(self, classes: tuple[Any, ...]) -> tuple[str, ...]:
        """Return the names of the columns of new records."""
        names = self.text_column, self.label_column or "label"
        return names[:1] if classes == _NO_LABELS else names

    def refuse_given(self) -> None:
        """Refuse what has no meaning where nothing is measured."""
        names = ("epsilon", "labels", "author", "ledger", "new_words")
        if given := [name for name in names if getattr(self, name) is not None]:
            raise typer.BadParameter(
                f"--from measures nothing: leave out --{given[0].replace('_', '-')}"
            )


class RecordOptions(RunningOptions):
    """How private records are read: fields of RunOptions."""

    on_error: Literal["fail", "skip"] = option(
        default="fail", help="At a bad record: stop, or leave it out."
    )


class DrawOptions(OptionGroup):
    """What is drawn from the measurement."""

    records: int | None = option(
        min=1, metavar="N", help="Number of new records. Default: about as many as there are."
    )
    model: Path | None = option(help="File that keeps the measurement, to draw more texts later.")
    from_: Path | None = option("--from", help="Draw from a kept measurement, at no cost.")
    report: Path | None = option(
        metavar="HTML", help="Page with the words that set each class apart."
    )
    seed: int | None = option(help="Makes the draws of texts repeatable, never the noise.")

    @property
    def others(self) -> list[Path]:
        """Files that are written beside the records."""
        return [each for each in (self.model, self.report) if each is not None]


def synthesize(
    source: list[str] | None = typer.Argument(
        None, metavar="[IN...]", help="Private records, as for privatize. None with --from."
    ),
    target: str = typer.Argument(
        metavar="OUT", help="One file of new records: .jsonl, .csv, .tsv, .txt or .parquet; or -."
    ),
    *,
    measuring: MeasureOptions,
    reading: RecordOptions,
    drawing: DrawOptions,
    force: bool = FORCE,
    as_json: bool = JSON,
) -> None:
    """Write new labelled texts that protect every record, or every author, as a whole.

    The records are measured once, with noise, and new records are drawn from the measurement. They have nothing else of the
    private records. A class needs many records, some thousands at epsilon 1.

    **Example:** textpriv synthesize reviews.jsonl synthetic.jsonl --epsilon 1 --label-column label --labels neg,pos
    """
    from textpriv.corpus.synthesis import Output, PrivateRecords, plan_synthesis
    from textpriv.synthesis.synthesizer import TextSynthesizer

    refuse_mixed(target, as_json)
    skipped: dict[str, int] = {}
    if drawing.from_ is not None:
        if source or drawing.model is not None:
            raise typer.BadParameter("--from reads no records and keeps no model: give OUT alone")
        measuring.refuse_given()
        synthesizer = TextSynthesizer.load(drawing.from_, index=measuring.index)
        output = Output(target, measuring.columns(synthesizer.noisy_.classes))
        output.check([drawing.from_], drawing.others, force)
        told = _written(synthesizer, output, drawing, drawing.seed)
    else:
        classes = measuring.classes()
        _refuse_unmeasurable(source or [], target, measuring, reading, drawing)
        plan = plan_synthesis(
            source or [],
            measuring.text_column,
            measuring.label_column,
            measuring.author,
            on_progress=shown_progress(as_json),
            **vars(reading),
        )
        if classes == _NO_LABELS and plan.format != "text":
            warn("no --label-column is given: the new records will have no labels")
        records = PrivateRecords(plan, classes)
        output = Output(target, measuring.columns(classes))
        with _measured(records, output, measuring, drawing, force) as (synthesizer, seed):
            told = _written(synthesizer, output, drawing, seed)
        skipped = records.skipped
    noisy = synthesizer.noisy_
    if as_json:
        print_json({**told, "statement": synthesizer.statement_.to_dict(), "seed": drawing.seed})
    else:
        kind = " without labels" if noisy.classes == _NO_LABELS else ""
        say(f"{target}: {told['records']:,} new records{kind}\n\n{synthesizer.statement_}")
    if noisy.rows.reshape(len(noisy.classes), -1).sum(axis=1).min() * noisy.epsilon < _FEW:
        warn("a class needs some thousands of records at epsilon 1, and one has far fewer")
    warn_left_out(skipped)
    if skipped:
        raise typer.Exit(SKIPPED)


def _refuse_unmeasurable(
    source: list[str],
    target: str,
    measuring: MeasureOptions,
    reading: RecordOptions,
    drawing: DrawOptions,
) -> None:
    """Refuse records from which nothing can be measured, and a protection that is missing or has no meaning."""
    from textpriv.corpus.stores import is_stream

    if not source:
        raise typer.BadParameter("give the private records and the output, or --from MODEL")
    if is_stream(target) and drawing.model is None:
        raise typer.BadParameter(
            "a killed run goes on from its measurement, which a stream has no place for: add --model FILE"
        )
    has_stream, is_here = any(map(is_stream, source)), reading.engine == "local"
    if has_stream and not is_here:
        raise typer.BadParameter("a stream is read here: leave out --engine, or name files")
    if measuring.new_words and (has_stream or not is_here):
        raise typer.BadParameter(
            "--new-words reads files twice, here: name files, without --engine"
        )
    if measuring.epsilon is None or not 0 < measuring.epsilon < math.inf:
        raise typer.BadParameter(
            "give --epsilon above 0: the protection of one record. It has no default; 1 is strong, 4 is weak"
        )
    if measuring.author is None and measuring.records_per_author != 1:
        raise typer.BadParameter("--records-per-author needs --author COLUMN")
    if measuring.author is None and measuring.ledger is not None:
        raise typer.BadParameter(
            "--ledger counts authors, since a record cannot be found again: add --author COLUMN"
        )
    if measuring.ledger is None and measuring.author_rho_limit is not None:
        raise typer.BadParameter("a limit needs a ledger: add --ledger FILE")


@contextlib.contextmanager
def _measured(
    records: PrivateRecords,
    output: Output,
    measuring: MeasureOptions,
    drawing: DrawOptions,
    force: bool,
) -> Iterator[tuple[TextSynthesizer, int]]:
    """Measure private records, or go on from what a killed run has measured; yield it with a seed for its draws.

    The sums are on the disk until the block has written its texts.
    """
    from textpriv.corpus.checkpoint import only_writer
    from textpriv.corpus.plan import beside
    from textpriv.corpus.stores import is_stream
    from textpriv.files import is_url, local_path
    from textpriv.index.builtin import ENGLISH
    from textpriv.synthesis.release import NoisySums
    from textpriv.synthesis.synthesizer import TextSynthesizer

    place = local_path(str(drawing.model) if is_stream(output.name) else output.name)
    sums, index = beside(place, "sums"), measuring.index or ENGLISH
    files = [file.path for file in records.plan.files]
    read = [each for each in files if not (is_stream(each) or is_url(each))]
    read += [] if measuring.ledger is None else [str(measuring.ledger)]
    with only_writer(place):
        output.check(read, drawing.others, force or sums.exists())
        try:
            notes = _measure_once(records, sums, index, measuring, force)
            synthesizer = TextSynthesizer.load(sums, index=index)
            synthesizer.statement_ = synthesizer.statement_.extended(notes=notes)
            if drawing.model is not None:
                synthesizer.save(drawing.model)
            # A killed run draws the same texts when it goes on.
            kept = int(NoisySums.read_file(sums)[1]["seed"])
            yield synthesizer, kept if drawing.seed is None else drawing.seed
        except (TextprivError, OSError, KeyboardInterrupt, SystemExit):
            if sums.exists():
                say(
                    f"The measurement is kept in {sums}: run the same command again to go on from it."
                )
            raise
        sums.unlink()


def _measure_once(
    records: PrivateRecords, sums: Path, index: str, measuring: MeasureOptions, force: bool
) -> list[str]:
    """Have the noisy sums on the disk, made only if no killed run left them; return notes on what was charged."""
    from textpriv.ledger import Ledger
    from textpriv.statement import at_most
    from textpriv.synthesis.release import Measurement, NoisySums
    from textpriv.synthesis.synthesizer import PublicSide

    side, path = PublicSide(index), measuring.ledger
    limit, share = measuring.author_rho_limit, measuring.new_words or 0.0
    ledger = None if path is None else Ledger(path, author_rho_limit=limit)
    authors = None if measuring.author is None else measuring.records_per_author
    space, epsilon, delta = side.space(records.classes, authors), measuring.epsilon, measuring.delta
    try:
        measurement = Measurement(space, epsilon or 0.0, delta, ledger=ledger, new_words=share)
    except ValueError as error:
        raise TextprivError(str(error)) from None
    charged = f"A ledger charged {at_most(measurement.author_rho)} rho (zCDP) to each author before any noise was drawn"
    notes = [] if ledger is None else [charged]
    job = {
        **records.known_by(),
        **vars(measuring),
        "bad records": records.plan.options.on_error,
        "ledger": ledger and ledger.mark.hex(),
        "index": side.fingerprint,
    }
    del job["author_rho_limit"]  # another limit changes nothing of the sums
    if sums.exists():
        before = NoisySums.read_file(sums)[1].get("job", {})
        changed = [name for name in {**before, **job} if before.get(name) != job.get(name)]
        if not changed:
            say("The measurement of the run that ended early is used. Nothing is measured again.")
            return notes
        if not force:
            raise CorpusError(
                f"{sums} has the measurement of a run that ended early, made otherwise (changed: {', '.join(changed[:5])}). "
                f"Draw from it with --from {sums}, or measure again with --force, which adds to the loss."
            )
    if force:
        warn("--force measures again. Earlier measurements of the same people add their loss.")
    noisy = records.measure(measurement, side)
    # Beside the sums is what the input is known by, so this file is private; the model that is kept is without.
    noisy.write(sums, vocabulary=side.fingerprint, job=job, seed=secrets.randbits(64))
    return notes


def _written(
    synthesizer: TextSynthesizer, output: Output, drawing: DrawOptions, seed: int | None
) -> dict[str, Any]:
    """Draw new records, write them and the report, and return what was written."""
    count = drawing.records or max(1, round(float(synthesizer.noisy_.rows.sum())))
    with waiting("drawing texts"):
        records = output.write(synthesizer.records(count, seed), synthesizer.statement_)
    told = {"output": output.name, "records": records}
    told["model"] = drawing.model and str(drawing.model)
    if drawing.report is not None:
        from textpriv.web.report import write_page
        from textpriv.web.words import words_page

        write_page(words_page(synthesizer, seed), drawing.report)
        told["report"] = str(drawing.report)
    return told
