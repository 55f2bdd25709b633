"""Plan: the files of a run, checked before anything is made."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, chain
from pathlib import Path
from typing import NamedTuple

from textpriv.corpus import stores
from textpriv.corpus.formats import FORMATS, corpus_format
from textpriv.corpus.options import RunOptions
from textpriv.corpus.records import Batch, CorpusReader, Numbering
from textpriv.corpus.stores import is_stream
from textpriv.errors import CorpusError
from textpriv.files import is_url, local_path, lost_by
from textpriv.settings import PrivatizerSettings
from textpriv.spans.policy import SpanPolicy

_TABLES = ("_delta_log", ".hoodie")  # folders that say which files of a table count


class File(NamedTuple):
    """A file of the input."""

    name: str  # below the source; "" for a single file
    path: str
    compression: str | None  # of the output
    version: tuple[int, int] | None  # as of textpriv.corpus.stores.version


@dataclass(frozen=True)
class Plan:
    """The files of a run, and how they are read and written; travels to other processes."""

    files: tuple[File, ...]
    is_folder: bool
    format: str
    options: RunOptions
    target: str

    @classmethod
    def of(cls, source: str | Sequence[str], target: str, options: RunOptions) -> Plan:
        """Plan a run, with everything checked that its files and options show."""
        if options.on_error not in ("fail", "skip", "quarantine"):
            raise CorpusError(f"on_error is fail, skip or quarantine, not {options.on_error!r}.")
        try:
            "".encode(options.encoding or "utf-8")
        except LookupError:
            raise CorpusError(f"There is no encoding {options.encoding!r}. Name another.") from None
        first, *more = [source] if isinstance(source, str) else source
        is_folder = bool(more) or stores.is_pattern(first) or stores.is_folder(first)
        if more or stores.is_pattern(first):
            files, format = _several([first, *more], options.format)
        else:
            files, format = (_folder if is_folder else _file)(first, target, options.format)
        if format == "text" and len(options.read) > 1:
            raise CorpusError("A text file has no named columns. Use jsonl, csv, tsv or parquet.")
        is_whole = is_folder or format == "parquet" or options.on_error == "quarantine"
        if is_whole and is_stream(target):
            raise CorpusError(
                "A stream takes one jsonl, csv, tsv or text file, without quarantine."
            )
        return cls(files, is_folder, format, options, target)

    def in_order(self, names: Sequence[str]) -> Plan:
        """Return the plan with the files of these names first, in their order."""
        place = {name: n for n, name in enumerate(names)}
        files = sorted(self.files, key=lambda file: place.get(file.name, len(place)))
        return replace(self, files=tuple(files))

    def first(self, count: int | None) -> Plan:
        """Return the plan of the first files alone; of all with None."""
        return replace(self, files=self.files[:count])

    def fraction(self, file: int, share: float) -> float:
        """Return how much of the input is before this share of a file, by bytes."""
        before, after = self._bytes[file : file + 2]
        return (before + share * (after - before)) / max(1, self._bytes[-1])

    @cached_property
    def _bytes(self) -> list[int]:
        sizes = (0 if is_stream(file.path) else stores.size(file.path) for file in self.files)
        return [0, *accumulate(sizes)]

    def reader(self, file: int, number: Numbering | None = None) -> CorpusReader:
        """Return the reader of an input file."""
        path = self.files[file].path
        packing = corpus_format(path, self.format)[1]
        reader = FORMATS[self.format](path, packing, self.options, number)
        reader.file, reader.version = file, self.files[file].version
        return reader

    def part_of(self, batch: Batch) -> tuple[int, int]:
        """Return the numbers of the file and of the part in which a batch is."""
        return batch.reader.file, max(0, batch.end - 1) // self.options.part_records


def beside(target: Path, name: str) -> Path:
    """Return a file beside an output: its name, and another after it."""
    return target.with_name(f"{target.name}.{name}")


def refuse_taken(name: str, why: str = "") -> None:
    """Refuse to replace an output that is there."""
    if stores.is_taken(name):
        raise CorpusError(
            f"{name} exists{why}. Another release of the same texts adds to their privacy loss. Name another output, or "
            "replace a file with --force; folders are never replaced. --resume leaves it as it is if nothing has changed."
        )


def check_corpus(
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    target: str | os.PathLike[str],
    options: RunOptions,
    read: Iterable[str | Path] = (),
) -> Plan:
    """Refuse inputs that are missing, and outputs that cannot be written or would replace something that is read.

    ``read`` lists further files that the run reads, such as a policy.
    """
    sources = [source] if isinstance(source, str | os.PathLike) else source
    target = _plain_name(target)
    plan = Plan.of([_plain_name(name) for name in sources], target, options)
    settings, key = options.settings, options.key
    spans = settings and settings.spans
    if spans and options.author_column is None and SpanPolicy.of(spans).needs_person:
        raise CorpusError(
            "This policy draws once for each person: name the column (--author COLUMN), or take tickets or chat."
        )
    check_headers(plan)
    kept: list[str | Path] = [*read]
    private = [each.path for each in plan.files if not (is_stream(each.path) or is_url(each.path))]
    refuse_private(private, kept)
    if is_stream(target):
        return plan
    final = local_path(target)
    kept += [*private, *(files_of(settings) if settings else ())]
    if key is not None and key.path is not None:
        kept.append(key.path)
    made = [final, beside(final, "manifest.json"), beside(final, "quarantine.jsonl")]
    if (lost := lost_by(made, kept)) is not None:
        raise CorpusError(
            f"{lost} would be in the output or be written over: keys, ledgers and inputs must be elsewhere. Name another."
        )
    if not (is_url(target) or final.parent.is_dir()):
        raise CorpusError(f"Cannot write to {final}: its folder does not exist. Make it first.")
    if final.is_dir() != plan.is_folder and final.exists():
        found = "file" if plan.is_folder else "folder"
        raise CorpusError(f"Cannot write to {final}: it is a {found}. Name another.")
    if not (options.overwrite or options.resume):
        refuse_taken(target)
    return plan


def refuse_private(private: Iterable[str], read: Iterable[str | Path]) -> None:
    """Refuse a file of private texts that is also read as a public one."""
    if (both := lost_by(filter(os.path.exists, private), read)) is not None:
        raise CorpusError(
            f"{both} has the private texts, so it cannot be read as public. Name public texts."
        )


def _plain_name(name: str | os.PathLike[str]) -> str:
    name = os.fspath(name)
    if is_url(name):
        return name.rstrip("/")
    return name if name == stores.STANDARD_STREAM else os.path.abspath(name)


def check_headers(plan: Plan) -> None:
    """Refuse files that cannot be opened, and shards whose columns differ where that would copy new ones."""
    options, first = plan.options, None
    known = {*options.texts}
    files = [n for n, file in enumerate(plan.files) if not is_stream(file.path)]
    for file in files:
        header = plan.reader(file).header()
        known.update(header)
        copied = filter(options.columns.refuses_late, filter(options.writes, header))
        names = {*copied}.difference(options.texts)
        first = names if first is None else first
        if new := names.symmetric_difference(first):
            raise CorpusError(
                f"{plan.files[file].path} has other columns than {plan.files[0].path}: {', '.join(sorted(new)[:5])}. List "
                "them in --keep or --drop, or let all pass with --keep '*'."
            )
    if files and plan.format != "jsonl" and not options.rotates:  # JSON names columns in records
        options.columns.check(known)


def files_of(settings: PrivatizerSettings) -> list[Path]:
    """Return the files that settings name: those of the index, a key, a ledger, and one of counts."""
    named = settings.index, settings.key_file, settings.ledger, settings.options.get("prior")
    given = [Path(each) for each in named if isinstance(each, str | os.PathLike)]
    return [*given, *filter(Path.is_file, Path(settings.index).rglob("*"))]


def _file(source: str, target: str, format: str | None) -> tuple[tuple[File, ...], str]:
    source_format, _ = corpus_format(source, format)
    target_format, compression = corpus_format(target, format)
    if source_format and target_format and source_format != target_format:
        raise CorpusError(
            f"The output has the format of the input, {source_format}, not {target_format}. Rename {target} or set --format."
        )
    if not (is_stream(source) or is_url(source)):
        os.stat(source)
    file = File("", source, compression, stores.version(source))
    return (file,), source_format or target_format or "text"


def _several(sources: Sequence[str], format: str | None) -> tuple[tuple[File, ...], str]:
    """Return the files of several names and patterns, which become those of a folder, and their format."""
    paths: dict[str, str] = {}
    for path in chain.from_iterable(map(stores.matching, sources)):
        name = path.rpartition("/")[2]
        if is_stream(path) or stores.is_folder(path) or name in paths:
            raise CorpusError(f"{path} is no file, or the second file named {name}. Rename it.")
        paths[name] = path
    return _files(paths, " ".join(sources), format)


def _folder(source: str, target: str, format: str | None) -> tuple[tuple[File, ...], str]:
    """Return the files of a folder, in the order of their names, and their format."""
    inner = Path(os.path.realpath(target))
    if Path(os.path.realpath(source)) in (inner, *inner.parents):
        raise CorpusError(f"{target} is in {source}, among the raw files. Name another folder.")
    for log in _TABLES:
        if stores.is_folder(f"{source}/{log}"):
            raise CorpusError(
                f"{source} is a table with a log ({log}), whose files contain deleted rows too. See docs/guide/files.md."
            )
    found = stores.names_below(source) if is_url(source) else _local_names(source)
    names = [each for each in found if not any(p.startswith((".", "_")) for p in each.split("/"))]
    return _files({name: os.path.join(source, name) for name in names}, source, format)


def _files(
    paths: Mapping[str, str], source: str, format: str | None
) -> tuple[tuple[File, ...], str]:
    kinds = {name: corpus_format(path, format) for name, path in sorted(paths.items())}
    formats = sorted({str(kind) for kind, _ in kinds.values()})
    if len(formats) != 1:
        told = f"files of several formats ({', '.join(formats)})" if formats else "no files"
        raise CorpusError(f"{source} contains {told}. Name a folder with files of one format.")
    files = [File(name, paths[name], kinds[name][1], stores.version(paths[name])) for name in kinds]
    return tuple(files), formats[0]


def _local_names(source: str) -> Iterator[str]:
    for folder, folders, files in os.walk(source):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        for path in (os.path.join(folder, name) for name in folders):
            if os.path.islink(path):
                raise CorpusError(f"links are not followed: {path}. Put the folder itself there.")
        paths = (os.path.join(folder, name) for name in files)
        yield from (os.path.relpath(path, source) for path in paths if not is_stream(path))
