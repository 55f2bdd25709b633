"""A corpus in, a private corpus out: one file or a folder of files, in constant memory, whole or absent.

What lives here: a run. It hands batches or whole parts to an engine, and has the output appear when everything is done; an
interrupted run is continued. What does not: the plan of a job (``job``), the formats (``formats``), the files of a run under
way (``checkpoint``), the key (``run_key``), how a batch is made private and where (``engines``), and what the user sees
(``cli``). Only the columns of texts change; other columns pass through
untouched, or are dropped by rule, and are not protected.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textpriv import stores
from textpriv.corpus.checkpoint import (
    FORMER_MANIFEST,
    Checkpoint,
    Entry,
    checkpoint_path,
    manifest_path,
    manifest_url,
    only_writer,
    quarantine_path,
)
from textpriv.corpus.columns import ColumnRule
from textpriv.corpus.formats import write_file
from textpriv.corpus.job import (
    PART_RECORDS,
    Plan,
    check_files,
    check_options,
    files_of,
    folder_exists,
    is_taken,
    planned,
)
from textpriv.corpus.parts import (
    FileJoiner,
    Identities,
    PartRunner,
    PartWriter,
    join_file,
    released_texts,
)
from textpriv.corpus.records import (
    MAX_TEXT_BYTES,
    Batch,
    CorpusReader,
    Cursor,
    compressed,
    is_stream,
    part_of,
    written_stream,
)
from textpriv.corpus.report import CorpusReport, Progress, Tally, besides
from textpriv.engines.batch import NO_SALT, BatchRelease, PrivatizerSettings
from textpriv.engines.local import InProcess
from textpriv.errors import CorpusError
from textpriv.files import sha256_file
from textpriv.run_key import read_run_key

if TYPE_CHECKING:
    import pyarrow as pa

    from textpriv.engines.workers import WorkerPool
    from textpriv.privatizer import Privatizer
    from textpriv.run_key import RunKey

__all__ = ["PART_RECORDS", "privatize_corpus"]


def privatize_corpus(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    privatizer: Privatizer,
    *,
    format: str | None = None,
    text_column: str | Sequence[str] = "text",
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
    labels_column: str | None = None,
    offsets: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
    on_unprotected: Callable[[tuple[str, ...]], None] | None = None,
) -> CorpusReport:
    """Replace the texts of every record of a file, or of a folder of files, by their private versions.

    Records keep their order and their other fields. ``target`` appears when all is written and synchronised, or not at
    all; a failed run leaves an older file ``target`` as it was. The output never depends on ``batch_size``, ``workers``,
    ``engine`` or ``part_records``.

    Parameters
    ----------
    source, target
        Files, or ``"-"`` for standard input and output; or a folder of files of one format, and a folder to make,
        beside which ``target.manifest.json`` then has a checksum of each file. Either may be a URL that fsspec knows, such
        as ``s3://bucket/private`` (:mod:`textpriv.stores`): each object appears whole, and the manifest last. Both ends have
        the same format; the compression of a single file may differ.
    privatizer
        What makes a text private.
    format
        ``"jsonl"``, ``"csv"``, ``"tsv"``, ``"text"`` or ``"parquet"`` for both ends; None goes by the extensions. With
        ``"-"`` at one end the other end's extension decides, with ``"-"`` at both it is ``"text"``.
    text_column, on_error, batch_size, max_text_bytes
        As in :func:`read_records`. The texts of several columns are released independently, each as if its column were
        the only one. With ``on_error="quarantine"`` bad records go to the quarantine,
        ``target.quarantine.jsonl`` (mode 0600), which holds raw text.
    workers
        Number of processes that work, of which this is one if there are up to four; 1 uses this process alone.
    settings
        What other processes build their Privatizer from; required for more than one worker and for the engines
        ``"spark"`` and ``"ray"``, and must describe ``privatizer``.
    document_column
        The field that names each document: its randomness then follows from the run key and this name, wherever in the
        corpus it stands. Without one it follows from the document's own text and its number among equal texts, so that an
        edit of one record redraws that record only. Names pass through as they are, and must
        not be made from the text. Required with a ledger, which counts documents of one name as versions of one; without a
        ledger a name that is there twice is refused, for which some 100 bytes of memory are used a document.
    author_column
        The field that names each document's author, for a ledger and for laws that draw the same for all spans of a
        person.
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
        one). Needs a key, a seed or a ledger: without one the remaining documents would be drawn from another key.
    part_records
        Records after which what is done is safe on the disk; also the unit of work of Spark and Ray. The first parts of a
        file are smaller, from 1,250 records on.
    labels_column
        The field with the spans of each text that are known already, beside those that detectors find
        (:func:`textpriv.spans.span.read_labels`), of a privatizer with spans. It is left out of the output.
    offsets
        A file to write, which says for each span where it stood in the raw text and where it stands in the private one
        (JSON lines, mode 0600). It is the owner's: it must not lie in the output.
    overwrite
        Whether a file ``target``, and one of offsets or of bad records beside it, may take the place of one that is there
        and not empty. Without it, it may where it is one that this run has begun, or one beside which its run key lies: a
        release that can be repeated. A folder is never replaced, nor is anything that the run reads.
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
        For bad records, formats that differ, source and target being one file, a target that is there, or a process that
        dies.
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
    source, target = map(_plain_name, (source, target))
    if (is_stream(source) or is_stream(target)) and (resume is not None or engine != "local"):
        raise CorpusError(
            "A stream passes only once, so its run can neither be continued nor be shared out: name files."
        )
    check_options(
        privatizer, workers, settings, engine, document_column, author_column, key, resume
    )
    if getattr(privatizer, "spans", None) is None and (labels_column or offsets):
        raise CorpusError(
            "Labels and offsets are those of typed spans: make the privatizer with a policy of spans."
        )
    if key is not None and (is_stream(target) or (is_stream(source) and document_column is None)):
        raise CorpusError(
            "A stream passes only once, so under a run key it would not be known again: name files (an input whose "
            "documents have names may be a stream)."
        )
    plan = planned(
        source,
        target,
        format=format,
        text_column=text_column,
        on_error=on_error,
        batch_size=batch_size,
        max_text_bytes=max_text_bytes,
        columns=columns,
        part_records=part_records,
        document_column=document_column,
        author_column=author_column,
        labels_column=labels_column,
        offsets=offsets,
    )
    watch = Tally(plan, on_progress, on_unprotected)
    if is_stream(target):
        if plan.is_folder or plan.format == "parquet" or on_error == "quarantine" or offsets:
            raise CorpusError(
                "Only a single jsonl, csv, tsv or text file goes to a stream, and neither bad records nor offsets can be "
                "set aside beside a stream: name a file as the output."
            )
        with _local_engine(plan, privatizer, settings, workers, secrets.token_bytes(16)) as local:
            _write_stream(
                plan,
                target,
                local,
                watch,
                Identities(plan, getattr(privatizer, "ledger", None) is not None),
            )
        return watch.report(time.perf_counter() - started)
    owners = None if offsets is None else Path(os.path.realpath(offsets))
    run = _Run(plan, target, privatizer, settings, key, watch, owners)
    with run.opened(resume, overwrite):
        if not run.complete:
            if engine == "local":
                run.run_local(workers)
            else:
                run.run_distributed(engine, address, workers)
        return run.published(started)


