"""The checkpoint of a run: finished parts with their checksums, from which it can be continued, and output whole or absent.

A run writes parts of each file into a checkpoint folder beside its output. A part counts as finished once a small entry with
its checksum lies beside it, and both are on the disk; whatever has no entry is made anew. When all parts of all files
are finished they are joined, and the output appears under its name in one step. What is in a part is up to ``parts`` and
``formats``; nothing here knows of records or texts. One run at a time writes to an output (:func:`only_writer`), and a
folder without a job file of ours is neither continued nor removed, whatever it is called.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from textpriv import stores
from textpriv.corpus.records import Cursor
from textpriv.errors import CorpusError
from textpriv.files import atomic_write, created, sha256_file, sync_folder, umask

__all__ = [
    "FORMER_MANIFEST",
    "Checkpoint",
    "Entry",
    "checkpoint_path",
    "is_being_written",
    "manifest_path",
    "manifest_url",
    "only_writer",
    "quarantine_path",
]

FORMER_MANIFEST = "manifest.json"  # in the folder itself, where earlier versions wrote it
_BESIDE = {"quarantine": "bad", "moved": "moved"}  # kinds of private files beside a part
_FORMAT = 2  # of the folder
_JOB = "job.json"
_RUN_BYTES = 16  # of a run's random name
_RESULT = "result"
_PUBLISHING = "publishing"  # stands in the folder from the first object in a store on
_PIECE = 1024 * 1024
_PART_NAME = re.compile(r"([0-9]{6,})-([0-9]{6,})\.json")
_CLOSED = ("parts", "records")  # what is noted of a file that was read to its end


@dataclass(frozen=True)
class Entry:
    """The record of one finished part.

    Attributes
    ----------
    file, part : int
        Number of the input file in the corpus, and of the part in the file.
    end : Cursor
        Where the next part starts in the input.
    documents : int
        Records written.
    tokens, skipped : mapping of str to int
        Tokens by class, and bad records by reason.
    bytes : int
    sha256 : str
        Of the part.
    quarantine, moved : str or None
        SHA-256 of the bad records quarantined with the part, and of the offsets of its spans.
    unprotected : sequence of str
        Names of the other columns of its records that pass.
    matched : sequence of str
        Patterns of the rule for columns that match any. No names: those that are left out must not be recorded.
    """

    file: int
    part: int
    end: Cursor
    documents: int
    tokens: Mapping[str, int]
    skipped: Mapping[str, int]
    bytes: int = 0
    sha256: str = ""
    quarantine: str | None = None
    unprotected: Sequence[str] = ()
    matched: Sequence[str] = ()
    moved: str | None = None

    @classmethod
    def from_dict(cls, content: Any, key: tuple[int, int]) -> Entry | None:
        """Return the entry that :func:`dataclasses.asdict` made into plain values.

        Parameters
        ----------
        content
            What an entry's file contains: anything, if it is damaged.
        key : tuple of int
            File and part by the name of that file.

        Returns
        -------
        Entry or None
            None for what is no entry of this part: it counts as not finished.
        """
        try:
            entry = cls(**{**content, "end": Cursor(**content["end"])})
            sound = entry._is_sound()
        except (TypeError, KeyError, AttributeError):
            return None
        return entry if sound and (entry.file, entry.part) == key else None

    def _is_sound(self) -> bool:
        """Return whether every field has its type, and no count is negative."""
        counts = [self.documents, self.bytes, self.end.record, self.end.line]
        counts += [*self.tokens.values(), *self.skipped.values()]
        if self.end.offset is not None:
            counts.append(self.end.offset)
        names = [*self.tokens, *self.skipped, *self.unprotected, *self.matched, self.sha256]
        names += [each for each in (self.quarantine, self.moved) if each is not None]
        return all(map(_is_count, counts)) and all(isinstance(name, str) for name in names)


@dataclass
class Checkpoint:
    """The checkpoint folder of one run, opened by :meth:`begin` or :meth:`attach`.

    Attributes
    ----------
    path : Path
    run : str
        A random name of the run.
    """

    path: Path
    run: str = ""

    # Making and opening

    @classmethod
    def begin(cls, path: Path, job: Callable[[str], Mapping[str, Any]], resume: bool) -> Checkpoint:
        """Make the folder of a run, or go on in one of the same job; :func:`only_writer` must hold the output.

        Parameters
        ----------
        path : Path
        job : callable
            Takes the run's name, a random one that is stored in the folder, and returns plain values that decide the
            output. A run is continued only if they are the same.
        resume : bool
            Whether a folder that exists is to be continued; if not, it is an error.

        Raises
        ------
        CorpusError
            If the folder is not one of a run, belongs to another job, or exists and ``resume`` is False.
        """
        cls.check(path, resume)
        checkpoint = cls(path)
        if not os.path.lexists(path):
            checkpoint._make(job)
            return checkpoint
        checkpoint._agree(job)
        for entry in os.scandir(path):
            if entry.name != _RESULT and not entry.is_file(follow_symlinks=False):
                raise CorpusError(
                    f"{entry.path} is a folder or a link where a file of the run should be, so the run cannot be "
                    f"continued. Remove {path} to begin again; under the same run key the documents come out the same."
                )
        # What a killed run had begun to put together is made anew from the parts; else a file that it left half
        # written would be published with the rest.
        if checkpoint.result_path("").is_dir():
            shutil.rmtree(checkpoint.result_path(""))
        return checkpoint

    @classmethod
    def attach(cls, path: Path) -> Checkpoint:
        """Return the folder of a run that another process leads."""
        return cls(path)

    @classmethod
    def check(cls, path: Path, resume: bool) -> None:
        """Refuse what lies at the path of a run's folder unless it can be continued; nothing is changed.

        Raises
        ------
        CorpusError
            If it carries no job file of a run, or if there is a run and ``resume`` is False.
        """
        if not os.path.lexists(path):
            return
        if not cls.is_run(path):
            raise CorpusError(
                f"{path} carries no job file of a run, so it is neither continued nor removed. Move it away, or choose "
                "another output."
            )
        if not resume:
            raise CorpusError(
                f"An earlier run was interrupted and left {path}. Continue it with --resume, or remove that folder "
                "to begin again."
            )

    @classmethod
    def is_run(cls, path: Path) -> bool:
        """Return whether a folder carries the job file of a run; one of somebody else's does not."""
        if path.is_symlink() or not path.is_dir():
            return False
        job = _read_json(path / _JOB)
        return (
            isinstance(job, dict)
            and isinstance(job.get("work_folder"), int)
            and isinstance(job.get("run"), str)
            and len(job["run"]) == 2 * _RUN_BYTES
        )

    def _make(self, job: Callable[[str], Mapping[str, Any]]) -> None:
        """Let the folder appear with its job file in it: one without it could be anybody's."""
        self.run = secrets.token_hex(_RUN_BYTES)
        staging = self.path.with_name(f".{self.path.name[:200]}.{secrets.token_hex(8)}.new")
        with _beside(self.path.name.removesuffix(".partial")):
            staging.mkdir(mode=0o700)
        try:
            _write_whole(staging / _JOB, _job_content(self.run, job))
            os.rename(staging, self.path)
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise
        sync_folder(self.path.parent)

    def _agree(self, job: Callable[[str], Mapping[str, Any]]) -> None:
        recorded = _read_json(self.path / _JOB)
        self.run = str(recorded["run"])
        wanted = json.loads(_job_content(self.run, job))
        differing = sorted(
            key for key in {*recorded, *wanted} if recorded.get(key) != wanted.get(key)
        )
        if differing:
            raise CorpusError(
                f"The run in {self.path} was begun otherwise (differing: {', '.join(differing)}). Resume it with the same "
                "input, settings and key, or remove that folder to begin again."
            )

    def remove(self) -> None:
        """Remove the folder with all that is in it; one without a job file of a run stays."""
        if self.is_run(self.path):
            shutil.rmtree(self.path, ignore_errors=True)

    # Parts

    @contextlib.contextmanager
    def part(
        self, file: int, part: int
    ) -> Iterator[tuple[BinaryIO, dict[str, BinaryIO], list[Entry]]]:
        """Open a part, and what goes beside it, for writing.

        Parameters
        ----------
        file, part : int

        Yields
        ------
        tuple
            The part, the files beside it (``"quarantine"`` and ``"moved"``), and an empty list. The part is finished if, at
            the end of the block, the list holds its entry; the sizes and checksums are filled in here.
        """
        final = self._part_path(file, part, "part")
        # Two attempts at one part may run side by side (a slow task is started anew); both write the same.
        mark = secrets.token_hex(8)
        written = {
            kind: final.with_suffix(f".{kind}.{mark}.tmp") for kind in ("part", *_BESIDE.values())
        }
        done: list[Entry] = []
        try:
            with contextlib.ExitStack() as stack:
                files = {kind: stack.enter_context(created(path)) for kind, path in written.items()}
                yield files["part"], {name: files[kind] for name, kind in _BESIDE.items()}, done
                for each in files.values():
                    each.flush()
                    os.fsync(each.fileno())
            if not done:
                return
            fields = {
                **asdict(done[-1]),
                "bytes": written["part"].stat().st_size,
                "sha256": sha256_file(written["part"]),
            }
            for name, kind in _BESIDE.items():
                if written[kind].stat().st_size:
                    fields[name] = sha256_file(written[kind])
                    os.replace(written[kind], final.with_suffix(f".{kind}"))
            os.replace(written["part"], final)
            sync_folder(self.path)
            _write_whole(final.with_suffix(".json"), json.dumps(fields).encode())
        finally:
            for path in written.values():
                with contextlib.suppress(OSError):
                    os.unlink(path)

    def entries(
        self, checked: bool = False, without: Set[tuple[int, int]] = frozenset()
    ) -> dict[tuple[int, int], Entry]:
        """Return the finished parts, by file and part.

        Parameters
        ----------
        checked : bool
            Read every part, and leave out one whose bytes are not those of its entry.
        without : set
            Parts to leave out unread.
        """
        entries = {}
        for path in sorted(self.path.glob("*.json")):
            named = _PART_NAME.fullmatch(path.name)
            if named is None:
                continue
            key = int(named[1]), int(named[2])
            if key in without:
                continue
            entry = Entry.from_dict(_read_json(path), key)
            if entry is not None and (not checked or self._is_whole(entry)):
                entries[key] = entry
        return entries

    def _is_whole(self, entry: Entry) -> bool:
        path = self._part_path(entry.file, entry.part, "part")
        try:
            beside = ((getattr(entry, name), kind) for name, kind in _BESIDE.items())
            return sha256_file(path) == entry.sha256 and all(
                digest is None or sha256_file(path.with_suffix(f".{kind}")) == digest
                for digest, kind in beside
            )
        except OSError:
            return False

    def close_file(self, file: int, parts: int, records: int) -> None:
        """Note that a file was read to its end."""
        content = json.dumps({"parts": parts, "records": records}).encode()
        _write_whole(self.path / f"file-{file:06d}.json", content)

    def closed_file(self, file: int) -> tuple[int, int] | None:
        """Return the number of parts and of records of a file that was read to its end."""
        note = _read_json(self.path / f"file-{file:06d}.json")
        if not isinstance(note, dict) or not all(map(_is_count, map(note.get, _CLOSED))):
            return None
        return note["parts"], note["records"]

    def parts(self, file: int, count: int) -> list[Path]:
        """Return the paths of the parts of a file."""
        return [self._part_path(file, part, "part") for part in range(count)]

    def _part_path(self, file: int, part: int, kind: str) -> Path:
        return self.path / f"{file:06d}-{part:06d}.{kind}"

    # The result

    @contextlib.contextmanager
    def result(self, name: str) -> Iterator[BinaryIO]:
        """Open a file of the finished output, by its name below the output; it appears there when the block ends well."""
        final = self.result_path(name)
        final.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(final) as out:
            yield out

    def adopt(self, part: Path, name: str) -> None:
        """Make a part a file of the finished output as it is, without a second copy where the disk allows."""
        final = self.result_path(name)
        final.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(final)
        try:
            os.link(part, final)
        except OSError:
            with self.result(name) as out, open(part, "rb") as file:
                shutil.copyfileobj(file, out, _PIECE)

    def result_path(self, name: str) -> Path:
        """Where a file of the finished output lies before it appears."""
        return self.path / _RESULT / name if name else self.path / _RESULT

    def publish_file(self, target: Path) -> None:
        """Let the one file of the output appear, with the permissions that writing it in place would leave."""
        made = self.result_path("")
        os.chmod(made, _final_mode(target))
        os.replace(made, target)
        sync_folder(target.parent)

    def publish_folder(self, target: Path, manifest: Mapping[str, Any]) -> None:
        """Let the folder of the output appear, and its manifest beside it just before."""
        result = self.path / _RESULT
        result.mkdir(exist_ok=True)
        mask = umask()
        with atomic_write(manifest_path(target), mode=0o666 & ~mask, folder=self.path) as out:
            # Escaped, for a file's name may be no UTF-8.
            out.write(json.dumps(manifest, indent=1).encode() + b"\n")
        for folder, _, names in os.walk(result):
            os.chmod(folder, 0o777 & ~mask)
            for name in names:
                os.chmod(os.path.join(folder, name), 0o666 & ~mask)
            sync_folder(Path(folder))
        os.replace(result, target)
        sync_folder(target.parent)

    def publish_to_store(self, url: str, manifest: Mapping[str, Any] | None) -> None:
        """Let the output appear at a URL, object by object, and the manifest of a folder last: then all is there."""
        _write_whole(self.path / _PUBLISHING, b"")
        beside = manifest_url(url)
        if manifest is not None:
            stores.remove(beside)  # of a folder that was there before
        paths = sorted(path for path in self.result_path("").rglob("*") if path.is_file())
        for path in paths:
            stores.put(path, f"{url}/{path.relative_to(self.result_path('')).as_posix()}")
        if manifest is None:
            stores.put(self.result_path(""), url)
            return
        written = self.path / "manifest"
        _write_whole(written, json.dumps(manifest, indent=1).encode() + b"\n")
        stores.put(written, beside)

    def is_publishing(self) -> bool:
        """Return whether some of the output may stand at its URL already."""
        return (self.path / _PUBLISHING).exists()

    def publish_beside(self, what: str, target: Path, entries: Iterable[Entry]) -> bool:
        """Let what lies beside the parts (mode 0600) appear in one file; return whether there is any.

        Parameters
        ----------
        what : "quarantine" or "moved"
        target : Path
        entries : iterable of Entry
            In their order.
        """
        paths = [
            self._part_path(entry.file, entry.part, _BESIDE[what])
            for entry in entries
            if getattr(entry, what)
        ]
        if not paths and what == "quarantine":
            return False
        # Offsets may go to another file system than the output.
        with atomic_write(target, folder=None if what == "moved" else self.path) as out:
            for path in paths:
                with open(path, "rb") as file:
                    shutil.copyfileobj(file, out, _PIECE)
        return bool(paths)


