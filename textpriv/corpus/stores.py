"""Where files are: a path, a stream, or a URL of a store, which fsspec reads by ranges and writes in one upload."""

from __future__ import annotations

import contextlib
import errno
import glob
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from textpriv.errors import CorpusError, how_to_install
from textpriv.files import is_url

STANDARD_STREAM = "-"


def is_stream(name: str) -> bool:
    """Return whether a path is a standard stream, a device or a pipe."""
    is_other = os.path.exists(name) and not (os.path.isfile(name) or os.path.isdir(name))
    return name == STANDARD_STREAM or is_other


def is_folder(name: str) -> bool:
    """Return whether a name is that of a folder, or the beginning of the names of objects."""
    if not is_url(name):
        return os.path.isdir(name)
    with _store_of(name) as (store, path):
        return bool(store.isdir(path))


def is_pattern(name: str) -> bool:
    """Return whether a name is a pattern of names."""
    return "*" in name and (is_url(name) or not os.path.lexists(name))


def matching(name: str) -> list[str]:
    """Return the paths or URLs that match a pattern; a name that is none, as it is."""
    if not is_pattern(name):
        return [name]
    if is_url(name):
        with _store_of(name) as (store, path):
            found = [store.unstrip_protocol(each) for each in store.glob(path)]
    else:
        found = glob.glob(name, recursive=True)
    if not found:
        raise CorpusError(f"No file matches {name}. Check the pattern.")
    return sorted(found)


def is_taken(name: str) -> bool:
    """Return whether a file that is not empty, or a folder that is not, is at a path or URL."""
    if is_url(name):
        with _store_of(name) as (store, path):
            return bool(store.isfile(path)) or bool(names_below(name))
    with contextlib.suppress(FileNotFoundError):
        return bool(os.listdir(name) if os.path.isdir(name) else os.path.getsize(name))
    return False


def names_below(url: str) -> list[str]:
    """Return the names of all objects below a URL, relative to it."""
    with _store_of(url) as (store, path):
        below = path.rstrip("/") + "/"
        paths = store.find(path)
    names = [each[len(below) :] for each in paths if each.startswith(below) and each[-1] != "/"]
    for name in names:  # which become names of files
        if not {"", ".", ".."}.isdisjoint(name.split("/")):
            raise CorpusError(f"{url} has an object whose name no file can have. Rename it first.")
    return names


def opened(name: str) -> BinaryIO:
    """Open a file or an object for reading bytes."""
    if not is_url(name):
        return open(name, "rb")
    with _store_of(name) as (store, path):
        # fsspec's own files read lines without a limit.
        return io.BufferedReader(store.open(path, "rb"))


def version(name: str) -> tuple[int, int] | None:
    """Return what changes with the content of a local file; None for others: a store compares for itself."""
    if is_url(name) or not os.path.isfile(name):
        return None
    status = os.stat(name)
    return status.st_size, status.st_mtime_ns


def size(name: str) -> int:
    """Return the bytes of a file or an object."""
    with opened(name) as file:
        return file.seek(0, os.SEEK_END)


def put(path: Path, url: str) -> None:
    """Write a local file to a URL, in place of what was there."""
    with _store_of(url) as (store, final):
        store.put_file(os.fspath(path), final)


@contextlib.contextmanager
def _store_of(url: str) -> Iterator[tuple[Any, str]]:
    """Yield the file system of a URL, without what it remembers of it, and the path in it; name the URL in errors."""
    try:
        from fsspec.core import url_to_fs

        store, path = url_to_fs(url)
    except (ImportError, ValueError) as error:  # they name the package, or the unknown protocol
        told = f"{url} cannot be opened: {str(error).rstrip('.')}."
        raise CorpusError(f"{told} For s3:// it is: {how_to_install('stores')}.") from None
    try:
        store.invalidate_cache()
        yield store, path
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), url) from None
    except CorpusError:
        raise
    except Exception as error:  # whose message may quote anything
        told = f"{url}: the store failed ({type(error).__name__}). Check it and its credentials."
        raise CorpusError(f"{told} Continue a run with a key by --resume.") from None
