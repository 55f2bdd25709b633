"""Rounds of draws: every pending token reads the same number of random words, so no draw depends on the batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from textpriv.randomness import RandomWords

__all__ = ["ROUNDS", "WORDS", "draw_in_rounds"]

WORDS = 4  # random words of one attempt
ROUNDS = (1, 2, 4, 8, 16, 32, 64)  # attempts of each pending token in a round

# Called with the pending tokens, their random words, shape (pending, attempts * WORDS), and the outputs, to which it writes
# the accepted draws.
Attempt = Callable[[NDArray[np.int64], NDArray[np.uint64], NDArray[np.int32]], None]


def draw_in_rounds(
    attempt: Attempt,
    offsets: NDArray[np.int64],
    streams: Sequence[RandomWords],
    out: NDArray[np.int32],
    rounds: Iterable[int] = ROUNDS,
) -> NDArray[np.int64]:
    """Draw the tokens whose output is still -1, round by round.

    Parameters
    ----------
    attempt : callable
        See ``Attempt``.
    offsets : ndarray of int64, shape (D + 1,)
        Document j holds the tokens from ``offsets[j]`` to ``offsets[j + 1] - 1``.
    streams : sequence of D random streams
    out : ndarray of int32, shape (T,)
        Outputs, which are filled in.
    rounds : iterable of int
        Attempts of each pending token in one round after the other.

    Returns
    -------
    ndarray of int64
        The tokens that no attempt of these rounds has decided.
    """
    pending = np.flatnonzero(out < 0)
    for attempts in rounds:
        if not len(pending):
            break
        words = np.empty((len(pending), attempts * WORDS), dtype=np.uint64)
        bounds = np.searchsorted(pending, offsets)
        for document in np.flatnonzero(np.diff(bounds)).tolist():
            streams[document].fill(words[bounds[document] : bounds[document + 1]].reshape(-1))
        attempt(pending, words, out)
        pending = pending[out[pending] < 0]
    return pending
