"""Indexes over the vocabularies that come with the package: built at the first use and kept in the user's cache folder."""

from __future__ import annotations

import functools
import hashlib
import os
from contextlib import suppress
from pathlib import Path

from textpriv import __version__
from textpriv.errors import IndexFolderError
from textpriv.index.folder import FORMAT
from textpriv.index.index import Index
from textpriv.vocabulary.builtin import read_builtin, read_manifest

ENGLISH = "builtin:en"
BUILTIN = "builtin:"  # before the code of a language, where otherwise a folder is named
SPACE = "recommended"
LIST_LENGTH = 64


def open_index(name: str | os.PathLike[str]) -> Index:
    """Open the index folder of that name, or the built-in index for "builtin:" with the code of a language."""
    if isinstance(name, str) and name.startswith(BUILTIN):
        return Index.builtin(name.removeprefix(BUILTIN))
    return Index.load(name)


def absolute_name(name: str) -> str:
    """Return the name by which a process with another working folder finds the same index."""
    return name if name.startswith(BUILTIN) else os.path.abspath(name)


@functools.cache
def open_builtin(language: str, cache: Path) -> Index:
    """Open the index of a language in a cache folder, or build it."""
    manifest = read_manifest(language)
    made_of = repr((sorted(manifest["files"].items()), SPACE, LIST_LENGTH, FORMAT)).encode()
    folder = cache / f"{language}-{__version__}-{hashlib.sha256(made_of).hexdigest()[:16]}"
    with suppress(OSError, IndexFolderError):
        return Index.load(folder)
    built = Index.build(read_builtin(language), SPACE, k=LIST_LENGTH)
    with suppress(OSError, IndexFolderError):
        built.save(folder, overwrite=True)
    # Opened, it is mapped, and other processes share its pages; another process may have been first.
    with suppress(OSError, IndexFolderError):
        return Index.load(folder)
    return built
