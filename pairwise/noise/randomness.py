"""A source of random words, and the normals, integers and orders made of them."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from pairwise.errors import InvalidParameterError
from textpriv.randomness import Stream

_SEEDED_NOTE = (
    "random_state was given: the noise can be repeated by whoever knows or guesses it, so this release is for "
    "experiments and protects nobody"
)

Shape = int | tuple[int, ...]


class Randomness:
    """A source of uniform 64-bit words and what is made of them.

    Parameters
    ----------
    random_state : None, int, numpy Generator, numpy RandomState or Randomness, default=None
        ``None``: ChaCha20 keyed from the operating system, the only setting that protects anybody. Anything else is
        repeatable, hence for experiments. ``secure`` is then False and ``note`` says so, for the privacy statement. A
        ``Randomness`` is shared, not copied.

    Notes
    -----
    A source cannot be pickled or copied, and a secure one takes a new key in a forked process: two processes that shared
    a stream would add the same noise twice, which cancels in a difference. Threads may share one.
    """

    def __init__(self, random_state: Any = None) -> None:
        self._generator: np.random.Generator | None = None
        self._lock = threading.Lock()
        if random_state is None:
            self._stream = Stream()
        elif isinstance(random_state, Randomness):
            self.__dict__ = random_state.__dict__
        elif isinstance(random_state, np.random.Generator):
            self._generator = random_state
        elif isinstance(random_state, np.random.RandomState):
            words = random_state.randint(0, 2**32, size=4, dtype=np.uint32)
            self._generator = np.random.Generator(np.random.PCG64([int(w) for w in words]))
        elif isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
            if random_state < 0:
                raise InvalidParameterError(
                    f"random_state must be >= 0; found {int(random_state)}. Use None for private releases."
                )
            self._generator = np.random.Generator(np.random.PCG64(int(random_state)))
        else:
            raise InvalidParameterError(
                "random_state must be None, a whole number, a numpy Generator or RandomState; "
                f"found {type(random_state).__name__}. Use None for private releases."
            )

    @property
    def secure(self) -> bool:
        """Whether the words come from a cryptographic stream keyed by the operating system."""
        return self._generator is None

    @property
    def note(self) -> str | None:
        """A line for the privacy statement when the source is repeatable, else None."""
        return None if self.secure else _SEEDED_NOTE

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return ``count`` uniform 64-bit words, shape (count,)."""
        if self._generator is not None:
            return self._generator.integers(0, 2**64, size=count, dtype=np.uint64)
        if count == 0:
            return np.empty(0, dtype=np.uint64)
        with self._lock:
            return self._stream.words(count)

    def signs(self, shape: Shape = ()) -> NDArray[np.float64]:
        """Return independent fair signs, 1.0 or -1.0."""
        size = int(np.prod(shape))
        raw = self.words((size + 63) // 64)
        bits = np.unpackbits(raw.view(np.uint8))[:size]
        return (1.0 - 2.0 * bits.astype(np.float64)).reshape(shape)

    def normal(self, shape: Shape = ()) -> NDArray[np.float64]:
        """Return standard normals.

        A sign and the inverse distribution function of a uniform that resolves to 2^-130: the tails reach 13 standard
        deviations, where a plain 53-bit uniform stops at 8.2.
        """
        size = int(np.prod(shape))
        raw = self.words(2 * size).astype(np.float64)
        fine = (raw[:size] + (raw[size:] + 0.5) * 2.0**-64) * 2.0**-64
        # 2^64 - 1 rounds up to 2^64: keep the interval open at 1.
        tail = np.minimum(fine, 1.0 - 2.0**-53).reshape(shape)
        return self.signs(shape) * -ndtri(0.5 * tail)

    def integers(self, high: int, shape: Shape = ()) -> NDArray[np.int64]:
        """Return unbiased integers of [0, high); ``high`` at most 2^63."""
        if not 1 <= high <= 2**63:
            raise InvalidParameterError(f"high must be in 1..2^63; found {high}.")
        size = int(np.prod(shape))
        limit = (2**64 // high) * high
        out = np.empty(size, dtype=np.int64)
        filled = 0
        while filled < size:
            raw = self.words(size - filled)
            if limit < 2**64:
                raw = raw[raw < np.uint64(limit)]
            good = (raw % np.uint64(high)).astype(np.int64)
            out[filled : filled + len(good)] = good
            filled += len(good)
        return out.reshape(shape)

    def permutation(self, n: int) -> NDArray[np.int64]:
        """Return a uniformly random permutation of 0..n-1, shape (n,).

        Sorts 64-bit keys and draws again on a tie, so every order is equally likely.
        """
        while True:
            keys = self.words(n)
            order = np.argsort(keys, kind="stable")
            ranked = keys[order]
            if not np.any(ranked[1:] == ranked[:-1]):
                return order.astype(np.int64)

    def __reduce__(self) -> Any:
        raise TypeError(
            "a Randomness cannot be pickled or copied: a copy would repeat the same noise. "
            "Create a new one with Randomness() where it is used."
        )

    def __repr__(self) -> str:
        return "Randomness(<secret>)" if self.secure else "Randomness(<seeded, for experiments>)"
