"""The file of a run key: made, read and destroyed here.

A run key is 32 secret bytes from which, with a document's identity, the document's randomness follows. With the key and the
released texts the protection can be undone. So the key is in a file of its own that only its owner may read, beside the
output and never in it.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from textpriv.errors import CorpusError
from textpriv.files import atomic_write, flush, sync_folder
from textpriv.stores import local_path

__all__ = ["RunKey", "key_path", "read_run_key"]

_BYTES = 32


@dataclass
class RunKey:
    """A run key and its file.

    Attributes
    ----------
    path : Path
    secret : bytes
        32 bytes.
    fresh : bool
        Whether the key is new and in no file yet.
    """

    path: Path
    secret: bytes = field(repr=False)
    fresh: bool

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RunKey:
        """Read the key at a path, or draw one for it; :meth:`keep` writes it.

        Raises
        ------
        CorpusError
            If the file is no key, or others may read it.
        """
        place = Path(path).absolute()
        if os.path.lexists(place):
            return cls(place, read_run_key(place), fresh=False)
        return cls(place, os.urandom(_BYTES), fresh=True)

    @classmethod
    def beside(cls, target: str | os.PathLike[str]) -> RunKey:
        """Open the key that belongs to an output: its name with ``.key`` after it."""
        return cls.open(key_path(target))

    def keep(self) -> None:
        """Write a new key to its file (mode 0600) and to the disk; one that is there already stays."""
        if not self.fresh:
            return
        try:
            with atomic_write(self.path, replace=False) as file:
                file.write(self.secret)
        except FileExistsError:
            raise CorpusError(
                f"Another run has just made {self.path}. Let it end, or choose another output."
            ) from None
        except OSError as error:
            raise CorpusError(
                f"Cannot write the run key {self.path}: {error.strerror}. Choose another place with --key."
            ) from None
        self.fresh = False

    def forget(self) -> bool:
        """Destroy the file: overwrite it, synchronise, remove it; return whether there was one.

        A journal, a snapshot or a flash drive's spare blocks may still hold the bytes. Where that matters, keep the key
        on an encrypted disk or in memory (``/dev/shm``).
        """
        try:
            descriptor = os.open(self.path, os.O_WRONLY)
        except FileNotFoundError:
            return False
        # Opened without truncation, so that the new bytes fall on the old ones.
        with os.fdopen(descriptor, "wb") as file:
            file.write(os.urandom(_BYTES))
            flush(file)
        os.unlink(self.path)
        sync_folder(self.path.parent)
        return True


def key_path(target: str | os.PathLike[str]) -> Path:
    """The place of an output's run key: beside the file or folder itself, not beside a link to it, nor in a store."""
    final = local_path(target)
    return final.with_name(final.name + ".key")


def read_run_key(path: str | os.PathLike[str]) -> bytes:
    """Return the key in a file.

    Raises
    ------
    CorpusError
        If there is none, it is no key, or others may read it.
    """
    try:
        # Without waiting: a pipe of this name would have nobody at its other end.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            mode = os.fstat(descriptor).st_mode
            secret = os.read(descriptor, _BYTES + 1) if stat.S_ISREG(mode) else b""
        finally:
            os.close(descriptor)
    except OSError as error:
        raise CorpusError(
            f"Cannot read the run key {path}: {error.strerror}. Name another file with --key; a new key is made where there "
            "is none."
        ) from None
    if not stat.S_ISREG(mode):
        raise CorpusError(f"The run key {path} is not a file. Name another with --key.")
    if mode & 0o077:
        raise CorpusError(
            f"The run key {path} can be used by other users (mode {stat.S_IMODE(mode):o}). If nobody has read it, close "
            f"it with: chmod 600 {path}"
        )
    if len(secret) != _BYTES:
        raise CorpusError(
            f"{path} is no run key: expected {_BYTES} bytes, found {'more' if len(secret) > _BYTES else len(secret)}. "
            "Name another file with --key; a new key is made where there is none."
        )
    return secret
