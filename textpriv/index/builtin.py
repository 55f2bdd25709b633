"""Indexes over the vocabularies that come with the package: built at the first use, and kept in the user's cache folder.

A kept index is opened only if its files match their checksums and its words and vectors are those of this version; otherwise
it is built again. How an index is named where a folder may be named stands here, too.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from textpriv import __version__
from textpriv.errors import IndexFolderError
from textpriv.files import cache_folder
from textpriv.vocabulary.builtin import read_builtin, read_manifest

if TYPE_CHECKING:
    from textpriv.index.index import Index

__all__ = [
    "BUILTIN",
    "ENGLISH",
    "LIST_LENGTH",
    "absolute_name",
    "builtin_index",
    "open_index",
]

ENGLISH = "builtin:en"
BUILTIN = "builtin:"  # before the code of a language, where otherwise a folder is named
LIST_LENGTH = 64


def open_index(name: str | os.PathLike[str]) -> Index:
    """Open the index folder of that name, or the built-in index for "builtin:" with the code of a language.

    Raises
    ------
    IndexFolderError, VocabularyError
    """
    from textpriv.index.index import Index

    if isinstance(name, str) and name.startswith(BUILTIN):
        return builtin_index(name.removeprefix(BUILTIN))
    return Index.load(name)


def absolute_name(name: str) -> str:
    """Return the name by which a process with another working folder finds the same index."""
    return name if name.startswith(BUILTIN) else os.path.abspath(name)


def builtin_index(language: str = "en") -> Index:
    """Open or build the index of a language; see :meth:`Index.builtin`."""
    return _open(language, cache_folder())


@functools.cache
def _open(language: str, cache: Path) -> Index:
    from textpriv.index.index import Index

    manifest = read_manifest(language)
    fingerprint = manifest["fingerprint"]
    recorded = hashlib.sha256(json.dumps(manifest).encode()).hexdigest()
    folder = cache / f"{language}-{__version__}-{recorded[:16]}"
    with suppress(OSError, IndexFolderError):
        return _kept(folder, fingerprint)
    built = Index.build(read_builtin(language), k=LIST_LENGTH, hnsw=False)
    for record in manifest["records"]:
        built.keep_record(record["binding"], record["content"])
    with suppress(OSError, IndexFolderError):
        folder.parent.mkdir(parents=True, exist_ok=True)
        built.save(folder, overwrite=True)
    # Opened, it is mapped, and other processes share its pages; another process may have been first.
    with suppress(OSError, IndexFolderError):
        return _kept(folder, fingerprint)
    return built


def _kept(folder: Path, fingerprint: str) -> Index:
    """Open a kept index; its checksums and fingerprint are compared, and its values were looked at when it was built."""
    from textpriv.index.index import Index

    index = Index._open(folder, None, verify=True, check=False)
    if index.fingerprint != fingerprint:
        raise IndexFolderError(f"{folder} holds another vocabulary")
    return index
