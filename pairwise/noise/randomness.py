"""Randomness and noise: a cryptographic source, and Gaussian, Laplace, staircase, Duchi and exact discrete noise.

Every sampler takes the source as an argument and states its guarantee for a given sensitivity; which sensitivity a release
has, and what several of them cost together, is decided elsewhere (the algorithms and ``pairwise.accounting``). Sound
algorithms draw through a ``PlannedRelease`` only, which holds sensitivity, noise and event together.

Two numerical paths (mechanisms.md section 2). The *cheap* path (``gaussian``, ``laplace``, ``staircase``) adds float64 noise
and rounds the output to a power-of-two grid: that hides the low-order bits in practice and is not a proof. The *hardened*
path (``lattice_gaussian``, ``lattice_laplace``) rounds the input to the grid, adds exact integer noise and pays for the
rounding in its sensitivity: that is a proof. ``duchi`` returns corners of a cube, whose bits hold nothing else.
"""

from __future__ import annotations

import os
import threading
from typing import Any, Literal

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray
from scipy.special import ndtri

from pairwise.errors import InvalidParameterError

__all__ = [
    "CHEAP_PATH_NOTE",
    "HARDENED_LARGE_NOTE",
    "HARDENED_NOTE",
    "Randomness",
    "numerical_claim",
]

CHEAP_PATH_NOTE = (
    "noise was added in float64 and the output rounded to a grid; this hides floating-point artefacts in practice "
    "but is not a proof about them (mechanisms.md 2.2)"
)

HARDENED_NOTE = (
    "noise was drawn exactly on a grid and pays for the rounding to it, so the guarantee holds for the bits that were "
    "released; rounding inside the sums is covered by the slack of the clipping (mechanisms.md 2.2, 2.3)"
)

HARDENED_LARGE_NOTE = (
    "noise was drawn exactly on a grid and pays for the rounding to it; with so many records rounding inside the sums may "
    "exceed the slack of the clipping, so about the bits of the sums there is no proof (mechanisms.md 2.2, 2.3)"
)

_SEEDED_NOTE = (
    "random_state was given: the noise can be repeated by whoever knows or guesses it, so this release is for "
    "experiments and protects nobody"
)

# Up to here a sum of terms added one after another errs by less than the slack of the clipping (mechanisms.md 2.3).
_LARGEST_COVERED = 90_000

Shape = int | tuple[int, ...]

_CHUNK = memoryview(bytes(1 << 16))


def numerical_claim(exact: bool, n: int | None) -> tuple[Literal["exact", "real"], str]:
    """Return in which arithmetic a release of sums of up to n terms is proved, and the note that says why.

    Parameters
    ----------
    exact : bool
        Whether the noise is drawn on a grid.
    n : int or None
        None: how many terms is not known.
    """
    if not exact:
        return "real", CHEAP_PATH_NOTE
    if n is None or n > _LARGEST_COVERED:
        return "real", HARDENED_LARGE_NOTE
    return "exact", HARDENED_NOTE


class Randomness:
    """A source of uniform words and what is made of them, in float64.

    Parameters
    ----------
    random_state : None, int, numpy Generator, numpy RandomState or Randomness, default=None
        ``None``: ChaCha20 keyed from the operating system, the only setting that protects anybody. Anything else is
        repeatable, hence for experiments; ``secure`` is then False and ``note`` says so, for the privacy statement.
        A ``Randomness`` is shared, not copied.

    Notes
    -----
    A secure source cannot be pickled or copied, and starts afresh in a forked process: two processes that shared a
    stream would add the same noise twice, which cancels in a difference. Threads may share one.
    """

    def __init__(self, random_state: Any = None) -> None:
        self._generator: np.random.Generator | None = None
        self._encryptor: Any = None
        self._pid = -1
        if random_state is None:
            self._rekey()
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

    def _rekey(self) -> None:
        cipher = Cipher(algorithms.ChaCha20(os.urandom(32), bytes(16)), mode=None)
        self._encryptor = cipher.encryptor()
        self._pid = os.getpid()
        self._lock = threading.Lock()

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return ``count`` uniform 64-bit words, shape (count,)."""
        if self._generator is not None:
            return self._generator.integers(0, 2**64, size=count, dtype=np.uint64)
        if self._pid != os.getpid():
            self._rekey()
        out = np.empty(count, dtype=np.uint64)
        view = out.data.cast("B") if count else memoryview(b"")
        with self._lock:
            for start in range(0, len(view), len(_CHUNK)):
                part = view[start : start + len(_CHUNK)]
                self._encryptor.update_into(_CHUNK[: len(part)], part)
        return out

    def uniform(self, shape: Shape = ()) -> NDArray[np.float64]:
        """Return uniforms of the open interval (0, 1) on the odd multiples of 2^-53, given shape."""
        size = int(np.prod(shape))
        # 52 bits: with 53, the largest number plus one half would round up to 1.
        raw = self.words(size) >> np.uint64(12)
        return ((raw.astype(np.float64) + 0.5) * 2.0**-52).reshape(shape)

    def tail(self, shape: Shape = ()) -> NDArray[np.float64]:
        """Return uniforms of (0, 1) that resolve down to 2^-129, for inverse distribution functions with long tails."""
        size = int(np.prod(shape))
        raw = self.words(2 * size).astype(np.float64)
        fine = (raw[:size] + (raw[size:] + 0.5) * 2.0**-64) * 2.0**-64
        # 2^64 - 1 rounds up to 2^64: keep the interval open at 1.
        return np.minimum(fine, 1.0 - 2.0**-53).reshape(shape)

    def signs(self, shape: Shape = ()) -> NDArray[np.float64]:
        """Return independent fair signs ±1.0, given shape."""
        size = int(np.prod(shape))
        raw = self.words((size + 63) // 64)
        bits = np.unpackbits(raw.view(np.uint8))[:size]
        return (1.0 - 2.0 * bits.astype(np.float64)).reshape(shape)

    def normal(self, shape: Shape = ()) -> NDArray[np.float64]:
        """Return standard normals, given shape.

        A sign and the inverse distribution function of a uniform that resolves to 2^-130: the tails reach 13 standard
        deviations, where a plain 53-bit uniform stops at 8.2.
        """
        return self.signs(shape) * -ndtri(0.5 * self.tail(shape))

    def exponential(self, shape: Shape = ()) -> NDArray[np.float64]:
        """Return standard exponentials, given shape."""
        return -np.log(self.tail(shape))

    def integers(self, high: int, shape: Shape = ()) -> NDArray[np.int64]:
        """Return unbiased integers of [0, high), given shape; ``high`` at most 2^63."""
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
