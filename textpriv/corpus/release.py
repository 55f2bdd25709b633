"""Release: the options of a run over a corpus, and the plan of its files. Checked before anything is read or made."""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textpriv.corpus import stores
from textpriv.corpus.formats import corpus_format, reader_of
from textpriv.corpus.records import Batch, ColumnRule, CorpusReader, Reading, is_stream
from textpriv.engines.batch import Rows
from textpriv.engines.settings import Columns, PrivatizerSettings
from textpriv.errors import CorpusError
from textpriv.files import is_url, local_path, lost_by

if TYPE_CHECKING:
    from textpriv.corpus.report import Progress
    from textpriv.privatizer import Privatizer
    from textpriv.run_key import RunKey

__all__ = ["Plan", "Release", "beside", "check_corpus", "files_of", "refuse_taken"]

_TABLES = ("_delta_log", ".hoodie")  # folders that say which files of a table count
_ENDS = 64 * 1024  # bytes of an input file, at either end, by which it is known again


@dataclass(frozen=True, kw_only=True)
class Release:
    """Options of a run over a corpus.

    Attributes
    ----------
    text_column
        Column of the texts, or several, which are released independently.
    document_column, author_column
        Columns with the name of each document, and of its author. The document's randomness then follows from the run key
        and its name; without names from its own text and its number among equal texts. A name that came before is a bad
        record, but for a ledger, which counts such documents as versions of one and requires names.
    labels_column
        Column with the spans of each text that are known already (:func:`textpriv.spans.span.read_labels`); left out of
        the output.
    columns
        Which other columns pass through; all of them by default. They are not protected.
    format
        Of both ends; None goes by the extensions.
    on_error
        ``"fail"``, ``"skip"`` or ``"quarantine"``: at a bad record stop, leave it out and count it, or also write it to
        ``target.quarantine.jsonl`` (mode 0600, raw text).
    null
        ``"keep"``, ``"fail"`` or ``"empty"``: a null text stays null, is a bad record, or becomes an empty text.
    key
        The run key of ``privatizer``, kept in a file. A run with a key, a seed or a ledger can be continued.
    resume
        Continue a run. Does nothing where all is done.
    overwrite
        Replace an output file that is there, or a run under other settings. A folder is never replaced.
    settings
        What other processes build their Privatizer from; required for several workers and for Spark and Ray. Must describe
        ``privatizer``.
    workers, engine, address
        Processes; ``"local"``, ``"spark"`` or ``"ray"``; the Spark master or the Ray cluster, None for one on this machine.
    batch_size, part_records
        Records that are released at a time, and after which they are safe on the disk. The released texts do not depend on
        them.
    on_progress, on_unprotected
        Called with each step; with names of columns that pass, at the first records that have them.
    """

    text_column: str | Sequence[str] = "text"
    document_column: str | None = None
    author_column: str | None = None
    labels_column: str | None = None
    columns: ColumnRule = field(default_factory=ColumnRule)
    format: str | None = None
    on_error: str = "fail"
    null: str = "keep"
    key: RunKey | None = None
    resume: bool = False
    overwrite: bool = False
    settings: PrivatizerSettings | None = None
    workers: int = 1
    engine: str = "local"
    address: str | None = None
    batch_size: int = 500
    part_records: int = Reading.part_records
    on_progress: Callable[[Progress], None] | None = None
    on_unprotected: Callable[[tuple[str, ...]], None] | None = None

    @property
    def reading(self) -> Reading:
        """Which columns are read, and how."""
        text = self.text_column
        texts = (text,) if isinstance(text, str) else tuple(text)
        names = tuple(filter(None, (self.document_column, self.author_column)))
        how = self.on_error, self.null, self.batch_size, self.part_records
        return Reading(texts, names, self.labels_column, *how)

    def check(self, privatizer: Privatizer, source: str, target: str) -> None:
        """Refuse options that this privatizer, or these ends, cannot have."""
        has_ledger = getattr(privatizer, "ledger", None) is not None
        if self.engine not in ("local", "spark", "ray"):
            raise CorpusError(f"engine must be local, spark or ray; found {self.engine!r}.")
        if (self.workers > 1 or self.engine != "local") and self.settings is None:
            raise CorpusError("More than one worker needs settings=PrivatizerSettings(...).")
        if (self.author_column or has_ledger) and self.document_column is None:
            raise CorpusError(
                "A ledger and authors need documents with names: give a document_column."
            )
        if has_ledger and self.engine != "local":
            raise CorpusError("A ledger counts on one machine: use the local engine.")
        if getattr(privatizer, "spans", None) is None and self.labels_column:
            raise CorpusError("Labels are those of typed spans: pass spans=.")
        repeats = self.key is not None or has_ledger or privatizer.seed is not None
        if self.resume and not repeats:
            raise CorpusError("A run can be continued only with a run key, a seed or a ledger.")
        ends = [name for name in (source, target) if is_stream(name)]
        is_known = ends == [source] and self.document_column is not None
        if ends and (self.resume or self.engine != "local" or (self.key and not is_known)):
            raise CorpusError(
                "A stream passes only once, so its run can neither be continued, repeated under a run key nor be shared "
                "out: name files. An input whose documents have names may be a stream."
            )


