"""Processes that have spaCy cut texts. They need nothing else, so they can be started before anything is loaded.

What is to be cut, and what becomes of it, is decided in ``textpriv.engines.local``.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import TYPE_CHECKING

from textpriv.engines.workers import Asked, Worker, can_copy
from textpriv.startup import load_spacy_alone
from textpriv.tokenization.spacy_tokenizer import Cutter, Rules

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["begin_early", "cutters_for", "cutting", "rules_of"]

_FOR_ONE = 3  # workers that one process can keep busy with what it has cut
_LIKE_A_DRAW = 40_000  # characters that take as long to cut as a usual batch to draw

_early: list[Worker] = []
_cutter: tuple[tuple[str, tuple[str, ...]], Cutter] | None = None


def begin_early(workers: int) -> None:
    """Start those of the next pool of so many workers now: they load spaCy while this process loads the rest."""
    if not _early and can_copy():
        _early.extend(_begun(workers))


def cutters_for(workers: int) -> list[Worker]:
    """Processes that cut for a pool of so many workers; those that were begun early, once."""
    begun = _early[:] or _begun(workers)
    _early.clear()
    return begun


def _begun(workers: int) -> list[Worker]:
    can = can_copy()
    cutters: list[Worker] = []
    for _ in range(-(-workers // _FOR_ONE)):
        cutters.append(Worker(cutters if can else None))
        cutters[-1].ask(Asked(_load))
    return cutters


def rules_of(cutter: Cutter, words: Sequence[str]) -> Asked[Rules]:
    """Have the rules of a language found, for a vocabulary."""
    return Asked(_rules, cutter.language, cutter.attributes, words)


def cutting(cutter: Cutter, texts: list[str]) -> Asked[list[NDArray[np.uint64]]]:
    """Have texts cut; its size is in units of drawing a batch."""
    size = sum(map(len, texts)) / _LIKE_A_DRAW
    return Asked(_cut, cutter.language, cutter.attributes, texts, size=size)


def _load(given: None) -> None:
    # What is loaded stays until the end: a search for garbage in it takes longer than cutting some texts.
    gc.disable()
    try:
        load_spacy_alone()
    finally:
        gc.freeze()
        gc.enable()


def _rules(given: None, language: str, attributes: tuple[str, ...], words: Sequence[str]) -> Rules:
    return _cutter_of(language, attributes).rules(words)


def _cut(
    given: None, language: str, attributes: tuple[str, ...], texts: list[str]
) -> list[NDArray[np.uint64]]:
    return _cutter_of(language, attributes).columns(texts)


def _cutter_of(language: str, attributes: tuple[str, ...]) -> Cutter:
    """The one that this process keeps."""
    global _cutter
    wanted = (language, attributes)
    if _cutter is None or _cutter[0] != wanted:
        load_spacy_alone()
        _cutter = wanted, Cutter(language, attributes)
    return _cutter[1]