@contextlib.contextmanager
def only_writer(target: Path) -> Iterator[None]:
    """Hold an output for one run, on one machine; the system lets go of it when the process ends, however it ends.

    Parameters
    ----------
    target : Path
        The output, links resolved. An empty file beside it, hidden, is locked (``flock``) as long as the block lasts.

    Raises
    ------
    CorpusError
        If another run holds the output, or nothing can be written beside it.
    """
    path = _lock_path(target)
    while True:
        with _beside(target.name):
            # Beside a local output there is a folder; that of an output at a URL is this user's alone.
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The run before has removed the file; a lock on what has no name keeps nobody away.
            if _is_at(lock, path):
                break
            os.close(lock)
        except OSError as error:
            os.close(lock)
            if isinstance(error, BlockingIOError):
                raise CorpusError(
                    f"Another run is writing to {target}. Wait for its end, or stop it first."
                ) from None
            raise CorpusError(
                f"Cannot lock {target} against other runs: {error.strerror}. Write to a local disk."
            ) from None
    try:
        yield
    finally:
        # Removed before it is let go, so that no other run's file is.
        with contextlib.suppress(OSError):
            os.unlink(path)
        # Said, and not left to the closing: a worker that has outlived this run may have the file open, too.
        fcntl.flock(lock, fcntl.LOCK_UN)
        os.close(lock)


