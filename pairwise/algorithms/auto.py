"""The rule of ``algorithm="auto"``: its algorithm, and settings from public numbers where no option says otherwise."""

from __future__ import annotations

import math

from pairwise.algorithms.options import Pointwise
from pairwise.algorithms.plan import PublicTask

AUTO = Pointwise()

# Share of μ² for the second moment, and from which μn/d^1.5 on: both found on tables of the KEEL collection.
_SCALE_SHARE, _SCALED_FROM = 0.12, 0.2


def default_scale_share(mu: float, n: int, dimension: int) -> float:
    """Return the share of μ² that scaling is worth, from public numbers: 0.12, or 0 where noise would hide what there is.

    The noise of a second moment has eigenvalues near √(2d)/(nμ√0.12), and those of the moment itself are near 1/(2d), so
    μn/d^1.5 says which is larger. Even far below 1 scaling gained on most tables: a few eigenvalues are larger than
    others.
    """
    return _SCALE_SHARE if mu * n >= _SCALED_FROM * dimension**1.5 else 0.0


def default_radius(mu: float, n: int, dimension: int, factor: float = 60.0) -> float:
    """Return a radius of the parameter ball for records of norm 1, from public numbers: μn/(factor √p), cut to 0.25..20.

    A ranking depends on the direction of w alone. In a small ball the loss is nearly linear, and its minimiser the
    difference of the class means, which is what little budget can find; a larger ball lets the loss bend the direction.
    """
    if math.isinf(mu):
        return 20.0
    return min(20.0, max(0.25, mu * n / (factor * math.sqrt(dimension))))


def radius_in_records(given: float | None, public: PublicTask) -> float:
    """Return the radius of the parameter ball in the units of the records: the given one, or by default."""
    if given is not None:
        return float(given)
    return default_radius(public.left(), public.n, public.d) / public.data_norm


def default_steps(balance: float, most: int) -> int:
    """Return the number of steps: G²μ²/(pΔ²), where noise and signal balance, cut to 10..most."""
    return int(min(float(most), max(10.0, balance)))
