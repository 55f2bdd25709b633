"""The statement of a private release: what it guarantees, to whom and under which assumptions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

from textpriv.statement import PrivacyStatement as _Statement
from textpriv.statement import UnsoundWarning as UnsoundWarning


@dataclass(frozen=True)
class PrivacyStatement(_Statement):
    """The guarantee of a release: a statement of ``textpriv`` for data sets that differ by ``unit``.

    Attributes
    ----------
    mechanism : str
        Which algorithm and noise, with the settings that matter to the guarantee.
    adjacency : str
        Between which data sets the guarantee holds: "replace-one", "zero-out" or "add/remove".
    epsilon : float or None
        Natural-log bound; ``inf`` for a non-private fit.
    delta : float
        What is added to e^epsilon times the probability of any set of outcomes under the other data set, in [0, 1]. Not
        the probability that the odds exceed e^epsilon, which is larger.
    unit : str
        Whose change is covered, such as ``"one record"`` or ``"any 3 pairs"``.
    proved : bool
        Whether the guarantee as stated here is proved for what actually runs.
    proof : str
        Paper, theorem, or module whose head holds the proof.
    assumptions, not_protected, notes : tuple of str
        What the proof takes for granted, what an observer may learn exactly, and anything else a reader must know.
    arithmetic : {"real", "exact"}, default="real"
        What a proof covers. ``"exact"``: the bits that were released. ``"real"``: the same formulas in real arithmetic;
        what rounding in floating point may reveal is not covered.
    """

    arithmetic: Literal["real", "exact"] = "real"

    @property
    def verdict(self) -> str:
        """Whether the guarantee is proved and in which arithmetic, as cards and lists print it."""
        if not self.proved:
            return "not proved"
        noisy = self.epsilon is not None and math.isfinite(self.epsilon)
        return "proved in real arithmetic" if noisy and self.arithmetic == "real" else "proved"

    def to_dict(self) -> dict[str, Any]:
        """Return the statement as JSON types; an infinite epsilon becomes the string ``"inf"``."""
        content = super().to_dict()
        if self.epsilon is not None and math.isinf(self.epsilon):
            content["epsilon"] = "inf"
        return content

    def paragraph(self) -> str:
        """Return the statement in plain words, for whoever answers for the data."""
        parts = []
        if self.epsilon is None:
            parts.append(f"{self.mechanism} gives no guarantee that can be stated as a number.")
        elif math.isinf(self.epsilon):
            parts.append(f"{self.mechanism} is not private: no noise was added.")
        else:
            plus = f", plus {self.delta:.3g}" if self.delta > 0 else ""
            parts.append(
                f"{self.mechanism}: of two data sets that differ by {self.unit} ({self.adjacency}), any set of outcomes is "
                f"at most exp({self.epsilon:g}) times as likely under the one as under the other{plus}."
            )
            if self.delta > 0:
                # P(loss > epsilon) - e^epsilon Q(loss > epsilon) is at most delta; P(loss > epsilon) by itself is larger.
                parts.append(
                    f"The {self.delta:.3g} is added to a probability; the chance of an outcome whose odds exceed "
                    f"exp({self.epsilon:g}) may be many times that."
                )
        if not self.proved:
            parts.append("This is NOT PROVED for what ran.")
        elif self.verdict != "proved":
            parts.append(
                "Proved in real arithmetic only: what rounding in floating point may reveal is not covered."
            )
        if self.proved and self.proof:
            parts.append(f"Proof: {self.proof}.")
        if self.assumptions:
            parts.append("This assumes: " + "; ".join(self.assumptions) + ".")
        if self.not_protected:
            parts.append("Not protected: " + "; ".join(self.not_protected) + ".")
        parts.extend(note if note.endswith(".") else note + "." for note in self.notes)
        return " ".join(parts)

    def __str__(self) -> str:
        return self.paragraph()

    def __repr__(self) -> str:
        claim = "none" if self.epsilon is None else f"{self.epsilon:g}"
        return (
            f"PrivacyStatement({self.mechanism}: epsilon {claim}, delta {self.delta:.3g} for {self.unit} "
            f"({self.adjacency}), {self.verdict if self.proved else 'NOT PROVED'})"
        )

    def _repr_html_(self) -> str:
        """Return the statement as a card for a notebook."""
        rows = (
            ("mechanism", self.mechanism),
            ("epsilon", "none" if self.epsilon is None else f"{self.epsilon:g}"),
            ("delta", f"{self.delta:.3g}"),
            ("covers", f"{self.unit} ({self.adjacency})"),
            ("proof", self.proof),
            ("assumed", "; ".join(self.assumptions)),
            ("not protected", "; ".join(self.not_protected)),
            ("notes", "; ".join(self.notes)),
        )
        cells = "".join(
            f'<tr><th scope="row" style="text-align:left;vertical-align:top">{name}</th>'
            f'<td style="text-align:left">{escape(value)}</td></tr>'
            for name, value in rows
            if value
        )
        mark = "✓" if self.proved else "✗"
        return f"<p><strong>Privacy statement</strong> {mark} {escape(self.verdict)}</p><table>{cells}</table>"
