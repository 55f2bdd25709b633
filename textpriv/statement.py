"""What is guaranteed, to whom and under which assumptions: one object that travels with every release.

A statement is made by a mechanism, narrowed by a policy, and read by people and programs. It computes no law.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

__all__ = ["PrivacyStatement", "UnsoundWarning"]


class UnsoundWarning(UserWarning):
    """What is being used does not have the guarantee one would expect; the statement says what is true."""


@dataclass(frozen=True)
class PrivacyStatement:
    """The guarantee of a mechanism, or of a release made with it.

    Attributes
    ----------
    mechanism : str
        Which mechanism, with its settings.
    adjacency : str
        Between which inputs the guarantee holds.
    epsilon : float or None
        The constant of the guarantee, in ``unit``; None where there is none.
    delta : float
        The additive term of the guarantee.
    unit : str
        What epsilon is measured in.
    proved : bool
        Whether the guarantee as stated here is proved for what actually runs.
    proof : str
        Where the proof stands.
    assumptions : tuple of str
        What the proof takes for granted about the world.
    not_protected : tuple of str
        What stays visible, or is released as it is.
    figures : mapping of str to float
        Derived numbers: ``worst_word_loss`` (nats), ``reference_distance``, ``reference_loss`` (nats at that
        distance), ``local_dp_epsilon``, ``numerical_slack`` (nats a word that rounding may add), and others.
    notes : tuple of str
        Anything else a reader must know.
    """

    mechanism: str
    adjacency: str
    epsilon: float | None
    delta: float
    unit: str
    proved: bool
    proof: str = ""
    assumptions: tuple[str, ...] = ()
    not_protected: tuple[str, ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def extended(
        self,
        *,
        assumptions: tuple[str, ...] = (),
        not_protected: tuple[str, ...] = (),
        notes: tuple[str, ...] = (),
        proved: bool | None = None,
    ) -> PrivacyStatement:
        """Return a copy with further assumptions, exposures and notes (each listed once)."""
        return replace(
            self,
            assumptions=tuple(dict.fromkeys(self.assumptions + assumptions)),
            not_protected=tuple(dict.fromkeys(self.not_protected + not_protected)),
            notes=tuple(dict.fromkeys(self.notes + notes)),
            proved=self.proved if proved is None else proved,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the statement as JSON types; a number that is not finite becomes None."""
        content = asdict(self)
        content["figures"] = dict(self.figures)
        cleaned = _plain(content)
        assert isinstance(cleaned, dict)
        return cleaned

    def to_json(self) -> str:
        """Return the statement as one JSON object."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    def paragraph(self) -> str:
        """Return the statement in plain words, for whoever answers for the data."""
        parts = []
        if not self.proved:
            parts.append("NO PROVED GUARANTEE.")
        if self.epsilon is None:
            parts.append(f"{self.mechanism} gives no guarantee that can be stated as a number.")
        else:
            parts.append(
                f"Every protected word was drawn by {self.mechanism}. Whoever sees a released word can tell two "
                f"possible originals apart by odds of at most exp({self.epsilon:g} x d), where d is the distance "
                f"between the originals ({self.unit})."
            )
        reference = self.figures.get("reference_distance")
        loss = self.figures.get("reference_loss")
        worst = self.figures.get("worst_word_loss")
        if reference is not None and loss is not None:
            parts.append(
                f"For a word and its 10th nearest neighbour (median distance {reference:.3g}) the odds are at most "
                f"{_odds(loss)}."
            )
        if worst is not None:
            parts.append(f"For the two most different words they are at most {_odds(worst)}.")
        if self.epsilon is not None:
            parts.append(
                "Between two documents of equal length the exponents of all changed words add up, and so do those of "
                "all documents of one person."
            )
        if self.not_protected:
            parts.append("Not protected: " + "; ".join(self.not_protected) + ".")
        if self.assumptions:
            parts.append("This assumes: " + "; ".join(self.assumptions) + ".")
        parts.extend(note if note.endswith(".") else note + "." for note in self.notes)
        return " ".join(parts)

    def __str__(self) -> str:
        return self.paragraph()


def _odds(nats: float) -> str:
    """Write exp(nats) : 1 so that a person can read it."""
    if nats < math.log(1000):
        return f"{math.exp(nats):.3g} to 1"
    if nats < math.log(1e6):
        return f"{math.exp(nats):,.0f} to 1"
    return f"10^{nats / math.log(10):.0f} to 1"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value