@dataclass(frozen=True)
class Plan:
    """The files of a run and how they are read and written; travels to other processes."""

    files: tuple[tuple[str, str], ...]  # names below the source ("" for a single file), and paths
    is_folder: bool
    format: str
    compression: str | None  # of a single output
    reading: Reading
    rule: ColumnRule

    @classmethod
    def of(cls, source: str, target: str, release: Release) -> Plan:
        """Plan a run, with everything checked that its files and options show."""
        reading, rule = release.reading, release.columns
        if reading.labels is not None:  # offsets in the raw text
            rule = replace(rule, drop=(*rule.drop, glob.escape(reading.labels)))
        if is_folder := stores.is_folder(source):
            _refuse_overlap(source, target)
            files, format = _files_of(source, release.format)
            compression = None
        else:
            format, compression = _common_format(source, target, release.format)
            files = (("", source),)
        if format == "text" and len(reading.columns) > 1:
            raise CorpusError(
                "Texts, documents and labels are named by columns, and a text file has none: use jsonl, csv, tsv or parquet."
            )
        if is_stream(target) and (
            is_folder or format == "parquet" or reading.on_error == "quarantine"
        ):
            raise CorpusError(
                "Only one jsonl, csv, tsv or text file goes to a stream, without a quarantine. Name a file."
            )
        plan = cls(files, is_folder, format, compression, reading, rule)
        plan.columns  # noqa: B018 - refuses a text that is to be a name
        return plan

    @property
    def columns(self) -> Columns:
        """The meaning of the columns."""
        reading = self.reading
        document, author = (*reading.names, None, None)[:2]
        return Columns(reading.text_columns, document, author, reading.labels, reading.null)

    def reader(self, file: int) -> CorpusReader:
        """Return the reader of an input file."""
        return reader_of(self.files[file][1], self.format, self.reading)

    def compression_of(self, file: int) -> str | None:
        """Return the compression of an output file: a folder keeps that of each input."""
        if not self.is_folder:
            return self.compression
        return corpus_format(self.files[file][1], self.format)[1]

    def place(self, file: int) -> str:
        """Return the beginning of the name of a file's records in a message."""
        name = self.files[file][0]
        return f"{name}, record" if name else "record"

    def part_of(self, batch: Batch) -> int:
        """Return the number of the part in which a batch is."""
        return max(0, batch.end - 1) // self.reading.part_records

    def rows(self, batch: Batch) -> Rows:
        """Return what decides the release of a batch: texts, names, labels, and numbers among equal texts."""
        texts, names = len(self.reading.text_columns), len(self.reading.names)
        columns = [batch.column(place) for place in range(len(self.reading.columns))]
        document, author = (*columns[texts : texts + names], None, None)[:2]
        labels = None if self.reading.labels is None else columns[-1]
        return Rows(columns[:texts], document, author, labels, batch.numbers)

    def absolute(self) -> Plan:
        """Return the plan with paths that mean the same in any process."""
        files = (
            (name, path if is_url(path) else os.path.abspath(path)) for name, path in self.files
        )
        return replace(self, files=tuple(files))

    def job(self, privatizer: Privatizer) -> dict[str, Any]:
        """Return everything that decides the output, in plain values by what to call it."""
        statement, reading = getattr(privatizer, "statement", None), self.reading
        return {
            "epsilon": getattr(statement, "epsilon", None),
            "mechanism": type(getattr(privatizer, "mechanism", None)).__name__,
            "settings": getattr(privatizer, "fingerprint", b"").hex(),
            "seed": privatizer.seed,
            "format": [self.format, self.compression],
            "columns": [reading.columns, asdict(self.rule)],
            "bad records": [reading.on_error, reading.null],
            "part": reading.part_records,
            "input": [[name, self._ends(path)] for name, path in self.files],
        }

    def _ends(self, path: str) -> list[Any]:
        """Return the size of an input file and a hash of its ends, to notice another one."""
        digest = hashlib.sha256()
        with stores.opened(path) as opened:
            size = opened.seek(0, os.SEEK_END)
            for start in (0, max(0, size - _ENDS)):
                opened.seek(start)
                digest.update(opened.read(_ENDS))
        return [size, digest.hexdigest()]


