"""The file of a run key: 32 secret bytes from which, with a document's identity, its randomness follows.

The key and the released texts undo the protection. So the key has a file of its own, beside the output, that only its
owner may read.
"""

from __future__ import annotations

import contextlib
import os
import stat
import warnings
from dataclasses import dataclass, field
from pathlib import Path

from textpriv.errors import CorpusError
from textpriv.files import atomic_write, flush, local_path, sync_folder

_BYTES = 32


@dataclass
class RunKey:
    """Secret from which all draws of a release follow, and its file."""

    path: Path | None  # None for a key from an environment variable
    secret: bytes = field(repr=False)
    fresh: bool  # whether the key is new and in no file yet

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RunKey:
        """Read the key at a path, as :func:`read_run_key` does, or draw one for it; :meth:`keep` writes it.

        ``env:NAME`` reads the environment variable NAME, 64 hexadecimal digits.
        """
        if os.fspath(path).startswith("env:"):
            name = os.fspath(path).removeprefix("env:")
            given = os.environ.get(name, "").encode()  # one that is not set is no key either
            return cls(None, _secret(given, f"The environment variable {name}"), fresh=False)
        place = Path(path).absolute()
        if os.path.lexists(place):
            return cls(place, read_run_key(place), fresh=False)
        return cls(place, os.urandom(_BYTES), fresh=True)

    @classmethod
    def beside(cls, target: str | os.PathLike[str]) -> RunKey:
        """Open the key beside an output: not beside a link to it, nor in a store."""
        final = local_path(target)
        return cls.open(final.with_name(final.name + ".key"))

    def keep(self) -> None:
        """Write a new key to its file (mode 0600) and to the disk; one that is there already stays."""
        if not self.fresh or self.path is None:
            return
        try:
            with atomic_write(self.path, replace=False) as file:
                file.write(self.secret)
        except OSError as error:  # also if another run has just made the file
            raise CorpusError(
                f"Cannot write the run key {self.path}: {error.strerror}. Choose another place with --key."
            ) from None
        self.fresh = False

    def forget(self) -> bool:
        """Destroy the file: overwrite it, synchronise, remove it; return whether there was one.

        A journal, a snapshot or a flash drive's spare blocks may still hold the bytes.
        """
        if self.path is None:
            return False
        try:
            descriptor = os.open(self.path, os.O_WRONLY)
        except FileNotFoundError:
            return False
        with os.fdopen(descriptor, "wb") as file:  # not truncated: new bytes fall on the old ones
            file.write(os.urandom(_BYTES))
            flush(file)
        os.unlink(self.path)
        sync_folder(self.path.parent)
        return True


def read_run_key(path: str | os.PathLike[str]) -> bytes:
    """Return the key in a file; a CorpusError if there is none, it is no key, or others may read it."""
    try:
        # Without waiting: a pipe of this name would have nobody at its other end.
        with open(path, "rb", opener=lambda at, flags: os.open(at, flags | os.O_NONBLOCK)) as file:
            status = os.fstat(file.fileno())
            secret = file.read(4 * _BYTES) if stat.S_ISREG(status.st_mode) else b""
    except OSError as error:
        raise CorpusError(
            f"Cannot read the run key {path}: {error.strerror}. Name another file (--key, run_key)."
        ) from None
    mode = status.st_mode
    if not stat.S_ISREG(mode):
        raise CorpusError(f"The run key {path} is not a file. Name another (--key, run_key).")
    if stat.S_IMODE(mode) & 0o277 == 0o040 and status.st_gid in {os.getegid(), *os.getgroups()}:
        warnings.warn(
            f"the run key {path} can be read by the group of this process, as mounted secrets often are: see that nobody "
            "else is in it.",
            stacklevel=2,
        )
    elif mode & 0o077:
        raise CorpusError(
            f"The run key {path} can be used by other users (mode {stat.S_IMODE(mode):o}). If nobody has read it, close "
            f"it with: chmod 600 {path}"
        )
    return _secret(secret, str(path))


def _secret(given: bytes, name: str) -> bytes:
    """Return a key given as 32 bytes, or as 64 hexadecimal digits."""
    if len(given) == _BYTES:
        return given
    with contextlib.suppress(ValueError):
        if len(found := bytes.fromhex(given.decode("ascii").strip())) == _BYTES:
            return found
    raise CorpusError(
        f"{name} is no run key: expected {_BYTES} bytes or {2 * _BYTES} hexadecimal digits. Name another (--key, run_key)."
    )
