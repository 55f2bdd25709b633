"""Pair losses with the constants their privacy rests on: value, derivative, Lipschitz bound G and smoothness L.

A loss is a function of one number per pair (a score difference or a squared distance) and of the pair's sign, so that whole
blocks of pairs are one tensor operation on any device. Features, clipping and parameters belong to the algorithms; the
constants hold only if the algorithm clips every record to the norm R passed here (mechanisms.md section 0).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from pairwise.errors import InvalidParameterError

if TYPE_CHECKING:
    import torch

__all__ = [
    "AUCHinge",
    "AUCLogistic",
    "Contrastive",
    "MetricHinge",
    "MetricLogistic",
    "PairLoss",
    "get_loss",
]


class PairLoss(Protocol):
    """What the algorithms need to know about a pair loss.

    Attributes
    ----------
    name : str
        The registry name.
    kind : {"auc", "metric"}
        ``"auc"``: ``inner`` is the score difference w·(x − x') and ``sign`` is (y − y')/2 in {−1, 0, +1}.
        ``"metric"``: ``inner`` is the squared distance Δᵀ M Δ and ``sign`` is +1 for similar, −1 for dissimilar pairs.
    parameter : {"vector", "matrix", "factor"}
        With respect to what ``lipschitz``, ``smoothness`` and ``convex`` are meant: w, M, or W with M = WᵀW.
    convex : bool
        Convexity in that parameter.
    """

    name: str
    kind: Literal["auc", "metric"]
    parameter: Literal["vector", "matrix", "factor"]
    convex: bool

    def value(self, inner: Any, sign: Any) -> torch.Tensor:
        """Return the loss of each pair, same shape as ``inner``."""

    def derivative(self, inner: Any, sign: Any) -> torch.Tensor:
        """Return a (sub)derivative of the loss with respect to ``inner``, same shape."""

    def lipschitz(self, R: float) -> float:
        """Return G: the largest gradient norm of one pair, records of norm <= R."""

    def smoothness(self, R: float) -> float | None:
        """Return L, the Lipschitz constant of one pair's gradient; None where there is none."""


