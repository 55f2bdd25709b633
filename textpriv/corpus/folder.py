"""Checkpoint folder of a run: finished parts with their checksums, from which the run is continued and the output is made.

A part is finished once an entry with its checksum is beside it, and both are on the disk. A run locks its output
(:func:`only_writer`). A folder without a job file of ours is neither continued nor removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from textpriv.corpus import stores
from textpriv.corpus.records import Cursor
from textpriv.errors import CorpusError
from textpriv.files import atomic_write, created, flush, sha256_file, sync_folder, umask

__all__ = ["Checkpoint", "Entry", "beside", "checkpoint_path", "only_writer", "unfinished"]

_KINDS = ("part", "bad", "moved")  # files of a part; the last two are private
_FORMAT = 3
_NAME = re.compile(r"([0-9]{6,})-([0-9]{6,})\.json")


@dataclass(frozen=True)
class Entry:
    """The record of one finished part: where it ends in the input, counts, and the checksums of its files."""

    file: int
    part: int
    end: Cursor
    documents: int = 0
    nulls: int = 0
    tokens: Mapping[str, int] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    unprotected: Collection[str] = ()
    matched: Collection[str] = ()
    sha256: Mapping[str, str] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Return the content of the entry's file."""
        content = json.dumps(asdict(self))
        return json.dumps({"entry": content, "sha256": _hash(content)}).encode()

    @classmethod
    def read(cls, path: Path) -> Entry | None:
        """Return the entry in a file; None if it is damaged."""
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
            content = json.loads(path.read_bytes())
            if _hash(content["entry"]) == content["sha256"]:
                fields = json.loads(content["entry"])
                return cls(**{**fields, "end": Cursor(**fields["end"])})
        return None


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoint folder of one run."""

    path: Path

    @classmethod
    def begin(cls, path: Path, job: Mapping[str, Any]) -> Checkpoint:
        """Make the folder; it appears with its job file in it, for one without could be anybody's."""
        staging = path.with_name(f".{path.name[:200]}.{secrets.token_hex(8)}.new")
        with _writable(path):
            staging.mkdir(mode=0o700)
        try:
            content = json.dumps({"textpriv checkpoint": _FORMAT, "job": job}).encode()
            _write(staging / "job.json", content)
            os.rename(staging, path)
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise
        sync_folder(path.parent)
        return cls(path)

    @classmethod
    def find(cls, path: Path) -> Checkpoint | None:
        """Return the folder of an earlier run; None if there is nothing.

        Raises
        ------
        CorpusError
            For something else at this path.
        """
        if not os.path.lexists(path):
            return None
        found = cls(path)
        if found.job is None:
            raise CorpusError(
                f"{path} has no job file of a run, so it is neither continued nor removed. Move it away, or choose another "
                "output."
            )
        return found

    @property
    def job(self) -> dict[str, Any] | None:
        """The marks of all that decides the output; None if this is no folder of a run."""
        if self.path.is_symlink() or not self.path.is_dir():
            return None
        with contextlib.suppress(OSError, ValueError, RecursionError):
            content = json.loads((self.path / "job.json").read_bytes())
            if isinstance(content, dict) and content.get("textpriv checkpoint") == _FORMAT:
                job = content.get("job")
                return job if isinstance(job, dict) else None
        return None

    def remove(self) -> None:
        """Remove the folder of a run with all that is in it."""
        if self.job is not None:
            shutil.rmtree(self.path, ignore_errors=True)

    # Parts

    @contextlib.contextmanager
    def part(self, file: int, part: int) -> Iterator[tuple[dict[str, BinaryIO], list[Entry]]]:
        """Open the files of a part for writing.

        Yields
        ------
        tuple
            The files: the part, its bad records, and the offsets of its spans. And an empty list: the part is finished if
            it has an entry at the end of the block. The checksums are filled in here.
        """
        # Two attempts at one part may run side by side, as Spark repeats slow tasks; both write the same.
        mark = secrets.token_hex(8)
        written = {kind: self.path / f".{file}-{part}.{kind}.{mark}.tmp" for kind in _KINDS}
        done: list[Entry] = []
        try:
            with contextlib.ExitStack() as stack:
                files = {kind: stack.enter_context(created(path)) for kind, path in written.items()}
                yield files, done
                for each in files.values():
                    flush(each)
            if not done:
                return
            used = [kind for kind in _KINDS if kind == "part" or written[kind].stat().st_size]
            digests = {kind: sha256_file(written[kind]) for kind in used}
            for kind in used:
                os.replace(written[kind], self.file(file, part, kind))
            sync_folder(self.path)
            entry = replace(done[-1], sha256=digests)
            _write(self.file(file, part, "json"), entry.to_bytes())
        finally:
            for path in written.values():
                with contextlib.suppress(OSError):
                    os.unlink(path)

    def entries(
        self, *, checked: bool = False, without: Collection[tuple[int, int]] = ()
    ) -> dict[tuple[int, int], Entry]:
        """Return the finished parts in their order, by file and part.

        Parameters
        ----------
        checked : bool
            Read every part, and leave out one whose bytes are not those of its entry.
        without : collection
            Parts to leave out unread.
        """
        found = {}
        for path in self.path.glob("*.json"):
            if (named := _NAME.fullmatch(path.name)) is None:
                continue
            key = int(named[1]), int(named[2])
            entry = None if key in without else Entry.read(path)
            if entry is None or (entry.file, entry.part) != key:
                continue
            if not checked or self._is_whole(entry):
                found[key] = entry
        return dict(sorted(found.items()))

    def _is_whole(self, entry: Entry) -> bool:
        with contextlib.suppress(OSError):
            return "part" in entry.sha256 and all(
                sha256_file(self.file(entry.file, entry.part, kind)) == digest
                for kind, digest in entry.sha256.items()
            )
        return False

    def file(self, file: int, part: int, kind: str) -> Path:
        """Return the path of a file of a part."""
        return self.path / f"{file:06d}-{part:06d}.{kind}"

    # The output

    def result(self, name: str = "") -> Path:
        """Return the path of a finished file of the output before it appears."""
        return self.path / "result" / name if name else self.path / "result"

    def start_result(self) -> None:
        """Remove what an earlier attempt put together."""
        shutil.rmtree(self.result(), ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.result())

    def mark_publishing(self) -> None:
        """Note that a part of the output may be visible from now on."""
        _write(self.path / "publishing", b"")

    @property
    def is_publishing(self) -> bool:
        """Whether a part of the output may be visible."""
        return (self.path / "publishing").exists()

    def publish_file(self, target: Path) -> None:
        """Let the one file of the output appear, with the permissions that writing in place would leave."""
        made = self.result()
        with contextlib.suppress(FileNotFoundError):
            os.chmod(made, stat.S_IMODE(target.stat().st_mode))
        if not target.exists():
            os.chmod(made, 0o666 & ~umask())
        os.replace(made, target)
        sync_folder(target.parent)

    def publish_folder(self, target: Path) -> None:
        """Let the folder of the output appear in one step, or its new files in one that is there, each in one step."""
        mask = umask()
        for folder, _, names in os.walk(self.result()):
            os.chmod(folder, 0o777 & ~mask)
            for name in names:
                os.chmod(os.path.join(folder, name), 0o666 & ~mask)
            sync_folder(Path(folder))
        if not target.is_dir() or not any(target.iterdir()):
            os.replace(self.result(), target)
            sync_folder(target.parent)
            return
        for path in _files(self.result()):
            final = target / path.relative_to(self.result())
            final.parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, final)
            sync_folder(final.parent)

    def publish_to_store(self, url: str) -> None:
        """Let the output appear at a URL, object by object."""
        if self.result().is_file():
            stores.put(self.result(), url)
            return
        for path in _files(self.result()):
            stores.put(path, f"{url}/{path.relative_to(self.result()).as_posix()}")

    def publish_beside(
        self, kind: str, target: Path, entries: Iterable[Entry], before: bytes = b""
    ) -> bool:
        """Let bad records or offsets appear in one file of mode 0600, after what was there before; return whether any."""
        paths = [self.file(each.file, each.part, kind) for each in entries if kind in each.sha256]
        if not paths and not before and kind == "bad":
            return False
        with atomic_write(target) as out:
            out.write(before)
            for path in paths:
                with open(path, "rb") as file:
                    shutil.copyfileobj(file, out)
        return bool(paths or before)