def is_being_written(target: Path) -> bool:
    """Return whether a run holds this output now."""
    try:
        lock = os.open(_lock_path(target), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False


def _lock_path(target: Path) -> Path:
    return target.with_name(f".{target.name[:200]}.textpriv-lock")


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def _beside(name: str) -> Iterator[None]:
    """Name the output in the error where nothing can be written beside it."""
    try:
        yield
    except OSError as error:
        raise CorpusError(
            f"Cannot write beside {name}: {error.strerror}. Choose another place, or make room there."
        ) from None


def checkpoint_path(target: Path, resumable: bool) -> Path:
    """Return the checkpoint folder of an output: named after it if it can be resumed, else hidden and random."""
    if resumable:
        return target.with_name(target.name + ".partial")
    return target.with_name(f".{target.name[:200]}.{secrets.token_hex(8)}.tmp")


def quarantine_path(target: Path) -> Path:
    """Return the file beside an output with the bad records that are set aside."""
    return target.with_name(target.name + ".quarantine.jsonl")


def manifest_path(target: Path) -> Path:
    """Return the manifest of an output folder: beside it, since readers of folders take all in them for records."""
    return target.with_name(target.name + ".manifest.json")


def manifest_url(url: str) -> str:
    """Return the manifest of an output folder in a store: beside it, too."""
    return url + ".manifest.json"


def _read_json(path: Path) -> Any:
    """Return what a small file holds; None where it is missing, no file, or damaged."""
    try:
        return json.loads(path.read_bytes()) if path.is_file() else None
    except (OSError, ValueError, RecursionError):
        return None


def _job_content(run: str, job: Callable[[str], Mapping[str, Any]]) -> bytes:
    return json.dumps({"work_folder": _FORMAT, "run": run, **job(run)}).encode()


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _write_whole(path: Path, content: bytes) -> None:
    """Write a small file that is there whole, and on the disk, or not at all."""
    with atomic_write(path) as out:
        out.write(content)


def _final_mode(final: Path) -> int:
    """Return the permissions that writing in place would leave: the old file's, or the umask's."""
    try:
        return stat.S_IMODE(final.stat().st_mode)
    except FileNotFoundError:
        return 0o666 & ~umask()
