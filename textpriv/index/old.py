# ruff: noqa: D102
"""Names under which the mechanisms ask for what an index has, until they read points and steps themselves."""

from __future__ import annotations

from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv.index.grid import MANHATTAN
from textpriv.index.quantized import QuantizedRows
from textpriv.index.rank_bands import RankBands, band_starts
from textpriv.metrics import EUCLIDEAN as EUCLIDEAN_KIND
from textpriv.metrics import MANHATTAN as MANHATTAN_KIND
from textpriv.metrics import TREE as TREE_KIND
from textpriv.metrics import Metric, Rounding
from textpriv.vocabulary.vocabulary import read_only

__all__ = ["OldNames", "space_of"]


def space_of(name: str) -> str:
    """The space of a metric's former name."""
    name = getattr(name, "name", name)
    return {"unit_euclidean": "unit", "angular": "unit"}.get(name, name)


class _GridMetric(Metric):
    def __init__(self, space: str, unit: float) -> None:
        self.name, self._unit = space, unit
        self.kind = {MANHATTAN: MANHATTAN_KIND, "tree": TREE_KIND}.get(space, EUCLIDEAN_KIND)

    def coordinates(self, vectors: NDArray[Any]) -> NDArray[Any]:
        return vectors

    def coordinate_errors(self, vectors: NDArray[Any]) -> NDArray[np.float64]:
        return np.zeros(len(vectors))

    def settings(self) -> dict[str, Any]:
        return {"name": self.name, "step": self._unit}


class OldNames:
    """Coordinates as floats, and what else the mechanisms read."""

    backend, recall, width = "exact", 1.0, 0.0
    exact = property(lambda self: self.backend == "exact")
    rounding = Rounding(2.0**-48, 0.0)

    @cached_property
    def metric(self) -> Metric:
        return _GridMetric(self.space, self.unit)

    @cached_property
    def coordinates(self) -> NDArray[Any]:
        return read_only(self.points * np.float64(self.unit))

    @cached_property
    def representatives(self) -> NDArray[np.int32]:
        _, first, group = np.unique(self.points, axis=0, return_index=True, return_inverse=True)
        return read_only(first[group.ravel()].astype(np.int32))

    @cached_property
    def neighbours(self) -> Any:
        return SimpleNamespace(
            ids=self.neighbour_ids,
            distances=read_only(self.length(self.neighbour_steps)),
            bands=None,
        )

    @property
    def tau(self) -> float:
        return self.rounding.at(self.diameter_bound)

    @property
    def wide(self) -> NDArray[np.int64]:
        return np.empty(0, np.int64)

    def lists_of(self, words: NDArray[np.int64]) -> Any:
        lists = self.neighbours
        return SimpleNamespace(
            ids=lists.ids[words],
            distances=lists.distances[words],
            nearest=self.bands.nearest[words],
        )

    @cached_property
    def bands(self) -> RankBands:
        size = len(self)
        starts = band_starts(size)
        known = np.zeros((size, len(starts) - 1), dtype=np.uint8)
        if self.k >= size:
            known[:] = 255
        return RankBands(starts, read_only(known), 1.0)

    @property
    def band_starts(self) -> NDArray[np.int32]:
        return self.bands.starts

    @property
    def band_step(self) -> float:
        return 1.0

    bands_digest = ""

    @cached_property
    def quantized(self) -> QuantizedRows:
        return QuantizedRows.none()

    def distances_between(self, word: int, others: NDArray[np.int64]) -> NDArray[np.float64]:
        return self.length(self._grid.steps(np.array([word]), np.asarray(others)))[0]
