"""A corpus in, a private corpus out: one file or a folder of shards, in constant memory, whole or absent.

What lives here: what a job is. It names the files and their documents, hands batches or whole parts to an engine, and
has the output appear when everything is done; a run that was cut short goes on where it was. What does not: the formats
(``reading``, ``writing``), the files of a run under way (``shards``), the key (``runkey``), how a batch is made private
and where (``engines``), and what the user sees (``cli``). Only the text column changes; other columns pass through
untouched, or are dropped by rule, and are not protected.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import re
import secrets
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import unquote

import numpy as np

from textpriv.engines.batch import (
    NO_SALT,
    BatchRelease,
    Columns,
    PrivatizerSettings,
    corpus_name,
    document_key,
    named_error,
    release_in_process,
    repeated_name,
    string_array,
)
from textpriv.engines.local import InProcess, Released, WorkerPool
from textpriv.errors import CorpusError, TextprivError
from textpriv.randomness import DistinctKeys
from textpriv.reading import (
    MAX_TEXT_BYTES,
    STANDARD_STREAM,
    BadRecord,
    Batch,
    CorpusReader,
    Place,
    column_values,
    corpus_format,
    is_stream,
    read_records,
)
from textpriv.runkey import read_run_key
from textpriv.shards import MANIFEST, Entry, WorkFolder, digest, only_writer, work_path
from textpriv.writing import ColumnRule, RecordWriter, compressed, join_parts, writer_for

if TYPE_CHECKING:
    import pyarrow as pa

    from textpriv.privatizer import Privatizer
    from textpriv.runkey import RunKey

__all__ = [
    "ENGINES",
    "PART_RECORDS",
    "STANDARD_STREAM",
    "Batch",
    "ColumnRule",
    "CorpusReader",
    "CorpusReport",
    "PrivatizerSettings",
    "Progress",
    "corpus_format",
    "document_key",
    "privatize_corpus",
    "read_records",
]

ENGINES = ("local", "spark", "ray")
PART_RECORDS = 20_000

_NAMES = 1000  # most names of other columns that are told; JSON may have a new one in every record

# The names of the columns that go to an engine.
_COLUMNS = Columns("text", number="number")
_NAMED = Columns("text", document="document")
_OWNED = Columns("text", document="document", author="author")
_ENDS = 64 * 1024  # bytes of an input file, at either end, by which it is known again


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    Attributes
    ----------
    documents, tokens : int
        Released so far.
    fraction : float or None
        Share of the input that was read, in [0, 1]; None if unknown.
    resumed : int
        Tokens among them that an earlier, interrupted run has released.
    """

    documents: int
    tokens: int
    fraction: float | None
    resumed: int = 0


@dataclass(frozen=True)
class CorpusReport:
    """What one run did. Counts only; nothing is derived from the texts beyond what was released.

    Attributes
    ----------
    documents
        Records written.
    tokens
        Tokens by class, as released.
    skipped
        Bad records left out, by reason.
    unprotected
        Names of the other columns, which pass through as they are; the first 1,000 of them.
    seconds
        Wall time.
    files
        Files written.
    quarantine
        The file of the bad records that were set aside; None if there are none.
    resumed
        Documents that an earlier, interrupted run had finished.
    unmatched
        Patterns of the rule for columns, other than ``*``, that no other column has matched: mistyped ones, perhaps. Empty
        for a run that was complete before.
    """

    documents: int
    tokens: Mapping[str, int]
    skipped: Mapping[str, int]
    unprotected: tuple[str, ...]
    seconds: float
    files: int = 1
    quarantine: str | None = None
    resumed: int = 0
    unmatched: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {
            "documents": self.documents,
            "tokens": dict(self.tokens),
            "skipped": dict(self.skipped),
            "unprotected": list(self.unprotected),
            "seconds": round(self.seconds, 3),
            "files": self.files,
            "quarantine": self.quarantine,
            "resumed": self.resumed,
            "unmatched": list(self.unmatched),
        }


