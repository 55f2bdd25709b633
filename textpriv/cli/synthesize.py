"""``textpriv synthesize``: files of private records in, one file of new records out."""

from __future__ import annotations

import math
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from textpriv.cli.messages import SKIPPED, print_json, say, shown_progress, waiting, warn
from textpriv.cli.options import FORCE, FORMAT, INDEX, JSON, OptionGroup, option, rare
from textpriv.errors import TextprivError

if TYPE_CHECKING:
    from textpriv.corpus.plan import Plan
    from textpriv.corpus.synthesis import Output, PrivateRecords
    from textpriv.ledger import Ledger
    from textpriv.synthesis.synthesizer import TextSynthesizer

_TEXT, _LABEL = "text", "label"
_FEW = 1_000  # records of a class at epsilon 1, by the noisy count, below which texts are poor


class MeasureOptions(OptionGroup):
    """What is measured, and how well each record or author is protected."""

    epsilon: float | None = option(
        "--epsilon",
        "-e",
        help="Protection of one record, or of all records of one author. 1 is strong, 4 is weak.",
    )
    delta: float = option(default=1e-6, help="Chance beyond epsilon; far below 1 in all records.")
    text_column: str = option(default=_TEXT, help="Column that contains the text.")
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
    workers: int = option(default=1, help="Number of worker processes.", min=1)
    engine: Literal["local", "spark", "ray"] = rare(default="local", help="Where sums are made.")
    address: str | None = rare("--address", "--master", help="Spark master or Ray cluster.")
    format: str | None = FORMAT
    encoding: str | None = rare(metavar="NAME", help="Encoding of the input, such as latin-1.")
    on_error: Literal["fail", "skip"] = option(
        default="fail", help="At a bad record: stop, or leave it out."
    )

    def check(self) -> None:
        """Refuse a protection that is missing or has no meaning."""
        if self.epsilon is None:
            raise typer.BadParameter(
                "give --epsilon: the protection of one record. It has no default; 1 is strong, 4 is weak"
            )
        if not 0 < self.epsilon < math.inf:
            raise typer.BadParameter("--epsilon is a number above 0; 1 is strong, 4 is weak")
        if self.author is None and self.records_per_author != 1:
            raise typer.BadParameter("--records-per-author needs --author COLUMN")
        if self.author is None and self.ledger is not None:
            raise typer.BadParameter(
                "--ledger counts authors, since a record cannot be found again: add --author COLUMN"
            )
        if self.ledger is None and self.author_rho_limit is not None:
            raise typer.BadParameter("a limit needs a ledger: add --ledger FILE")

    def opened(self) -> Ledger | None:
        """Open the ledger, which makes it if there is none."""
        from textpriv.ledger import Ledger

        limit = self.author_rho_limit
        return None if self.ledger is None else Ledger(self.ledger, author_rho_limit=limit)

    def classes(self) -> tuple[Any, ...]:
        """Return the declared labels; whole numbers where all of them are."""
        if (self.label_column is None) != (self.labels is None):
            raise typer.BadParameter(
                "name the column of labels and all labels: --label-column label --labels neg,pos"
            )
        if self.labels is None:
            return ("",)
        found = [each.strip() for each in self.labels.split(",")]
        if not all(found) or len(set(found)) < len(found):
            raise typer.BadParameter("--labels takes different names with commas between them")
        is_whole = all(each.isdecimal() and str(int(each)) == each for each in found)
        return tuple(map(int, found)) if is_whole else tuple(found)

    def refuse_given(self) -> None:
        """Refuse what has no meaning where nothing is measured."""
        names = ("epsilon", "labels", "author", "ledger", "new_words")
        if given := [name for name in names if getattr(self, name) is not None]:
            raise typer.BadParameter(
                f"--from measures nothing: leave out --{given[0].replace('_', '-')}"
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


def synthesize(
    source: list[str] | None = typer.Argument(
        None, metavar="[IN...]", help="Private records, as for privatize. None with --from."
    ),
    target: str = typer.Argument(
        metavar="OUT", help="One file of new records: .jsonl, .csv, .tsv, .txt or .parquet; or -."
    ),
    *,
    measuring: MeasureOptions,
    drawing: DrawOptions,
    force: bool = FORCE,
    as_json: bool = JSON,
) -> None:
    """Write new labelled texts that protect every record, or every author, as a whole.

    The records are measured once, with noise, and new records are drawn from the measurement. They have nothing else of the
    private records. A class needs many records, some thousands at epsilon 1.

    **Example:** textpriv synthesize reviews.jsonl synthetic.jsonl --epsilon 1 --label-column label --labels neg,pos
    """
    from textpriv.corpus.synthesis import Output
    from textpriv.synthesis.synthesizer import TextSynthesizer

    if as_json and target == "-":
        raise typer.BadParameter("--json and the texts cannot share standard output: name a file")
    more: dict[str, Any] = {} if measuring.index is None else {"index": measuring.index}
    others = [each for each in (drawing.model, drawing.report) if each is not None]
    names = (measuring.text_column, measuring.label_column or _LABEL)
    skipped, seed, sums = None, drawing.seed, drawing.from_
    if sums is not None:
        if source or drawing.model is not None:
            raise typer.BadParameter("--from reads no records and keeps no model: give OUT alone")
        measuring.refuse_given()
        synthesizer = TextSynthesizer.load(sums, **more)
        output = Output(target, names if synthesizer.noisy_.classes != ("",) else names[:1])
        output.check([sums], others, force)
        told = _written(synthesizer, output, drawing, seed)
    else:
        output = Output(target, names if measuring.labels is not None else names[:1])
        told, synthesizer, skipped = _measured_and_written(
            source or [], output, measuring, drawing, force=force, as_json=as_json
        )
    told |= {"statement": synthesizer.statement_.to_dict(), "seed": drawing.seed}
    noisy = synthesizer.noisy_
    if as_json:
        print_json(told)
    else:
        kind = " without labels" if noisy.classes == ("",) else ""
        say(f"{target}: {told['records']:,} new records{kind}\n\n{synthesizer.statement_}")
    if noisy.rows.reshape(len(noisy.classes), -1).sum(axis=1).min() * noisy.epsilon < _FEW:
        warn("a class needs some thousands of records at epsilon 1, and one has far fewer")
    if skipped:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in skipped.items())
        warn(f"left out: {reasons}")
        raise typer.Exit(SKIPPED)


