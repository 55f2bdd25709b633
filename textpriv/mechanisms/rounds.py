"""Rounds of draws: every pending token reads the same number of random words, so no draw depends on the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from textpriv.randomness import RandomWords

__all__ = ["WORDS", "draw_in_rounds"]

WORDS = 4  # random words of one attempt
_MOST = 64  # attempts of a round

# Called with the pending tokens, their random words, shape (pending, attempts * WORDS), and the outputs, to which it writes
# the accepted draws.
Attempt = Callable[[NDArray[np.int64], NDArray[np.uint64], NDArray[np.int32]], None]


def draw_in_rounds(
    attempt: Attempt, offsets: NDArray[np.int64], streams: Sequence[RandomWords]
) -> NDArray[np.int32]:
    """Draw all tokens of some documents, with twice as many attempts from round to round.

    Parameters
    ----------
    attempt : callable
        See ``Attempt``.
    offsets : ndarray of int64, shape (D + 1,)
        Document j holds the tokens from ``offsets[j]`` to ``offsets[j + 1] - 1``.
    streams : sequence of D random streams

    Returns
    -------
    ndarray of int32, shape (T,)
    """
    out = np.full(int(offsets[-1]), -1, dtype=np.int32)
    pending, attempts = np.arange(len(out)), 1
    while len(pending):
        words = np.empty((len(pending), attempts * WORDS), dtype=np.uint64)
        bounds = np.searchsorted(pending, offsets)
        for document in np.flatnonzero(np.diff(bounds)).tolist():
            streams[document].fill(words[bounds[document] : bounds[document + 1]].reshape(-1))
        attempt(pending, words, out)
        pending, attempts = pending[out[pending] < 0], min(2 * attempts, _MOST)
    return out
