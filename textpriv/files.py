"""Files: written whole or not at all, on the disk when that is said, private until they are published."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, BinaryIO

import platformdirs

CACHE_VARIABLE = "TEXTPRIV_CACHE_DIR"


def is_url(name: str) -> bool:
    """Whether a name is a URL, such as ``s3://bucket/texts.jsonl``."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", name) is not None


def local_path(target: str | os.PathLike[str]) -> Path:
    """Return the place of an output on this machine, links resolved; of a URL, the place of what belongs to it.

    That is a folder for each URL in ``$XDG_STATE_HOME/textpriv/stores``, made with mode 0700 by its first writer.
    """
    name = os.fspath(target)
    if not is_url(name):
        return Path(os.path.realpath(name))
    url = name.rstrip("/")
    known = hashlib.sha256(url.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return platformdirs.user_state_path("textpriv") / "stores" / known / url.rpartition("/")[2]


def lost_by(
    written: Iterable[str | os.PathLike[str]], read: Iterable[str | os.PathLike[str]]
) -> str | None:
    """Return the first file that writing to some paths would replace, also by a link or with its folder, or None."""
    places = {os.path.realpath(each): os.fspath(each) for each in read}
    for final in map(os.path.realpath, written):
        for place, name in places.items():
            if place == final or place.startswith(final + os.sep):
                return name
            with contextlib.suppress(OSError):  # where one of them is none yet
                if os.path.samefile(final, place):
                    return name
    return None


def cache_folder() -> Path:
    """Where what can be made or fetched again is kept; it need not exist."""
    given = os.environ.get(CACHE_VARIABLE)
    return Path(given) if given else platformdirs.user_cache_path("textpriv")


@contextlib.contextmanager
def atomic_write(path: Path, *, mode: int = 0o600, replace: bool = True) -> Iterator[BinaryIO]:
    """Open a new file that appears under its name, and on the disk, when the block ends well; else nothing is left.

    It has its mode once it appears; until then its owner alone can read it. Without ``replace`` a file of that name, even
    one that was just made, is a FileExistsError.
    """
    temporary = path.parent / f".{secrets.token_hex(8)}.tmp"
    try:
        with created(temporary) as out:
            yield out
            flush(out)
            os.fchmod(out.fileno(), mode)
        if replace:
            os.replace(temporary, path)
        else:
            os.link(temporary, path)  # unlike a rename, it never replaces a file
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
    sync_folder(path.parent)


def created(path: Path) -> BinaryIO:
    """Open a file that was not there, for writing; only its owner can read it."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def flush(file: IO[bytes] | IO[str]) -> None:
    """Have what was written to an open file on the disk."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make new names in a folder survive a power cut, where a folder can be synchronised."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def umask() -> int:
    """Return the permissions that this process takes from new files and folders."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def sha256_file(path: Path, kind: str = "sha256") -> str:
    """The SHA-256 of a file, or another digest, in hexadecimal digits."""
    found = hashlib.new(kind, usedforsecurity=False)
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            found.update(piece)
    return found.hexdigest()
