"""The plan of a job: which files are read and written, in which format, checked before anything is made.

Names and settings only; no record is read here. Running it is the matter of ``corpus.run``.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np

from textpriv import stores
from textpriv.arguments import whole
from textpriv.corpus.checkpoint import (
    FORMER_MANIFEST,
    manifest_path,
    quarantine_path,
)
from textpriv.corpus.columns import ColumnRule
from textpriv.corpus.formats import corpus_format, read_records
from textpriv.corpus.records import (
    MAX_TEXT_BYTES,
    STANDARD_STREAM,
    Batch,
    CorpusReader,
    Cursor,
    is_stream,
)
from textpriv.engines.batch import Columns, PrivatizerSettings, string_array
from textpriv.errors import CorpusError
from textpriv.files import lost_by, same_file
from textpriv.run_key import RunKey, key_path

if TYPE_CHECKING:
    import pyarrow as pa

    from textpriv.privatizer import Privatizer

__all__ = [
    "ENGINES",
    "MOVED",
    "PART_RECORDS",
    "Plan",
    "check_files",
    "check_options",
    "files_of",
    "folder_exists",
    "is_taken",
    "names_in",
    "planned",
]

ENGINES = ("local", "spark", "ray")
PART_RECORDS = 20_000

# The names of the columns that go to an engine after the texts, by how many columns of names there are.
_KNOWN: tuple[dict[str, str], ...] = (
    {},
    {"document": "document"},
    {"document": "document", "author": "author"},
)
_LABELS, MOVED = "labels", "moved"
_TABLES = ("_delta_log", ".hoodie")  # folders that say which files of a table count
_ENDS = 64 * 1024  # bytes of an input file, at either end, by which it is known again


def check_options(
    privatizer: Privatizer,
    workers: int,
    settings: PrivatizerSettings | None,
    engine: str,
    document_column: str | None,
    author_column: str | None,
    key: RunKey | None,
    resume: bool | None,
) -> None:
    """Refuse options that do not go together."""
    ledger = getattr(privatizer, "ledger", None)
    whole("workers", workers, error=CorpusError)
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
    if author_column is not None and document_column is None:
        raise CorpusError(
            "Authors are named beside documents: name the column of the documents, too."
        )
    if ledger is not None and engine != "local":
        raise CorpusError(
            "A ledger lies on a local disk, where other machines cannot count in it: use the local engine."
        )
    if resume is not None and key is None and ledger is None and privatizer.seed is None:
        raise CorpusError("A run can be continued only with a run key, a seed or a ledger.")


@dataclass(frozen=True)
class Plan:
    """The files of a job and how they are read and written; travels to other processes."""

    files: tuple[tuple[str, str], ...]  # names below the source ("" for a single file), and paths
    is_folder: bool
    format: str
    compression: str | None  # of a single output
    partitions: tuple[
        str, ...
    ]  # columns whose values are names of folders, which the output has, too
    text_columns: tuple[str, ...]
    on_error: str
    batch_size: int
    max_text_bytes: int
    rule: ColumnRule
    part_records: int
    names: tuple[str, ...]
    labels: str | None = None  # the column with the spans of each text
    has_offsets: bool = False  # whether parts say where spans stood and stand

    @classmethod
    def of(
        cls,
        source: str,
        target: str,
        format: str | None,
        *,
        text_columns: tuple[str, ...],
        rule: ColumnRule | None = None,
        names: tuple[str, ...] = (),
        labels: str | None = None,
        part_records: int = PART_RECORDS,
        on_error: str = "fail",
        batch_size: int = 500,
        max_text_bytes: int = MAX_TEXT_BYTES,
        has_offsets: bool = False,
    ) -> Plan:
        """Plan a job, with everything checked that its files and options show."""
        # Refuses a text that is to be a name.
        document, author = (*names, None, None)[:2]
        Columns(text_columns, document, author, labels=labels)
        rule = rule or ColumnRule()
        if labels is not None:  # offsets in the raw text
            rule = replace(rule, drop=(*rule.drop, glob.escape(labels)))
        part_records = whole("part_records", part_records, error=CorpusError)
        max_text_bytes = whole("max_text_bytes", max_text_bytes, error=CorpusError)
        batch_size = whole("batch_size", batch_size, error=CorpusError)
        compression = None
        is_folder = stores.is_folder(source)
        if is_folder:
            _refuse_overlap(source, target)
            files = _files_of(source, format)
            formats = {corpus_format(path, format)[0] for _, path in files}
            if len(formats) > 1:
                raise CorpusError(
                    f"{source} holds files of several formats ({', '.join(sorted(map(str, formats)))}): expected one. Move "
                    "them into folders of their own."
                )
            format = formats.pop()
        else:
            format, compression = _common_format(source, target, format)
            _refuse_same_file(source, target)
            files = (("", source),)
        partitions = _partition_columns(name for name, _ in files)
        _refuse_partitions(source, partitions, text_columns, rule)
        if format == "text" and (names or labels or len(text_columns) > 1):
            raise CorpusError(
                "Texts, documents and labels are named by columns, and a text file has none: use jsonl, csv, tsv or parquet."
            )
        return cls(
            files,
            is_folder,
            str(format),
            compression,
            partitions,
            text_columns,
            on_error,
            batch_size,
            max_text_bytes,
            rule,
            part_records,
            names,
            labels,
            has_offsets,
        )

    @property
    def columns(self) -> Columns:
        """The columns that go to an engine."""
        texts = tuple(f"text {number}" for number in range(len(self.text_columns)))
        return replace(
            Columns(texts, known_as=self.text_columns, **_KNOWN[len(self.names)]),
            occurrence=None if self.names else tuple(f"{text} #" for text in texts),
            labels=None if self.labels is None else _LABELS,
            moved=MOVED if self.has_offsets else None,
        )

    def reader(
        self, file: int, start: Cursor | None = None, stop: int | None = None
    ) -> CorpusReader:
        """The reader of an input file, or of some of its records."""
        return read_records(
            self.files[file][1],
            self.format,
            self.text_columns,
            self.on_error,
            batch_size=self.batch_size,
            max_text_bytes=self.max_text_bytes,
            start=start,
            stop=stop,
            cut=self.part_records,
            names=self.names,
            labels=self.labels,
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

    def arrow(
        self, reader: CorpusReader, batch: Batch, occurrences: Sequence[Sequence[int]]
    ) -> pa.RecordBatch | None:
        """Return what an engine is given of a batch: the texts, and what the documents are known by."""
        if not batch.texts:
            return None
        import pyarrow as pa

        texts = self.texts(reader, batch)
        columns = dict(zip(self.columns.texts, map(string_array, texts), strict=True))
        for name, numbers in zip(self.columns.occurrences, occurrences, strict=True):
            columns[name] = pa.array(np.array(numbers, dtype=np.uint64))
        known = (self.columns.document, self.columns.author)
        for column, name in zip(known, self.names, strict=False):
            columns[str(column)] = string_array(names_in(reader, batch, name))
        if self.labels is not None:
            given = reader.values(batch, self.labels)
            columns[_LABELS] = string_array(
                each if isinstance(each, str) else json.dumps(each) for each in given
            )
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def texts(self, reader: CorpusReader, batch: Batch) -> list[list[str]]:
        """Return the texts of a batch, column by column."""
        return [batch.texts, *(reader.values(batch, name) for name in self.text_columns[1:])]

    def job(self, run: str, context: bytes, key: bytes | None, seed: int | None) -> dict[str, Any]:
        """Everything that decides the output, in plain values."""
        from textpriv import __version__

        check = None
        if key is not None:
            check = hashlib.blake2b(key=key, person=b"textpriv-check").hexdigest()
        texts = self.text_columns
        return {
            "version": __version__,
            "settings": context.hex(),
            "key": check,
            "seed": seed,
            "input": [[name, *_file_fingerprint(path, run)] for name, path in self.files],
            "format": [self.format, self.compression],
            "columns": [texts[0] if len(texts) == 1 else texts, *self.names, asdict(self.rule)],
            "bad records": [self.on_error, self.max_text_bytes],
            "part": self.part_records,
            **({"labels": self.labels} if self.labels is not None else {}),
            **({"offsets": True} if self.has_offsets else {}),
        }

    def absolute(self) -> Plan:
        """Return the plan with paths that mean the same in any process."""
        files = tuple(
            (name, path if stores.is_url(path) else os.path.abspath(path))
            for name, path in self.files
        )
        return replace(self, files=files)


def planned(
    source: str,
    target: str,
    *,
    format: str | None = None,
    text_column: str | Sequence[str] = "text",
    columns: ColumnRule | None = None,
    document_column: str | None = None,
    author_column: str | None = None,
    labels_column: str | None = None,
    offsets: str | os.PathLike[str] | None = None,
    **more: Any,
) -> Plan:
    """Plan a job by arguments of ``textpriv.corpus.privatize_corpus``; ``more`` are those that Plan.of has, too."""
    return Plan.of(
        source,
        target,
        format,
        text_columns=(text_column,) if isinstance(text_column, str) else tuple(text_column),
        rule=columns,
        names=tuple(name for name in (document_column, author_column) if name is not None),
        labels=labels_column,
        has_offsets=offsets is not None,
        **more,
    )


def names_in(reader: CorpusReader, batch: Batch, column: str) -> list[str]:
    """Read the names in a column, which the reader has checked; 7 and "7" are one name, for CSV cannot tell them apart."""
    return [str(value) for value in reader.values(batch, column)]


def check_files(
    plan: Plan,
    target: str,
    *,
    key: RunKey | None = None,
    ledger: Path | None = None,
    read: Iterable[str | Path] = (),
    offsets: Path | None = None,
    resume: bool | None = None,
    overwrite: bool = False,
) -> None:
    """Refuse inputs that are missing, and outputs that cannot be written or would take the place of something else.

    Nothing is made or changed. What lies at the output is replaced where it is empty, where the run key beside it is that
    of this run (it is a release that can be repeated), where a run is continued (which may have ended after it published),
    and where that is asked for; an output folder never is. What the run reads is not replaced in any case.

    Parameters
    ----------
    plan, target, key, offsets, resume, overwrite
        As in ``textpriv.corpus.privatize_corpus``.
    ledger
        The file of the ledger.
    read
        Further files that the run reads or keeps.
    """
    for _, name in plan.files:
        if not is_stream(name):
            stores.opened(name).close()
    if is_stream(target):
        return
    final = stores.local_path(target)
    kept, moved = [*read], [] if offsets is None else [offsets]
    if key is not None:
        kept.append(key.path)
    if ledger is not None:
        kept += [ledger, *(f"{ledger}-{name}" for name in ("wal", "shm"))]
    _refuse_lost(plan, final, kept, moved)
    if not (stores.is_url(target) or final.parent.is_dir()):
        raise CorpusError(f"Cannot write to {final}: its folder does not exist. Make it first.")
    if final.is_dir() and not plan.is_folder:
        raise CorpusError(f"Cannot write to {final}: it is a folder. Name a file.")
    if offsets is not None and (offsets.is_dir() or not offsets.parent.is_dir()):
        raise CorpusError(
            f"Cannot write offsets to {offsets}: it is a folder, or its folder does not exist. Name a file."
        )
    if plan.is_folder and not resume and is_taken(target):
        raise folder_exists(target)
    is_own = key is not None and not key.fresh and key.path == key_path(target)
    if overwrite or is_own or resume:
        return
    beside = [quarantine_path(final)] if plan.on_error == "quarantine" else []
    outputs = [*([] if plan.is_folder else [target]), *map(str, moved + beside)]
    for path in outputs:
        if is_taken(path):
            raise CorpusError(
                f"{path} exists, and no run key beside the output says that it can be made again. Name another one, or "
                "replace it with --force (overwrite=True)."
            )


def _refuse_lost(plan: Plan, final: Path, kept: Iterable[str | Path], moved: list[Path]) -> None:
    """Refuse to write over what is read or kept, or to put it into the output; ``moved`` holds offsets."""
    made, beside = [final, manifest_path(final)], [quarantine_path(final)]
    sources = [path for _, path in plan.files if not (is_stream(path) or stores.is_url(path))]
    for written, read in (
        (made, [*kept, *moved]),
        (made if plan.is_folder else [], sources),
        (moved, [*kept, *sources, *beside]),
        (beside if plan.on_error == "quarantine" else [], [*kept, *sources]),
    ):
        if (lost := lost_by(written, read)) is not None:
            raise CorpusError(
                f"{lost} would lie in the output or be written over: run keys, ledgers, offsets and what is read must lie "
                "elsewhere. Name another file."
            )


def is_taken(name: str) -> bool:
    """Return whether a file that is not empty, or a folder that is not, is at a path or URL."""
    if stores.is_url(name):
        return stores.is_file(name) or bool(stores.names_below(name))
    path = Path(name)
    return any(path.iterdir()) if path.is_dir() else path.exists() and path.stat().st_size > 0


def folder_exists(target: str) -> CorpusError:
    """The error for an output folder that is there."""
    return CorpusError(
        f"{target} exists. Choose another folder for the output, or remove that one first."
    )


def files_of(index: str | Path | None, settings: PrivatizerSettings | None) -> list[Path]:
    """Return the files of an index folder, and others that settings name, such as one of counts."""
    named = [] if settings is None else [settings.key_file, settings.options.get("prior")]
    files = [Path(each) for each in (*named, index) if isinstance(each, str | os.PathLike)]
    return [*files, *(path for path in files[-1].rglob("*") if path.is_file())] if index else files


def _file_fingerprint(path: str, run: str) -> tuple[int, str]:
    """Return the size of a file and a hash of its ends, keyed by the run's name: to notice another input."""
    if is_stream(path):
        return 0, ""
    digest = hashlib.blake2b(key=run.encode(), digest_size=16)
    with stores.opened(path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        digest.update(file.read(_ENDS))
        file.seek(max(0, size - _ENDS))
        digest.update(file.read(_ENDS))
    return size, digest.hexdigest()


def _files_of(source: str, format: str | None) -> tuple[tuple[str, str], ...]:
    """Return the names and paths of a folder's files, in the order of their names, numbers in them by value."""
    for log in _TABLES:
        if stores.is_folder(f"{source}/{log}"):
            raise CorpusError(
                f"{source} is a table with a log ({log}): its files also hold rows that were deleted or replaced. Read and "
                "write it by its own reader, as docs/corpora.md shows."
            )
    names = []
    for name in stores.names_below(source) if stores.is_url(source) else _local_names(source):
        parts = name.split("/")
        if any(part.startswith((".", "_")) for part in parts) or parts[-1] == FORMER_MANIFEST:
            continue
        corpus_format(os.path.join(source, name), format)
        names.append(name)
    if not names:
        raise CorpusError(
            f"{source} holds no files: expected .jsonl, .csv, .tsv, .txt or .parquet."
        )
    names.sort(
        key=lambda name: (
            [int(part) if n % 2 else part for n, part in enumerate(re.split(r"([0-9]+)", name))],
            name,
        )
    )
    return tuple((name, os.path.join(source, name)) for name in names)


def _local_names(source: str) -> Iterator[str]:
    for folder, folders, files in os.walk(source):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        for name in folders:
            if os.path.islink(os.path.join(folder, name)):
                raise CorpusError(
                    f"{os.path.join(folder, name)} is a link to a folder, and links are not followed: its files would be "
                    "left out. Put the folder itself there, or remove the link."
                )
        paths = (os.path.join(folder, name) for name in files)
        yield from (os.path.relpath(path, source) for path in paths if not is_stream(path))


def _partition_columns(names: Iterable[str]) -> tuple[str, ...]:
    """Return the columns whose values are names of folders (``label=0/a.parquet``), as Spark and Hive write them."""
    folders = (folder for name in names for folder in name.split(os.sep)[:-1])
    columns = (folder.partition("=") for folder in folders)
    return tuple(dict.fromkeys(unquote(name) for name, equals, _ in columns if name and equals))


def _refuse_partitions(
    source: str, partitions: Sequence[str], text_columns: Sequence[str], rule: ColumnRule
) -> None:
    """Refuse to drop, or to make private, a column that names folders: the output has the same folders."""
    for name in partitions:
        if name in text_columns or not rule.passes(name):
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
    if same_file(source, target) and not is_stream(target):
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