def _plain_name(name: str | os.PathLike[str]) -> str:
    name = os.fspath(name)
    return name.rstrip("/") if stores.is_url(name) else name


def _version_of(path: Path) -> tuple[int, int, int] | None:
    """Return what changes when a file or folder is replaced; None where there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns


def _local_engine(
    plan: Plan,
    privatizer: Privatizer,
    settings: PrivatizerSettings | None,
    workers: int,
    context: bytes,
) -> InProcess | WorkerPool:
    if workers == 1 or settings is None:
        return InProcess(BatchRelease(privatizer, plan.columns, context))
    from textpriv.engines.workers import WorkerPool

    release = BatchRelease(privatizer, plan.columns, context)
    return WorkerPool(release, settings, plan.columns, context, workers)


def _write_stream(
    plan: Plan, target: str, local: InProcess | WorkerPool, watch: Tally, identities: Identities
) -> None:
    """Write one file to standard output, a device or a pipe, as it comes."""
    reader = plan.reader(0)

    def jobs() -> Iterator[tuple[Batch, pa.RecordBatch | None]]:
        for batch in reader:
            watch.add_columns(reader, batch.rows)
            yield batch, plan.arrow(reader, batch, identities.of(0, reader, batch))
        watch.add_columns(reader, ())  # of a header that stands alone

    def released() -> Iterator[tuple[Batch, list[list[str]]]]:
        for batch, result in local.ordered(jobs()):
            texts, tokens = released_texts(plan, 0, batch, result)
            yield batch, texts
            watch.add_batch(0, reader, batch, tokens)

    with written_stream(target) as stream, compressed(stream, plan.compression) as out:
        write_file(reader, out, plan.rule, released())


class _Run:
    """One run into files: the checkpoint, the making of the parts, and the publication of the output."""

    def __init__(
        self,
        plan: Plan,
        target: str,
        privatizer: Privatizer,
        settings: PrivatizerSettings | None,
        key: RunKey | None,
        watch: Tally,
        offsets: Path | None = None,
    ) -> None:
        self._plan = plan
        self._offsets = offsets
        self._url = target if stores.is_url(target) else None
        self._target = stores.local_path(target)  # of a URL: beside it lies what is not published
        self._privatizer = privatizer
        self._settings = settings
        self._key = key
        self._watch = watch
        self._context = NO_SALT
        self._identities = Identities(plan, getattr(privatizer, "ledger", None) is not None)
        self._entries: dict[tuple[int, int], Entry] = {}
        self._engine: tuple[str, str | None, int] | None = None
        self._resumed = 0
        self._before = _version_of(self._target)
        self.complete = False

    @contextlib.contextmanager
    def opened(self, resume: bool | None, overwrite: bool) -> Iterator[None]:
        """Lock the output and open the checkpoint, which is removed after the block unless the run is to be continued."""
        ledger = getattr(self._privatizer, "ledger", None)
        index = getattr(getattr(self._privatizer, "mechanism", None), "index", None)
        check_files(
            self._plan,
            self._url or str(self._target),
            key=self._key,
            ledger=None if ledger is None else ledger.path,
            read=files_of(getattr(index, "path", None), self._settings),
            offsets=self._offsets,
            resume=resume,
            overwrite=overwrite,
        )
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
        path = checkpoint_path(self._target, resumable=resume is not None)
        new_key = self._key is not None and self._key.fresh
        Checkpoint.check(path, bool(resume))
        if resume and new_key and path.exists() and Checkpoint.attach(path).entries():
            raise CorpusError(
                f"The run in {path} was begun under a run key that is gone, so it cannot be continued. Put "
                f"{self._key.path} back, or remove that folder to begin again; both releases together then keep less "  # type: ignore[union-attr]
                "than one."
            )
        if self._key is None and resume is None:
            # No two calls share a random stream, even for the same privatizer.
            self._context = secrets.token_bytes(16)
        self._refuse_output(Checkpoint.attach(path), resume)
        if self.complete:
            Checkpoint.attach(path).remove()  # the run may have ended between its last two steps
            yield
            return
        if self._key is not None:
            if resume and new_key:
                Checkpoint.attach(path).remove()  # nothing was finished there
            self._key.keep()
        try:
            self._folder = Checkpoint.begin(path, self._job, bool(resume))
        except BaseException:
            self._forget(new_key)
            raise
        try:
            if resume:
                self._entries = self._folder.entries(checked=True)
                for entry in self._entries.values():
                    self._watch.add_entry(entry)
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

    def _refuse_output(self, folder: Checkpoint, resume: bool | None) -> None:
        """Refuse an output folder that exists, unless it is what is to be continued."""
        target = self._url or str(self._target)
        if not self._plan.is_folder or not is_taken(target):
            return
        if resume:
            manifest = self._manifest()
            run = manifest.get("run")
            if isinstance(run, str) and manifest.get("job") == self._job_name(run):
                self.complete = True
                return
            if folder.is_publishing():  # of the same job, as is seen when it is opened
                return
        raise folder_exists(target)

    def _manifest(self) -> dict[str, Any]:
        if self._url is not None:
            with contextlib.suppress(ValueError):
                content = json.loads(stores.read(manifest_url(self._url)) or b"{}")
                return content if isinstance(content, dict) else {}
        for path in (manifest_path(self._target), self._target / FORMER_MANIFEST):
            with contextlib.suppress(OSError, ValueError):
                content = json.loads(path.read_bytes())
                return content if isinstance(content, dict) else {}
        return {}

    def _job_name(self, run: str) -> str:
        content = json.dumps(self._job(run), sort_keys=True)
        return hashlib.blake2b(content.encode(), key=run.encode(), digest_size=16).hexdigest()

    # Making the parts

    def run_local(self, workers: int) -> None:
        """Make all parts in this process or its workers."""
        plan, folder, watch = self._plan, self._folder, self._watch
        parts: PartWriter | None = None
        with contextlib.ExitStack() as stack:
            local = _local_engine(plan, self._privatizer, self._settings, workers, self._context)
            stack.enter_context(local)
            # Closed by name: on failure a worker pool must not live on in the traceback.
            results = stack.enter_context(contextlib.closing(local.ordered(self._jobs())))
            try:
                for (file, reader, batch, end), released in results:
                    parts = parts or PartWriter(plan, folder, file, reader)
                    if batch is not None:
                        texts, tokens = released_texts(plan, file, batch, released)
                        parts.write(batch, texts, tokens)
                        watch.add_batch(file, reader, batch, tokens)
                        continue
                    parts.end(is_empty=end.record == 0)
                    folder.close_file(file, self._count(end), end.record)
                    parts = None
            finally:
                if parts is not None:
                    parts.close()

    def _jobs(self) -> Iterator[tuple[tuple[int, CorpusReader, Batch | None, Cursor], Any]]:
        """Yield what is still to be done: each batch with what the engine is given, and each file's end with nothing."""
        for file in range(len(self._plan.files)):
            done = 0
            while (file, done) in self._entries:
                done += 1
            closed = self._folder.closed_file(file)
            if closed is not None and done == closed[0]:
                self._identities.read(file)
                continue
            end = self._entries[file, done - 1].end if done else Cursor()
            if done:
                self._identities.read(file, stop=end.record)
            reader = self._plan.reader(file, end)
            for batch in reader:
                self._watch.add_columns(reader, batch.rows)
                numbers = self._identities.of(file, reader, batch)
                end = batch.end
                yield (file, reader, batch, end), self._plan.arrow(reader, batch, numbers)
            yield (file, reader, None, end), None

    def _count(self, end: Cursor) -> int:
        return part_of(max(0, end.record - 1), self._plan.part_records) + 1

    def run_distributed(self, engine: str, address: str | None, workers: int) -> None:
        """Make all parts on Spark or Ray."""
        plan = self._plan
        assert self._settings is not None
        from textpriv.index.builtin import absolute_name

        settings = replace(self._settings, index=absolute_name(self._settings.index))
        if self._key is not None:
            # The executors read the key where the output is; in what is sent to them there is no secret.
            settings = replace(settings, key_file=str(self._key.path), run_key=b"")
        first = plan.reader(0, stop=plan.batch_size)
        for batch in first:
            self._watch.add_columns(first, batch.rows)
        tasks = []
        records = 0
        for file in range(len(plan.files)):
            later = self._identities.read(file)
            cursors = [Cursor(), *plan.reader(file).cursors()]
            for task in self._tasks(file, cursors):
                ends = task["start"]["record"], task["stop"]
                own = {each: n for each, n in later.items() if ends[0] <= each < ends[1]}
                tasks.append({**task, "later": own})
            records += cursors[-1].record
            self._folder.close_file(file, self._count(cursors[-1]), cursors[-1].record)
        self._engine = (engine, address, workers)
        if tasks:
            runner = PartRunner(plan.absolute(), settings, self._context, str(self._folder.path))
            with self._watched(records):
                self._each(tasks, runner)

    def _tasks(self, file: int, cursors: Sequence[Cursor]) -> list[dict[str, Any]]:
        """One task for each part that is missing; one for all of them where a file cannot be entered in its middle."""
        missing = [
            part for part in range(self._count(cursors[-1])) if (file, part) not in self._entries
        ]
        if self._plan.format != "parquet" and cursors[-1].offset is None:
            missing = missing[:1]
            stops = [cursors[-1].record]
        else:
            stops = [cursors[part + 1].record for part in missing]
        return [
            {"file": file, "start": asdict(cursors[part]), "stop": stop}
            for part, stop in zip(missing, stops, strict=False)
        ]

    def _each(self, tasks: list[dict[str, Any]], work: Callable[[Any], dict[str, Any]]) -> None:
        assert self._engine is not None
        engine, address, workers = self._engine
        each = import_module(f"textpriv.engines.{engine}").each
        for result in each(tasks, work, address=address, workers=workers):
            if "error" in result:
                raise CorpusError(result["error"])

    @contextlib.contextmanager
    def _watched(self, records: int) -> Iterator[None]:
        """Report, from a thread, the parts that other processes have finished."""
        over = threading.Event()

        def follow() -> None:
            seen = set(self._entries)
            while not over.wait(0.5):
                with contextlib.suppress(OSError):
                    for key, entry in self._folder.entries(without=seen).items():
                        seen.add(key)
                        self._watch.add_entry(entry)
                done = self._watch.documents + self._watch.skipped.total()
                self._watch.report_progress(done / records if records else None)

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
        quarantine = quarantine_path(self._target)
        if self.complete:
            return self._report_published(started, quarantine)
        entries = self._folder.entries()
        self._join_all()
        watch.documents = 0
        watch.tokens.clear()
        watch.skipped.clear()
        watch.unprotected.clear()
        documents: Counter[int] = Counter()
        for entry in sorted(entries.values(), key=lambda entry: (entry.file, entry.part)):
            watch.add_entry(entry)
            documents[entry.file] += entry.documents
        parts = [entries[at] for at in sorted(entries)]
        has_quarantine = self._folder.publish_beside("quarantine", quarantine, parts)
        if self._offsets is not None:
            self._folder.publish_beside("moved", self._offsets, parts)
        manifest = self._new_manifest(documents, has_quarantine) if plan.is_folder else None
        if self._url is not None:
            self._folder.publish_to_store(self._url, manifest)
        elif manifest is not None:
            self._folder.publish_folder(self._target, manifest)
        else:
            self._folder.publish_file(self._target)
        return watch.report(
            time.perf_counter() - started,
            files=len(plan.files),
            quarantine=str(quarantine) if has_quarantine else None,
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
            join_file(plan, folder, file)

    def _new_manifest(self, documents: Mapping[int, int], has_quarantine: bool) -> dict[str, Any]:
        from textpriv import __version__

        files = []
        for file, (name, _) in enumerate(self._plan.files):
            path = self._folder.result_path(name)
            files.append(
                {
                    "name": name,
                    "bytes": path.stat().st_size,
                    "sha256": sha256_file(path),
                    "documents": documents[file],
                }
            )
        statement = getattr(self._privatizer, "statement", None)
        if statement is not None:
            more = besides(self._plan, self._watch.skipped, has_quarantine)
            columns = self._watch.unprotected
            statement = statement.with_columns(columns).extended(not_protected=more)
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

    def _report_published(self, started: float, quarantine: Path) -> CorpusReport:
        manifest = self._manifest()
        return CorpusReport(
            documents=manifest["documents"],
            tokens=manifest["tokens"],
            skipped=manifest["skipped"],
            unprotected=tuple(manifest["unprotected"]),
            seconds=time.perf_counter() - started,
            files=len(manifest["files"]),
            quarantine=str(quarantine) if quarantine.exists() else None,
            resumed=manifest["documents"],
            besides=besides(self._plan, manifest["skipped"], quarantine.exists()),
        )
