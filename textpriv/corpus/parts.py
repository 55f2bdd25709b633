"""The stages of a run: records are scanned in order, released in batches, and written one part at a time."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from textpriv.corpus.checkpoint import Checkpoint
from textpriv.corpus.formats import FORMATS
from textpriv.corpus.plan import Plan
from textpriv.corpus.records import BadRecord, Batch, CorpusReader, RecordWriter, compressed
from textpriv.corpus.release import ColumnError
from textpriv.corpus.report import Counts
from textpriv.corpus.stores import is_stream
from textpriv.engines.batch import BatchRelease, named_error, release_in_process
from textpriv.engines.local import Result, in_order
from textpriv.errors import LimitError, TextprivError
from textpriv.files import flush
from textpriv.randomness import Occurrences

_ANNOUNCED = 1_000  # records of a corpus in which a new column is no surprise

Read = tuple[int, CorpusReader, Batch]  # the number of a file, its reader, and a batch of it


def scan(plan: Plan, is_counted: bool, is_added: bool = False) -> Iterator[Read]:
    """Read a corpus in order, with the numbers of equal texts; refuse repeated names and columns that are new.

    With ``is_counted`` a ledger counts documents of one name as versions of one. With ``is_added`` the records are added
    to a finished output, so a column that the rule names may be gone.
    """
    texts = plan.release.meaning.texts
    known = [Occurrences() for _ in texts]

    def number(position: int, values: Any) -> tuple[int, ...]:
        if is_counted:
            return (1,)
        if plan.release.document_column is not None:
            return (known[0].count(str(values[len(texts)])),)
        return tuple(each.count(value) for each, value in zip(known, values, strict=False))

    columns, records = set(texts), 0
    for file in range(len(plan.files)):
        reader = plan.reader(file, number)
        for batch in reader:
            new = _new_columns(reader, batch, columns, records)
            if new and plan.release.on_unprotected is not None:
                plan.release.on_unprotected(tuple(new))
            records += len(batch)
            if is_stream(plan.target) and 0 < records == len(batch):
                plan.release.columns.check(columns)  # what is written cannot be taken back
            yield file, reader, batch
    if records and not is_added:
        plan.release.columns.check(columns)


def _new_columns(reader: CorpusReader, batch: Batch, columns: set[str], records: int) -> list[str]:
    """Add the names of a batch to those that are known; return new ones that pass, and refuse late ones."""
    release, found = reader.release, []
    for row, names in enumerate(reader.names_of(batch.rows)):
        new = [] if columns.issuperset(names) else [name for name in names if name not in columns]
        columns.update(new)
        for name in filter(release.writes, new):
            if records + row >= _ANNOUNCED and release.columns.refuses_late(name):
                record = batch.positions[row] + 1 if len(batch) else 1
                raise ColumnError(
                    f"{reader.name}, record {record}: the column {name!r} is new here and would be copied unprotected. "
                    "List it in --keep or --drop, or let all columns pass with --keep '*'; then begin again with --force."
                )
            found.append(name)
    return found


def make_parts(
    plan: Plan, folder: Checkpoint, given: Iterable[Read], release: BatchRelease, workers: int = 1
) -> Generator[tuple[int, Batch, Counts], None, None]:
    """Release batches in order, and write them part by part; yield each with its file's number and its counts.

    The last batch of a part comes when the part is safe on the disk.
    """
    jobs = ((each, each[2].given) for each in given)
    # Closed by name: on failure a worker pool must not live on in the traceback.
    with contextlib.closing(in_order(jobs, release, plan.release.settings, workers)) as results:
        for (file, part), own in itertools.groupby(
            results, lambda each: (each[0][0], plan.part_of(each[0][2]))
        ):
            done, writer = None, None
            with folder.part(file, part) as (files, counts), contextlib.ExitStack() as stack:
                for (_, reader, batch), result in own:
                    if done is not None:
                        yield done
                    if writer is None:
                        writer = reader.writer(reader, files["part"])
                        stack.callback(writer.close)
                        if part == 0:  # parts are joined as they are: one header is enough
                            writer.begin()
                    batch, counts_of_batch = _written(writer, reader, batch, result, release)
                    if plan.release.on_error == "quarantine":
                        name = plan.files[file].name or os.path.basename(reader.name)
                        files["bad"].writelines(_set_aside(name, bad) for bad in batch.bad)
                    done = file, batch, counts_of_batch
                    counts.add(counts_of_batch)
            if done is not None:
                yield done


def write_stream(
    plan: Plan, out: Any, given: Iterable[Read], release: BatchRelease, workers: int = 1
) -> Generator[tuple[int, Batch, Counts], None, None]:
    """Release the batches of a file and write each at once; yield it with its counts."""
    jobs, writer = ((each, each[2].given) for each in given), None
    with contextlib.closing(in_order(jobs, release, plan.release.settings, workers)) as results:
        for (file, reader, batch), result in results:
            if writer is None:
                writer = reader.writer(reader, out)
                writer.begin()
            yield file, *_written(writer, reader, batch, result, release)


def _written(
    writer: RecordWriter, reader: CorpusReader, batch: Batch, result: Result, release: BatchRelease
) -> tuple[Batch, Counts]:
    """Write what is released of a batch; return the batch, without documents over a limit that are skipped."""
    try:
        texts, tokens = result()
    except LimitError as error:
        if reader.release.on_error == "fail" or not error.refused:
            raise _named(error, reader, batch) from None
        smaller = reader.without(batch, error.refused)
        again = partial(release.rows, smaller.given)
        return _written(writer, reader, smaller, again, release)
    except TextprivError as error:
        raise _named(error, reader, batch) from None
    writer.write(batch, texts)
    return batch, _counts(reader, batch, texts, tokens)


def _named(error: Exception, reader: CorpusReader, batch: Batch) -> Exception:
    """Return an error about some records with the name of its first; one about a limit names all."""
    name, where = reader.name, batch.positions
    named = named_error(error, lambda row: f"{name}, record {where[row] + 1}")
    if isinstance(error, LimitError) and len(error.refused) > 1:
        others = ", ".join(f"{where[row] + 1}" for row in sorted(error.refused)[1:])
        named = LimitError(
            f"{named} Of these {len(batch):,} records it holds of {others}, too. Leave all such records out with "
            "--on-error skip."
        )
    return named


def _counts(reader: CorpusReader, batch: Batch, texts: Any, tokens: Mapping[str, int]) -> Counts:
    columns = dict.fromkeys(itertools.chain.from_iterable(reader.names_of(batch.rows)))
    return Counts(
        len(batch),
        sum(text is None for each in texts for text in each),
        Counter(tokens),
        Counter(bad.reason for bad in batch.bad),
        [name for name in columns if name not in reader.texts],
        batch.fraction or 0.0,
        [f"{reader.name}, record {bad.position + 1}" for bad in batch.bad if bad.reason == "limit"],
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
    """Make the missing parts of a file in another process, for Spark and Ray, over a checkpoint folder that all share.

    A task has the number of the file, those of its records that are not the first of their kind, and by what the Privatizer
    is known. An error that the user can correct comes back as its message.
    """
    file, numbers, first = task["file"], task["numbers"], (1,) * len(plan.release.meaning.texts)
    try:
        assert plan.release.settings is not None
        release = release_in_process(plan.release.settings, plan.release.meaning, task["known"])
        done = folder.entries()
        reader = plan.reader(file, lambda position, values: numbers.get(position, first))
        missing = (batch for batch in reader if (file, plan.part_of(batch)) not in done)
        for _ in make_parts(plan, folder, ((file, reader, each) for each in missing), release):
            pass
    except TextprivError as error:
        return {"error": str(error)}
    except OSError as error:
        place = error.filename or folder.path
        return {"error": f"{error.strerror or type(error).__name__}: {place}"}
    return {}


def join_file(plan: Plan, folder: Checkpoint, file: int, parts: Iterable[int]) -> Path:
    """Join the parts of one file of the output; return where it is."""
    final = folder.result(plan.files[file].name)
    final.parent.mkdir(parents=True, exist_ok=True)
    paths = [folder.file(file, part, "part") for part in parts]
    with open(final, "wb") as out:
        with compressed(out, plan.files[file].compression) as packed:
            FORMATS[plan.format].writer.join(paths, packed, plan.files[file].path)
        flush(out)
    return final