def privatize_corpus(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    privatizer: Privatizer,
    *,
    format: str | None = None,
    text_column: str = "text",
    on_error: str = "fail",
    batch_size: int = 500,
    max_text_bytes: int = MAX_TEXT_BYTES,
    workers: int = 1,
    settings: PrivatizerSettings | None = None,
    document_column: str | None = None,
    author_column: str | None = None,
    columns: ColumnRule | None = None,
    engine: str = "local",
    address: str | None = None,
    key: RunKey | None = None,
    resume: bool | None = None,
    part_records: int = PART_RECORDS,
    on_progress: Callable[[Progress], None] | None = None,
    on_unprotected: Callable[[tuple[str, ...]], None] | None = None,
) -> CorpusReport:
    """Replace the text of every record of a file, or of a folder of files, by its private version.

    Records keep their order and their other fields. ``target`` appears when all is written and synchronised, or not at
    all; a failed run leaves an older file ``target`` as it was. The output never depends on ``batch_size``, ``workers``,
    ``engine`` or ``part_records``.

    Parameters
    ----------
    source, target
        Files, or ``"-"`` for standard input and output; or a folder of files of one format, and a folder to make, which
        then gets a ``manifest.json`` with a checksum of each file. Both ends have the same format; the compression of a
        single file may differ.
    privatizer
        What makes a text private.
    format
        ``"jsonl"``, ``"csv"``, ``"text"`` or ``"parquet"`` for both ends; None goes by the extensions. With ``"-"`` at
        one end the other end's extension decides, with ``"-"`` at both it is ``"text"``.
    text_column, on_error, batch_size, max_text_bytes
        As in :func:`read_records`. With ``on_error="quarantine"`` bad records are set aside in
        ``target.quarantine.jsonl`` (mode 0600), which holds raw text.
    workers
        Number of processes that work, of which this is one if there are up to four; 1 uses this process alone.
    settings
        What other processes build their Privatizer from; required for more than one worker and for the engines
        ``"spark"`` and ``"ray"``, and must describe ``privatizer``.
    document_column
        The field that names each document: its randomness then follows from the run key and this name, wherever in the
        corpus it stands; without one it follows from its number in the corpus. Names pass through as they are, and must
        not be made from the text. Required with a ledger, which counts documents of one name as versions of one; without a
        ledger a name that is there twice is refused, for which some 100 bytes of memory are used a document.
    author_column
        With a ledger: the field that names each document's author.
    columns
        Which other columns pass through; all of them by default.
    engine
        ``"local"``, ``"spark"`` or ``"ray"``.
    address
        The Spark master or the Ray cluster; None starts one on this machine.
    key
        The run key that ``privatizer`` was built with, kept in a file as long as the run is not finished. Another release
        under it shows which texts have changed since. The output must be no stream, nor the input unless its documents have
        names.
    resume
        None keeps nothing of a run that fails. False begins a run that can be continued, True continues it (or begins
        one). Needs a key, a seed or a ledger: without one the rest would be drawn from another key.
    part_records
        Records after which what is done is safe on the disk; also the unit of work of Spark and Ray.
    on_progress
        Called after each batch or part.
    on_unprotected
        Called once, at the first record that has any, with the names of its columns that pass through
        unprotected.

    Returns
    -------
    CorpusReport
        Counts and seconds.

    Raises
    ------
    CorpusError
        For bad records, formats that differ, source and target being one file, or a process that dies.
    LedgerError
        At the first document that the ledger refuses; names its record. Documents before it stay
        counted and, as the same text, cost nothing the next time.
    OSError
        If a file cannot be opened or written.

    Notes
    -----
    Without ``key`` a fresh secret goes into the identity of each document, so that two calls never share a random stream
    even for the same privatizer. With a seed, and for documents that have names under a run key,
    ``privatizer.privatize(text, key=document_key(text_column, name or number))`` gives the same.
    """
    started = time.perf_counter()
    source, target = os.fspath(source), os.fspath(target)
    if (is_stream(source) or is_stream(target)) and (resume is not None or engine != "local"):
        raise CorpusError(
            "A stream passes only once, so its run can neither be continued nor be shared out: name files."
        )
    _check_options(privatizer, workers, settings, engine, document_column, key, resume)
    if key is not None and (is_stream(target) or (is_stream(source) and document_column is None)):
        raise CorpusError(
            "A stream passes only once, so under a run key it would not be known again: name files (an input whose "
            "documents have names may be a stream)."
        )
    plan = _Plan.of(
        source,
        target,
        format,
        text_column=text_column,
        on_error=on_error,
        batch_size=batch_size,
        max_text_bytes=max_text_bytes,
        rule=columns or ColumnRule(),
        part_records=part_records,
        names=tuple(name for name in (document_column, author_column) if name is not None),
    )
    watch = _Watch(plan, on_progress, on_unprotected)
    if is_stream(target):
        if plan.is_folder or plan.format == "parquet" or on_error == "quarantine":
            raise CorpusError(
                "Only a single jsonl, csv or text file goes to a stream, and nothing can be set "
                "aside beside a stream: name a file as the output."
            )
        with _local_engine(plan, privatizer, settings, workers, secrets.token_bytes(16)) as local:
            names = _Names(plan, privatizer)
            _write_stream(plan, target, local, watch, names)
        return watch.report(time.perf_counter() - started)
    run = _Run(plan, Path(os.path.realpath(target)), privatizer, settings, key, watch)
    with run.opened(resume):
        if not run.complete:
            if engine == "local":
                run.here(workers)
            else:
                run.elsewhere(engine, address, workers)
        return run.published(started)


def _check_options(
    privatizer: Privatizer,
    workers: int,
    settings: PrivatizerSettings | None,
    engine: str,
    document_column: str | None,
    key: RunKey | None,
    resume: bool | None,
) -> None:
    ledger = getattr(privatizer, "ledger", None)
    if workers < 1:
        raise CorpusError(f"workers must be at least 1; found {workers}.")
    if engine not in ENGINES:
        raise CorpusError(f"engine must be one of {', '.join(ENGINES)}; found {engine!r}.")
    if (workers > 1 or engine != "local") and settings is None:
        raise CorpusError(
            "More than one worker needs settings=PrivatizerSettings(...) to build from."
        )
    if ledger is not None and document_column is None:
        raise CorpusError(
            "A ledger and a document_column go together: the ledger counts documents by the names in that column."
        )
    if ledger is not None and engine != "local":
        raise CorpusError(
            "A ledger lies on a local disk, where other machines cannot count in it: use the local engine."
        )
    if resume is not None and key is None and ledger is None and privatizer.seed is None:
        raise CorpusError("A run can be continued only with a run key, a seed or a ledger.")


