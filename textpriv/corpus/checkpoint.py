"""Checkpoint folder of a run: finished parts with their checksums, from which a run is continued and its output is made."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from textpriv.corpus.report import Counts
from textpriv.errors import CorpusError
from textpriv.files import atomic_write, created, flush, sha256_file, sync_folder

_KINDS = ("part", "bad")  # files of a part; the bad records are private
_FORMAT = 4
_NAME = re.compile(r"([0-9]{6,})-([0-9]{6,})\.json")


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoint folder of one run; it need not be there."""

    path: Path

    def begin(self, job: Mapping[str, Any], files: Sequence[str]) -> None:
        """Make the folder; it appears with its job file in it, for one without could be anybody's."""
        content = {"textpriv checkpoint": _FORMAT, "job": job, "files": files}
        with tempfile.TemporaryDirectory(suffix=".new", prefix=".", dir=self.path.parent) as place:
            staging = Path(place, "folder")
            staging.mkdir(mode=0o700)
            _write(staging / "job.json", content)
            os.rename(staging, self.path)
        sync_folder(self.path.parent)

    @property
    def begun(self) -> tuple[dict[str, Any] | None, list[str]]:
        """The job of the run and the names of its files, in their order; None if this is no folder of a run."""
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            content = json.loads((self.path / "job.json").read_bytes())
            if content["textpriv checkpoint"] == _FORMAT and not self.path.is_symlink():
                return content["job"], content["files"]
        return None, []

    def remove(self) -> None:
        """Remove the folder of a run with all that is in it."""
        if self.begun[0] is not None:
            shutil.rmtree(self.path, ignore_errors=True)

    @contextlib.contextmanager
    def part(self, file: int, part: int) -> Iterator[tuple[dict[str, BinaryIO], Counts]]:
        """Open the files of a part; it is finished when the block ends well. Add to the counts: they are stored."""
        # Two attempts at one part may run side by side, as Spark repeats slow tasks; both write the same.
        with tempfile.TemporaryDirectory(dir=self.path) as place, contextlib.ExitStack() as stack:
            written = {kind: Path(place, kind) for kind in _KINDS}
            files = {kind: stack.enter_context(created(path)) for kind, path in written.items()}
            counts = Counts()
            yield files, counts
            for each in files.values():
                flush(each)
            used = [kind for kind in _KINDS if kind == "part" or written[kind].stat().st_size]
            digests = {kind: sha256_file(written[kind]) for kind in used}
            for kind in used:
                os.replace(written[kind], self.file(file, part, kind))
            sync_folder(self.path)
            _write(self.file(file, part, "json"), {"counts": vars(counts), "sha256": digests})

    def entries(
        self, *, checked: bool = False, without: Collection[tuple[int, int]] = ()
    ) -> dict[tuple[int, int], Counts]:
        """Return the counts of finished parts, by file and part, in order, but for those of ``without``.

        With ``checked`` every part is read, and the entry of one with other bytes is removed.
        """
        found = {}
        for path in self.path.glob("*.json"):
            if (named := _NAME.fullmatch(path.name)) is None:
                continue
            key = int(named[1]), int(named[2])
            if key in without:
                continue
            with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
                content = json.loads(path.read_bytes())
                counts = Counts(**content["counts"])
                digests = content["sha256"].items() if checked else ()
                if all(sha256_file(self.file(*key, kind)) == digest for kind, digest in digests):
                    found[key] = counts
                    continue
            path.unlink(missing_ok=True)
        return dict(sorted(found.items()))

    def file(self, file: int, part: int, kind: str) -> Path:
        """Return the path of a file of a part."""
        return self.path / f"{file:06d}-{part:06d}.{kind}"

    def result(self, name: str = "") -> Path:
        """Return the path of a finished file of the output, or of all of it, before it appears."""
        return self.path / "result" / name


@contextlib.contextmanager
def only_writer(target: Path) -> Iterator[None]:
    """Hold an output for one run on one machine; the system lets go of it when the process ends."""
    path = target.with_name(f".{target.name[:200]}.textpriv-lock")
    with contextlib.ExitStack() as opened:
        while True:
            # Beside a local output there is a folder; that of an output at a URL is this user's alone.
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = opened.enter_context(open(path, "ab"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise CorpusError(
                    f"Another run is writing to {target}, or it cannot be locked ({error.strerror}). Wait for its end."
                ) from None
            # The run before may have removed the file; a lock on what has no name keeps nobody away.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(lock.fileno()), os.stat(path)):
                    break
        try:
            yield
        finally:
            # Removed before it is let go, so that no other run's file is.
            with contextlib.suppress(OSError):
                os.unlink(path)
            # Not left to the closing: a worker that has outlived this run may have the file open, too.
            fcntl.flock(lock, fcntl.LOCK_UN)


def _write(path: Path, content: Any) -> None:
    with atomic_write(path) as out:
        out.write(json.dumps(content).encode())
