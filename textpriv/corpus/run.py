"""Run over a corpus: a file or a folder in, a private one out, in constant memory, whole or absent.

A record goes one way: reader, scan, engine batch, privatizer, part, output. Parts are safe on the disk when they are
finished, so an interrupted run is continued.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum, auto
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from textpriv import __version__
from textpriv.corpus import stores
from textpriv.corpus.checkpoint import Checkpoint, only_writer
from textpriv.corpus.parts import Read, join_file, make_file, make_parts, scan, write_stream
from textpriv.corpus.plan import Plan, beside, check_corpus, known_by, refuse_taken
from textpriv.corpus.records import Batch, RecordWriter, compressed
from textpriv.corpus.release import ColumnError, RunOptions
from textpriv.corpus.report import CorpusReport, Counts, Progress
from textpriv.corpus.stores import STANDARD_STREAM, is_stream
from textpriv.engines.batch import BatchRelease
from textpriv.errors import CorpusError
from textpriv.files import atomic_write, is_url, local_path, sha256_file, sync_folder, umask

if TYPE_CHECKING:
    from textpriv.privatizer import Privatizer

Entries = Mapping[tuple[int, int], Counts]  # by file and part


def privatize_corpus(
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    target: str | os.PathLike[str],
    privatizer: Privatizer,
    release: RunOptions | None = None,
    **options: Any,
) -> CorpusReport:
    """Replace the texts of every record of a file, or of a folder of files, by their private versions.

    Records keep their order and their other fields. ``target`` appears when all is written and synchronised, or not at
    all. Beside it ``target.manifest.json`` has the statement, counts, and a checksum of each file. The output does not
    depend on ``batch_size``, ``workers`` or ``engine``.

    Parameters
    ----------
    source, target
        Files, or ``"-"`` for standard input and output; or a folder of files of one format, and a folder to make. Either
        may be a URL that fsspec knows, such as ``s3://bucket/private``. Several files, or a pattern with ``*``, become a
        folder. The format of both ends is the same; the
        compression of a single file may differ.
    privatizer
    release, **options
        The options: a :class:`textpriv.corpus.RunOptions`, or its fields, or both.

    Raises
    ------
    CorpusError
        For bad records, an output that is there, changed settings of a run that is continued, or a process that dies.
    LedgerError
        At the first document that the ledger refuses; names its record. Documents before it stay counted and, as the same
        text, cost nothing the next time.

    Notes
    -----
    ``privatizer.privatize(text, key=DocumentName(name, part=text_column))`` gives the same text, with
    ``unnamed_key(text_column, text)`` for the first of equal texts without names.
    """
    release = replace(release or RunOptions(), **options)
    ledger, index = privatizer.ledger, privatizer.mechanism.index.path
    read = filter(None, [index, None if ledger is None else ledger.path])
    return run_corpus(check_corpus(source, target, release, read), privatizer)


def run_corpus(plan: Plan, privatizer: Privatizer) -> CorpusReport:
    """Make the output of a plan that :func:`check_corpus` has checked; see :func:`privatize_corpus`."""
    started = time.perf_counter()
    plan.release.check(privatizer, [file.path for file in plan.files], plan.target)
    run = _Run(plan, privatizer)
    report = run.to_stream() if is_stream(plan.target) else run.to_files()
    return replace(report, seconds=time.perf_counter() - started)


def rewrite_file(
    plan: Plan,
    work: Callable[[list[str]], list[str]],
    on_progress: Callable[[Progress], None] | None = None,
) -> tuple[int, list[str]]:
    """Write one file again with other texts; return how many documents it has, and the names of copied columns."""
    documents, columns, reader, writer = 0, dict[str, None](), plan.reader(0), None
    target = plan.target
    opened = _stream(target) if is_stream(target) else atomic_write(Path(target))
    with opened as file, compressed(file, plan.files[0].compression) as out:
        for batch in reader:
            if writer is None:
                writer = reader.writer(reader, out)
                writer.begin()
            for names in reader.names_of(batch.rows):
                columns.update(dict.fromkeys(names))
            changed = iter(work([text for text in batch.texts if text is not None]))
            writer.write(batch, [[None if t is None else next(changed) for t in batch.texts]])
            documents += len(batch)
            if on_progress is not None:
                on_progress(Progress(documents, 0, batch.fraction))
        if writer is not None:
            writer.close()
    return documents, [name for name in columns if name not in reader.texts]


@contextlib.contextmanager
def _stream(name: str) -> Iterator[BinaryIO]:
    """Open standard output, a device or a pipe to write to; what was written has gone out after the block."""
    if name != STANDARD_STREAM:
        with open(name, "wb") as stream:
            yield stream
    else:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()


class State(Enum):
    """What a run into files does, by what earlier runs have left."""

    NEW = auto()
    EXTEND = auto()  # a finished folder, by shards that are new in the input
    RESUME = auto()  # after the last part that is finished
    PUBLISH = auto()  # again: the output of the interrupted run may be visible
    DONE = auto()  # the output is there and nothing has changed


class _Run:
    """One run: the checkpoint, the parts, and the publication of the output."""

    def __init__(self, plan: Plan, privatizer: Privatizer) -> None:
        self._plan, self._release, self._privatizer = plan, plan.release, privatizer
        self._name, self._is_url = plan.target, is_url(plan.target)
        self._target = local_path(plan.target)  # of a URL: beside it is what is not published
        self._known = functools.cache(known_by)  # an input is hashed once
        self._counts, self._resumed = Counts(), Counts()
        self._before: Mapping[str, Any] = {}  # the manifest of a finished folder that is added to
        self._first = 0  # how many files it has, which come first in the plan

    def _tell(self, fraction: float | None) -> None:
        if self._release.on_progress is not None:
            done, before = self._counts.tokens.total(), self._resumed.tokens.total()
            self._release.on_progress(Progress(self._counts.documents, done, fraction, before))

    # Making the parts

    def _make(self, folder: Checkpoint) -> Entries:
        entries = folder.entries(checked=True)
        for counts in (_counted(self._before), *entries.values()):
            self._counts.add(counts)
            self._resumed.add(counts)
        fraction = self._plan.fraction(self._first, 0.0)
        ends = {file: counts.end for (file, _), counts in entries.items()}  # of the last parts
        for file, end in ends.items():
            fraction += self._plan.fraction(file, end) - self._plan.fraction(file, 0.0)
        self._tell(fraction)
        records = scan(self._plan, self._privatizer.ledger is not None, bool(self._before))
        make = self._make_here if self._release.engine == "local" else self._make_elsewhere
        make(folder, records, entries)
        return folder.entries()

    def _make_here(self, folder: Checkpoint, records: Iterator[Read], entries: Entries) -> None:
        plan, own = self._plan, BatchRelease(self._privatizer, self._release.meaning)
        missing = (
            each
            for each in records
            if each[0] >= self._first and (each[0], plan.part_of(each[2])) not in entries
        )
        made = make_parts(plan, folder, missing, own, self._release.workers)
        with contextlib.closing(made):
            for each in made:
                self._add(*each)

    def _add(self, file: int, batch: Batch, counts: Counts) -> None:
        self._counts.add(counts)
        share = batch.fraction
        self._tell(None if share is None else self._plan.fraction(file, share))

    def _make_elsewhere(
        self, folder: Checkpoint, records: Iterator[Read], entries: Entries
    ) -> None:
        """Make the parts on Spark or Ray, one task for each file."""
        plan, release = self._plan, self._release
        numbers: dict[int, dict[int, Sequence[int]]] = {}
        ends: dict[int, int] = {}
        missing: dict[int, None] = {}
        for file, _, batch in records:
            own, ends[file] = numbers.setdefault(file, {}), batch.end
            counted = zip(batch.positions, batch.given.numbers or (), strict=True)
            own |= {position: number for position, number in counted if max(number) > 1}
            own |= {bad.position: (2,) for bad in batch.bad if bad.reason == "repeated_name"}
            if file >= self._first and (file, plan.part_of(batch)) not in entries:
                missing[file] = None
        if not missing:
            return
        each = import_module(f"textpriv.engines.{release.engine}").each
        work = partial(make_file, _sent(plan), folder)
        known = self._privatizer.fingerprint
        tasks = [{"file": file, "numbers": numbers[file], "known": known} for file in missing]
        with self._watched(folder, set(entries), sum(ends.values())):
            for result in each(tasks, work, address=release.address, workers=release.workers):
                if "error" in result:
                    raise CorpusError(result["error"])

    @contextlib.contextmanager
    def _watched(
        self, folder: Checkpoint, seen: set[tuple[int, int]], records: int
    ) -> Iterator[None]:
        """Report, from a thread, the parts that other processes have finished."""
        over = threading.Event()

        def follow() -> None:
            while not over.wait(0.5):
                with contextlib.suppress(OSError):
                    for key, counts in folder.entries(without=seen).items():
                        seen.add(key)
                        self._counts.add(counts)
                done = self._counts.documents + self._counts.skipped.total()
                self._tell(done / records if records else None)

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    # The output

    def to_stream(self) -> CorpusReport:
        """Write to standard output, a device or a pipe, each batch at once."""
        plan, own = self._plan, BatchRelease(self._privatizer, self._release.meaning)
        records = scan(plan, self._privatizer.ledger is not None)
        self._tell(plan.fraction(0, 0.0))
        with _stream(self._name) as raw, compressed(raw, plan.files[0].compression) as out:
            made = write_stream(plan, out, records, own, self._release.workers)
            with contextlib.closing(made):
                for each in made:
                    raw.flush()
                    self._add(*each)
        return CorpusReport.of(self._plan, self._counts, None, 0)

    def to_files(self) -> CorpusReport:
        """Make the output, or what is missing of it; shards that came after an interrupted run began are added last."""
        plan = self._plan
        with only_writer(self._target):
            report = self._make_files()
            if len(self._plan.files) < len(plan.files):
                self._plan, self._counts, self._resumed = plan, Counts(), Counts()
                report = replace(self._make_files(), resumed=report.resumed)
        return report

    def _make_files(self) -> CorpusReport:
        key, folder = self._release.key, Checkpoint.of(self._target)
        state, job = self._state(folder)
        if state is State.DONE:
            folder.remove()  # the run may have ended between its last two steps
            return self._finished()
        is_new_key = key is not None and key.fresh
        if key is not None:
            key.keep()
        try:
            if state in (State.NEW, State.EXTEND):
                folder.begin(job, [file.name for file in self._plan.files])
            report = self._published(folder, self._make(folder), job)
        except BaseException as error:
            if isinstance(error, ColumnError) or not (job and folder.entries()):
                folder.remove()
                if is_new_key and key is not None:  # nothing was released under it
                    key.forget()
            raise
        folder.remove()
        return report

    def _state(self, folder: Checkpoint) -> tuple[State, dict[str, str]]:
        """Decide what to do by what is on the disk, and return the job; refuse what may not be replaced or continued.

        The files of the plan are put in the order in which earlier runs have made them.
        """
        release = self._release
        self._before, self._first = {}, 0
        manifest = self._manifest() if stores.is_taken(self._name) else {}
        names = [file["name"] for file in manifest.get("files", ())]
        if release.rotates:
            present = {file.name for file in self._plan.files}
            names = [name for name in names if name in present]
        started = folder.files if release.resume else []
        self._plan = self._plan.in_order([*names, *started])
        if started and folder.job == self._job(folder.job, len(started)):
            self._plan = self._plan.first(len(started))
        made_by = manifest.get("job") or {}
        if release.resume and made_by and made_by == self._job(made_by, len(names)):
            self._before, self._first = manifest, len(names)
            if len(names) == len(self._plan.files):
                return State.DONE, made_by
        # Whether a run with these settings draws the same words again, so that it can be continued.
        secrets = release.key, self._privatizer.ledger, self._privatizer.seed
        repeats = secrets.count(None) < len(secrets) and not is_stream(self._plan.files[0].path)
        job = self._job(folder.job or (made_by if self._before else {})) if repeats else {}
        state = State.EXTEND if self._before else State.NEW
        if _is_continued(folder, job, release):
            if (folder.path / "publishing").exists():
                return State.PUBLISH, job
            state = State.RESUME
        if self._before:
            for file in self._plan.files[self._first :]:
                refuse_taken(f"{self._name}/{file.name}")
        elif not release.overwrite or self._plan.is_folder:
            changed = _changed(made_by, self._job(made_by)) if made_by and job else ""
            refuse_taken(self._name, changed and f", made otherwise ({changed})")
        return state, job

    def _job(self, like: Mapping[str, Any] | None, files: int | None = None) -> dict[str, str]:
        job = self._plan.first(files).job(self._privatizer, like or {}, self._known)
        if not self._release.rotates:
            return job
        # What is gone from the input counts as it was.
        present = {f"input {file.name}" for file in self._plan.files}
        gone = (name for name in like or {} if name.startswith("input ") and name not in present)
        return {**job, **{name: (like or {})[name] for name in gone}}

    def _manifest(self) -> dict[str, Any]:
        """Return the manifest beside the output; empty if there is none."""
        name = f"{self._name if self._is_url else self._target}.manifest.json"
        with contextlib.suppress(OSError, ValueError, TypeError), stores.opened(name) as file:
            return dict(json.load(file))
        return {}

    def _finished(self) -> CorpusReport:
        counts = _counted(self._before)
        quarantine = beside(self._target, "quarantine.jsonl")
        found = str(quarantine) if counts.skipped and quarantine.exists() else None
        return CorpusReport.of(self._plan, counts, found, counts.documents)

    def _published(
        self, folder: Checkpoint, entries: Entries, job: Mapping[str, Any]
    ) -> CorpusReport:
        """Join the parts, let the output appear, then its manifest, and report."""
        plan, counts = self._plan, _counted(self._before)
        described = [*self._before.get("files", ())]
        shutil.rmtree(folder.result(), ignore_errors=True)  # of an earlier attempt
        for file in range(self._first, len(plan.files)):
            own = Counts()
            parts = [part for number, part in entries if number == file]
            for part in parts:
                own.add(entries[file, part])
            counts.add(own)
            path = join_file(plan, folder, file, parts)
            size, digest = path.stat().st_size, sha256_file(path)
            known = {"name": plan.files[file].name, "bytes": size, "sha256": digest}
            described.append({**known, "documents": own.documents})
        quarantine = self._publish_bad(folder, entries)
        report = CorpusReport.of(plan, counts, quarantine, self._resumed.documents)
        manifest = {
            "textpriv": __version__,
            "job": job,
            "format": plan.format,
            "files": described,
            "documents": counts.documents,
            "nulls": counts.nulls,
            "tokens": counts.tokens,
            "skipped": counts.skipped,
            "unprotected": report.unprotected,
            "statement": report.stated(self._privatizer.statement).to_dict(),
        }
        self._publish(folder, json.dumps(manifest, indent=1).encode() + b"\n")
        return report

    def _publish_bad(self, folder: Checkpoint, entries: Entries) -> str | None:
        """Let the bad records appear, for their owner alone; return where."""
        quarantine, kept = beside(self._target, "quarantine.jsonl"), folder.path / "quarantine"
        if self._before and quarantine.exists() and not kept.exists():
            with atomic_write(kept) as out:  # once: a run that is killed later adds to it again
                RecordWriter.join([quarantine], out)
        paths = [kept, *(folder.file(*key, "bad") for key in entries)]
        if not (paths := [path for path in paths if path.exists()]):
            return None
        with atomic_write(quarantine) as out:
            RecordWriter.join(paths, out)
        return str(quarantine)

    def _publish(self, folder: Checkpoint, manifest: bytes) -> None:
        """Let the output appear in one step, at a URL and in a finished folder file by file; then its manifest."""
        made, mark = folder.result(), folder.path / "publishing"  # from now on it may be visible
        was_publishing = mark.exists()
        mark.touch()
        sync_folder(folder.path)
        files = [made] if made.is_file() else sorted(filter(Path.is_file, made.rglob("*")))
        if self._is_url:
            for path in files:
                below = path.relative_to(made).as_posix()
                stores.put(path, self._name if path == made else f"{self._name}/{below}")
            (folder.path / "manifest").write_bytes(manifest)
            stores.put(folder.path / "manifest", f"{self._name}.manifest.json")
            return
        written = beside(self._target, "manifest.json")
        for path in filter(Path.is_dir, (made, *made.rglob("*"))):
            sync_folder(path)
        if self._before:
            for path in files:
                final = self._target / path.relative_to(made)
                final.parent.mkdir(parents=True, exist_ok=True)
                os.replace(path, final)
                sync_folder(final.parent)
        # A folder that is there after a run that ended here is the whole output.
        elif not (was_publishing and made.is_dir() and stores.is_taken(self._name)):
            written.unlink(missing_ok=True)  # of an output that is replaced
            os.replace(made, self._target)
        sync_folder(self._target.parent)
        with atomic_write(written, mode=0o666 & ~umask()) as out:
            out.write(manifest)


def _sent(plan: Plan) -> Plan:
    """Return the plan that goes to other machines: without secrets, with paths that mean the same there."""
    from textpriv.index.builtin import absolute_name

    assert plan.release.settings is not None
    settings, key = plan.release.settings, plan.release.key
    settings = replace(settings, index=absolute_name(settings.index))
    if key is not None:
        if key.path is None:
            raise CorpusError("Spark and Ray read the run key from a file: name one with --key.")
        settings = replace(settings, key_file=str(key.path))
    hidden: dict[str, Any] = {"key": None, "on_progress": None, "on_unprotected": None}
    return replace(plan, release=replace(plan.release, settings=settings, **hidden))


def _counted(manifest: Mapping[str, Any]) -> Counts:
    """Return the counts of a manifest; those of an empty one are none."""
    counts = Counts()
    if manifest:
        names = ("documents", "nulls", "tokens", "skipped")
        kept = {name: manifest[name] for name in names}
        counts.add(Counts(**kept, columns=manifest["unprotected"]))
    return counts


def _is_continued(folder: Checkpoint, job: Mapping[str, Any], options: RunOptions) -> bool:
    """Return whether the run goes on in a folder; if not, there is none any more."""
    if not os.path.lexists(folder.path):
        return False
    if (before := folder.job) is None:
        raise CorpusError(
            f"{folder.path} has no job file of a run, so it is neither continued nor removed. Move it away, or choose "
            "another output."
        )
    if before and not options.overwrite:
        if not options.resume:
            raise CorpusError(
                f"An earlier run was interrupted and left {folder.path}. Continue it with --resume, or begin again with "
                "--force."
            )
        if changed := _changed(before, job):
            raise CorpusError(
                f"The run in {folder.path} was begun otherwise ({changed}). Another release of the same texts adds to "
                "their privacy loss. Give --resume the same input, settings and key, or begin again with --force."
            )
    if before == job and options.resume:
        return True
    folder.remove()
    return False


def _changed(before: Mapping[str, Any], job: Mapping[str, Any]) -> str:
    """Name what differs between two jobs, if anything."""
    if before.get("key") != job.get("key"):
        return "changed: key or seed, or the key was destroyed"
    found = [name for name in {**before, **job} if before.get(name) != job.get(name)]
    named = [name for name in found if name != "settings"] or found
    more = f" and {len(named) - 5:,} more" if len(named) > 5 else ""
    return f"changed: {', '.join(named[:5])}{more}" if named else ""