# --------------------------------------------------------------------------------------------------
# What is to be done
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Plan:
    """The files of a job and how they are read and written; travels to other processes."""

    files: tuple[tuple[str, str], ...]  # names below the source ("" for a single file), and paths
    is_folder: bool
    format: str
    compression: str | None  # of a single output
    partitions: tuple[
        str, ...
    ]  # columns whose values are names of folders, which the output has, too
    text_column: str
    on_error: str
    batch_size: int
    max_text_bytes: int
    rule: ColumnRule
    part_records: int
    names: tuple[str, ...]

    @classmethod
    def of(cls, source: str, target: str, format: str | None, **options: Any) -> _Plan:
        Columns(options["text_column"], *options["names"])  # refuses a text that is to be a name
        if options["part_records"] < 1:
            raise CorpusError(f"part_records must be at least 1; found {options['part_records']}.")
        compression = None
        is_folder = os.path.isdir(source)
        if is_folder:
            _refuse_overlap(source, target)
            files = _files_of(source, format)
            found = {corpus_format(path, format)[0] for _, path in files}
            if len(found) > 1:
                raise CorpusError(
                    f"{source} holds files of several formats ({', '.join(sorted(map(str, found)))}): expected one. Move "
                    "them into folders of their own."
                )
            format = found.pop()
        else:
            format, compression = _common_format(source, target, format)
            _refuse_same_file(source, target)
            files = (("", source),)
        partitions = _partition_columns(name for name, _ in files)
        _refuse_partitions(source, partitions, options["text_column"], options["rule"])
        if format == "text" and options["names"]:
            raise CorpusError(
                "Documents are named by a column, and a text file has none: use jsonl, csv or parquet."
            )
        return cls(files, is_folder, str(format), compression, partitions, **options)

    @property
    def columns(self) -> Columns:
        return replace((_COLUMNS, _NAMED, _OWNED)[len(self.names)], known_as=self.text_column)

    def reader(
        self, file: int, start: Place | None = None, stop: int | None = None
    ) -> CorpusReader:
        return read_records(
            self.files[file][1],
            self.format,
            self.text_column,
            self.on_error,
            batch_size=self.batch_size,
            max_text_bytes=self.max_text_bytes,
            start=start,
            stop=stop,
            cut=self.part_records,
            names=self.names,
        )

    def compression_of(self, file: int) -> str | None:
        """The compression of an output file: a folder keeps that of each input."""
        if not self.is_folder:
            return self.compression
        return corpus_format(self.files[file][1], self.format)[1]

    def record(self, file: int, position: int) -> str:
        """What a record is called in a message."""
        name = self.files[file][0]
        return f"{name + ', ' if name else ''}record {position + 1}"

    def arrow(self, reader: CorpusReader, batch: Batch, base: int) -> pa.RecordBatch | None:
        """Return what an engine is given of a batch: the texts, and what the documents are known by."""
        if not batch.texts:
            return None
        import pyarrow as pa

        columns = {self.columns.text: string_array(batch.texts)}
        if not self.names:
            numbers = pa.py_buffer(np.array(batch.positions, dtype=np.uint64) + np.uint64(base))
            columns[str(self.columns.number)] = pa.Array.from_buffers(
                pa.uint64(), len(batch.texts), [None, numbers]
            )
        for place, name in enumerate(self.names):
            column = (self.columns.document, self.columns.author)[place]
            columns[str(column)] = string_array(_names_in(reader, batch, name))
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def job(self, run: str, context: bytes, key: bytes | None, seed: int | None) -> dict[str, Any]:
        """Everything that decides the output, in plain values."""
        from textpriv import __version__

        check = None
        if key is not None:
            check = hashlib.blake2b(key=key, person=b"textpriv-check").hexdigest()
        return {
            "version": __version__,
            "settings": context.hex(),
            "key": check,
            "seed": seed,
            "input": [[name, *_likeness(path, run)] for name, path in self.files],
            "format": [self.format, self.compression],
            "columns": [self.text_column, *self.names, asdict(self.rule)],
            "bad records": [self.on_error, self.max_text_bytes],
            "part": self.part_records,
        }

    def absolute(self) -> _Plan:
        """Return the plan with paths that mean the same in any process."""
        files = tuple((name, os.path.abspath(path)) for name, path in self.files)
        return replace(self, files=files)


def _names_in(reader: CorpusReader, batch: Batch, column: str) -> list[str]:
    """Read the names in a column, which the reader has checked; 7 and "7" are one name, for CSV cannot tell them apart."""
    if reader.format == "parquet":
        values = column_values(batch.rows.column(reader.columns.index(column)))
    elif reader.format == "csv":
        place = reader.columns.index(column)
        values = [row[place] for row in batch.rows]
    else:
        values = [row[column] for row in batch.rows]
    return [str(value) for value in values]


def _likeness(path: str, run: str) -> tuple[int, str]:
    """Return the size of a file and a hash of its ends, keyed by the run's name: to notice another input."""
    if is_stream(path):
        return 0, ""
    found = hashlib.blake2b(key=run.encode(), digest_size=16)
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        found.update(file.read(_ENDS))
        file.seek(max(0, size - _ENDS))
        found.update(file.read(_ENDS))
    return size, found.hexdigest()


def _first_texts(plan: _Plan) -> Iterator[tuple[int, str]]:
    """Yield the good documents from the first one on, with their numbers in the corpus."""
    base = 0
    for _, path in plan.files:
        records = 0
        reader = read_records(
            path, plan.format, plan.text_column, "skip", max_text_bytes=plan.max_text_bytes
        )
        for batch in reader:
            for position, text in zip(batch.positions, batch.texts, strict=True):
                yield base + position, text
            records = batch.end.record
        base += records


def _files_of(source: str, format: str | None) -> tuple[tuple[str, str], ...]:
    """Return the names and paths of a folder's files, in the order of their names, numbers in them by value."""
    names = []
    for folder, folders, files in os.walk(source):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        for name in folders:
            if os.path.islink(os.path.join(folder, name)):
                raise CorpusError(
                    f"{os.path.join(folder, name)} is a link to a folder, and links are not followed: its files would be "
                    "left out. Put the folder itself there, or remove the link."
                )
        for name in files:
            path = os.path.join(folder, name)
            if name.startswith((".", "_")) or name == MANIFEST or is_stream(path):
                continue
            corpus_format(path, format)
            names.append(os.path.relpath(path, source))
    if not names:
        raise CorpusError(f"{source} holds no files: expected .jsonl, .csv, .txt or .parquet.")
    names.sort(
        key=lambda name: (
            [int(part) if n % 2 else part for n, part in enumerate(re.split(r"([0-9]+)", name))],
            name,
        )
    )
    return tuple((name, os.path.join(source, name)) for name in names)


