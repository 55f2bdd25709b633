"""The statement of a private release: what it guarantees, to whom and under which assumptions.

Its form and its common words are in ``textpriv.statement``. The sentences that a learner puts in are at the head of
``estimators.base``, those about pairs and kappa in ``estimators.dpp``, those of a search in ``estimators.trials``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from textpriv.statement import PrivacyStatement
from textpriv.statement import UnsoundWarning as UnsoundWarning


@dataclass(frozen=True, repr=False)
class DataSetStatement(PrivacyStatement):
    """The guarantee of a release, between data sets that differ by ``unit``; other fields as in ``textpriv``.

    Attributes
    ----------
    adjacency : str
        How the data sets differ: "replace-one", "zero-out" or "add/remove".
    unit : str
        Whose change is covered, such as ``"one record"`` or ``"any 3 pairs"``.
    arithmetic : {"real", "exact"}, default="real"
        What a proof covers. ``"exact"``: the bits that were released. ``"real"``: the same formulas in real arithmetic;
        what rounding in floating point may reveal is not covered.
    """

    by_distance: bool = False
    arithmetic: Literal["real", "exact"] = "real"

    @property
    def verdict(self) -> str:
        """Whether the guarantee is proved, and in which arithmetic."""
        noisy = self.epsilon is not None and math.isfinite(self.epsilon)
        if self.proved and noisy and self.arithmetic == "real":
            return "bound proved in real arithmetic; what rounding may reveal is not covered"
        return super().verdict
