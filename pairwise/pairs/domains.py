"""Parameter sets with exact Euclidean projections.

A projection that is only approximately nearest need not be 1-Lipschitz, and the sensitivity proofs of ``giga`` and ``sgd``
use that property; so each one here is the closed form of mechanisms.md section 6.4. Steps, gradients and noise live
elsewhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pairwise.errors import InvalidParameterError
from pairwise.noise.continuous import check_positive

if TYPE_CHECKING:
    import torch

__all__ = ["Domain", "FrobeniusBall", "L2Ball", "PSDNuclearBall"]


class Domain(Protocol):
    """A closed convex parameter set."""

    def project(self, w: Any) -> Any:
        """Return the nearest point of the set, same shape and container (NumPy or torch, float64)."""

    @property
    def diameter(self) -> float:
        """The largest Euclidean (Frobenius) distance of two points of the set."""

    @property
    def norm_bound(self) -> float:
        """The largest Euclidean (Frobenius) norm of a point of the set."""


def _to_torch(w: Any) -> tuple[torch.Tensor, bool]:
    import torch

    is_torch = isinstance(w, torch.Tensor)
    tensor = torch.as_tensor(w)
    if tensor.dtype != torch.float64:
        tensor = tensor.to(torch.float64)
    if not bool(torch.isfinite(tensor).all()):
        raise InvalidParameterError(
            "a point to project must be finite; found NaN or infinity. Lower the step size."
        )
    return tensor, is_torch


def _to_container(tensor: torch.Tensor, is_torch: bool) -> Any:
    return tensor if is_torch else tensor.numpy()


def _scale_into_ball(tensor: torch.Tensor, radius: float) -> torch.Tensor:
    """Scale all entries together, without overflow for huge and without loss for tiny ones."""
    peak = float(tensor.abs().max()) if tensor.numel() else 0.0
    if peak == 0.0:
        return tensor.clone()
    # Dividing by the peak first keeps the squares inside the floating-point range.
    norm = peak * float((tensor / peak).norm())
    if norm <= radius:
        return tensor.clone()
    return tensor / peak * (radius / (norm / peak))


def _project_simplex(values: torch.Tensor, total: float) -> torch.Tensor:
    """Return the point of {v >= 0, sum v = total} nearest to ``values``, shape (k,) (sort and threshold)."""
    import torch

    # Measured from the largest value: the sums then hold only what matters, whatever the magnitude.
    values = values - values.max()
    ordered, _ = torch.sort(values, descending=True)
    surplus = (torch.cumsum(ordered, 0) - total) / torch.arange(
        1, len(values) + 1, dtype=values.dtype, device=values.device
    )
    last = int((ordered > surplus).nonzero().max())
    return (values - surplus[last]).clamp_min(0.0)


@dataclass(frozen=True)
class L2Ball:
    """{w : ‖w‖₂ <= radius}, for arrays of any shape taken as one vector."""

    radius: float

    def __post_init__(self) -> None:
        check_positive(radius=self.radius)

    def project(self, w: Any) -> Any:
        """Scale ``w`` into the ball."""
        tensor, is_torch = _to_torch(w)
        return _to_container(_scale_into_ball(tensor, self.radius), is_torch)

    @property
    def diameter(self) -> float:
        """Twice the radius."""
        return 2.0 * self.radius

    @property
    def norm_bound(self) -> float:
        """The radius."""
        return self.radius


@dataclass(frozen=True)
class FrobeniusBall(L2Ball):
    """{W : ‖W‖_F <= radius}: the same projection, for matrices."""


@dataclass(frozen=True)
class PSDNuclearBall:
    """{M symmetric, M ⪰ 0, tr M <= bound}.

    The projection symmetrises, cuts negative eigenvalues and, where their sum still exceeds the bound, moves them to the
    simplex of that sum (mechanisms.md section 6.4). O(d³).
    """

    bound: float

    def __post_init__(self) -> None:
        check_positive(bound=self.bound)

    def project(self, w: Any) -> Any:
        """Return the nearest matrix of the set to ``w``, shape (d, d)."""
        import torch

        tensor, is_torch = _to_torch(w)
        if tensor.ndim != 2 or tensor.shape[0] != tensor.shape[1]:
            raise InvalidParameterError(
                f"expected a square matrix; found shape {tuple(tensor.shape)}. Reshape it to (d, d)."
            )
        values, vectors = torch.linalg.eigh((tensor + tensor.T) / 2)
        values = values.clamp_min(0.0)
        if float(values.sum()) > self.bound:
            values = _project_simplex(values, self.bound)
        result = (vectors * values) @ vectors.T
        return _to_container((result + result.T) / 2, is_torch)

    @property
    def diameter(self) -> float:
        """√2 times the bound (two orthogonal rank-one matrices; an upper bound when d = 1)."""
        return math.sqrt(2.0) * self.bound

    @property
    def norm_bound(self) -> float:
        """The bound itself (a rank-one matrix attains it)."""
        return self.bound