def _partition_columns(names: Iterable[str]) -> tuple[str, ...]:
    """Return the columns whose values are names of folders (``label=0/a.parquet``), as Spark and Hive write them."""
    folders = (folder for name in names for folder in name.split(os.sep)[:-1])
    columns = (folder.partition("=") for folder in folders)
    return tuple(dict.fromkeys(unquote(name) for name, equals, _ in columns if name and equals))


def _refuse_partitions(
    source: str, partitions: Sequence[str], text_column: str, rule: ColumnRule
) -> None:
    """Refuse to leave out, or to make private, what the names of folders tell: the output has the same names."""
    for name in partitions:
        if name == text_column or not rule.passes(name):
            raise CorpusError(
                f"The folders of {source} are named by the column {name} ({name}=...), and the output has the same "
                "names, so it cannot be left out or made private. Write the files without partitions first, or let "
                "the column pass."
            )


def _common_format(source: str, target: str, format: str | None) -> tuple[str, str | None]:
    """Return the one format of both ends, and the compression of the target."""
    source_format, _ = corpus_format(source, format)
    target_format, compression = corpus_format(target, format)
    if source_format and target_format and source_format != target_format:
        raise CorpusError(
            f"The output has the format of the input: {source} is {source_format}, {target} would "
            f"be {target_format}. Choose another name for the output, or set --format for both."
        )
    return source_format or target_format or "text", compression


def _refuse_same_file(source: str, target: str) -> None:
    if STANDARD_STREAM in (source, target):
        return
    same = os.path.realpath(source) == os.path.realpath(target)
    with contextlib.suppress(OSError):
        same = same or os.path.samefile(source, target)
    if same and not is_stream(target):
        raise CorpusError(
            f"Input and output are the same file, {source}: the private text must not replace its "
            "only source. Name another output."
        )


def _refuse_overlap(source: str, target: str) -> None:
    if is_stream(target):
        return
    inner, outer = Path(os.path.realpath(target)), Path(os.path.realpath(source))
    if inner == outer or outer in inner.parents or inner in outer.parents:
        raise CorpusError(
            f"One of {source} and {target} lies in the other: the private files must not stand among the raw ones. Name "
            "another folder."
        )


# --------------------------------------------------------------------------------------------------
# Watching
# --------------------------------------------------------------------------------------------------


class _Watch:
    """Adds up what was done, and tells it."""

    def __init__(
        self,
        plan: _Plan,
        on_progress: Callable[[Progress], None] | None,
        on_unprotected: Callable[[tuple[str, ...]], None] | None,
    ) -> None:
        self._plan = plan
        self._on_progress = on_progress
        self._on_unprotected = on_unprotected
        # Bytes of the input before each file, and of all of it.
        self._sizes = [0, *accumulate(_size(path) for _, path in plan.files)]
        self.documents = 0
        self.tokens: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.unprotected: dict[str, None] = {}
        self._matched: set[str] = set()
        self._is_told = False
        self.resumed = 0

    def columns(self, reader: CorpusReader, batch: Batch) -> None:
        """Learn the names of the other columns, and tell those of the first record that has any."""
        for names in _other_columns(reader, batch, self._plan.partitions):
            passing = [name for name in names if self._plan.rule.passes(name)]
            self._learn(passing, self._plan.rule.matched(names))

    def _learn(self, passing: Sequence[str], matched: Sequence[str]) -> None:
        if passing and not self._is_told and self._on_unprotected is not None:
            self._is_told = True
            self._on_unprotected(tuple(passing))
        _add_names(self.unprotected, passing)
        self._matched.update(matched)

    def restored(self, entry: Entry) -> None:
        """Count what an earlier run has finished, or another process."""
        self._learn(entry.unprotected, entry.matched)
        self.documents += entry.documents
        self.tokens.update(entry.tokens)
        self.skipped.update(entry.skipped)

    def released(self, file: int, reader: CorpusReader, batch: Batch, tokens: Counter[str]) -> None:
        """Count a batch."""
        self.documents += len(batch.texts)
        self.tokens.update(tokens)
        self.skipped.update(bad.reason for bad in batch.bad)
        part, total = reader.fraction, self._sizes[-1]
        if part is None or not total:
            self.tell(None)
        else:
            before, end = self._sizes[file], self._sizes[file + 1]
            self.tell((before + part * (end - before)) / total)

    def tell(self, fraction: float | None) -> None:
        """Tell how far the run is."""
        if self._on_progress is not None:
            done = None if fraction is None else min(1.0, fraction)
            tokens = sum(self.tokens.values())
            self._on_progress(Progress(self.documents, tokens, done, self.resumed))

    def report(self, seconds: float, **more: Any) -> CorpusReport:
        return CorpusReport(
            documents=self.documents,
            tokens=dict(self.tokens),
            skipped=dict(self.skipped),
            unprotected=tuple(self.unprotected),
            seconds=seconds,
            unmatched=tuple(p for p in self._plan.rule.patterns if p not in self._matched),
            **more,
        )


def _other_columns(
    reader: CorpusReader, batch: Batch, partitions: Sequence[str]
) -> Iterator[list[str]]:
    """Yield the names of the other columns: those of each JSON record that has new ones, else of the file.

    Columns by which folders are partitioned come with the first of them.
    """
    known: set[str] = {reader.text_column}
    for names in batch.rows if reader.format == "jsonl" else [reader.columns]:
        found = dict.fromkeys([*partitions, *names])
        partitions = ()
        if not known.issuperset(found):
            known.update(found)
            yield [name for name in found if name != reader.text_column]


