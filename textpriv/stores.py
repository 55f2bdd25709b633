"""Object stores, by fsspec: files at a URL, read by ranges and written whole or not at all, asked again where they fail.

Also the names of local files, so that a reader need not know which of them it has. What belongs to an output at a URL and
is not published (its run key, what is done of it, bad records) lies in a private folder of this user, never in the store.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import re
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

from textpriv.errors import CorpusError
from textpriv.optional import how_to_install

__all__ = [
    "is_file",
    "is_folder",
    "is_url",
    "local_path",
    "names_below",
    "opened",
    "put",
    "read",
    "remove",
]

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_WAITS = (0.1, 0.3, 1.0, 3.0, 10.0)  # seconds before a request is made again
_PIECE = 1 << 20
# Where an object appears when all of it has come; elsewhere it is written under another name and renamed.
_WHOLE = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "hf", "memory"}
# Answers that will not be others the next time, and their numbers where they come without.
_FINAL = (FileNotFoundError, PermissionError, FileExistsError, IsADirectoryError)
_NUMBERS: dict[type, int] = {FileNotFoundError: errno.ENOENT, FileExistsError: errno.EEXIST}
_MARKS = ("size", "ETag", "etag", "LastModified", "last_modified", "updated", "mtime", "created")

Answer = TypeVar("Answer")


def is_url(name: str) -> bool:
    """Return whether a name is a URL, such as ``s3://bucket/texts.jsonl``."""
    return _URL.match(name) is not None


