"""Distances of many pairs of words on a torch device: nearest candidates, full rows, and the sums and maxima over all pairs.

What a graphics processor can do faster stands here, on plain arrays: screening by float32 products for the exact lists, rows
of float64 distances, and the two sweeps of a certificate. The error bounds are those of the same work on the processor:
they hold for any order of summation, so long as products are taken in true single or double precision, which is checked
before any work. Which words are kept is decided in ``textpriv.index.neighbours``. Torch is loaded when a device is chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import TextprivError
from textpriv.metrics import ANGULAR, CHEBYSHEV, EUCLIDEAN, GRAPH, INTERPRETED, MANHATTAN

__all__ = [
    "candidates",
    "choose_device",
    "distance_rows",
    "full_precision",
    "log_normalisers",
    "tight_constants",
]

Progress = Callable[[int, int], None]

_ROWS, _COLUMNS = 1024, 8192  # pairs in one block: 64 MiB of float64
_CLOSE = 1e-6  # squared distances below this part of the squared lengths are computed again by differences


def choose_device(name: str) -> Any:
    """Return the torch device of a name.

    Parameters
    ----------
    name : str
        "cuda", "cuda:1" and so on; "torch:cpu" runs the same code on the processor, for comparison.

    Raises
    ------
    TextprivError
        If torch is not installed, has no such device, or the device does not compute in double precision.
    """
    try:
        import torch
    except ImportError as error:
        raise TextprivError(
            f"device {name!r} needs torch, which is not installed. Install it (pip install torch), or use device='cpu'."
        ) from error
    try:
        device = torch.device(name.removeprefix("torch:"))
    except RuntimeError as error:
        raise TextprivError(
            f"unknown device {name!r}; use 'cpu', 'cuda' or 'cuda:1' and so on."
        ) from error
    if device.type == "cuda":
        found = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= found:
            raise TextprivError(
                f"torch finds {found} CUDA devices here, so device {name!r} cannot be used. Use device='cpu'."
            )
    elif device.type != "cpu":
        raise TextprivError(
            f"device {name!r} does not compute in double precision, which the bounds need. Use 'cpu' or 'cuda'."
        )
    return device


@contextmanager
def full_precision(device: Any) -> Iterator[None]:
    """Take products in true float32, whatever the program has allowed, and make sure of it.

    Raises
    ------
    TextprivError
        If the device rounds the factors of a float32 product nevertheless (TF32 and bfloat16 keep 10 and 7 bits).
    """
    import torch

    allowed = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        # The last bit of a factor, which no shorter format holds, must come through.
        factor = torch.full((128, 128), 1.0 + 2.0**-23, dtype=torch.float32, device=device)
        identity = torch.eye(128, dtype=torch.float32, device=device)
        if not bool(((factor @ identity) == factor).all()):
            raise TextprivError(
                "this device rounds the factors of a single-precision product, so that the error bounds do not hold. "
                "Switch that off (NVIDIA_TF32_OVERRIDE=0), or use device='cpu'."
            )
        yield
    finally:
        torch.set_float32_matmul_precision(allowed)


def candidates(
    device: Any, queries: NDArray[np.float32], columns: Any, halves: Any, count: int, band_of: Any
) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.float32]]:
    """The columns with the least scores ``|y|^2 / 2 - x.y`` of every query: the nearest ones, up to rounding.

    Parameters
    ----------
    device : torch.device
        Inside :func:`full_precision`.
    queries : ndarray of float32, shape (q, n)
    columns, halves : float32 tensors on the device, shapes (V, n) and (V,)
    count : int
        How many to return; at most V.
    band_of : int64 tensor on the device, shape (V,)
        The band of every column, from 0 up; the last column is in the last one.

    Returns
    -------
    ids : ndarray of int32, shape (q, count)
    scores : ndarray of float32, shape (q, count)
        Rising in each row. Every column that is not returned scores at least the last of them.
    least : ndarray of float32, shape (q, B)
        The least score in every band of the columns that are not returned; infinite where all are.
    """
    import torch

    rows = torch.from_numpy(queries).to(device)
    size = len(columns)
    best: Any = None
    best_ids: Any = None
    least = torch.full((len(rows), int(band_of[-1]) + 1), torch.inf, device=device)
    for left in range(0, size, 2 * _COLUMNS):
        right = min(left + 2 * _COLUMNS, size)
        scores = halves[left:right] - rows @ columns[left:right].T
        names = torch.arange(left, right, device=device, dtype=torch.int32)
        names = names.expand(len(rows), -1)
        if best is not None:
            scores = torch.cat([best, scores], dim=1)
            names = torch.cat([best_ids, names], dim=1)
        best, chosen = scores.topk(min(count, scores.shape[1]), dim=1, largest=False, sorted=True)
        best_ids = names.gather(1, chosen)
        left_out = scores.scatter(1, chosen, torch.inf)
        least.scatter_reduce_(1, band_of[names.long()], left_out, "amin")
    return best_ids.cpu().numpy(), best.cpu().numpy(), least.cpu().numpy()


def distance_rows(
    device: Any, kind: int, coordinates: NDArray[Any], words: NDArray[Any]
) -> NDArray[np.float64]:
    """Distances from some words to every word, shape (len(words), V), in float64 by direct differences."""
    import torch

    _refuse_listed(kind)
    out = np.empty((len(words), len(coordinates)))
    own = torch.from_numpy(coordinates[words].astype(np.float64)).to(device)
    step = max(1, (1 << 25) // coordinates.shape[1])
    for left in range(0, len(coordinates), step):
        right = min(left + step, len(coordinates))
        columns = torch.from_numpy(coordinates[left:right].astype(np.float64)).to(device)
        for number in range(len(words)):
            difference = columns - own[number]
            if kind == MANHATTAN:
                found = difference.abs().sum(dim=1)
            elif kind == CHEBYSHEV:
                found = difference.abs().amax(dim=1)
            else:
                found = difference.square().sum(dim=1).sqrt()
                if kind == ANGULAR:
                    together = (columns + own[number]).square().sum(dim=1).sqrt()
                    found = 2.0 * torch.atan2(found, together)
            out[number, left:right] = found.cpu().numpy()
    out[np.arange(len(words)), words] = 0.0
    return out


class _Pairs:
    """Blocks of float64 distances between coordinate rows that stay on the device."""

    def __init__(self, device: Any, kind: int, coordinates: NDArray[Any]) -> None:
        import torch

        _refuse_listed(kind)
        self.kind = kind
        centred = coordinates.astype(np.float64)
        if kind == EUCLIDEAN:
            # A length is the more precise for being taken about the centre; an angle needs the origin.
            centred -= coordinates.mean(axis=0, dtype=np.float64)
        self.rows = torch.from_numpy(centred).to(device)
        self.squares = self.rows.square().sum(dim=1)

    def __len__(self) -> int:
        return len(self.rows)

    def blocks(self) -> Iterator[tuple[slice, slice]]:
        """Rows and columns of the upper triangle; columns start at the first row."""
        size = len(self)
        for start in range(0, size, _ROWS):
            for left in range(start, size, _COLUMNS):
                yield (
                    slice(start, min(start + _ROWS, size)),
                    slice(left, min(left + _COLUMNS, size)),
                )

    def distances(self, rows: slice, columns: slice) -> Any:
        """The distances of a block, shape (rows, columns)."""
        import torch

        if self.kind in (MANHATTAN, CHEBYSHEV):
            norm = 1.0 if self.kind == MANHATTAN else float("inf")
            return torch.cdist(self.rows[rows], self.rows[columns], p=norm)
        products = self.rows[rows] @ self.rows[columns].T
        if self.kind == EUCLIDEAN:
            return self._lengths(products, rows, columns, -1.0)
        apart = self._lengths(products, rows, columns, -1.0)
        return 2.0 * torch.atan2(apart, self._lengths(products, rows, columns, 1.0))

    def _lengths(self, products: Any, rows: slice, columns: slice, sign: float) -> Any:
        """``|x + sign y|``; what the expansion of the square has cancelled is computed again from the vectors."""
        own, others = self.squares[rows], self.squares[columns]
        found = 2.0 * sign * products + own[:, None] + others[None]
        row, column = (found < _CLOSE * 2 * (own.max() + others.max())).nonzero(as_tuple=True)
        for start in range(0, len(row), 1 << 16):
            i, j = row[start : start + (1 << 16)], column[start : start + (1 << 16)]
            together = self.rows[rows][i] + sign * self.rows[columns][j]
            found[i, j] = together.square().sum(dim=1)
        return found.sqrt()


def log_normalisers(
    device: Any,
    kind: int,
    coordinates: NDArray[Any],
    weights: NDArray[np.float64],
    rates: Sequence[float],
    gammas: Sequence[float],
    progress: Progress | None = None,
) -> NDArray[np.float64]:
    """``ln Z_t(w)`` of every word for several rates, shape (m, V): as in ``mechanisms.calibration.privacy_constant``."""
    import torch

    pairs = _Pairs(device, kind, coordinates)
    measure = torch.from_numpy(np.ascontiguousarray(weights, dtype=np.float64)).to(device)
    total = torch.zeros((len(rates), len(pairs)), dtype=torch.float64, device=device)
    for rows, columns in pairs.blocks():
        distances = pairs.distances(rows, columns)
        # Columns among the rows meet both words of a pair as rows; the others must add to the columns too.
        later = max(rows.stop - columns.start, 0)
        beyond = slice(columns.start + later, columns.stop)
        for law, (rate, gamma) in enumerate(zip(rates, gammas, strict=True)):
            kernel = torch.exp(-rate * distances.clamp(max=gamma))
            total[law, rows] += kernel @ measure[columns]
            if beyond.start < beyond.stop:
                total[law, beyond] += measure[rows] @ kernel[:, later:]
        if progress and columns.stop == len(pairs):
            progress(rows.stop, len(pairs))
    return torch.log(total).cpu().numpy()


def tight_constants(
    device: Any,
    kind: int,
    coordinates: NDArray[Any],
    rates: Sequence[float],
    gammas: Sequence[float],
    log_z: NDArray[np.float64],
    allowance: float,
    progress: Progress | None = None,
) -> list[tuple[float, int, int]]:
    """The tight constant of each law and the rows that attain it: as in ``mechanisms.calibration.privacy_constant``.

    Parameters
    ----------
    coordinates : ndarray, shape (V, n)
        Of the words that have a law of their own.
    rates, gammas : sequences of m floats
    log_z : ndarray, shape (m, V)
        Of the same words.

    Returns
    -------
    list of m (float, int, int)
    """
    import torch

    pairs = _Pairs(device, kind, coordinates)
    logs = torch.from_numpy(np.ascontiguousarray(log_z)).to(device)
    best = [(0.0, 0, 0)] * len(rates)
    for rows, columns in pairs.blocks():
        distances = pairs.distances(rows, columns)
        # A word against itself is no pair.
        first = max(rows.start, columns.start)
        own = torch.arange(first, max(first, min(rows.stop, columns.stop)), device=device)
        itself = own - rows.start, own - columns.start
        distances[itself] = 1.0
        distances = distances.clamp(min=float(np.finfo(np.float64).tiny))
        for law, (rate, gamma) in enumerate(zip(rates, gammas, strict=True)):
            gap = (logs[law, rows, None] - logs[law, None, columns]).abs() - allowance
            ratio = (gap.clamp(min=0.0) + rate * distances.clamp(max=gamma)) / distances
            ratio[itself] = 0.0
            where = int(ratio.argmax())
            i, j = divmod(where, ratio.shape[1])
            value = float(ratio[i, j])
            if value > best[law][0]:
                row, column = rows.start + i, columns.start + j
                # The constant is that of P_w against P_w' with w' the word whose normaliser is the larger.
                if log_z[law, row] > log_z[law, column]:
                    row, column = column, row
                best[law] = (value, row, column)
        if progress and columns.stop == len(pairs):
            progress(rows.stop, len(pairs))
    return best


def _refuse_listed(kind: int) -> None:
    if kind in (GRAPH, INTERPRETED):
        raise TextprivError(
            "distances in a graph are read from its table, and a metric of one's own is computed by its function, which "
            "knows no device. Use device='cpu'."
        )