def _version_of(path: Path) -> tuple[int, int, int] | None:
    """Return what changes when a file or folder is replaced; None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def _add_names(known: dict[str, None], names: Iterable[str]) -> None:
    """Remember names in the order in which they first appear, but not endlessly many."""
    for name in names:
        if len(known) < _NAMES:
            known[name] = None


def _size(path: str) -> int:
    try:
        return 0 if is_stream(path) else os.path.getsize(path)
    except OSError:
        return 0


# --------------------------------------------------------------------------------------------------
# Doing it
# --------------------------------------------------------------------------------------------------


def _local_engine(
    plan: _Plan,
    privatizer: Privatizer,
    settings: PrivatizerSettings | None,
    workers: int,
    context: bytes,
) -> InProcess | WorkerPool:
    if workers == 1 or settings is None:
        return InProcess(BatchRelease(privatizer, plan.columns, context))
    release = BatchRelease(privatizer, plan.columns, context)
    return WorkerPool(release, settings, plan.columns, context, workers)


def _texts_of(
    plan: _Plan, file: int, batch: Batch, released: Released
) -> tuple[list[str], Counter[str]]:
    """Return what was released for a batch, or raise its error with the name of the record."""
    try:
        done, tokens = released.result()
    except TextprivError as error:
        raise named_error(error, lambda row: plan.record(file, batch.positions[row])) from None
    return ([] if done is None else done.column(0).to_pylist()), tokens


def _write_stream(
    plan: _Plan, target: str, local: InProcess | WorkerPool, watch: _Watch, names: _Names
) -> None:
    """Write one file to standard output, a device or a pipe, as it comes."""
    reader = plan.reader(0)

    def jobs() -> Iterator[tuple[Batch, pa.RecordBatch | None]]:
        for batch in reader:
            watch.columns(reader, batch)
            names.take(0, reader, batch)
            yield batch, plan.arrow(reader, batch, 0)

    with contextlib.ExitStack() as stack:
        stream: BinaryIO
        if target != STANDARD_STREAM:
            stream = stack.enter_context(open(target, "wb"))
        elif sys.stdout is None:
            raise CorpusError("Standard output is closed: name a file.")
        else:
            stream = sys.stdout.buffer
        stack.enter_context(local)
        with compressed(stream, plan.compression) as out:
            writer: RecordWriter | None = None
            for batch, released in local.ordered(jobs()):
                texts, tokens = _texts_of(plan, 0, batch, released)
                if writer is None:
                    writer = writer_for(reader, out, plan.rule)
                    writer.begin()
                writer.write(batch, texts)
                watch.released(0, reader, batch, tokens)
            if writer is None:
                writer_for(reader, out, plan.rule).begin()
        stream.flush()


class _Names:
    """Refuses two documents of one name, where no ledger counts them as versions of one document."""

    def __init__(self, plan: _Plan, privatizer: Privatizer) -> None:
        self._plan = plan
        self._is_needed = bool(plan.names) and getattr(privatizer, "ledger", None) is None
        self._distinct = DistinctKeys()

    def take(self, file: int, reader: CorpusReader, batch: Batch) -> None:
        """Learn the names in a batch.

        Raises
        ------
        CorpusError
            For a name that a document before has had; names the record.
        """
        if not self._is_needed:
            return
        column = self._plan.names[0]
        names = _names_in(reader, batch, column)
        for position, name in zip(batch.positions, names, strict=True):
            if not self._distinct.add(name):
                raise repeated_name(self._plan.record(file, position), column)

    def read(self, file: int, stop: int | None = None) -> None:
        """Learn the names in a file, or in its first records, without anything being released."""
        if self._is_needed:
            reader = self._plan.reader(file, stop=stop)
            for batch in reader:
                self.take(file, reader, batch)


class _Parts:
    """Writes the batches of one file, or of some parts of it, into a work folder."""

    def __init__(self, plan: _Plan, folder: WorkFolder, file: int, reader: CorpusReader) -> None:
        self._plan = plan
        self._folder = folder
        self._file = file
        self._reader = reader
        self._stack: contextlib.ExitStack | None = None
        self._writer: RecordWriter | None = None
        self._documents = 0
        self._tokens: Counter[str] = Counter()
        self._skipped: Counter[str] = Counter()
        self._unprotected: dict[str, None] = {}
        self._matched: set[str] = set()
        self._end = Place()

    def take(self, batch: Batch, texts: Sequence[str], tokens: Counter[str]) -> None:
        """Write a batch; a part that is full is finished."""
        if self._writer is None:
            self._begin(batch.start // self._plan.part_records)
        assert self._writer is not None
        self._writer.write(batch, texts)
        self._documents += len(texts)
        self._tokens.update(tokens)
        for names in _other_columns(self._reader, batch, self._plan.partitions):
            _add_names(self._unprotected, filter(self._plan.rule.passes, names))
            self._matched.update(self._plan.rule.matched(names))
        for bad in batch.bad:
            self._skipped[bad.reason] += 1
            if self._plan.on_error == "quarantine":
                self._aside.write(self._quarantined(bad))
        self._end = batch.end
        if batch.end.record % self._plan.part_records == 0:
            self._finish()

    def end(self, is_empty: bool) -> None:
        """Finish the last part; a file without records has one part without records."""
        if self._writer is None and is_empty:
            self._begin(0)
        if self._writer is not None:
            self._finish()

    def close(self) -> None:
        """Give up a part that is not finished."""
        stack, self._stack = self._stack, None
        if self._writer is not None:
            self._writer.abandon()
            self._writer = None
        if stack is not None:
            # What could not be written may fail again when its file is closed.
            with contextlib.suppress(OSError):
                stack.close()

    def _begin(self, part: int) -> None:
        self._documents, self._tokens, self._skipped = 0, Counter(), Counter()
        self._unprotected, self._matched = {}, set()
        self._part = part
        self._stack = contextlib.ExitStack()
        out, self._aside, self._done = self._stack.enter_context(
            self._folder.part(self._file, part)
        )
        self._writer = writer_for(self._reader, out, self._plan.rule)
        # Parts of lines are joined as they are, so only the first one has a header.
        if part == 0 or self._plan.format == "parquet":
            self._writer.begin()

    def _finish(self) -> None:
        assert self._writer is not None
        assert self._stack is not None
        self._writer.close()
        self._writer = None
        self._done.append(
            Entry(
                self._file,
                self._part,
                self._end,
                self._documents,
                dict(self._tokens),
                dict(self._skipped),
                unprotected=tuple(self._unprotected),
                matched=sorted(self._matched),
            )
        )
        stack, self._stack = self._stack, None
        stack.close()

    def _quarantined(self, bad: BadRecord) -> bytes:
        """One line of the quarantine: where a bad record stands, why it is bad, and its bytes."""
        name = self._plan.files[self._file][0] or os.path.basename(self._reader.name)
        found: dict[str, Any] = {
            "file": os.fsencode(name).decode("utf-8", "replace"),
            "record": bad.position + 1,
            "line": bad.line or None,
            "reason": bad.reason,
        }
        if bad.raw is not None:
            try:
                found["raw"] = bad.raw.decode("utf-8")
            except UnicodeDecodeError:
                found["raw_base64"] = base64.b64encode(bad.raw).decode("ascii")
        return json.dumps(found, ensure_ascii=False).encode("utf-8") + b"\n"


@dataclass(frozen=True)
class PartRunner:
    """Makes parts of a corpus in another process; what Spark and Ray are given to do.

    Attributes
    ----------
    plan
        The job.
    settings
        What the process builds its Privatizer from.
    context
        Goes before every identity.
    folder
        The work folder, on storage that all processes share.
    """

    plan: _Plan
    settings: PrivatizerSettings
    context: bytes
    folder: str

    def __call__(self, task: Mapping[str, Any]) -> dict[str, Any]:
        """Make the parts of a task; an error that the user can mend comes back as its message."""
        try:
            release = release_in_process(self.settings, self.plan.columns, self.context)
            self._make(task, InProcess(release))
        except TextprivError as error:
            return {"error": str(error)}
        except OSError as error:
            return {
                "error": f"{error.strerror or type(error).__name__}: {error.filename or self.folder}"
            }
        return {}

    def _make(self, task: Mapping[str, Any], local: InProcess) -> None:
        file, stop = task["file"], task["stop"]
        start = Place(**task["start"])
        folder = WorkFolder.attach(Path(self.folder))
        reader = self.plan.reader(file, start, stop)

        def jobs() -> Iterator[tuple[Batch, pa.RecordBatch | None]]:
            for batch in reader:
                yield batch, self.plan.arrow(reader, batch, task["base"])

        parts = _Parts(self.plan, folder, file, reader)
        with contextlib.closing(parts):
            for batch, released in local.ordered(jobs()):
                texts, tokens = _texts_of(self.plan, file, batch, released)
                parts.take(batch, texts, tokens)
            parts.end(is_empty=stop == 0)


@dataclass(frozen=True)
class FileJoiner:
    """Joins the parts of files in another process; see :class:`PartRunner`."""

    plan: _Plan
    folder: str

    def __call__(self, task: Mapping[str, Any]) -> dict[str, Any]:
        """Join the parts of one file."""
        try:
            _join(self.plan, WorkFolder.attach(Path(self.folder)), task["file"])
        except TextprivError as error:
            return {"error": str(error)}
        except OSError as error:
            return {
                "error": f"{error.strerror or type(error).__name__}: {error.filename or self.folder}"
            }
        return {}


def _join(plan: _Plan, folder: WorkFolder, file: int) -> None:
    closed = folder.closed_file(file)
    if closed is None:
        raise CorpusError("A file was not read to its end. Continue the run with --resume.")
    parts = folder.parts(file, closed[0])
    name, compression = plan.files[file][0], plan.compression_of(file)
    if len(parts) == 1 and compression is None:
        folder.adopt(parts[0], name)
        return
    with folder.result(name) as out:
        join_parts(parts, out, plan.format, compression, plan.text_column)


class _Run:
    """One run into files: opens the work folder, has the parts made, and publishes the output."""

    def __init__(
        self,
        plan: _Plan,
        target: Path,
        privatizer: Privatizer,
        settings: PrivatizerSettings | None,
        key: RunKey | None,
        watch: _Watch,
    ) -> None:
        self._plan = plan
        self._target = target
        self._privatizer = privatizer
        self._settings = settings
        self._key = key
        self._watch = watch
        self._context = NO_SALT
        self._names = _Names(plan, privatizer)
        self._entries: dict[tuple[int, int], Entry] = {}
        self._engine: tuple[str, str | None, int] | None = None
        self._resumed = 0
        self._before = _version_of(target)
        self.complete = False

    @contextlib.contextmanager
    def opened(self, resume: bool | None) -> Iterator[None]:
        """Hold the output and open the work folder, which is gone after the block unless the run is to be continued."""
        for _, name in self._plan.files:
            if not is_stream(name):
                open(name, "rb").close()  # a missing input is told before anything is made
        self._check_target()
        with only_writer(self._target):
            # Another run may have ended between the beginning of this one and here.
            if _version_of(self._target) != self._before:
                raise CorpusError(
                    f"Another run has just written {self._target}. Choose another output, or begin again."
                )
            key = self._key
            if key is not None and not key.fresh and read_run_key(key.path) != key.secret:
                raise CorpusError(
                    f"The run key {key.path} is another one than when it was read. Begin again."
                )
            with self._opened(resume):
                yield

    @contextlib.contextmanager
    def _opened(self, resume: bool | None) -> Iterator[None]:
        path = work_path(self._target, kept=resume is not None)
        new_key = self._key is not None and self._key.fresh
        WorkFolder.check(path, bool(resume))
        if resume and new_key and path.exists() and WorkFolder.attach(path).entries():
            raise CorpusError(
                f"The run in {path} was begun under a run key that is gone, so it cannot be continued. Put "
                f"{self._key.path} back, or remove that folder to begin again; both releases together then keep less "  # type: ignore[union-attr]
                "than one."
            )
        if self._key is None and resume is None:
            # No two calls share a random stream, even for the same privatizer.
            self._context = secrets.token_bytes(16)
        elif self._key is not None and not self._plan.names:
            self._context += corpus_name(_first_texts(self._plan), self._key.secret)
        self._refuse_output(resume)
        if self.complete:
            WorkFolder.attach(path).remove()  # the run may have ended between its last two steps
            yield
            return
        if self._key is not None:
            if resume and new_key:
                WorkFolder.attach(path).remove()  # nothing was finished there
            self._key.keep()
        try:
            self._folder = WorkFolder.begin(path, self._job, bool(resume))
        except BaseException:
            self._forget(new_key)
            raise
        try:
            if resume:
                self._entries = self._folder.entries(checked=True)
                for entry in self._entries.values():
                    self._watch.restored(entry)
                self._resumed = self._watch.documents
                self._watch.resumed = sum(self._watch.tokens.values())
            yield
        except BaseException:
            if resume is None or not self._folder.entries():
                self._folder.remove()
                self._forget(new_key)
            raise
        else:
            self._folder.remove()

    def _forget(self, new_key: bool) -> None:
        """Destroy a key under which nothing was released."""
        if new_key and self._key is not None:
            self._key.forget()

    def _job(self, run: str) -> dict[str, Any]:
        # The name of a job is published, and made from the input among others: without a secret in it, whoever guesses
        # the input could see that the guess is right.
        ledger = getattr(self._privatizer, "ledger", None)
        secret = None if ledger is None else ledger.mark
        if self._key is not None:
            secret = self._key.secret
        settings = getattr(self._privatizer, "fingerprint", b"")
        return self._plan.job(run, settings + self._context, secret, self._privatizer.seed)

    def _check_target(self) -> None:
        ledger = getattr(self._privatizer, "ledger", None)
        for kept in (self._key, ledger):
            place = None if kept is None else Path(os.path.realpath(kept.path))
            if place is not None and (place == self._target or self._target in place.parents):
                raise CorpusError(
                    f"{place} would lie in the output or be written over by it: a run key or a ledger must lie elsewhere. "
                    "Name another file."
                )
        if not self._target.parent.is_dir():
            raise CorpusError(
                f"Cannot write to {self._target}: its folder does not exist. Make it first."
            )
        if self._target.is_dir() and not self._plan.is_folder:
            raise CorpusError(f"Cannot write to {self._target}: it is a folder. Name a file.")

    def _refuse_output(self, resume: bool | None) -> None:
        """Refuse an output folder that exists, unless it is what is to be continued."""
        if not self._plan.is_folder or not self._target.exists():
            return
        if self._target.is_dir() and not any(self._target.iterdir()):
            return
        if resume:
            found = self._manifest()
            run = found.get("run")
            if isinstance(run, str) and found.get("job") == self._job_name(run):
                self.complete = True
                return
        raise CorpusError(
            f"{self._target} exists. Choose another folder for the output, or remove that one first."
        )

    def _manifest(self) -> dict[str, Any]:
        try:
            found = json.loads((self._target / MANIFEST).read_bytes())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _job_name(self, run: str) -> str:
        content = json.dumps(self._job(run), sort_keys=True)
        return hashlib.blake2b(content.encode(), key=run.encode(), digest_size=16).hexdigest()

    # Making the parts

    def here(self, workers: int) -> None:
        """Make all parts in this process or its workers."""
        plan, folder, watch = self._plan, self._folder, self._watch
        parts: _Parts | None = None
        with contextlib.ExitStack() as stack:
            local = _local_engine(plan, self._privatizer, self._settings, workers, self._context)
            stack.enter_context(local)
            # Closed by name: on failure a worker pool must not live on in the traceback.
            results = stack.enter_context(contextlib.closing(local.ordered(self._jobs())))
            try:
                for (file, reader, batch, end), released in results:
                    parts = parts or _Parts(plan, folder, file, reader)
                    if batch is not None:
                        texts, tokens = _texts_of(plan, file, batch, released)
                        parts.take(batch, texts, tokens)
                        watch.released(file, reader, batch, tokens)
                        continue
                    parts.end(is_empty=end.record == 0)
                    folder.close_file(file, self._count(end), end.record)
                    parts = None
            finally:
                if parts is not None:
                    parts.close()

    def _jobs(self) -> Iterator[tuple[tuple[int, CorpusReader, Batch | None, Place], Any]]:
        """Yield what is still to be done: each batch with what the engine is given, and each file's end with nothing."""
        base = 0
        for file in range(len(self._plan.files)):
            done = 0
            while (file, done) in self._entries:
                done += 1
            closed = self._folder.closed_file(file)
            if closed is not None and done == closed[0]:
                self._names.read(file)
                base += closed[1]
                continue
            end = self._entries[file, done - 1].end if done else Place()
            if done:
                self._names.read(file, stop=end.record)
            reader = self._plan.reader(file, end)
            for batch in reader:
                self._watch.columns(reader, batch)
                self._names.take(file, reader, batch)
                end = batch.end
                yield (file, reader, batch, end), self._plan.arrow(reader, batch, base)
            yield (file, reader, None, end), None
            base += end.record

    def _count(self, end: Place) -> int:
        return max(1, -(-end.record // self._plan.part_records))

    def elsewhere(self, engine: str, address: str | None, workers: int) -> None:
        """Make all parts on Spark or Ray."""
        plan = self._plan
        assert self._settings is not None
        settings = replace(self._settings, index=os.path.abspath(self._settings.index))
        if self._key is not None:
            # The executors read the key where the output is; in what is sent to them there is no secret.
            settings = replace(settings, key_file=str(self._key.path), run_key=b"")
        first = plan.reader(0, stop=plan.batch_size)
        for batch in first:
            self._watch.columns(first, batch)
        tasks = []
        base = 0
        for file in range(len(plan.files)):
            self._names.read(file)
            places = [Place(), *plan.reader(file).places()]
            tasks += self._tasks(file, places, base)
            base += places[-1].record
            self._folder.close_file(file, self._count(places[-1]), places[-1].record)
        self._engine = (engine, address, workers)
        if tasks:
            runner = PartRunner(plan.absolute(), settings, self._context, str(self._folder.path))
            with self._followed(base):
                self._each(tasks, runner)

    def _tasks(self, file: int, places: Sequence[Place], base: int) -> list[dict[str, Any]]:
        """One task for each part that is missing; one for all of them where a file cannot be entered in its middle."""
        missing = [
            part for part in range(self._count(places[-1])) if (file, part) not in self._entries
        ]
        if self._plan.format != "parquet" and places[-1].offset is None:
            missing = missing[:1]
            stops = [places[-1].record]
        else:
            stops = [places[part + 1].record for part in missing]
        return [
            {"file": file, "start": asdict(places[part]), "stop": stop, "base": base}
            for part, stop in zip(missing, stops, strict=False)
        ]

    def _each(self, tasks: list[dict[str, Any]], work: Callable[[Any], dict[str, Any]]) -> None:
        assert self._engine is not None
        engine, address, workers = self._engine
        each = import_module(f"textpriv.engines.{engine}").each
        for told in each(tasks, work, address=address, workers=workers):
            if "error" in told:
                raise CorpusError(told["error"])

    @contextlib.contextmanager
    def _followed(self, records: int) -> Iterator[None]:
        """Tell, from a thread, of the parts that other processes have finished."""
        over = threading.Event()

        def follow() -> None:
            seen = set(self._entries)
            while not over.wait(0.5):
                with contextlib.suppress(OSError):
                    for place, entry in self._folder.entries(without=seen).items():
                        seen.add(place)
                        self._watch.restored(entry)
                done = self._watch.documents + self._watch.skipped.total()
                self._watch.tell(done / records if records else None)

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    # The output

    def published(self, started: float) -> CorpusReport:
        """Join the parts, let the output appear, and report."""
        plan, watch = self._plan, self._watch
        aside = self._target.with_name(self._target.name + ".quarantine.jsonl")
        if self.complete:
            return self._report_published(started, aside)
        entries = self._folder.entries()
        self._join_all()
        watch.documents = 0
        watch.tokens.clear()
        watch.skipped.clear()
        watch.unprotected.clear()
        documents: Counter[int] = Counter()
        for entry in sorted(entries.values(), key=lambda entry: (entry.file, entry.part)):
            watch.restored(entry)
            documents[entry.file] += entry.documents
        has_aside = self._folder.publish_quarantine(aside, [entries[at] for at in sorted(entries)])
        if plan.is_folder:
            self._folder.publish_folder(self._target, self._new_manifest(documents))
        else:
            self._folder.publish_file(self._target)
        return watch.report(
            time.perf_counter() - started,
            files=len(plan.files),
            quarantine=str(aside) if has_aside else None,
            resumed=self._resumed,
        )

    def _join_all(self) -> None:
        plan, folder = self._plan, self._folder
        count = len(plan.files)
        if self._engine is not None and count > 1 and plan.compression_of(0) is not None:
            self._each(
                [{"file": file} for file in range(count)],
                FileJoiner(plan.absolute(), str(folder.path)),
            )
            return
        for file in range(count):
            _join(plan, folder, file)

    def _new_manifest(self, documents: Mapping[int, int]) -> dict[str, Any]:
        from textpriv import __version__

        files = []
        for file, (name, _) in enumerate(self._plan.files):
            path = self._folder.result_path(name)
            files.append(
                {
                    "name": name,
                    "bytes": path.stat().st_size,
                    "sha256": digest(path),
                    "documents": documents[file],
                }
            )
        statement = getattr(self._privatizer, "statement", None)
        return {
            "textpriv": __version__,
            "run": self._folder.run,
            "job": self._job_name(self._folder.run),
            "format": self._plan.format,
            "files": files,
            "documents": self._watch.documents,
            "tokens": dict(self._watch.tokens),
            "skipped": dict(self._watch.skipped),
            "unprotected": list(self._watch.unprotected),
            "statement": None if statement is None else statement.to_dict(),
        }

    def _report_published(self, started: float, aside: Path) -> CorpusReport:
        found = self._manifest()
        return CorpusReport(
            documents=found["documents"],
            tokens=found["tokens"],
            skipped=found["skipped"],
            unprotected=tuple(found["unprotected"]),
            seconds=time.perf_counter() - started,
            files=len(found["files"]),
            quarantine=str(aside) if aside.exists() else None,
            resumed=found["documents"],
        )