def local_path(target: str | os.PathLike[str]) -> Path:
    """Where an output is on this machine, links resolved; of a URL, where what belongs to it is kept.

    That is in a folder for each URL in ``$XDG_STATE_HOME/textpriv/stores``, made with mode 0700 by what first writes there.
    """
    name = os.fspath(target)
    if not is_url(name):
        return Path(os.path.realpath(name))
    import platformdirs

    url = name.rstrip("/")
    known = hashlib.sha256(url.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return platformdirs.user_state_path("textpriv") / "stores" / known / url.rpartition("/")[2]


def is_file(url: str) -> bool:
    """Return whether an object is at a URL."""
    store, path = _located(url)
    store.invalidate_cache()
    return bool(_asked(url, lambda: store.isfile(path)))


def is_folder(name: str) -> bool:
    """Return whether a name is that of a folder, or the beginning of the names of objects."""
    if not is_url(name):
        return os.path.isdir(name)
    store, path = _located(name)
    return _asked(name, lambda: store.isdir(path))


def names_below(url: str) -> list[str]:
    """Return the names of all objects below a URL, relative to it."""
    store, path = _located(url)
    store.invalidate_cache()
    below = path.rstrip("/") + "/"
    paths = _asked(url, lambda: store.find(path))
    names = [each[len(below) :] for each in paths if each.startswith(below) and each[-1] != "/"]
    for name in names:  # which become names of files
        if not {"", ".", ".."}.isdisjoint(name.split("/")):
            raise CorpusError(f"{url} has an object whose name no file can have. Rename it first.")
    return names


def opened(name: str) -> BinaryIO:
    """Open a file for reading bytes.

    Raises
    ------
    CorpusError
        If the package for such a URL is missing, or the store fails again and again; while reading, too.
    OSError
        If there is no such file, or it may not be read.
    """
    if not is_url(name):
        return open(name, "rb")
    return cast(BinaryIO, io.BufferedReader(_Ranges(name), _PIECE))


def read(url: str) -> bytes | None:
    """Return what lies at a URL; None where nothing does."""
    store, path = _located(url)
    store.invalidate_cache()
    try:
        return _asked(url, lambda: bytes(store.cat_file(path)))
    except FileNotFoundError:
        return None


def put(path: Path, url: str) -> None:
    """Write a local file to a URL, where it appears when all of it has come, in place of what was there."""
    store, final = _located(url)
    kinds = {store.protocol} if isinstance(store.protocol, str) else set(store.protocol)
    is_whole = not _WHOLE.isdisjoint(kinds)
    folder, _, name = final.rpartition("/")
    written = final if is_whole else f"{folder}/.{name}.{secrets.token_hex(8)}.tmp"
    options = {} if kinds.isdisjoint({"abfs", "az"}) else {"overwrite": True}

    size = path.stat().st_size

    def come(name: str) -> None:
        store.invalidate_cache()
        if store.info(name)["size"] != size:
            raise OSError(errno.EIO, "not all of it came")

    def send() -> None:
        store.put_file(os.fspath(path), written, **options)
        _asked(url, lambda: come(written))

    if is_whole:
        _asked(url, send)
        return
    _asked(url, lambda: store.makedirs(folder, exist_ok=True))
    try:
        _asked(url, send)
        try:
            _asked(url, lambda: store.mv(written, final))
        except FileNotFoundError:  # renamed, and the answer was lost
            _asked(url, lambda: come(final))
    except BaseException:
        with contextlib.suppress(Exception):
            store.rm_file(written)
        raise


def remove(url: str) -> None:
    """Remove an object, where there is one."""
    store, path = _located(url)
    with contextlib.suppress(FileNotFoundError):
        _asked(url, lambda: store.rm_file(path))


class _Ranges(io.RawIOBase):
    """An object as a file: each read is a request of its own, which can be made again."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._store, self._path = _located(url)
        self._version = self._seen()
        if self._version.get("size") is None:
            raise CorpusError(f"{url} has no size, so it cannot be read in pieces. Fetch it first.")
        self._size, self._at = int(self._version["size"]), 0

    def _seen(self) -> dict[str, Any]:
        """What tells a version of the object from others, as far as the store says it."""
        self._store.invalidate_cache()
        info = _asked(self._url, lambda: self._store.info(self._path))
        return {mark: info[mark] for mark in _MARKS if mark in info}

    def close(self) -> None:
        """Close; what was read of an object that was replaced meanwhile may be pieces of two, and is refused."""
        if not self.closed:
            super().close()
            if self._seen() != self._version:
                raise CorpusError(
                    f"{self._url} was replaced while it was read. Begin again when it stays as it is."
                )

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        start, stop = self._at, min(self._at + len(buffer), self._size)
        if stop <= start:
            return 0

        def request() -> bytes:
            content = bytes(self._store.cat_file(self._path, start=start, end=stop))
            if len(content) != stop - start:
                raise OSError(errno.EIO, "not all of it came")
            return content

        buffer[: stop - start] = _asked(self._url, request)
        self._at = stop
        return stop - start


def _located(url: str) -> tuple[Any, str]:
    """Return the file system of a URL and the path in it."""
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise CorpusError(f"{url} needs fsspec: {how_to_install('stores')}.") from None
    try:
        store, path = url_to_fs(url)
    except (ImportError, ValueError) as error:  # they name the package, or the unknown protocol
        raise CorpusError(
            f"{url} cannot be opened: {str(error).rstrip('.')}. For s3:// it is: {how_to_install('stores')}."
        ) from None
    return store, path


def _asked(url: str, request: Callable[[], Answer]) -> Answer:
    """Make a request, and again where it fails; what a store says of it may quote anything, and is not passed on."""
    waits = iter(_WAITS)
    while True:
        try:
            return request()
        except _FINAL as error:
            number = error.errno or _NUMBERS.get(type(error), errno.EACCES)
            raise type(error)(number, os.strerror(number), url) from None
        except Exception as error:
            wait = next(waits, None)
            if wait is None:
                raise CorpusError(
                    f"{url}: the store failed {len(_WAITS) + 1} times ({type(error).__name__}). See to the store and its "
                    "credentials; what is done of a run with a key is kept: continue it with --resume."
                ) from None
            time.sleep(wait)
