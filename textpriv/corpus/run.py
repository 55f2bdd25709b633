"""Run over a corpus: a file or a folder in, a private one out, in constant memory, whole or absent.

A record goes one way: reader, scan, engine batch, privatizer, part, output. Parts are safe on the disk when they are
finished, so an interrupted run is continued.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from textpriv import __version__
from textpriv.corpus import stores
from textpriv.corpus.folder import (
    Checkpoint,
    Entry,
    beside,
    checkpoint_path,
    only_writer,
)
from textpriv.corpus.formats import WRITERS
from textpriv.corpus.parts import PartRunner, PartWriter, Scan, join_file, released_texts
from textpriv.corpus.records import STANDARD_STREAM, Batch, Cursor, compressed, is_stream
from textpriv.corpus.release import Plan, Release, check_corpus
from textpriv.corpus.report import CorpusReport, Tally
from textpriv.engines.batch import BatchRelease
from textpriv.engines.local import local_engine
from textpriv.errors import CorpusError
from textpriv.files import atomic_write, is_url, local_path, sha256_file, umask

if TYPE_CHECKING:
    from textpriv.privatizer import Privatizer

__all__ = ["privatize_corpus", "rewrite_file"]

_KEPT = {"documents", "nulls", "tokens", "skipped", "unprotected"}  # of a report in a manifest
_SECOND = "Another release of the same texts adds to their privacy loss."


def privatize_corpus(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    privatizer: Privatizer,
    release: Release | None = None,
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
        may be a URL that fsspec knows, such as ``s3://bucket/private``. The format of both ends is the same; the
        compression of a single file may differ.
    privatizer
    release, **options
        The options: a :class:`textpriv.corpus.Release`, or its fields, or both.

    Returns
    -------
    CorpusReport

    Raises
    ------
    CorpusError
        For bad records, an output that is there, changed settings of a run that is continued, or a process that dies.
    LedgerError
        At the first document that the ledger refuses; names its record. Documents before it stay counted and, as the same
        text, cost nothing the next time.
    OSError
        If a file cannot be opened or written.

    Notes
    -----
    ``privatizer.privatize(text, key=document_key(text_column, name))`` gives the same text, with
    ``unnamed_key(text_column, text)`` for the first of equal texts without names.
    """
    started = time.perf_counter()
    release = replace(release or Release(), **options)
    source, target = map(_plain_name, (source, target))
    release.check(privatizer, source, target)
    ledger = getattr(privatizer, "ledger", None)
    index = getattr(getattr(getattr(privatizer, "mechanism", None), "index", None), "path", None)
    plan = check_corpus(
        source,
        target,
        release,
        ledger=None if ledger is None else Path(ledger.path),
        read=[] if index is None else [index],
    )
    run = _Run(plan, target, privatizer, release)
    report = run.to_stream() if is_stream(target) else run.to_files()
    return replace(report, seconds=time.perf_counter() - started)


def rewrite_file(
    plan: Plan, target: str, work: Callable[[list[str]], list[str]]
) -> tuple[int, list[str]]:
    """Write one file again with other texts; return how many documents it has, and the names of copied columns."""
    documents, columns, reader = 0, dict[str, None](), plan.reader(0)
    opened = _stream(target) if is_stream(target) else atomic_write(Path(target))
    with opened as file, compressed(file, plan.compression) as out:
        writer = None
        for batch in reader:
            if writer is None:
                writer = WRITERS[plan.format](reader, out, plan.rule)
                writer.begin()
            for names in reader.names_of(batch.rows):
                columns.update(dict.fromkeys(names))
            given = [text for text in batch.texts if text is not None]
            changed = iter(work(given))
            writer.write(batch, [[None if t is None else next(changed) for t in batch.texts]])
            documents += len(batch)
        if writer is not None:
            writer.close()
    return documents, [name for name in columns if name not in plan.reading.text_columns]


def _plain_name(name: str | os.PathLike[str]) -> str:
    name = os.fspath(name)
    return name.rstrip("/") if is_url(name) else name