def _pair_tensors(inner: Any, sign: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return both arguments in float64 on the device of ``inner``: privacy constants assume it."""
    import torch

    values = torch.as_tensor(inner)
    if values.dtype != torch.float64:
        values = values.to(torch.float64)
    signs = torch.as_tensor(sign, device=values.device).to(torch.float64)
    return values, signs


def _check_norm(R: float) -> None:
    if not (math.isfinite(R) and R > 0):
        raise InvalidParameterError(
            f"the record norm R must be a positive finite number; found {R!r}. "
            "Pass the norm to which the algorithm clips every record: without one G is infinite."
        )


@dataclass(frozen=True)
class AUCLogistic:
    """Logistic surrogate of the AUC, log(1 + exp(−(y − y') w·(x − x'))) (HUAI example 2; mechanisms.md section 0).

    With signs s = (y − y')/2 this is log(1 + exp(−2 s u)), u the score difference. G = 4R, or 4R/(1 + e^(−4RB)) when
    ‖w‖ <= B; L = 4R². Pairs of one class (s = 0) have the constant value log 2 and no gradient.
    """

    name: str = "auc-logistic"
    kind: Literal["auc", "metric"] = "auc"
    parameter: Literal["vector", "matrix", "factor"] = "vector"
    convex: bool = True

    def value(self, inner: Any, sign: Any) -> torch.Tensor:
        """Return log(1 + exp(−2 s u)), shape of ``inner``."""
        import torch

        u, s = _pair_tensors(inner, sign)
        return torch.logaddexp(torch.zeros_like(u), -2.0 * s * u)

    def derivative(self, inner: Any, sign: Any) -> torch.Tensor:
        """Return −2 s / (1 + exp(2 s u)), shape of ``inner``."""
        import torch

        u, s = _pair_tensors(inner, sign)
        return -2.0 * s * torch.sigmoid(-2.0 * s * u)

    def lipschitz(self, R: float) -> float:
        """Return 4R."""
        _check_norm(R)
        return 4.0 * R

    def smoothness(self, R: float) -> float | None:
        """Return 4R²."""
        _check_norm(R)
        return 4.0 * R * R


@dataclass(frozen=True)
class AUCHinge:
    """Hinge surrogate of the AUC, (1 − s u)₊ on pairs of two classes (YANG eq. 10, symmetrised; mechanisms.md 6.2).

    G = 2R. Not smooth. Pairs of one class cost nothing.
    """

    name: str = "auc-hinge"
    kind: Literal["auc", "metric"] = "auc"
    parameter: Literal["vector", "matrix", "factor"] = "vector"
    convex: bool = True

    def value(self, inner: Any, sign: Any) -> torch.Tensor:
        """Return |s| (1 − s u)₊, shape of ``inner``."""
        u, s = _pair_tensors(inner, sign)
        return s.abs() * (1.0 - s * u).clamp_min(0.0)

    def derivative(self, inner: Any, sign: Any) -> torch.Tensor:
        """Return −s where s u < 1, else 0, shape of ``inner``."""
        import torch

        u, s = _pair_tensors(inner, sign)
        return torch.where(s * u < 1.0, -s, torch.zeros_like(s))

    def lipschitz(self, R: float) -> float:
        """Return 2R, attained at w = 0."""
        _check_norm(R)
        return 2.0 * R

    def smoothness(self, R: float) -> float | None:
        """Return None: the hinge has a kink."""
        _check_norm(R)
        return None


@dataclass(frozen=True)
class MetricLogistic:
    """Logistic metric loss, log(1 + exp(−τ(1 − Δᵀ M Δ))), τ = ±1 (HUAI example 1; mechanisms.md section 0).

    G = 4R², or 4R²/(1 + e^(−(1 + 4R²B))) with ‖M‖_F <= B; L = 4R⁴.
    """

    name: str = "metric-logistic"
    kind: Literal["auc", "metric"] = "metric"
    parameter: Literal["vector", "matrix", "factor"] = "matrix"
    convex: bool = True

    def value(self, inner: Any, sign: Any) -> torch.Tensor:
        """Return log(1 + exp(−τ(1 − q))) for squared distances q, shape of ``inner``."""
        import torch

        q, tau = _pair_tensors(inner, sign)
        return torch.logaddexp(torch.zeros_like(q), -tau * (1.0 - q))

    def derivative(self, inner: Any, sign: Any) -> torch.Tensor:
        """Return τ/(1 + exp(τ(1 − q))), shape of ``inner``."""
        import torch

        q, tau = _pair_tensors(inner, sign)
        return tau * torch.sigmoid(-tau * (1.0 - q))

    def lipschitz(self, R: float) -> float:
        """Return 4R²."""
        _check_norm(R)
        return 4.0 * R * R

    def smoothness(self, R: float) -> float | None:
        """Return 4R⁴."""
        _check_norm(R)
        return 4.0 * R**4


@dataclass(frozen=True)
class MetricHinge:
    """Hinge metric loss, (1 + τ Δᵀ M Δ)₊, τ = ±1 (YANG eq. 11; mechanisms.md section 0). G = 4R²; not smooth."""

    name: str = "metric-hinge"
    kind: Literal["auc", "metric"] = "metric"
    parameter: Literal["vector", "matrix", "factor"] = "matrix"
    convex: bool = True

    def value(self, inner: Any, sign: Any) -> torch.Tensor:
        """Return (1 + τ q)₊ for squared distances q, shape of ``inner``."""
        q, tau = _pair_tensors(inner, sign)
        return (1.0 + tau * q).clamp_min(0.0)

    def derivative(self, inner: Any, sign: Any) -> torch.Tensor:
        """Return τ where 1 + τ q > 0, else 0, shape of ``inner``."""
        import torch

        q, tau = _pair_tensors(inner, sign)
        return torch.where(1.0 + tau * q > 0.0, tau, torch.zeros_like(tau))

    def lipschitz(self, R: float) -> float:
        """Return 4R², attained at M = 0."""
        _check_norm(R)
        return 4.0 * R * R

    def smoothness(self, R: float) -> float | None:
        """Return None: the hinge has a kink."""
        _check_norm(R)
        return None


@dataclass(frozen=True)
class Contrastive:
    """Contrastive loss, ½D² for similar and ½(m − D)₊² for dissimilar pairs, D = ‖WΔ‖ (DPP eq. 7).

    ``inner`` is D², as for every metric loss, so the gradient in the factor W is 2 · derivative · (WΔ)Δᵀ, which is
    c (WΔ)Δᵀ of DPP eq. 8 with c = 1, (D − m)/D or 0, and 0 at D = 0 (mechanisms.md 4.1). Not convex in W; without a
    bound on W the gradient is unbounded, so the algorithm must clip it.

    Parameters
    ----------
    margin : float
        m > 0, public (default 1, right for ‖x‖ <= 1 and orthonormal initial rows; mechanisms.md DPP-6).
    """

    margin: float = 1.0
    name: str = "contrastive"
    kind: Literal["auc", "metric"] = "metric"
    parameter: Literal["vector", "matrix", "factor"] = "factor"
    convex: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.margin) and self.margin > 0):
            raise InvalidParameterError(
                f"margin must be a positive finite number; found {self.margin!r}. "
                "Use a public constant such as 1.0, never the mean distance of the private pairs."
            )

    def value(self, inner: Any, sign: Any) -> torch.Tensor:
        """Return the loss of each pair from D² and τ, shape of ``inner``."""
        import torch

        q, tau = _pair_tensors(inner, sign)
        q = q.clamp_min(0.0)
        apart = 0.5 * (self.margin - q.sqrt()).clamp_min(0.0) ** 2
        return torch.where(tau > 0, 0.5 * q, apart)

    def derivative(self, inner: Any, sign: Any) -> torch.Tensor:
        """Return the derivative in D²: ½, (D − m)/(2D) for 0 < D < m, else 0; shape of ``inner``."""
        import torch

        q, tau = _pair_tensors(inner, sign)
        distance = q.clamp_min(0.0).sqrt()
        # Where D is 0 the branch is masked; dividing by 1 there keeps infinities out of the tensor.
        safe = torch.where(distance > 0, distance, torch.ones_like(distance))
        active = (distance > 0) & (distance < self.margin)
        apart = torch.where(active, (distance - self.margin) / (2.0 * safe), torch.zeros_like(q))
        return torch.where(tau > 0, torch.full_like(q, 0.5), apart)

    def lipschitz(self, R: float) -> float:
        """Return infinity: gradients in W grow with W."""
        _check_norm(R)
        return math.inf

    def smoothness(self, R: float) -> float | None:
        """Return None: the gradient is not Lipschitz at D = 0."""
        _check_norm(R)
        return None


_LOSSES: dict[str, type] = {
    "auc-logistic": AUCLogistic,
    "auc-hinge": AUCHinge,
    "metric-logistic": MetricLogistic,
    "metric-hinge": MetricHinge,
    "contrastive": Contrastive,
}


def get_loss(
    name: str | PairLoss, kind: Literal["auc", "metric"] = "auc", **settings: float
) -> PairLoss:
    """Return a loss by name.

    Parameters
    ----------
    name : str or PairLoss
        ``"auc-logistic"``, ``"auc-hinge"``, ``"metric-logistic"``, ``"metric-hinge"``, ``"contrastive"``; ``"logistic"`` and
        ``"hinge"`` are read in the context ``kind``. A loss of this module is returned as it is.
    kind : {"auc", "metric"}, default="auc"
        The context of the short names.
    **settings : float
        Passed to the loss, such as ``margin`` of the contrastive one.

    Raises
    ------
    InvalidParameterError
        If there is no such loss.
    """
    if type(name) in _LOSSES.values():
        return cast(PairLoss, name)
    full = f"{kind}-{name}" if name in ("logistic", "hinge") else name
    if not isinstance(full, str) or full not in _LOSSES:
        raise InvalidParameterError(f"loss must be one of {', '.join(_LOSSES)}; found {name!r}.")
    return _LOSSES[full](**settings)
