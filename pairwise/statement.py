"""What a private release guarantees, to whom and under which assumptions.

One frozen object that every fitted estimator carries as ``statement_``. It computes nothing: the numbers come from
``pairwise.accounting`` and the proofs from the module of the algorithm.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from decimal import ROUND_CEILING, Context, Decimal
from html import escape
from typing import Any, Literal

__all__ = ["PrivacyStatement", "UnsoundWarning"]


class UnsoundWarning(UserWarning):
    """What runs does not have the guarantee its name suggests; the statement says what is true."""


@dataclass(frozen=True)
class PrivacyStatement:
    """The guarantee of a release.

    Parameters
    ----------
    mechanism : str
        Which algorithm and noise, with the settings that matter to the guarantee.
    adjacency : str
        Between which data sets the guarantee holds ("replace-one", "zero-out", "add/remove"); an
        ``Adjacency`` member is a string and may be passed as it is.
    epsilon : float or None
        Natural-log bound; ``None`` where no finite bound is true, ``inf`` for a non-private fit.
    delta : float
        What is added to e^epsilon times the probability of any set of outcomes under the other data set, in [0, 1]. Not
        the probability that the odds exceed e^epsilon, which is larger.
    unit : str
        Whose change is covered, such as ``"one record"`` or ``"any 3 pairs"``.
    proved : bool
        Whether the guarantee as stated here is proved for what actually runs.
    proof : str
        Where the proof stands: paper section, equation, or errata id.
    assumptions : tuple of str
        What the proof takes for granted (declared public facts, secret randomness).
    not_protected : tuple of str
        What an observer may learn exactly.
    notes : tuple of str
        Anything else a reader must know.
    arithmetic : {"real", "exact"}, default="real"
        What a proof covers. ``"exact"``: the bits that were released. ``"real"``: the same formulas in real arithmetic;
        what rounding in floating point may reveal is not covered.
    """

    mechanism: str
    adjacency: str
    epsilon: float | None
    delta: float
    unit: str
    proved: bool
    proof: str
    assumptions: tuple[str, ...] = ()
    not_protected: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    arithmetic: Literal["real", "exact"] = "real"

    @property
    def verdict(self) -> str:
        """Whether the guarantee is proved and in which arithmetic, as cards and lists print it."""
        if not self.proved:
            return "not proved"
        noisy = self.epsilon is not None and math.isfinite(self.epsilon)
        return "proved in real arithmetic" if noisy and self.arithmetic == "real" else "proved"

    def extended(
        self,
        *,
        assumptions: tuple[str, ...] = (),
        not_protected: tuple[str, ...] = (),
        notes: tuple[str, ...] = (),
        proved: bool | None = None,
    ) -> PrivacyStatement:
        """Return a copy with further assumptions, exposures and notes, each listed once."""
        return replace(
            self,
            assumptions=tuple(dict.fromkeys(self.assumptions + tuple(assumptions))),
            not_protected=tuple(dict.fromkeys(self.not_protected + tuple(not_protected))),
            notes=tuple(dict.fromkeys(self.notes + tuple(notes))),
            proved=self.proved if proved is None else proved,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the statement as JSON types; an infinite epsilon becomes the string ``"inf"``."""
        content = asdict(self)
        content["adjacency"] = str(self.adjacency)
        for name in ("assumptions", "not_protected", "notes"):
            content[name] = list(content[name])
        if self.epsilon is not None and not math.isfinite(self.epsilon):
            content["epsilon"] = str(float(self.epsilon))
        return content

    def to_json(self) -> str:
        """Return the statement as one JSON object."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)

    def paragraph(self) -> str:
        """Return the statement in plain words, for whoever answers for the data."""
        parts = []
        if self.epsilon is None:
            parts.append(f"{self.mechanism} gives no guarantee that can be stated as a number.")
        elif not math.isfinite(self.epsilon):
            parts.append(f"{self.mechanism} is not private: no noise was added.")
        else:
            factor = f"exp({_at_most(self.epsilon, 6)})"
            if self.epsilon < 7:
                factor += f" = {_at_most(math.exp(self.epsilon), 3)}"
            parts.append(
                f"{self.mechanism}: of two data sets that differ by {self.unit} ({self.adjacency}), any set of outcomes is "
                f"at most {factor} times as likely under the one as under the other"
                + (f", plus {_at_most(self.delta, 3)}." if self.delta > 0 else ".")
            )
            if self.delta > 0:
                # P(loss > epsilon) - e^epsilon Q(loss > epsilon) is at most delta; P(loss > epsilon) by itself is larger.
                parts.append(
                    f"The {_at_most(self.delta, 3)} is added to a probability; the chance of an outcome whose odds exceed "
                    f"exp({_at_most(self.epsilon, 6)}) may be many times that."
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
        claim = "none" if self.epsilon is None else _at_most(self.epsilon, 6)
        return (
            f"PrivacyStatement({self.mechanism}: epsilon {claim}, delta {_at_most(self.delta, 3)} for {self.unit} "
            f"({self.adjacency}), {self.verdict if self.proved else 'NOT PROVED'})"
        )

    def _repr_html_(self) -> str:
        """Return the statement as a card for a notebook, whose colours it takes."""
        colour, mark = ("#2e7d32", "✓") if self.proved else ("#c62828", "✗")
        rows = (
            ("mechanism", self.mechanism),
            ("epsilon", "none" if self.epsilon is None else _at_most(self.epsilon, 6)),
            ("delta", _at_most(self.delta, 3)),
            ("covers", f"{self.unit} ({self.adjacency})"),
            ("proof", self.proof),
            ("assumed", "; ".join(self.assumptions)),
            ("not protected", "; ".join(self.not_protected)),
            ("notes", "; ".join(self.notes)),
        )
        cells = "".join(
            '<tr><th scope="row" style="text-align:left;font-weight:normal;opacity:.75;vertical-align:top;'
            f'white-space:nowrap;padding:.1em 1.2em .1em 0">{name}</th>'
            f'<td style="text-align:left;overflow-wrap:anywhere">{escape(str(value))}</td></tr>'
            for name, value in rows
            if value
        )
        return (
            '<div style="border:1px solid rgba(128,128,128,.4);border-radius:.5em;padding:.7em 1em;max-width:56em">'
            '<p style="margin:0 0 .4em"><strong>Privacy statement</strong>'
            f'<span style="margin-left:.7em;padding:.1em .6em;border-radius:1em;color:#fff;background:{colour}">'
            f'{mark} {self.verdict}</span></p><table style="border-collapse:collapse">{cells}</table></div>'
        )


def _at_most(value: float, digits: int) -> str:
    """Write a bound rounded up to some significant digits, so that what is printed is a bound as well."""
    if not math.isfinite(value) or value == 0:
        return format(value, "g")
    # The shortest decimal that reads back as the value: 0.1 stays 0.1, although the float lies a little above a tenth.
    shortest = Decimal(repr(float(value)))
    return format(float(Context(prec=digits, rounding=ROUND_CEILING).plus(shortest)), f".{digits}g")