@contextlib.contextmanager
def _stream(name: str) -> Iterator[BinaryIO]:
    """Open standard output, a device or a pipe to write to; what was written has gone out after the block."""
    if name != STANDARD_STREAM:
        with open(name, "wb") as stream:
            yield stream
    elif sys.stdout is None:
        raise CorpusError("Standard output is closed: name a file.")
    else:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()


class _Run:
    """One run: the checkpoint, the parts, and the publication of the output."""

    def __init__(self, plan: Plan, target: str, privatizer: Privatizer, release: Release) -> None:
        self._plan, self._privatizer, self._release = plan, privatizer, release
        self._url = target if is_url(target) else None
        self._name = target
        self._target = local_path(target)  # of a URL: beside it is what is not published
        self._ledger = getattr(privatizer, "ledger", None)
        self._tally = Tally(plan, release.on_progress)
        self._resumed = 0
        self._before: dict[str, Any] = {}  # the manifest of a folder to which files are added

    def _announced(self, names: tuple[str, ...]) -> None:
        if self._release.on_unprotected is not None:
            self._release.on_unprotected(names)

    # Making the parts

    def _make(self, folder: Checkpoint) -> dict[tuple[int, int], Entry]:
        """Make the parts that are missing; return all."""
        entries = folder.entries(checked=True)
        for entry in entries.values():
            self._tally.add(entry)
        self._tally.resumed = sum(self._tally.tokens.values())
        self._resumed = self._tally.documents
        self._tally.report_progress(0.0 if not entries else None)
        scan = Scan(self._plan, self._ledger is not None, self._announced)
        if self._release.engine == "local":
            self._make_here(folder, scan, entries)
        else:
            self._make_elsewhere(folder, scan, entries)
        return folder.entries()

    def _make_here(
        self, folder: Checkpoint, scan: Scan, entries: Mapping[tuple[int, int], Entry]
    ) -> None:
        plan, release, done = self._plan, self._release, self._done()

        def jobs() -> Iterator[tuple[Any, Any]]:
            for file in self._files():
                reader, is_empty = plan.reader(file), file not in done and (file, 0) not in entries
                for batch, numbers in scan.batches(file, reader):
                    is_empty = False
                    if file not in done and (file, plan.part_of(batch)) not in entries:
                        yield (file, reader, batch), plan.arrow(batch, numbers)
                yield (file, reader, is_empty), None

        parts: PartWriter | None = None
        own = BatchRelease(self._privatizer, plan.columns)
        with contextlib.ExitStack() as stack:
            engine = local_engine(own, release.settings, release.workers)
            stack.enter_context(engine)
            # Closed by name: on failure a worker pool must not live on in the traceback.
            results = stack.enter_context(contextlib.closing(engine.ordered(jobs())))
            try:
                for (file, reader, batch), released in results:
                    parts = parts or PartWriter(plan, folder, file, reader)
                    if isinstance(batch, Batch):
                        texts = released_texts(plan, file, batch, released.result)
                        self._tally.add(parts.write(batch, *texts))
                        fraction = self._tally.fraction_of(file, batch.fraction)
                        self._tally.report_progress(fraction)
                    else:
                        parts.end(is_empty=batch)
                        parts = None
            finally:
                if parts is not None:
                    parts.close()

    def _files(self) -> list[int]:
        """Return the numbers of the input's files: those in the output first, whose records are only counted."""
        return sorted(range(len(self._plan.files)), key=lambda file: file not in self._done())

    def _make_elsewhere(
        self, folder: Checkpoint, scan: Scan, entries: Mapping[tuple[int, int], Entry]
    ) -> None:
        """Make the parts on Spark or Ray."""
        plan, release = self._plan, self._release
        assert release.settings is not None
        from textpriv.index.builtin import absolute_name

        settings = replace(release.settings, index=absolute_name(release.settings.index))
        if release.key is not None:
            if release.key.path is None:
                raise CorpusError(
                    "Spark and Ray read the run key from a file: name one with --key."
                )
            # In what is sent to the executors there is no secret.
            settings = replace(settings, key_file=str(release.key.path), run_key=b"")
        tasks: list[dict[str, Any]] = []
        records = 0
        for file in self._files():
            found = self._tasks(scan, file)
            records += found[-1]["stop"]
            missing = [task for task in found if (file, task["part"]) not in entries]
            missing = [] if file in self._done() else missing
            if plan.compression_of(file) is not None and missing:  # not entered in the middle
                missing = [{**missing[0], "stop": found[-1]["stop"], "later": _merged(missing)}]
            tasks += missing
        if not tasks:
            return
        each = import_module(f"textpriv.engines.{release.engine}").each
        runner = PartRunner(plan.absolute(), settings, str(folder.path))
        with self._watched(folder, set(entries), records):
            for result in each(tasks, runner, address=release.address, workers=release.workers):
                if "error" in result:
                    raise CorpusError(result["error"])

    def _tasks(self, scan: Scan, file: int) -> list[dict[str, Any]]:
        """Return one task for each part of a file, with the numbers of its records that are not the first of their kind."""
        tasks: list[dict[str, Any]] = []
        end = Cursor()
        for batch, numbers in scan.batches(file, self._plan.reader(file)):
            part = self._plan.part_of(batch)
            if not tasks or tasks[-1]["part"] != part:
                tasks.append({"file": file, "part": part, "start": asdict(end), "later": {}})
            end = batch.end
            later = zip(batch.positions, numbers, strict=False)
            tasks[-1]["later"].update({each: n for each, n in later if max(n) > 1})
            tasks[-1]["later"].update(
                {b.position: (2,) for b in batch.bad if b.reason == "repeated_name"}
            )
            tasks[-1]["stop"] = end.record
        return tasks or [{"file": file, "part": 0, "start": asdict(end), "stop": 0, "later": {}}]

    @contextlib.contextmanager
    def _watched(
        self, folder: Checkpoint, seen: set[tuple[int, int]], records: int
    ) -> Iterator[None]:
        """Report, from a thread, the parts that other processes have finished."""
        over, tally = threading.Event(), self._tally

        def follow() -> None:
            while not over.wait(0.5):
                with contextlib.suppress(OSError):
                    for key, entry in folder.entries(without=seen).items():
                        seen.add(key)
                        tally.add(entry)
                done = tally.documents + tally.skipped.total()
                tally.report_progress(done / records if records else None)

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    # The output

    def to_stream(self) -> CorpusReport:
        """Write to standard output, a device or a pipe, when all is made."""
        import tempfile

        with tempfile.TemporaryDirectory() as place:
            folder = Checkpoint.begin(Path(place) / "run", {})
            entries = self._make(folder)
            join_file(self._plan, folder, 0, entries.values())
            with open(folder.result(), "rb") as made, _stream(self._name) as out:
                shutil.copyfileobj(made, out)
        return self._tally.report()

    def to_files(self) -> CorpusReport:
        """Make the output, or what is missing of it."""
        key, is_from_stream = self._release.key, is_stream(self._plan.files[0][1])
        repeats = key is not None or self._ledger is not None or self._privatizer.seed is not None
        can_resume = repeats and not is_from_stream
        with only_writer(self._target):
            path = checkpoint_path(self._target, can_resume)
            job = self._job() if can_resume else {}
            manifest = self._manifest() if stores.is_taken(self._name) else {}
            if self._release.resume and manifest.get("job"):
                changed = _changed(manifest["job"], job, is_ordered=False)
                if changed == []:
                    self._before = manifest
                    if set(manifest["job"]["input"]) == set(job["input"]):
                        Checkpoint(
                            path
                        ).remove()  # the run may have ended between its last two steps
                        return self._finished(manifest)
            folder = self._continued(path, job)
            self._refuse_taken(folder, manifest, job)
            is_new_key = key is not None and key.fresh
            if key is not None:
                key.keep()
            try:
                folder = folder or Checkpoint.begin(path, job)
                report = self._published(folder, self._make(folder), job)
            except BaseException:
                left = Checkpoint(path)
                if not (can_resume and left.entries()):
                    left.remove()
                    if is_new_key and key is not None:  # nothing was released under it
                        key.forget()
                raise
            folder.remove()
            return report

    def _job(self) -> dict[str, Any]:
        """Return keyed hashes of everything that decides the output: published, they show only what is equal."""
        secret = b"seed" if self._ledger is None else bytes(self._ledger.mark)
        if self._release.key is not None:
            secret = self._release.key.secret
        own = hashlib.blake2b(secret, digest_size=32, person=b"textpriv-job").digest()

        def mark(value: Any) -> str:
            content = json.dumps(value, default=str).encode()
            return hashlib.blake2b(content, key=own, digest_size=16).hexdigest()

        items = self._plan.job(self._privatizer)
        names = [name for name, _ in self._plan.files]
        files = {name: mark(self._plan.input(file)) for file, name in enumerate(names)}
        marks = {name: mark(value) for name, value in items.items()}
        return {"key": mark("key"), **marks, "input": files}

    def _continued(self, path: Path, job: Mapping[str, Any]) -> Checkpoint | None:
        """Return the checkpoint that is continued; None to begin one."""
        folder = Checkpoint.find(path)
        if folder is None:
            return None
        changed = _changed(folder.job or {}, job, is_ordered=True)
        if self._release.resume and not changed:
            return folder
        if self._release.overwrite:
            folder.remove()
            return None
        if not self._release.resume:
            raise CorpusError(
                f"An earlier run was interrupted and left {path}. Continue it with --resume, or begin again with --force."
            )
        raise CorpusError(
            f"The run in {path} was begun otherwise (changed: {', '.join(changed)}). {_SECOND} Resume it with the same "
            "input, settings and key, or begin again with --force."
        )

    def _refuse_taken(
        self, folder: Checkpoint | None, manifest: Mapping[str, Any], job: Mapping[str, Any]
    ) -> None:
        """Refuse to replace an output that is there, unless that is asked for or this run has begun to publish it."""
        is_ours = folder is not None and folder.is_publishing
        if self._before or is_ours or not stores.is_taken(self._name):
            return
        if self._release.overwrite:
            if self._plan.is_folder and (self._url or not manifest):
                raise CorpusError(
                    f"{self._name} has no manifest of a run beside it, or is in a store, so it is not replaced. Name "
                    "another output."
                )
            return
        changed = _changed(manifest["job"], job, is_ordered=False) if manifest.get("job") else []
        found = f"{self._name} exists"
        if changed:
            found += f", made otherwise (changed: {', '.join(changed)})"
        raise CorpusError(
            f"{found}. {_SECOND} Name another output, continue a run with --resume, or replace it with --force."
        )

    def _manifest(self) -> dict[str, Any]:
        """Return the manifest beside the output; empty if there is none."""
        with contextlib.suppress(OSError, ValueError, RecursionError):
            if self._url is not None:
                content = json.loads(stores.read(f"{self._url}.manifest.json") or b"{}")
            else:
                content = json.loads(beside(self._target, "manifest.json").read_bytes())
            if isinstance(content, dict) and content.keys() >= _KEPT:
                return content
        return {}

    def _published(
        self, folder: Checkpoint, entries: Mapping[tuple[int, int], Entry], job: Mapping[str, Any]
    ) -> CorpusReport:
        """Join the parts, let the output appear, then its manifest, and report."""
        plan, tally = self._plan, self._counted(self._before)
        files = [file for file in self._files() if file not in self._done()]
        documents: Counter[int] = Counter()
        folder.start_result()
        for entry in entries.values():
            tally.add(entry)
            documents[entry.file] += entry.documents
        for file in files:
            own = [entry for entry in entries.values() if entry.file == file]
            join_file(plan, folder, file, own)
        made = [self._described(folder, file, documents[file]) for file in files]
        report = tally.report(
            files=len(plan.files),
            quarantine=self._publish_private(folder, entries.values()),
            resumed=self._resumed + self._before.get("documents", 0),
        )
        statement = getattr(self._privatizer, "statement", None)
        manifest = {
            "textpriv": __version__,
            "job": job,
            "format": plan.format,
            "files": [*self._before.get("files", ()), *made],
            **{name: value for name, value in report.to_dict().items() if name in _KEPT},
            "statement": None if statement is None else report.stated(statement).to_dict(),
        }
        self._publish(folder, json.dumps(manifest, indent=1).encode() + b"\n")
        return report

    def _done(self) -> set[int]:
        """Return the numbers of files that are in the output already."""
        names = {each["name"] for each in self._before.get("files", ())}
        return {file for file, (name, _) in enumerate(self._plan.files) if name in names}

    def _described(self, folder: Checkpoint, file: int, documents: int) -> dict[str, Any]:
        name = self._plan.files[file][0]
        path = folder.result(name)
        size, digest = path.stat().st_size, sha256_file(path)
        return {"name": name, "bytes": size, "sha256": digest, "documents": documents}

    def _publish_private(self, folder: Checkpoint, entries: Collection[Entry]) -> str | None:
        """Let bad records and offsets appear, after those of files that were finished before."""
        done = {self._plan.files[file][0] for file in self._done()}

        def before(path: Path) -> bytes:
            if not self._before or not path.exists():
                return b""
            lines = path.read_bytes().splitlines(keepends=True)
            return b"".join(line for line in lines if json.loads(line).get("file") in done)

        quarantine = beside(self._target, "quarantine.jsonl")
        has_any = self._plan.reading.on_error == "quarantine" and folder.publish_beside(
            "bad", quarantine, entries, before(quarantine)
        )
        if self._release.offsets is not None:
            offsets = Path(os.path.realpath(self._release.offsets))
            folder.publish_beside("moved", offsets, entries, before(offsets))
        return str(quarantine) if has_any else None

    def _publish(self, folder: Checkpoint, manifest: bytes) -> None:
        beside_target = beside(self._target, "manifest.json")
        if not (self._before or folder.is_publishing):
            if self._url is None:  # of an output that is replaced
                beside_target.unlink(missing_ok=True)
            if self._target.is_dir() and any(self._target.iterdir()):
                os.replace(self._target, folder.path / "replaced")
        folder.mark_publishing()
        if self._url is not None:
            folder.publish_to_store(self._url)
            written = folder.path / "manifest"
            written.write_bytes(manifest)
            stores.put(written, f"{self._url}.manifest.json")
            return
        if self._plan.is_folder:
            folder.publish_folder(self._target)
        else:
            folder.publish_file(self._target)
        with atomic_write(beside_target, mode=0o666 & ~umask()) as out:
            out.write(manifest)

    def _counted(self, manifest: Mapping[str, Any]) -> Tally:
        """Return a tally that begins with what a manifest says."""
        tally = Tally(self._plan, None)
        counts = {name: manifest[name] for name in _KEPT if name in manifest}
        tally.add(Entry(0, 0, Cursor(), **counts))
        return tally

    def _finished(self, manifest: Mapping[str, Any]) -> CorpusReport:
        """Return the report of an output that was finished before."""
        quarantine = beside(self._target, "quarantine.jsonl")
        found = self._plan.reading.on_error == "quarantine" and quarantine.exists()
        report = self._counted(manifest).report(
            files=len(manifest["files"]),
            quarantine=str(quarantine) if found else None,
            resumed=manifest["documents"],
        )
        return replace(report, unmatched=())


def _changed(before: Mapping[str, Any], job: Mapping[str, Any], is_ordered: bool) -> list[str]:
    """Name what differs between two jobs; further input files are no difference.

    Parameters
    ----------
    before, job
    is_ordered
        Whether further files must come after those of before, as a checkpoint knows files by their numbers.
    """
    if before.get("key") != job["key"]:
        return ["key"]
    if not is_ordered:  # a new version adds files as well
        before = {**before, "version": job["version"]}
    old, new = dict(before.get("input", {})), dict(job["input"])
    found = list(new.items())[: len(old)] if is_ordered else [(name, new.get(name)) for name in old]
    changed = sorted(
        name for name in {*before, *job} - {"input"} if before.get(name) != job.get(name)
    )
    if {"epsilon", "mechanism", "version"}.intersection(changed):
        changed = [name for name in changed if name != "settings"]
    return changed + ([] if found == list(old.items()) else ["input"])


def _merged(tasks: Sequence[Mapping[str, Any]]) -> dict[int, tuple[int, ...]]:
    return {position: numbers for task in tasks for position, numbers in task["later"].items()}
