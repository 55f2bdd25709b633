"""Hierarchies that somebody has written: a file of words and their groups, and WordNet.

What comes out is each word's path, the widest group first, or what ``tree`` makes a tree from. Trees that are found in
vectors stand in ``clustering``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import TextprivError, VocabularyError
from textpriv.index.folder import LEVELS

__all__ = ["read_paths", "tree_of", "wordnet_paths"]


def tree_of(paths: Sequence[Sequence[str]]) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Word ids in depth-first order, heights between neighbours, and the length of the longest path.

    Words that share as many groups as the longest path has are at height 1, those that share none at one more than it.
    """
    depth = max((len(path) for path in paths), default=0)
    if depth >= LEVELS:
        raise TextprivError(
            f"a path has {depth} groups, and a tree has at most {LEVELS - 1} above a word."
        )
    order = sorted(range(len(paths)), key=lambda word: (tuple(paths[word]), word))
    gaps = np.empty(max(len(paths) - 1, 0), dtype=np.int64)
    for position, (first, second) in enumerate(zip(order, order[1:], strict=False)):
        shared = 0
        for one, other in zip(paths[first], paths[second], strict=False):
            if one != other:
                break
            shared += 1
        gaps[position] = depth - shared + 1
    return np.array(order, dtype=np.int64), gaps, depth


def read_paths(file: Path) -> tuple[list[str], list[tuple[str, ...]], tuple[str, ...]]:
    """Words, their paths and the names of the depths, of a file as :meth:`textpriv.Tree.from_file` takes it."""
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise VocabularyError(f"{file} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise VocabularyError(f"{file} is not UTF-8 text.") from None
    words: list[str] = []
    paths: list[tuple[str, ...]] = []
    names: tuple[str, ...] = ()
    known: set[str] = set()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        word, tab, path = line.partition("\t")
        parts = tuple(part.strip() for part in path.split("/")) if path.strip() else ()
        word = word.strip()
        if not (word and tab and all(parts)):
            raise VocabularyError(
                f"{file}, line {number}: expected a word, a tab, and its groups with / between them, the widest first."
            )
        if number == 1 and word == "word":
            names = parts
            continue
        if word in known:
            raise VocabularyError(f"{file}, line {number}: the word stands there twice.")
        known.add(word)
        words.append(word)
        paths.append(parts)
    if not words:
        raise VocabularyError(f"{file} holds no words.")
    return words, paths, names


def wordnet_paths(words: Sequence[str]) -> list[tuple[str, ...]]:
    """The hypernyms of each word's first noun sense, or else of its first one; () for a word that WordNet lacks."""
    try:
        from nltk.corpus import wordnet

        wordnet.ensure_loaded()
    except (ImportError, LookupError):
        raise TextprivError(
            "WordNet is not installed here: python -m pip install nltk, then python -m nltk.downloader wordnet."
        ) from None
    paths = []
    for word in words:
        senses = wordnet.synsets(word, pos="n") or wordnet.synsets(word)
        # The longest way up has the most groups; of several the first by name, so that all words take the same.
        ways = senses[0].hypernym_paths() if senses else [[]]
        named = [tuple(sense.name() for sense in way) for way in ways]
        paths.append(max(sorted(named), key=len))
    return paths