def beside(target: Path, name: str) -> Path:
    """Return a file beside an output: its name, and another after it."""
    return target.with_name(f"{target.name}.{name}")


def refuse_taken(name: str, why: str = "") -> None:
    """Refuse to replace an output that is there."""
    if stores.is_taken(name):
        raise CorpusError(
            f"{name} exists{why}. Another release of the same texts adds to their privacy loss. Name another output, "
            "continue a run with --resume, or replace a file with --force."
        )


def check_corpus(
    source: str,
    target: str,
    release: Release,
    *,
    ledger: Path | None = None,
    read: Iterable[str | Path] = (),
) -> Plan:
    """Refuse inputs that are missing, and outputs that cannot be written or would replace something that is read.

    Parameters
    ----------
    ledger
        The file of the ledger.
    read
        Further files that the run reads: an index folder, a policy.
    """
    plan = Plan.of(source, target, release)
    for _, name in plan.files:
        if not is_stream(name):
            stores.opened(name).close()
    if is_stream(target):
        return plan
    final = local_path(target)
    kept: list[str | Path] = [*read]
    kept += [path for _, path in plan.files if not (is_stream(path) or is_url(path))]
    if release.key is not None and release.key.path is not None:
        kept.append(release.key.path)
    if release.settings is not None:
        kept += files_of(release.settings.index, release.settings)
    if ledger is not None:
        kept += [ledger, *(f"{ledger}-{name}" for name in ("wal", "shm"))]
    made = [final, beside(final, "manifest.json"), beside(final, "quarantine.jsonl")]
    if (lost := lost_by(made, kept)) is not None:
        raise CorpusError(
            f"{lost} would be in the output or be written over: run keys, ledgers and what is read must be elsewhere. Name "
            "another file."
        )
    if not (is_url(target) or final.parent.is_dir()):
        raise CorpusError(f"Cannot write to {final}: its folder does not exist. Make it first.")
    if final.is_dir() != plan.is_folder and final.exists():
        raise CorpusError(
            f"Cannot write to {final}: it is a {'file' if plan.is_folder else 'folder'}. Name another."
        )
    if not (release.overwrite or release.resume):
        refuse_taken(target)
    return plan


def files_of(index: str | Path | None, settings: PrivatizerSettings | None) -> list[Path]:
    """Return the files of an index folder, and others that settings name, such as one of counts."""
    named = [] if settings is None else [settings.key_file, settings.options.get("prior")]
    given = [Path(each) for each in (*named, index) if isinstance(each, str | os.PathLike)]
    inside = Path(index).rglob("*") if index is not None and os.path.isdir(index) else ()
    return [*given, *(path for path in inside if path.is_file())]


def _files_of(source: str, format: str | None) -> tuple[tuple[tuple[str, str], ...], str]:
    """Return the names and paths of a folder's files, in the order of their names, and their format."""
    for log in _TABLES:
        if stores.is_folder(f"{source}/{log}"):
            raise CorpusError(
                f"{source} is a table with a log ({log}): its files also contain rows that were deleted or replaced. Read "
                "and write it by its own reader, as docs/corpora.md shows."
            )
    found = stores.names_below(source) if is_url(source) else _local_names(source)
    names = [each for each in found if not any(p.startswith((".", "_")) for p in each.split("/"))]
    formats = {str(corpus_format(os.path.join(source, name), format)[0]) for name in names}
    if len(formats) != 1:
        kinds = (
            f"files of several formats ({', '.join(sorted(formats))})" if formats else "no files"
        )
        raise CorpusError(
            f"{source} contains {kinds}: expected files of one format, .jsonl, .csv, .tsv, .txt or .parquet."
        )
    return tuple((name, os.path.join(source, name)) for name in sorted(names)), formats.pop()


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


def _common_format(source: str, target: str, format: str | None) -> tuple[str, str | None]:
    """Return the one format of both ends, and the compression of the target."""
    source_format, _ = corpus_format(source, format)
    target_format, compression = corpus_format(target, format)
    if source_format and target_format and source_format != target_format:
        raise CorpusError(
            f"The output has the format of the input: {source} is {source_format}, {target} would be {target_format}. "
            "Choose another name for the output, or set --format for both."
        )
    return source_format or target_format or "text", compression


def _refuse_overlap(source: str, target: str) -> None:
    inner = Path(os.path.realpath(target))
    if Path(os.path.realpath(source)) in (inner, *inner.parents):
        raise CorpusError(
            f"{target} is in {source}: the private files must not be among the raw ones. Name another folder."
        )
