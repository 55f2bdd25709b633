"""Settings of each algorithm, one frozen dataclass each, as users pass them.

What all algorithms of an estimator share (budget, records' norm, classes) are parameters of the estimator. The name of an
algorithm, such as ``"gradient"``, means its options at their defaults.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from pairwise.errors import InvalidParameterError, check_scale, check_share, check_whole


def _share(default: float | None = None) -> Any:
    return field(default=default, metadata={"check": check_share})


def _scale(default: float | None = None) -> Any:
    return field(default=default, metadata={"check": check_scale})


def _whole() -> Any:
    return field(default=None, metadata={"check": check_whole})


@dataclass(frozen=True)
class Algorithm:
    """One algorithm with its settings, immutable."""

    name: ClassVar[str]

    def check(self) -> None:
        """Refuse numbers out of their range; called by the fit, as scikit-learn has it."""
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None and "check" in each.metadata:
                each.metadata["check"](each.name, value)


@dataclass(frozen=True)
class Pointwise(Algorithm):
    """Noisy gradient descent on a square loss of single records, centred privately: ``"pointwise"``.

    Parameters
    ----------
    centre_share : float, default=0.1
        Share of μ² with which the mean record and the mean distance to it are released first. A ranking sees differences
        only, so records are then taken around that centre and clipped to 0.7 times that distance. 0 clips to ``data_norm``
        around the origin.
    scale_share : float, optional
        Share of μ² with which the second moment around the centre is released, by which features are then scaled and made
        uncorrelated. Default from public numbers (``auto.default_scale_share``); 0 leaves features as they are.
    radius : float, optional
        Of the ball that the parameter is kept in, in the units of the records where ``centre_share`` is 0. Otherwise
        ``data_norm`` is taken for the scale, which is not known yet. Default from public numbers.
    steps : int, optional
        Default from public numbers.
    """

    name = "pointwise"
    centre_share: float = _share(0.1)
    scale_share: float | None = _share()
    radius: float | None = _scale()
    steps: int | None = _whole()


@dataclass(frozen=True)
class Gradient(Algorithm):
    """Noisy gradient descent on pairs: ``"gradient"``.

    Parameters
    ----------
    loss : {"logistic", "hinge"}, default="logistic"
    centre_share, radius, steps
        As in ``Pointwise``.
    """

    name = "gradient"
    loss: str = "logistic"
    centre_share: float = _share(0.1)
    radius: float | None = _scale()
    steps: int | None = _whole()


@dataclass(frozen=True)
class Statistics(Algorithm):
    """One Gaussian release of class moments, centred privately, and a ranking computed from it: ``"statistics"``.

    Parameters
    ----------
    centre_share : float, default=0.1
        As in ``Pointwise``.
    """

    name = "statistics"
    centre_share: float = _share(0.1)


@dataclass(frozen=True)
class OnPair(Algorithm):
    """Online GIGA with the logistic loss, also by ``partial_fit`` (HUAI algorithm 1): ``"onpairstrc"``.

    Parameters
    ----------
    alpha : float, default=1.0
        Regulariser.
    radius : float, optional
        Of the ball that the parameter is kept in; default from public numbers.
    horizon : int, optional
        Largest number of records that ``partial_fit`` will ever see; required there.
    """

    name = "onpairstrc"
    alpha: float = _scale(1.0)
    radius: float | None = _scale()
    horizon: int | None = _whole()


@dataclass(frozen=True)
class OffPair(Algorithm):
    """GIGA with the logistic loss and output perturbation (HUAI algorithm 3): ``"offpairstrc"``.

    Parameters
    ----------
    alpha, radius
        As in ``OnPair``.
    """

    name = "offpairstrc"
    alpha: float = _scale(1.0)
    radius: float | None = _scale()


@dataclass(frozen=True)
class Ftrl(Algorithm):
    """Private follow-the-regularised-leader, best for streams of a thousand records and more: ``"ftrl"``.

    Parameters
    ----------
    loss : {"logistic", "hinge"}, default="logistic"
    radius, horizon
        As in ``OnPair``.
    """

    name = "ftrl"
    loss: str = "logistic"
    radius: float | None = _scale()
    horizon: int | None = _whole()


@dataclass(frozen=True)
class SGDOutput(Algorithm):
    """Blocked SGD with output perturbation (YANG algorithm 2): ``"sgd-output"``.

    Parameters
    ----------
    loss : {"logistic", "hinge"}, default="logistic"
    radius : float, optional
        As in ``OnPair``.
    steps : int, optional
        T; default from public numbers.
    """

    name = "sgd-output"
    loss: str = "logistic"
    radius: float | None = _scale()
    steps: int | None = _whole()


@dataclass(frozen=True)
class Edges(Algorithm):
    """Contrastive descent on a list of pairs, accounted for groups of ``kappa`` pairs.

    Parameters
    ----------
    kappa : int, optional
        How many pairs may change together, a declared public bound.
    adjacency : {"zero-out", "replace-one"}, default="zero-out"
        Whether the kappa pairs are removed or changed in place, at twice the noise.
    """

    name = "edges"
    kappa: int | None = _whole()
    adjacency: str = "zero-out"

    def check(self) -> None:
        """Refuse settings out of their range."""
        super().check()
        if self.adjacency not in ("zero-out", "replace-one"):
            raise InvalidParameterError(
                f"adjacency must be 'zero-out' or 'replace-one'; found {self.adjacency!r}."
            )
