"""A private fit decided in advance: what passes between planning (public numbers only), charging and running.

``Plan`` holds no data of its own; ``run`` closes over them. The one place that charges and runs a plan is
``pairwise.estimators.base``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pairwise.accounting.events import Adjacency

if TYPE_CHECKING:
    from dp_accounting import DpEvent

__all__ = ["Plan"]


@dataclass(frozen=True)
class Plan:
    """A private fit decided in advance.

    Attributes
    ----------
    event : DpEvent
        All that the fit will release.
    sensitivity : float
        Sensitivity of what noise is added to, under ``adjacency``.
    run : callable
        Draws and returns the parameter.
    mechanism, proof : str
        For the statement.
    adjacency : Adjacency
    unit : str
        What is replaced or zeroed out.
    epsilon, delta : float or None
        The guarantee where it is not to be computed from ``event`` (published forms, known by construction).
    proved : bool
    unsound : str
        Non-empty: the reason for an ``UnsoundWarning``.
    notes, not_protected, assumptions : tuple of str
    arithmetic : tuple of str, optional
        In which arithmetic it is proved and a note that says why, where ``numerical_claim`` does not tell.
    noise_scale : float or None
        Of contrastive descents: scale of the noise on one sum of clipped gradients, in units of the clip.
    """

    event: DpEvent
    sensitivity: float
    run: Callable[[], Any]
    mechanism: str
    proof: str
    adjacency: Adjacency = Adjacency.REPLACE_ONE
    unit: str = "one record"
    epsilon: float | None = None
    delta: float | None = None
    proved: bool = True
    unsound: str = ""
    notes: tuple[str, ...] = ()
    not_protected: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    arithmetic: tuple[Literal["exact", "real"], str] | None = None
    noise_scale: float | None = None