def _measured_and_written(
    source: list[str],
    output: Output,
    measuring: MeasureOptions,
    drawing: DrawOptions,
    *,
    force: bool,
    as_json: bool,
) -> tuple[dict[str, Any], TextSynthesizer, Any]:
    """Measure private records, or go on from what a killed run has measured, and write new ones."""
    from textpriv.corpus.checkpoint import only_writer
    from textpriv.corpus.plan import beside
    from textpriv.corpus.stores import is_stream
    from textpriv.corpus.synthesis import PrivateRecords
    from textpriv.files import is_url, local_path
    from textpriv.index.builtin import ENGLISH
    from textpriv.synthesis.synthesizer import TextSynthesizer

    classes = measuring.classes()
    plan = _plan_of(
        source, output, measuring, shown_progress(as_json), has_model=drawing.model is not None
    )
    if classes == ("",) and plan.format != "text":
        warn("no --label-column is given: the new records will have no labels")
    records = PrivateRecords(plan, classes)
    place = local_path(str(drawing.model) if is_stream(output.name) else output.name)
    sums = beside(place, "sums")
    others = [each for each in (drawing.model, drawing.report) if each is not None]
    read = [each.path for each in plan.files if not (is_stream(each.path) or is_url(each.path))]
    read += [] if measuring.ledger is None else [str(measuring.ledger)]
    index = measuring.index or ENGLISH
    with only_writer(place):
        output.check(read, others, force or sums.exists())
        try:
            notes = _measure_once(records, sums, index, measuring, force=force)
            synthesizer = TextSynthesizer.load(sums, index=index)
            synthesizer.statement_ = synthesizer.statement_.extended(notes=notes)
            if drawing.model is not None:
                synthesizer.save(drawing.model)
            told = _written(synthesizer, output, drawing, _seed_of(sums, drawing.seed))
        except (TextprivError, OSError, KeyboardInterrupt, SystemExit):
            if sums.exists():
                say(
                    f"The measurement is kept in {sums}: run the same command again to go on from it."
                )
            raise
        sums.unlink()
    return told, synthesizer, records.skipped


