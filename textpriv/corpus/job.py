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
from textpriv.corpus.checkpoint import FORMER_MANIFEST, manifest_path
from textpriv.corpus.columns import ColumnRule
from textpriv.corpus.formats import corpus_format, read_records
from textpriv.corpus.records import STANDARD_STREAM, Batch, CorpusReader, Cursor, is_stream
from textpriv.engines.batch import Columns, PrivatizerSettings, string_array
from textpriv.errors import CorpusError
from textpriv.files import same_file

if TYPE_CHECKING:
    import pyarrow as pa

    from textpriv.privatizer import Privatizer
    from textpriv.run_key import RunKey

__all__ = [
    "ENGINES",
    "MOVED",
    "Plan",
    "check_options",
    "names_in",
    "refuse_in_output",
    "refuse_taken",
]

ENGINES = ("local", "spark", "ray")

# The names of the columns that go to an engine after the texts, by how many columns of names there are.
_KNOWN: tuple[dict[str, str], ...] = (
    {"number": "number"},
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
    def of(cls, source: str, target: str, format: str | None, **options: Any) -> Plan:
        """Plan a job, with everything checked that its files and options show."""
        labels = options.get("labels")
        # Refuses a text that is to be a name.
        document, author = (*options["names"], None, None)[:2]
        Columns(options["text_columns"], document, author, labels=labels)
        if labels is not None:  # offsets in the raw text
            rule: ColumnRule = options["rule"]
            options["rule"] = replace(rule, drop=(*rule.drop, glob.escape(labels)))
        if options["part_records"] < 1:
            raise CorpusError(f"part_records must be at least 1; found {options['part_records']}.")
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
        _refuse_partitions(source, partitions, options["text_columns"], options["rule"])
        if format == "text" and (options["names"] or labels or len(options["text_columns"]) > 1):
            raise CorpusError(
                "Texts, documents and labels are named by columns, and a text file has none: use jsonl, csv, tsv or parquet."
            )
        return cls(files, is_folder, str(format), compression, partitions, **options)

    @property
    def columns(self) -> Columns:
        """The columns that go to an engine."""
        texts = tuple(f"text {number}" for number in range(len(self.text_columns)))
        return replace(
            Columns(texts, known_as=self.text_columns, **_KNOWN[len(self.names)]),
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

    def arrow(self, reader: CorpusReader, batch: Batch, base: int) -> pa.RecordBatch | None:
        """Return what an engine is given of a batch: the texts, and what the documents are known by."""
        if not batch.texts:
            return None
        import pyarrow as pa

        texts = [batch.texts, *(reader.values(batch, name) for name in self.text_columns[1:])]
        columns = dict(zip(self.columns.texts, map(string_array, texts), strict=True))
        if not self.names:
            numbers = pa.py_buffer(np.array(batch.positions, dtype=np.uint64) + np.uint64(base))
            columns[str(self.columns.number)] = pa.Array.from_buffers(
                pa.uint64(), len(batch.texts), [None, numbers]
            )
        known = (self.columns.document, self.columns.author)
        for column, name in zip(known, self.names, strict=False):
            columns[str(column)] = string_array(names_in(reader, batch, name))
        if self.labels is not None:
            given = reader.values(batch, self.labels)
            columns[_LABELS] = string_array(
                each if isinstance(each, str) else json.dumps(each) for each in given
            )
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

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


def names_in(reader: CorpusReader, batch: Batch, column: str) -> list[str]:
    """Read the names in a column, which the reader has checked; 7 and "7" are one name, for CSV cannot tell them apart."""
    return [str(value) for value in reader.values(batch, column)]


def refuse_in_output(target: Path, private: Iterable[Path]) -> None:
    """Refuse what is private to its owner in the output: a run key, a ledger, offsets."""
    for given in private:
        path = Path(os.path.realpath(given))
        if path in (target, manifest_path(target)) or target in path.parents:
            raise CorpusError(
                f"{path} would lie in the output or be written over by it: a run key, a ledger and offsets must lie "
                "elsewhere. Name another file."
            )


def refuse_taken(offsets: Path, others: Iterable[str | Path]) -> None:
    """Refuse to write offsets where they cannot be, or over another file of the run."""
    if any(Path(os.path.realpath(each)) == offsets for each in others):
        raise CorpusError(
            f"{offsets} is in use: offsets would be written over it. Name another file."
        )
    if offsets.is_dir() or not offsets.parent.is_dir():
        raise CorpusError(
            f"Cannot write offsets to {offsets}: it is a folder, or its folder does not exist. Name a file."
        )


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
