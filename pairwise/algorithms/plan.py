"""What a plan reads and decides: public numbers in, a ``FitPlan`` out. Records are seen by its method ``run`` alone."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
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

    from pairwise.noise.randomness import Randomness

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class PublicTask:
    """All that the plan of a ranking reads."""

    n: int  # records, or the horizon of a stream
    d: int  # features
    data_norm: float  # R, to which records are clipped
    mu: float  # what the whole fit may cost
    threshold_share: float  # of μ², for the threshold
    shuffle: Callable[[int], NDArray[np.int64]]  # draws a public order of that many records

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
    """Private records of two classes."""

    rows: Array  # of norm at most R, shape (n, d)
    positive: NDArray[np.bool_]
    long: NDArray[np.bool_]  # which of them were longer than 2R before they were clipped

    @classmethod
    def of(cls, table: Array, positive: NDArray[np.bool_], data_norm: float) -> ClippedRecords:
        """Return the records of a table, clipped to ``data_norm``."""
        return cls(clip_records(table, data_norm), positive, is_long(table, 2.0 * data_norm))


@dataclass(frozen=True, kw_only=True)
class FitPlan(ABC):
    """A private fit, decided by public numbers. Charge and statement read these fields; subclasses hold the noise."""

    event: DpEvent  # all that the fit will release
    sensitivity: float  # of what noise is added to, under the adjacency
    terms: int  # the largest number of terms of a sum over the data
    mechanism: str
    proof: str
    adjacency: Adjacency = Adjacency.REPLACE_ONE
    unit: str = "one record"
    assumptions: tuple[str, ...] = ()
    not_protected: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @abstractmethod
    def run(self, records: Any, randomness: Randomness) -> Any:
        """Return what the fit releases of private records, which are clipped already."""
