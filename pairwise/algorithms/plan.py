"""What a plan reads and decides: public numbers in, a ``FitPlan`` out. Records are seen by its ``run`` alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pairwise.accounting.events import Adjacency
from pairwise.errors import InvalidParameterError
from pairwise.pairs.clipping import clip_records, is_long

if TYPE_CHECKING:
    from dp_accounting import DpEvent

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class PublicTask:
    """All that the plan of a ranking reads.

    Attributes
    ----------
    n, d : int
        Number of records, or the horizon of a stream, and number of features.
    data_norm : float
        R; records are clipped to it.
    mu : float
        What the whole fit may cost.
    threshold_share : float
        Share of μ² for the threshold.
    shuffle : callable
        Draws a public order of that many records, the only draw that a plan makes.
    """

    n: int
    d: int
    data_norm: float
    mu: float
    threshold_share: float
    shuffle: Callable[[int], NDArray[np.int64]]

    def left(self, *shares: float) -> float:
        """Return the part of μ that remains beside the threshold and further shares of μ²."""
        spent = sum(shares, self.threshold_share)
        if not spent < 1:
            raise InvalidParameterError(
                f"threshold_share, centre_share and scale_share must be below 1 together; found {spent:.3g}. Leave a part "
                "for the ranking."
            )
        return self.mu * math.sqrt(1.0 - spent)


@dataclass(frozen=True)
class ClippedRecords:
    """Private records of two classes.

    Attributes
    ----------
    rows : (n, d) array
        Of norm at most R.
    positive : (n,) bool array
    long : (n,) bool array
        Which of them were longer than 2R before they were clipped.
    """

    rows: Array
    positive: NDArray[np.bool_]
    long: NDArray[np.bool_]

    @classmethod
    def of(cls, table: Array, positive: NDArray[np.bool_], data_norm: float) -> ClippedRecords:
        """Return the records of a table, clipped to ``data_norm``."""
        return cls(clip_records(table, data_norm), positive, is_long(table, 2.0 * data_norm))


@dataclass(frozen=True, kw_only=True)
class FitPlan:
    """A private fit, decided by public numbers.

    Attributes
    ----------
    event : DpEvent
        All that the fit will release.
    sensitivity : float
        Sensitivity of what noise is added to, under ``adjacency``.
    terms : int
        Largest number of terms of a sum over the data.
    run : callable
        Takes the private data and a ``Randomness``, and returns what it released.
    mechanism, proof : str
        For the statement.
    adjacency : Adjacency
    unit : str
        What is replaced or zeroed out.
    assumptions, not_protected, notes : tuple of str
    """

    event: DpEvent
    sensitivity: float
    terms: int
    run: Callable[..., Any]
    mechanism: str
    proof: str
    adjacency: Adjacency = Adjacency.REPLACE_ONE
    unit: str = "one record"
    assumptions: tuple[str, ...] = ()
    not_protected: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
