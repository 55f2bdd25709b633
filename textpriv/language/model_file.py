"""A language model as one file of arrays. Compiled code reads by its values, so a reader checks all of them."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv.files import flush
from textpriv.language.ngrams import ONE, NGrams

__all__ = ["read_model", "write_model"]

_TYPES = [np.dtype(each) for each in ("u4", *("i8", "i4", "u4") * 2)]
_NAMES = [each.name for each in fields(NGrams)]


def write_model(path: Path, model: NGrams) -> None:
    """Write all fields of a model."""
    with open(path, "wb") as file:
        np.savez_compressed(file, **{name: getattr(model, name) for name in _NAMES})
        flush(file)


def read_model(path: Path, size: int) -> NGrams | None:
    """Return the model in a file; None if it is damaged or is not over so many words."""
    try:
        with np.load(path) as stored:
            own_size, symbols, *arrays = (stored[name] for name in _NAMES)
    except Exception:  # a damaged file may raise anything
        return None
    model = NGrams(size, tuple(map(str, symbols.ravel())), *arrays)
    if [each.dtype for each in arrays] != _TYPES or any(each.ndim != 1 for each in arrays):
        return None
    tokens, single = size + len(model.symbols) + 1, model.single
    if (
        own_size.tolist() != size
        or len(single) != tokens
        or not (single[-1] == ONE and single[0] and (single[1:] > single[:-1]).all())
        or not _lists_tokens(tokens, tokens, *arrays[1:4])
        or not _lists_tokens(tokens, len(model.pairs), *arrays[4:])
    ):
        return None
    _, pairs, triples, backoff, pair_backoff = model.weights
    falls = (pairs < 0).any() or (triples < 0).any()
    return None if falls or (backoff <= 0).any() or (pair_backoff <= 0).any() else model


def _lists_tokens(
    tokens: int, contexts: int, offsets: NDArray[Any], last: NDArray[Any], ends: NDArray[Any]
) -> bool:
    """Whether each context lists rising tokens."""
    counts = np.diff(offsets)
    if len(offsets) != contexts + 1 or not offsets[0] == 0 <= counts.min(initial=0):
        return False
    if not offsets[-1] == len(ends) == len(last) or (last < 0).any() or (last >= tokens).any():
        return False
    keys = np.repeat(np.arange(contexts), counts) * tokens + last
    return bool((np.diff(keys) > 0).all())
