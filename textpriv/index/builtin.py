"""Indexes over the vocabularies that come with the package: built at the first use, and kept in the user's cache folder.

A kept index is opened only if its files match their checksums and its words and vectors are those of this version; otherwise
it is built again. How an index is named where a folder may be named stands here, too.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import threading
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv import __version__
from textpriv.errors import IndexFolderError
from textpriv.files import cache_folder
from textpriv.index.building import rounding_of
from textpriv.index.index import Index
from textpriv.index.neighbours import Neighbourhoods
from textpriv.index.quantized import QuantizedRows
from textpriv.index.rank_bands import band_starts
from textpriv.index.records import RECORDS, Records
from textpriv.index.some_lists import Screen, WordLists
from textpriv.index.typical import Typical
from textpriv.metrics import Euclidean
from textpriv.vocabulary.builtin import read_builtin, read_manifest
from textpriv.vocabulary.vocabulary import equal_rows

__all__ = [
    "BUILTIN",
    "ENGLISH",
    "LIST_LENGTH",
    "BuiltinIndex",
    "absolute_name",
    "builtin_index",
    "open_index",
]

ENGLISH = "builtin:en"
BUILTIN = "builtin:"  # before the code of a language, where otherwise a folder is named
LIST_LENGTH = 64
_SOME = 2000  # words whose lists are found one by one: as many take a second, and a third of what all of them take


def open_index(name: str | os.PathLike[str]) -> Index:
    """Open the index folder of that name, or the built-in index for "builtin:" with the code of a language.

    Raises
    ------
    IndexFolderError, VocabularyError
    """
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
    manifest = read_manifest(language)
    recorded = hashlib.sha256(json.dumps(manifest).encode()).hexdigest()
    folder = cache / f"{language}-{__version__}-{recorded[:16]}"
    with suppress(OSError, IndexFolderError):
        return _kept(folder, manifest["fingerprint"])
    return BuiltinIndex(language, manifest, folder)


class BuiltinIndex(Index):
    """A built-in index before it is kept: lists are found for the words that are asked for, and for all when they must be.

    A few texts take the lists of their words alone; whatever takes all lists has the index built and kept. What else a
    statement and a draw take of all words is recorded with the vocabulary.

    Parameters
    ----------
    language : str
    manifest : dict
        What is recorded of its vocabulary; see :func:`textpriv.vocabulary.builtin.read_manifest`.
    folder : Path
        Where it is kept once it is built; records are kept beside it until then.
    """

    def __init__(self, language: str, manifest: dict[str, Any], folder: Path) -> None:
        vocabulary, recorded = read_builtin(language), manifest["index"]
        coordinates, metric = vocabulary.vectors, Euclidean()
        super().__init__(
            vocabulary,
            metric,
            coordinates,
            None,
            equal_rows(coordinates),
            backend="exact",
            recall=1.0,
            rounding=rounding_of(coordinates, metric.coordinate_errors(coordinates)),
            diameter_bound=recorded["diameter_bound"],
            fingerprint=manifest["fingerprint"],
            typical={int(rank): Typical(*ends) for rank, ends in recorded["typical"].items()},
        )
        self._language, self._recorded, self._folder = language, recorded, folder
        self._records = Records(folder.with_name(f"{folder.name}-{RECORDS}"))
        for record in manifest["records"]:
            self._records.remember(record["binding"], record["content"])
        self._listed: dict[int, WordLists] = {}
        self._lock, self._building = threading.Lock(), threading.Lock()
        self._all: Index | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self._language, self.fingerprint)

    @property
    def k(self) -> int:
        """Length of each list, the word itself included."""
        return min(LIST_LENGTH, len(self))

    @property
    def band_starts(self) -> NDArray[np.int32]:
        """Where the rank bands start."""
        return band_starts(len(self))

    @property
    def band_step(self) -> float:
        """The distance in which their bounds are counted."""
        return float(self._recorded["step"])

    @property
    def bands_digest(self) -> str:
        """A checksum of the rank bands."""
        return str(self._recorded["bands"])

    def lists_of(self, words: NDArray[np.int64]) -> WordLists:
        """The lists of some words; once they are many, those of all are found."""
        missing = [word for word in dict.fromkeys(words.tolist()) if word not in self._listed]
        whole = "neighbours" in self.__dict__ or len(self._listed) + len(missing) > _SOME
        if whole or not len(words):
            return super().lists_of(words)
        with self._lock:
            if missing:
                found = self._screen.lists(np.array(missing))
                self._listed.update(zip(missing, map(WordLists, *found), strict=True))
            return WordLists(
                *map(np.stack, zip(*map(self._listed.get, words.tolist()), strict=True))
            )

    @cached_property
    def _screen(self) -> Screen:
        return Screen(self.coordinates, self.k, self.band_starts, self.band_step)

    @cached_property
    def neighbours(self) -> Neighbourhoods:  # type: ignore[override]
        """The lists of all words."""
        self.path = self._whole.path
        return self._whole.neighbours

    @cached_property
    def quantized(self) -> QuantizedRows:
        """Quantized coordinates, from which bounds on a Euclidean distance can be read."""
        return self._whole.quantized

    @property
    def _whole(self) -> Index:
        """The index over all words."""
        with self._building:
            if self._all is None:
                self._all = self._opened_or_built()
            return self._all

    def _opened_or_built(self) -> Index:
        """The index over all words: kept meanwhile by another process, or built now and kept if it can be."""
        with suppress(OSError, IndexFolderError):
            return _kept(self._folder, self.fingerprint)
        built = Index.build(self.vocabulary, k=LIST_LENGTH, hnsw=False)
        built._records = self._records
        with suppress(OSError, IndexFolderError):
            self._folder.parent.mkdir(parents=True, exist_ok=True)
            built.save(self._folder, overwrite=True)
        # Opened, it is mapped, and other processes share its pages; another process may have been first.
        with suppress(OSError, IndexFolderError):
            return _kept(self._folder, self.fingerprint)
        return built


def _again(language: str, fingerprint: str) -> Index:
    index = builtin_index(language)
    if index.fingerprint != fingerprint:
        raise IndexFolderError(
            f"the built-in index of {language!r} is another one here: install the same version of textpriv."
        )
    return index


def _kept(folder: Path, fingerprint: str) -> Index:
    """Open a kept index; its checksums and fingerprint are compared, and its values were looked at when it was built."""
    index = Index._open(folder, None, verify=True, check=False)
    if index.fingerprint != fingerprint:
        raise IndexFolderError(f"{folder} holds another vocabulary")
    return index