@contextlib.contextmanager
def only_writer(target: Path) -> Iterator[None]:
    """Hold an output for one run on one machine; the system lets go of it when the process ends.

    Raises
    ------
    CorpusError
        If another run holds the output, or nothing can be written beside it.
    """
    path = _lock_path(target)
    while True:
        with _writable(target):
            # Beside a local output there is a folder; that of an output at a URL is this user's alone.
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The run before has removed the file; a lock on what has no name keeps nobody away.
            if path.exists() and os.path.samestat(os.fstat(lock), os.lstat(path)):
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
        # Not left to the closing: a worker that has outlived this run may have the file open, too.
        fcntl.flock(lock, fcntl.LOCK_UN)
        os.close(lock)


def unfinished(target: Path) -> Path | None:
    """Return the checkpoint of a run into this output that can be continued, and that no process works on."""
    path = checkpoint_path(target, can_resume=True)
    if Checkpoint(path).job is None:
        return None
    try:
        with only_writer(target):
            return path
    except CorpusError:
        return None


def checkpoint_path(target: Path, can_resume: bool) -> Path:
    """Return the checkpoint folder of an output: named after it if it can be resumed, else hidden and random."""
    if can_resume:
        return target.with_name(target.name + ".partial")
    return target.with_name(f".{target.name[:200]}.{secrets.token_hex(8)}.tmp")


def beside(target: Path, name: str) -> Path:
    """Return a file beside an output: its name, and another after it."""
    return target.with_name(f"{target.name}.{name}")


def _lock_path(target: Path) -> Path:
    return target.with_name(f".{target.name[:200]}.textpriv-lock")


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@contextlib.contextmanager
def _writable(path: Path) -> Iterator[None]:
    """Name the output in the error where nothing can be written beside it."""
    try:
        yield
    except OSError as error:
        raise CorpusError(
            f"Cannot write beside {path.name.removesuffix('.partial')}: {error.strerror}. Choose another "
            "place, or make room there."
        ) from None


def _hash(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()


def _write(path: Path, content: bytes) -> None:
    with atomic_write(path) as out:
        out.write(content)
