"""What is guaranteed, to whom and under which assumptions: one object that travels with every release.

A statement is made by a mechanism, narrowed by a policy, and read by people and programs. It computes no law.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import Any

from textpriv.arguments import real, shown, whole
from textpriv.bounds import at_most, factor_in_words, odds_in_words
from textpriv.composition import Together, together
from textpriv.errors import TextprivError
from textpriv.html_card import card

__all__ = ["PrivacyStatement", "UnsoundWarning", "odds_in_words"]


_SHOWN = 20  # columns of a statement
DOCUMENT_WORDS, DOCUMENT_DELTA = 100, 1e-6  # of which the line about documents speaks


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
        Derived numbers: ``worst_word_loss`` (nats); ``unknown_word_loss`` (nats between a word outside the vocabulary
        and any word of it); ``reference_distance`` and ``reference_distance_90``, within which
        half and nine tenths of all running words have their 10th nearest word with another vector;
        ``reference_loss`` and ``reference_loss_90`` (nats at those distances); ``local_dp_epsilon``;
        ``numerical_slack`` (nats a word that rounding may add); ``bounded_range`` and ``largest_range`` (the nats within
        which the loss between two words moves, per unit of their distance and at most); and others.
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

    def with_columns(self, columns: Collection[str]) -> PrivacyStatement:
        """Return a statement that names columns which pass through, beside the texts, as not protected.

        Parameters
        ----------
        columns : collection of str
            Their names, of which the first 20 are printed.
        """
        if not columns:
            return self
        names = ", ".join(islice(columns, _SHOWN)) + (", ..." if len(columns) > _SHOWN else "")
        return self.extended(not_protected=(f"other columns, released as written: {names}",))

    # What the guarantee of one word means for documents and people (mechanisms.md TEM-12). Every word is drawn by itself,
    # so losses add up. Like epsilon, these figures are proved only where ``proved`` is true.

    @property
    def local_dp_epsilon(self) -> float:
        """The level of pure local differential privacy of one word: nats against any other word, rounding included.

        Infinite where the statement has no bound.
        """
        return self.loss_at(math.inf)

    def loss_at(self, distance: float) -> float:
        """Largest loss, in nats, between two words at a distance: odds of at most ``exp(loss)`` to 1.

        Parameters
        ----------
        distance : float
            In the unit of the statement; 0 or more. Infinite for any two words.

        Returns
        -------
        float
            ``epsilon * distance``, but no more than the worst loss between any two words, which truncation caps; and what
            rounding may add (``numerical_slack``). Words at distance 0 share one law: 0. Infinite where the statement
            has no epsilon.

        Raises
        ------
        TextprivError
            For what is no number from 0 up.
        """
        distance = _distance(distance)
        if self.epsilon is None:
            return math.inf
        if distance == 0:
            return 0.0
        caps = [
            float(self.figures[name])
            for name in ("loss_cap", "worst_word_loss")
            if self.figures.get(name) is not None
        ]
        slack = float(self.figures.get("numerical_slack") or 0.0)
        return min([self.epsilon * distance, *caps]) + slack

    def range_at(self, distance: float) -> float:
        """Within how many nats the loss between two words at a distance moves, over all outputs (mechanisms.md 10.2).

        At most twice the largest loss; less for a law that states a bounded range. A range of eta is eta^2 / 8-zCDP.

        Parameters
        ----------
        distance : float
            As for :meth:`loss_at`.
        """
        distance = _distance(distance)
        widths = [2 * self.loss_at(distance)]
        slack = 2 * float(self.figures.get("numerical_slack") or 0.0)
        wide, widest = (self.figures.get(name) for name in ("bounded_range", "largest_range"))
        if wide is not None and distance > 0:
            widths.append(float(wide) * distance + slack)
        if widest is not None and distance > 0:
            widths.append(float(widest) + slack)
        return min(widths)

    def documents_within(
        self, words: int, distance: float = math.inf, delta: float = DOCUMENT_DELTA
    ) -> Together:
        """What all documents that differ in so many words, each within a distance, lose at most.

        Parameters
        ----------
        words : int
            Words that differ; the documents are alike in all else.
        distance : float
            As for :meth:`loss_at`; between an unknown word and any other infinite.
        delta : float
            In [0, 1).

        Returns
        -------
        Together
            The least of the sum, zCDP by bounded range (mechanisms.md 10.2) and optimal composition. Words of several
            documents count together.

        Raises
        ------
        TextprivError
            For numbers without meaning.
        """
        words = whole("words", words, 0)
        if not 0 <= real(delta) < 1:
            raise TextprivError(
                f"delta is a probability from 0 up and below 1; got {shown(delta)}."
            )
        return together(words, self.loss_at(distance), self.range_at(distance), real(delta))

    def document_loss(self, tokens: int) -> float:
        """Largest loss, in nats, between any two documents of a number of drawn tokens.

        Parameters
        ----------
        tokens : int
            Tokens that are drawn. Documents with different numbers of tokens, or that differ in tokens which the policy
            does not draw, are told apart for sure: no figure covers them.

        Returns
        -------
        float
            ``tokens * local_dp_epsilon``. Two documents that differ in m words at distances d_1 ... d_m lose only the sum
            of ``loss_at(d_j)``.

        Raises
        ------
        TextprivError
            If the number is not a whole number from 0 up.
        """
        tokens = whole("tokens", tokens, 0)
        return tokens * self.local_dp_epsilon if tokens else 0.0

    def author_loss(self, tokens: Iterable[int]) -> float:
        """Largest loss, in nats, over all released documents of one person.

        Parameters
        ----------
        tokens : iterable of int
            The number of drawn tokens of each document. A document released twice with independent draws counts twice.

        Returns
        -------
        float
            The sum of :meth:`document_loss`.
        """
        return sum((self.document_loss(each) for each in tokens), 0.0)

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
            slack = self.figures.get("numerical_slack")
            added = f"; rounding adds at most {at_most(slack, 2)} to the exponent" if slack else ""
            parts.append(
                f"Every protected word was drawn by {self.mechanism}. Whoever sees a released word can tell two "
                f"possible originals apart by odds of at most exp({at_most(self.epsilon)} x d), where d is the distance "
                f"between the originals ({self.unit}{added})."
            )
        if self.typical_odds:
            parts.append(self.typical_odds)
        if self.epsilon is not None and "worst_word_loss" in self.figures:
            parts.append(
                f"For the two most different words they are at most {odds_in_words(self.local_dp_epsilon)}."
            )
        if self.epsilon is not None:
            parts.append(
                "Between two documents of equal length the exponents of all changed words add up, and so do those of "
                "all documents of one person."
            )
        if self.document_line:
            parts.append(self.document_line)
        if self.not_protected:
            parts.append("Not protected: " + "; ".join(self.not_protected) + ".")
        if self.assumptions:
            parts.append("This assumes: " + "; ".join(self.assumptions) + ".")
        parts.extend(note if note.endswith(".") else note + "." for note in self.notes)
        return " ".join(parts)

    @property
    def document_line(self) -> str:
        """The sentence about documents that differ in 100 words; empty where there are no such figures."""
        distance = self.figures.get("reference_distance")
        if distance is None or self.epsilon is None or not 0 < distance < math.inf:
            return ""
        # Of the distance as it is printed: farther than the figure, so more is lost within it.
        reach = at_most(distance, 3)
        found = self.documents_within(DOCUMENT_WORDS, float(reach))
        text = (
            f"Documents that differ in {DOCUMENT_WORDS} words, each by a distance of up to {reach}, are told "
            f"apart by odds of at most {odds_in_words(found.total)}, the product over these words"
        )
        factor = factor_in_words(found.epsilon)
        if found.by != "sum" and factor != factor_in_words(found.total):
            how = "optimal composition" if found.by == "composition" else "bounded range, as zCDP"
            text += (
                f"; and any set of outcomes is at most {factor} times as likely for one of them "
                f"as for the other, plus {at_most(found.delta)} ({how})"
            )
        if found.epsilon > -math.log(DOCUMENT_DELTA):
            text += (
                ". A bound so large protects nothing: take it that such documents can be told apart"
            )
        return text + "."

    @property
    def typical_odds(self) -> str:
        """The sentence about running words and their neighbours; empty where there are no such figures."""
        half, most = (self._at_reference(name) for name in ("", "_90"))
        if half is None or most is None:
            return ""
        return (
            "Between a word and its 10th nearest word with another vector the odds are at most "
            f"{half[0]} for half of all running words (a distance of up to {half[1]}), and at most {most[0]} for "
            f"nine tenths of them (up to {most[1]}); running words are counted by the public counts of the index, or "
            "by rank where it has none."
        )

    def _at_reference(self, which: str) -> tuple[str, str] | None:
        """Odds and distance of one of the two reference figures, rounded up; None where there are none."""
        distance = self.figures.get(f"reference_distance{which}")
        loss = self.figures.get(f"reference_loss{which}")
        if distance is None or loss is None:
            return None
        return odds_in_words(loss), at_most(distance, 3)

    @property
    def _claim(self) -> str:
        """The constant with its unit, rounded up."""
        return "none" if self.epsilon is None else f"{at_most(self.epsilon)} {self.unit}"

    def __str__(self) -> str:
        return self.paragraph()

    def __repr__(self) -> str:
        return (
            f"PrivacyStatement({self.mechanism}: epsilon {self._claim}, delta {at_most(self.delta)}, "
            f"{'proved' if self.proved else 'NOT PROVED'}, {len(self.not_protected)} not protected)"
        )

    def _repr_html_(self) -> str:
        figures = self.figures
        rows = [
            ("mechanism", self.mechanism),
            ("epsilon", self._claim),
            ("delta", at_most(self.delta)),
            ("between", self.adjacency),
        ]
        for which, share in (("", "half"), ("_90", "nine tenths")):
            found = self._at_reference(which)
            if found is not None:
                title = f"odds, 10th neighbour, {share} of running words"
                rows.append((title, f"{found[0]}, up to a distance of {found[1]}"))
        if "worst_word_loss" in figures:
            rows.append(("odds, worst pair", odds_in_words(self.local_dp_epsilon)))
        if self.document_line:
            rows.append(("documents", self.document_line))
        rows.append(("proof", self.proof))
        return card(
            "Privacy statement",
            rows,
            verdict="proved" if self.proved else "not proved",
            good=self.proved,
            lists=[
                ("Not protected", self.not_protected),
                ("Assumed", self.assumptions),
                ("Notes", self.notes),
            ],
        )


def _distance(given: float) -> float:
    """A distance as a float; refuse what is none."""
    if not real(given) >= 0:
        raise TextprivError(f"a distance is a number from 0 up; got {shown(given)}.")
    return real(given)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value
