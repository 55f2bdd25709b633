"""Object stores, by fsspec: objects at a URL are read by ranges and appear whole or not at all.

What belongs to an output at a URL and is not published (run key, finished parts, bad records) is kept in a private folder of
this user (:func:`textpriv.files.local_path`).
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from textpriv.errors import CorpusError, how_to_install
from textpriv.files import is_url

__all__ = ["is_folder", "is_taken", "names_below", "opened", "put", "read"]

# An object appears there when all of it has come; elsewhere it is written under another name and renamed.
_WHOLE = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "hf", "memory"}
_NUMBERS: dict[type, int] = {FileNotFoundError: errno.ENOENT, PermissionError: errno.EACCES}


def is_folder(name: str) -> bool:
    """Return whether a name is that of a folder, or the beginning of the names of objects."""
    if not is_url(name):
        return os.path.isdir(name)
    with _asked(name) as (store, path):
        return bool(store.isdir(path))


def is_taken(name: str) -> bool:
    """Return whether a file that is not empty, or a folder that is not, is at a path or URL."""
    if is_url(name):
        with _asked(name) as (store, path):
            return bool(store.isfile(path)) or bool(names_below(name))
    place = Path(name)
    return any(place.iterdir()) if place.is_dir() else place.exists() and place.stat().st_size > 0


def names_below(url: str) -> list[str]:
    """Return the names of all objects below a URL, relative to it."""
    with _asked(url) as (store, path):
        below = path.rstrip("/") + "/"
        paths = store.find(path)
    names = [each[len(below) :] for each in paths if each.startswith(below) and each[-1] != "/"]
    for name in names:  # which become names of files
        if not {"", ".", ".."}.isdisjoint(name.split("/")):
            raise CorpusError(f"{url} has an object whose name no file can have. Rename it first.")
    return names


def opened(name: str) -> BinaryIO:
    """Open a file or an object for reading bytes.

    Raises
    ------
    CorpusError
        If the package for such a URL is missing, or the store fails; while reading, too.
    OSError
        If there is no such file, or it may not be read.
    """
    if not is_url(name):
        return open(name, "rb")
    with _asked(name) as (store, path):
        return cast(BinaryIO, io.BufferedReader(_Object(name, store.open(path, "rb")), 1 << 20))


class _Object(io.RawIOBase):
    """An object that is read; what a store says of a failure may quote anything, and is not passed on."""

    def __init__(self, url: str, file: Any) -> None:
        self._url, self._file = url, file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        with _failures(self._url):
            return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def readinto(self, buffer: Any) -> int:
        with _failures(self._url):
            content = self._file.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def read(url: str) -> bytes | None:
    """Return the object at a URL; None where there is none."""
    try:
        with _asked(url) as (store, path):
            return bytes(store.cat_file(path))
    except FileNotFoundError:
        return None


def put(path: Path, url: str) -> None:
    """Write a local file to a URL, where it appears when all of it has come, in place of what was there."""
    with _asked(url) as (store, final):
        kinds = {store.protocol} if isinstance(store.protocol, str) else set(store.protocol)
        if not _WHOLE.isdisjoint(kinds):
            options = {} if kinds.isdisjoint({"abfs", "az"}) else {"overwrite": True}
            store.put_file(os.fspath(path), final, **options)
            return
        folder, _, name = final.rpartition("/")
        written = f"{folder}/.{name}.{secrets.token_hex(8)}.tmp"
        store.makedirs(folder, exist_ok=True)
        try:
            store.put_file(os.fspath(path), written)
            store.mv(written, final)
        except BaseException:
            with contextlib.suppress(Exception):
                store.rm_file(written)
            raise


@contextlib.contextmanager
def _asked(url: str) -> Iterator[tuple[Any, str]]:
    """Yield the file system of a URL, without what it remembers of it, and the path in it."""
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
    with _failures(url):
        store.invalidate_cache()
        yield store, path


@contextlib.contextmanager
def _failures(url: str) -> Iterator[None]:
    """Name the URL in the error of a store, and nothing that the store says of it."""
    try:
        yield
    except (FileNotFoundError, PermissionError) as error:
        number = _NUMBERS[type(error)]
        raise type(error)(number, os.strerror(number), url) from None
    except CorpusError:
        raise
    except Exception as error:
        raise CorpusError(
            f"{url}: the store failed ({type(error).__name__}). See to the store and its credentials; what is done of a run "
            "with a key is kept: continue it with --resume."
        ) from None
