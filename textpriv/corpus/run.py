"""Run over a corpus: a record passes reader, scan, engine batch, privatizer, part and output, in constant memory."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from textpriv import __version__
from textpriv.corpus import stores
from textpriv.corpus.checkpoint import Checkpoint, only_writer
from textpriv.corpus.formats import FORMATS
from textpriv.corpus.options import ColumnError, RunOptions
from textpriv.corpus.parts import make_file, make_parts, scan, with_private_texts, written
from textpriv.corpus.plan import Plan, beside, check_corpus
from textpriv.corpus.records import Batch, RecordWriter, compressed
from textpriv.corpus.report import CorpusReport, Counts, Progress
from textpriv.corpus.resume import Start, State, decide, known_by
from textpriv.corpus.stores import STANDARD_STREAM, is_stream
from textpriv.engines.batch import BatchRelease, Released
from textpriv.errors import CorpusError
from textpriv.files import atomic_write, flush, is_url, local_path, sha256_file, sync_folder, umask

if TYPE_CHECKING:
    from textpriv.privatizer import Privatizer

_COUNTED = ("documents", "nulls", "tokens", "skipped")  # counts that a manifest has

Entries = Mapping[tuple[int, int], Counts]  # by file and part


def privatize_corpus(
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    target: str | os.PathLike[str],
    privatizer: Privatizer,
    options: RunOptions | None = None,
    **more: Any,
) -> CorpusReport:
    """Replace the texts of every record of a file, or of a folder of files, by their private versions.

    Records keep their order and their other fields. ``target`` appears whole or not at all. Beside it
    ``target.manifest.json`` has the statement, counts, and a checksum of each file. The output does not depend on
    ``batch_size``, ``workers`` or ``engine``.

    Parameters
    ----------
    source, target
        Files, folders or URLs that fsspec knows, of one format; ``"-"`` for standard input and output. Several files, or a
        pattern with ``*``, become a folder. Only the compression of a single file may differ.
    options, **more
        A :class:`textpriv.corpus.RunOptions`, or its fields, or both.

    Raises
    ------
    CorpusError
        For bad records, an output that is there, changed settings of a run that is continued, or a process that dies.
    LedgerError
        At the first document that the ledger refuses. Documents before it stay counted, and cost nothing the next time.

    Notes
    -----
    ``privatizer.privatize(text, key=DocumentName(name, part=text_column))`` gives the same text, with
    ``unnamed_key(text_column, text)`` for the first of equal texts without names.
    """
    options = replace(options or RunOptions(), **more)
    ledger, index = privatizer.ledger, privatizer.mechanism.index.path
    read = filter(None, [index, None if ledger is None else ledger.path])
    return run_corpus(check_corpus(source, target, options, read), privatizer)


def run_corpus(plan: Plan, privatizer: Privatizer) -> CorpusReport:
    """Make the output of a plan that :func:`check_corpus` has checked; see :func:`privatize_corpus`."""
    started = time.perf_counter()
    plan.options.check_run(privatizer, [file.path for file in plan.files], plan.target)
    run = _Run(plan, privatizer)
    report = run.to_stream() if is_stream(plan.target) else run.to_files()
    return replace(report, seconds=time.perf_counter() - started)


def rewrite_file(
    plan: Plan,
    work: Callable[[list[str]], list[str]],
    on_progress: Callable[[Progress], None] | None = None,
) -> tuple[int, list[str]]:
    """Write one file again with other texts; return how many documents it has, and the names of copied columns."""

    def changed(batch: Batch) -> Released:
        texts = iter(work([text for text in batch.texts if text is not None]))
        return Released([[None if old is None else next(texts) for old in batch.texts]], {})

    counts, target = Counts(), plan.target
    opened = _stream(target) if is_stream(target) else atomic_write(Path(target))
    with opened as file, compressed(file, plan.files[0].compression) as out:
        for batch, added in written(((each, changed(each)) for each in plan.reader(0)), out):
            counts.add(added)
            if on_progress is not None:
                on_progress(Progress(counts.documents, 0, batch.fraction))
    return counts.documents, counts.columns


@contextlib.contextmanager
def _stream(name: str) -> Iterator[BinaryIO]:
    """Open standard output, a device or a pipe to write to; what was written has gone out after the block."""
    if name != STANDARD_STREAM:
        with open(name, "wb") as stream:
            yield stream
    else:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()


class _Run:
    """One run: the checkpoint, the parts, and the publication of the output."""

    def __init__(self, plan: Plan, privatizer: Privatizer) -> None:
        self._plan, self._options, self._privatizer = plan, plan.options, privatizer
        self._name, self._is_url = plan.target, is_url(plan.target)
        self._target = local_path(plan.target)  # of a URL: beside it is what is not published
        self._known = functools.cache(known_by)  # an input is hashed once
        self._release = BatchRelease(privatizer, plan.options)
        self._told, self._resumed = Counts(), Counts()

    def _tell(self, fraction: float | None) -> None:
        if self._options.on_progress is not None:
            done, before = self._told.tokens.total(), self._resumed.tokens.total()
            self._options.on_progress(Progress(self._told.documents, done, fraction, before))

    def _tell_batch(self, batch: Batch, counts: Counts) -> None:
        self._told.add(counts)
        share = batch.fraction
        self._tell(None if share is None else self._plan.fraction(batch.reader.file, share))

    def _make(self, folder: Checkpoint, start: Start) -> Entries:
        entries = folder.entries(checked=True)
        for counts in (_counted(start.before), *entries.values()):
            self._told.add(counts)
            self._resumed.add(counts)
        plan = self._plan
        ends = {file: counts.end for (file, _), counts in entries.items()}  # of the last parts
        shares = [plan.fraction(file, end) - plan.fraction(file, 0.0) for file, end in ends.items()]
        self._tell(sum(shares, plan.fraction(start.made, 0.0)))
        batches = scan(plan, self._privatizer.ledger is not None, bool(start.before))
        if self._options.engine != "local":
            self._make_elsewhere(folder, batches, entries, start.made)
            return folder.entries()
        new = (batch for batch in batches if batch.reader.file >= start.made)
        missing = (batch for batch in new if plan.part_of(batch) not in entries)
        with contextlib.closing(with_private_texts(plan, missing, self._release)) as results:
            make_parts(plan, folder, results, self._tell_batch)
        return folder.entries()

    def _make_elsewhere(
        self, folder: Checkpoint, batches: Iterable[Batch], entries: Entries, made: int
    ) -> None:
        """Make the parts on Spark or Ray, one task for each file."""
        plan, options = self._plan, self._options
        numbers: dict[int, dict[int, Sequence[int]]] = {}
        ends: dict[int, int] = {}
        missing: dict[int, None] = {}
        for batch in batches:
            file = batch.reader.file
            own, ends[file] = numbers.setdefault(file, {}), batch.end
            counted = zip(batch.positions, batch.records, strict=True)
            own |= {place: each.numbers for place, each in counted if max(each.numbers) > 1}
            own |= {bad.position: (2,) for bad in batch.bad if bad.reason == "repeated_name"}
            if file >= made and plan.part_of(batch) not in entries:
                missing[file] = None
        if not missing:
            return
        each = import_module(f"textpriv.engines.{options.engine}").each
        work = partial(make_file, _sent(plan), folder)
        known = self._privatizer.fingerprint
        tasks = [{"file": file, "numbers": numbers[file], "known": known} for file in missing]
        with self._watched(folder, set(entries), sum(ends.values())):
            for result in each(tasks, work, address=options.address, workers=options.workers):
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
                        self._told.add(counts)
                done = self._told.documents + self._told.skipped.total()
                self._tell(done / records if records else None)

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def to_stream(self) -> CorpusReport:
        """Write to standard output, a device or a pipe, each batch at once."""
        plan = self._plan
        batches = scan(plan, self._privatizer.ledger is not None)
        self._tell(plan.fraction(0, 0.0))
        with (
            _stream(self._name) as raw,
            compressed(raw, plan.files[0].compression) as out,
            contextlib.closing(with_private_texts(plan, batches, self._release)) as results,
        ):
            for batch, counts in written(results, out):
                raw.flush()
                self._tell_batch(batch, counts)
        return CorpusReport.of(self._plan, self._told, None, 0)

    def to_files(self) -> CorpusReport:
        """Make the output, or what is missing of it; shards that came after an interrupted run began are added last."""
        plan = self._plan
        with only_writer(self._target):
            report = self._make_files()
            if len(self._plan.files) < len(plan.files):
                self._plan, self._told, self._resumed = plan, Counts(), Counts()
                report = replace(self._make_files(), resumed=report.resumed)
        return report

    def _make_files(self) -> CorpusReport:
        key, folder = self._options.key, Checkpoint(beside(self._target, "partial"))
        start = decide(self._plan, self._privatizer, folder, self._known)
        self._plan = start.plan
        if start.state is State.DONE:
            folder.remove()  # the run may have ended between its last two steps
            counts, quarantine = _counted(start.before), beside(self._target, "quarantine.jsonl")
            found = str(quarantine) if counts.skipped and quarantine.exists() else None
            return CorpusReport.of(self._plan, counts, found, counts.documents)
        is_new_key = key is not None and key.fresh
        if key is not None:
            key.keep()
        try:
            if start.state in (State.NEW, State.EXTEND):
                folder.remove()  # of a run that does not go on
                folder.begin(start.job, [file.name for file in self._plan.files])
            report = self._published(folder, self._make(folder, start), start)
        except BaseException as error:
            if isinstance(error, ColumnError) or not (start.job and folder.entries()):
                folder.remove()
                if is_new_key and key is not None:  # nothing was released under it
                    key.forget()
            raise
        folder.remove()
        return report

    def _published(self, folder: Checkpoint, entries: Entries, start: Start) -> CorpusReport:
        """Join the parts, let the output appear, then its manifest, and report."""
        plan, counts = self._plan, _counted(start.before)
        described = [*start.before.get("files", ())]
        shutil.rmtree(folder.result(), ignore_errors=True)  # of an earlier attempt
        for file in range(start.made, len(plan.files)):
            own = {key: entries[key] for key in entries if key[0] == file}
            for added in own.values():
                counts.add(added)
            name, path, compression, _ = plan.files[file]
            made = folder.result(name)
            made.parent.mkdir(parents=True, exist_ok=True)
            with open(made, "wb") as out:
                with compressed(out, compression) as packed:
                    parts = [folder.file(*key, "part") for key in own]
                    FORMATS[plan.format].writer.join(parts, packed, path)
                flush(out)
            known = {"name": name, "bytes": made.stat().st_size, "sha256": sha256_file(made)}
            documents = sum(added.documents for added in own.values())
            described.append({**known, "documents": documents})
        quarantine = self._publish_bad(folder, entries, start)
        report = CorpusReport.of(plan, counts, quarantine, self._resumed.documents)
        manifest = {
            "textpriv": __version__,
            "job": start.job,
            "format": plan.format,
            "files": described,
            **{name: getattr(counts, name) for name in _COUNTED},
            "unprotected": report.unprotected,
            "statement": report.stated(self._privatizer.statement).to_dict(),
        }
        self._publish(folder, json.dumps(manifest, indent=1).encode() + b"\n", start)
        return report

    def _publish_bad(self, folder: Checkpoint, entries: Entries, start: Start) -> str | None:
        """Let the bad records appear, for their owner alone; return where."""
        quarantine, kept = beside(self._target, "quarantine.jsonl"), folder.path / "quarantine"
        if start.before and quarantine.exists() and not kept.exists():
            with atomic_write(kept) as out:  # once: a run that is killed later adds to it again
                RecordWriter.join([quarantine], out)
        paths = [kept, *(folder.file(*key, "bad") for key in entries)]
        if not (paths := [path for path in paths if path.exists()]):
            return None
        with atomic_write(quarantine) as out:
            RecordWriter.join(paths, out)
        return str(quarantine)

    def _publish(self, folder: Checkpoint, manifest: bytes, start: Start) -> None:
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
        if start.before:
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

    options = plan.options
    assert options.settings is not None
    settings = replace(options.settings, index=absolute_name(options.settings.index))
    if options.key is not None:
        if options.key.path is None:
            raise CorpusError("Spark and Ray read the run key from a file: name one with --key.")
        settings = replace(settings, key_file=str(options.key.path))
    return replace(plan, options=replace(options.shared, settings=settings))


def _counted(manifest: Mapping[str, Any]) -> Counts:
    """Return the counts of a manifest; those of an empty one are none."""
    counts = Counts(columns=manifest.get("unprotected", []))
    if manifest:
        counts.add(Counts(**{name: manifest[name] for name in _COUNTED}))
    return counts
