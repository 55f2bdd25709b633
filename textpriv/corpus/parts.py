"""The stages of a run: records are scanned in order, released in batches, and written one part at a time."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, BinaryIO

from textpriv.corpus.checkpoint import Checkpoint
from textpriv.corpus.options import ColumnError
from textpriv.corpus.plan import Plan
from textpriv.corpus.records import BadRecord, Batch
from textpriv.corpus.report import Counts
from textpriv.corpus.stores import is_stream
from textpriv.engines.batch import (
    BatchRelease,
    Released,
    named_error,
    numbers_of,
    release_in_process,
    release_records,
)
from textpriv.engines.columns import Record
from textpriv.engines.local import mapped
from textpriv.errors import LimitError, TextprivError
from textpriv.randomness import Occurrences

_ANNOUNCED = 1_000  # records of a corpus in which a new column is no surprise


def scan(plan: Plan, is_counted: bool, is_added: bool = False) -> Iterator[Batch]:
    """Read a corpus in order, with the numbers of equal texts; refuse repeated names and columns that are new.

    With ``is_counted`` a ledger counts documents of one name as versions of one. With ``is_added`` the records are added
    to a finished output, so a column that the rule names may be gone.
    """
    options = plan.options
    known = [Occurrences() for _ in options.texts]

    def number_equal(position: int, record: Record) -> tuple[int, ...]:
        if is_counted:
            return (1,)
        if options.document_column is not None:
            return (known[0].count(str(record.name)),)
        return numbers_of(record.texts, known)

    columns, records = set(options.texts), 0
    for file in range(len(plan.files)):
        for batch in plan.reader(file, number_equal):
            new = [name for name in batch.names if name not in columns]
            columns.update(new)
            copied = [name for name in new if options.writes(name)]
            for name in filter(options.columns.refuses_late, copied):
                _refuse_late(batch, name, records)
            if copied and options.on_unprotected is not None:
                options.on_unprotected(tuple(copied))
            records += len(batch)
            if is_stream(plan.target) and 0 < records == len(batch):
                options.columns.check(columns)  # what is written cannot be taken back
            yield batch
    if records and not is_added:
        options.columns.check(columns)


def _refuse_late(batch: Batch, name: str, records: int) -> None:
    """Refuse a new column of a batch that comes after so many records, if it is late."""
    reader = batch.reader
    having = (n for n in range(len(batch)) if name in reader.names_of(batch.rows[n : n + 1]))
    row = next(having, 0)
    if records + row >= _ANNOUNCED:
        record = batch.positions[row] + 1 if len(batch) else 1
        raise ColumnError(
            f"{reader.name}, record {record}: the column {name!r} is new here and would be copied unprotected. "
            "List it in --keep or --drop, or let all pass with --keep '*'; then begin again with --force."
        )


def with_private_texts(
    plan: Plan, batches: Iterable[Batch], release: BatchRelease
) -> Generator[tuple[Batch, Released], None, None]:
    """Release batches in order; yield each with its private texts, without documents over a limit that are skipped."""
    options, privatizer = plan.options, release.privatizer
    workers = options.workers if options.engine == "local" else 1
    leaves_out = options.on_error != "fail"
    work, elsewhere = partial(release.rows, leaves_out=leaves_out), None
    if workers > 1 and options.settings is not None:
        privatizer.warm()
        given = options.settings, options.shared, privatizer.fingerprint, leaves_out
        elsewhere = partial(release_records, *given)
    # Two readings of the batches: those of the jobs are read ahead of the results.
    batches, ahead = itertools.tee(batches)
    # Closed by name: on failure a worker pool must not live on in the traceback.
    jobs = (batch.records for batch in ahead)
    with contextlib.closing(mapped(jobs, work, workers, elsewhere)) as results:
        for batch in batches:
            try:
                result = next(results)
            except TextprivError as error:
                raise _named(error, batch) from None
            yield (batch.without(result.refused) if result.refused else batch), result


def written(
    results: Iterable[tuple[Batch, Released]], out: BinaryIO, has_header: bool = True
) -> Iterator[tuple[Batch, Counts]]:
    """Write the released batches of one file; yield each, once it is written, with its counts."""
    for reader, own in itertools.groupby(results, lambda each: each[0].reader):
        with contextlib.closing(reader.writer(reader, out)) as writer:
            if has_header:
                writer.begin()
            for batch, result in own:
                writer.write(batch, result.texts)
                yield batch, _counts(batch, result)


def make_parts(
    plan: Plan,
    folder: Checkpoint,
    results: Iterable[tuple[Batch, Released]],
    tell: Callable[[Batch, Counts], None],
) -> None:
    """Write released batches part by part; ``tell`` each that is written."""
    for (file, part), own in itertools.groupby(results, lambda each: plan.part_of(each[0])):
        with folder.part(file, part) as (files, counts):
            # Parts are joined as they are: one header is enough.
            for batch, added in written(own, files["part"], has_header=part == 0):
                if plan.options.on_error == "quarantine":
                    name = plan.files[file].name or os.path.basename(batch.reader.name)
                    files["bad"].writelines(_set_aside(name, bad) for bad in batch.bad)
                counts.add(added)
                tell(batch, added)


def _named(error: Exception, batch: Batch) -> Exception:
    """Return an error about some records with the name of its first; one about a limit names all."""
    name, where = batch.reader.name, batch.positions
    named = named_error(error, lambda row: f"{name}, record {where[row] + 1}")
    if isinstance(error, LimitError) and len(error.refused) > 1:
        others = ", ".join(f"{where[row] + 1}" for row in sorted(error.refused)[1:])
        named = LimitError(
            f"{named} Of these {len(batch):,} records it holds of {others}, too. Leave all such records out with "
            "--on-error skip."
        )
    return named


def _counts(batch: Batch, result: Released) -> Counts:
    name, texts = batch.reader.name, batch.reader.texts
    return Counts(
        documents=len(batch),
        nulls=sum(text is None for own in result.texts for text in own),
        tokens=Counter(result.tokens),
        skipped=Counter(bad.reason for bad in batch.bad),
        columns=[column for column in batch.names if column not in texts],
        end=batch.fraction or 0.0,
        refused=[
            f"{name}, record {bad.position + 1}" for bad in batch.bad if bad.reason == "limit"
        ],
    )


def _set_aside(file: str, bad: BadRecord) -> bytes:
    """Return a line of the quarantine: where a bad record is, why it is bad, and its bytes."""
    name = os.fsencode(file).decode("utf-8", "replace")
    where = {"file": name, "record": bad.position + 1, "line": bad.line or None}
    line = {**where, "reason": bad.reason}
    if bad.raw is not None:
        try:
            line["raw"] = bad.raw.decode("utf-8")
        except UnicodeDecodeError:
            line["raw_base64"] = base64.b64encode(bad.raw).decode("ascii")
    return json.dumps(line, ensure_ascii=False).encode("utf-8") + b"\n"


def make_file(plan: Plan, folder: Checkpoint, task: Mapping[str, Any]) -> dict[str, Any]:
    """Make the missing parts of a file on another machine, over a checkpoint folder that all share.

    A task has the number of the file, those of its records that are not the first of their kind, and the Privatizer's
    fingerprint. An error that the user can correct comes back as its message.
    """
    file, numbers, first = task["file"], task["numbers"], (1,) * len(plan.options.texts)
    try:
        assert plan.options.settings is not None
        release = release_in_process(plan.options.settings, plan.options, task["known"])
        done = folder.entries()
        reader = plan.reader(file, lambda position, record: numbers.get(position, first))
        missing = (batch for batch in reader if plan.part_of(batch) not in done)
        with contextlib.closing(with_private_texts(plan, missing, release)) as results:
            make_parts(plan, folder, results, lambda batch, counts: None)
    except TextprivError as error:
        return {"error": str(error)}
    except OSError as error:
        place = error.filename or folder.path
        return {"error": f"{error.strerror or type(error).__name__}: {place}"}
    return {}