def _plan_of(
    source: list[str], output: Output, measuring: MeasureOptions, progress: Any, *, has_model: bool
) -> Plan:
    """Return the files of private records; refuse those from which this cannot be measured."""
    from textpriv.corpus.stores import is_stream
    from textpriv.corpus.synthesis import plan_synthesis

    if not source:
        raise typer.BadParameter("give the private records and the output, or --from MODEL")
    if is_stream(output.name) and not has_model:
        raise typer.BadParameter(
            "a killed run goes on from its measurement, which a stream has no place for: add --model FILE"
        )
    if measuring.engine != "local" and any(map(is_stream, source)):
        raise typer.BadParameter("a stream is read here: leave out --engine, or name files")
    if measuring.new_words and (measuring.engine != "local" or any(map(is_stream, source))):
        raise typer.BadParameter(
            "--new-words reads files twice, here: name files, without --engine"
        )
    measuring.check()
    return plan_synthesis(
        source,
        measuring.text_column,
        measuring.label_column,
        measuring.author,
        **{
            name: getattr(measuring, name)
            for name in ("format", "encoding", "on_error", "workers", "engine", "address")
        },
        on_progress=progress,
    )


def _measure_once(
    records: PrivateRecords, sums: Path, index: str, measuring: MeasureOptions, *, force: bool
) -> list[str]:
    """Have the noisy sums on the disk, made only if no killed run left them; return notes on what was charged."""
    from textpriv.corpus.synthesis import kept_sums
    from textpriv.statement import at_most
    from textpriv.synthesis.release import Measurement
    from textpriv.synthesis.synthesizer import PublicSide

    side = PublicSide(index)
    authors = None if measuring.author is None else measuring.records_per_author
    space = side.space(records.classes, authors)
    ledger = measuring.opened()
    try:
        epsilon, share = measuring.epsilon or 0.0, measuring.new_words or 0.0
        measurement = Measurement(space, epsilon, measuring.delta, ledger=ledger, new_words=share)
    except ValueError as error:
        raise TextprivError(str(error)) from None
    charged = f"A ledger charged {at_most(measurement.author_rho)} rho (zCDP) to each author before any noise was drawn"
    notes = [] if ledger is None else [charged]
    job = {
        **records.known_by(),
        "epsilon": measuring.epsilon,
        "delta": measuring.delta,
        "new words": measuring.new_words,
        "columns": [measuring.text_column, measuring.label_column, measuring.author],
        "labels": list(records.classes),
        "records per author": authors,
        "bad records": measuring.on_error,
        "ledger": ledger and ledger.mark.hex(),
        "index": side.fingerprint,
    }
    if kept_sums(sums, job, force):
        say("The measurement of the run that ended early is used. Nothing is measured again.")
        return notes
    if force:
        warn("--force measures again. Earlier measurements of the same people add their loss.")
    noisy = records.measure(measurement, side)
    # Beside the sums is what the input is known by, so this file is private; the model that is kept is without.
    noisy.write(sums, vocabulary=side.fingerprint, job=job, seed=secrets.randbits(64))
    return notes


def _seed_of(sums: Path, seed: int | None) -> int:
    """Return the seed of draws: the given one, or that of the measurement, with which a killed run draws the same texts."""
    from textpriv.synthesis.release import NoisySums

    return int(NoisySums.read_file(sums)[1]["seed"]) if seed is None else seed


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
