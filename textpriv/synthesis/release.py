"""The one noisy release of sums: planned and charged before noise is drawn, then all that is kept of the private texts."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from pairwise.accounting.gaussian import release_mu
from pairwise.accounting.parameters import check_privacy_parameters
from pairwise.noise.randomness import Randomness
from pairwise.noise.release import GaussianPlan, plan_gaussian
from textpriv.errors import TextprivError
from textpriv.files import atomic_write
from textpriv.statement import PrivacyStatement, at_most, epsilon_of_zcdp, factor_in_words
from textpriv.synthesis.features import (
    CLASS_PART,
    EDGES,
    LENGTH_PART,
    MEAN_PART,
    ONE_PART,
    PRODUCTS_PART,
    STEP,
    Label,
    Space,
    Topics,
)
from textpriv.synthesis.sums import MOST_WORDS, Sums, WordCounts

if TYPE_CHECKING:
    from textpriv.ledger import Ledger
    from textpriv.synthesis.synthesizer import PublicSide

_FORMAT = 2
_MOMENTS_SHARE = 0.02  # of the cost (zCDP) of all sums that number, mean vectors and products take
# Expected records of a class for each unit of noise, from which a class has four cells.
_ENOUGH = 8_000
_BITS = 2
_DIRECTION = 1 << 10  # whole numbers in a direction of length one
_NAMES = ("words", "rows", "lengths")

ADJACENCY = "add/remove"


class Measurement:
    """A measurement of private texts: its cost, its noise, and the account that is charged before any of it is drawn.

    Parameters
    ----------
    space : Space
        Without topics.
    epsilon, delta : float
        For one record, or all records of one author, more or less. An infinite epsilon adds no noise.
    budget : PrivacyBudget, optional
        Is charged once, when the first noise is drawn.
    ledger : Ledger, optional
        Likewise charged for every author, what a replacement of all their records costs.
    new_words : float
        Share of the cost (zCDP) that finds new words; 0 for none.
    """

    def __init__(
        self,
        space: Space,
        epsilon: float,
        delta: float,
        budget: Any = None,
        ledger: Ledger | None = None,
        new_words: float = 0.0,
    ) -> None:
        if epsilon == 0:
            raise TextprivError(
                "epsilon must be above 0: it is the protection of one record. 1 is strong, 4 is weak."
            )
        check_privacy_parameters(epsilon, delta)
        if new_words and not 0.001 <= new_words < 1:
            raise TextprivError(
                "new words take a share of the budget, from 0.001 up and below 1. A tenth (0.1) is usual."
            )
        if new_words and (budget is not None or ledger is not None):
            raise TextprivError(
                "budgets and ledgers do not count the delta that new words need. Leave out either."
            )
        self.space, self.epsilon, self.delta = space, float(epsilon), float(delta)
        if ledger is not None and space.authors is None:
            raise TextprivError("a ledger counts authors. Name the author of every record.")
        self.new_words = float(new_words)
        self._found: tuple[str, ...] = ()
        self.mu = noise_mu(self.epsilon, self.delta, self.new_words)
        self._budget, self._charged, self._done = budget, False, False
        self._ledger, self._authors = ledger, frozenset[bytes]()
        self._randomness = Randomness()

    def _plan(self, dimension: int, share: float) -> GaussianPlan:
        sensitivity = float(self.space.authors or 1)
        share *= 1 - self.new_words
        return plan_gaussian(sensitivity, self.mu * math.sqrt(share), dimension)

    @property
    def author_rho(self) -> float:
        """What an author loses in zCDP if other records replace all of theirs: twice the cost of one author more."""
        return 2 * sum(plan.rho for plan in self._plans())

    def _plans(self) -> tuple[GaussianPlan, GaussianPlan]:
        return self._plan(1, _MOMENTS_SHARE), self._plan(1, 1 - _MOMENTS_SHARE)

    def _charge(self, sums: Sums) -> None:
        if self._charged:
            if self._ledger is not None and not sums.authors <= self._authors:
                raise TextprivError(
                    "the records changed while they were read. Measure them again, which costs as much again."
                )
            return
        if self._ledger is not None:
            self._authors = frozenset(sums.authors)
            self._ledger.charge_authors(self._authors, self.author_rho)
        if self._budget is not None:
            from pairwise.accounting.budget import charge_to
            from pairwise.accounting.events import compose

            charge_to(
                self._budget,
                compose(plan.event() for plan in self._plans()),
                label="synthesis",
                adjacency=ADJACENCY,
                unit=unit_of(self.space.authors),
            )
        self._charged = True

    def measure(
        self,
        side: PublicSide,
        add: Callable[[Sums | WordCounts, PublicSide], None],
        reads_again: bool = True,
    ) -> NoisySums:
        """Return the noisy sums of records.

        ``add`` adds all records to sums or counts, tokenized by the side that it is given: once for new words, once for the
        sums, and once more for the sums by topics, which needs records that can be read again.
        """
        space = self.space
        if self.new_words:
            counts = WordCounts(space)
            add(counts, side)
            side = side.with_words(self.words(counts))
            space = side.space(space.classes, space.authors)
        sums = Sums(space)
        add(sums, side)
        space = self.topics(sums) if reads_again else space
        if space is not sums.space:
            sums = Sums(space, sums.key)
            add(sums, side)
        return self.noisy(sums)

    def words(self, counts: WordCounts) -> tuple[str, ...]:
        """Return the words whose noisy weight is above the threshold."""
        weights = counts.total()
        plan = _plan_of_words(self.mu, self.new_words)
        values = np.array([*weights.values()], np.float64) / STEP
        noisy = replace(plan, dimension=len(weights)).release(values, self._randomness)
        is_above = noisy > threshold(plan, threshold_delta(self.delta, self.new_words))
        self._found = tuple(compress(weights, is_above))
        return self._found

    def topics(self, sums: Sums) -> Space:
        """Return the space of the sums with topics, or as it is where records are too few for the noise.

        In the first case the records are read a second time, into sums over the new space.
        """
        self._charge(sums)
        plan = self._plan(self.space.moments, _MOMENTS_SHARE)
        noisy = plan.release(sums.moments() / STEP, self._randomness) * STEP
        size = self.space.vectors.shape[1]
        count = noisy[0] / ONE_PART
        # Without noise as if there were little of it.
        enough = _ENOUGH * max(self._plan(1, 1.0).sigma, 1.0)
        if count < enough * len(self.space.classes):
            return sums.space
        mean = noisy[1 : size + 1] / MEAN_PART / count
        one, two = np.triu_indices(size)
        products = np.zeros((size, size))
        products[one, two] = noisy[size + 1 :] / PRODUCTS_PART / count
        products[one, two] /= np.where(one == two, 1.0, math.sqrt(2.0))
        products = products + np.triu(products, 1).T - np.outer(mean, mean)
        _, directions = np.linalg.eigh(products)
        leading = np.rint(directions[:, ::-1][:, :_BITS].T * _DIRECTION).astype(np.int64)
        return replace(sums.space, topics=Topics(np.rint(mean * STEP).astype(np.int64), leading))

    def noisy(self, sums: Sums) -> NoisySums:
        """Return the sums with their noise; once, since a second release of the same texts costs as much again."""
        if self._done:
            raise TextprivError(
                "this measurement is made. Start another, which costs as much again."
            )
        self._done = True
        self._charge(sums)
        space = sums.space
        plan = self._plan(space.dimension, 1 - _MOMENTS_SHARE)
        noisy = plan.release(sums.total() / STEP, self._randomness)
        words, rows, lengths = np.split(noisy, np.cumsum([space.rows * space.words, space.rows]))
        return NoisySums(
            words=words.reshape(space.rows, space.words).astype(np.float32),
            rows=rows * (STEP / CLASS_PART),
            lengths=lengths * (STEP / LENGTH_PART),
            classes=space.classes,
            sigma=plan.sigma,
            epsilon=self.epsilon,
            delta=self.delta,
            authors=space.authors,
            new_words=self._found,
            share=self.new_words,
        )


def threshold_delta(delta: float, share: float) -> float:
    """Return the part of delta for a word that one record or author alone has: half, if a share finds new words."""
    return delta / 2 if share else 0.0


def noise_mu(epsilon: float, delta: float, share: float) -> float:
    """Return what all noise may cost together; see SYN-6 of mechanisms.md 12.1 for the delta of new words."""
    lost = threshold_delta(delta, share)
    left = epsilon + math.log1p(-lost)
    if left <= 0:
        raise TextprivError("new words need an epsilon above delta. 1 is strong, 4 is weak.")
    return release_mu(left, delta - lost)


def _plan_of_words(mu: float, share: float) -> GaussianPlan:
    # Neighbours differ in so many words at most, so the grid is one for them, whatever the number of words is.
    return plan_gaussian(1.0, mu * math.sqrt(share), MOST_WORDS)


def threshold(plan: GaussianPlan, delta: float) -> float:
    """Return what a noisy weight of the words that one record or author alone has passes with probability ``delta``."""
    # The tail of discrete noise is that of the continuous one but for a step (Canonne, Kamath and Steinke 2020). The other
    # step is for rounding.
    highest = max(k**-0.5 - plan.sigma * ndtri(delta / k) for k in range(1, MOST_WORDS + 1))
    return float(highest + 2 * plan.grid)


@dataclass(frozen=True, repr=False, eq=False)
class NoisySums:
    """The released sums, which are all that is kept of private texts. Everything made of them is as private as they are."""

    # Sums of word parts, of shape (rows, V); row ``class * cells + cell``
    words: NDArray[np.float32]
    rows: NDArray[np.float64]  # noisy numbers of records, of shape (rows,)
    lengths: NDArray[np.float64]  # the same by length, of bins that begin at ``EDGES``
    classes: tuple[Label, ...]
    sigma: float  # standard deviation of the noise of ``words``
    epsilon: float
    delta: float
    authors: int | None  # records of one author that count; None if one record is protected
    new_words: tuple[str, ...]  # outside the vocabulary; their sums follow those of the vocabulary
    share: float  # of the cost, for new words

    @property
    def cells(self) -> int:
        """Cells of each class."""
        return len(self.rows) // len(self.classes)

    @property
    def rows_sigma(self) -> float:
        """Standard deviation of the noise of ``rows``."""
        return self.sigma * STEP / CLASS_PART

    @property
    def lengths_sigma(self) -> float:
        """Standard deviation of the noise of ``lengths``."""
        return self.sigma * STEP / LENGTH_PART

    def write(self, path: str | os.PathLike[str], **header: Any) -> None:
        """Write the sums as one file, whole or not at all, on the disk when this returns.

        ``header`` has more JSON values, which :meth:`read_file` returns.
        """
        own = {each.name: getattr(self, each.name) for each in fields(self)}
        arrays = {name: own.pop(name) for name in _NAMES}
        text = json.dumps({"format": _FORMAT, **own, **header})
        with atomic_write(Path(path)) as file:
            np.savez(file, header=np.array(text), **arrays)

    @classmethod
    def read_file(cls, path: str | os.PathLike[str]) -> tuple[NoisySums, dict[str, Any]]:
        """Return the sums in a file, and what else its header says."""
        wrong = f"{os.fspath(path)} is no file of noisy sums, or it is damaged. Fit and save again."
        try:
            with np.load(path, allow_pickle=False) as stored:
                header = json.loads(str(stored["header"]))
                arrays = {name: stored[name] for name in _NAMES}
            form = header.pop("format")
            own = {
                each.name: header.pop(each.name) for each in fields(cls) if each.name not in arrays
            }
            own |= {name: tuple(own[name]) for name in ("classes", "new_words")}
            made = cls(**arrays, **own)
        except FileNotFoundError:
            raise
        except Exception:  # a damaged file may raise anything
            raise TextprivError(wrong) from None
        rows = len(made.rows)
        is_whole = (
            form == _FORMAT
            and rows == len(made.classes) * made.cells > 0
            and made.words.ndim == 2
            and len(made.words) == rows
            and made.lengths.shape == EDGES.shape
            and all(isinstance(word, str) and word for word in made.new_words)
            and len(set(made.new_words)) == len(made.new_words)
            and 0 <= made.share < 1
            and all(np.isfinite(array).all() for array in arrays.values())
        )
        if not is_whole:
            raise TextprivError(wrong)
        return made, header

    @property
    def replaced(self) -> float:
        """Epsilon, at the same delta, where one record or author is replaced."""
        lost = threshold_delta(self.delta, self.share)
        mu = noise_mu(self.epsilon, self.delta, self.share)
        # Entries are from 0 up, so two records are at most root 2 apart; those of the first release nearly so.
        return epsilon_of_zcdp(mu**2, self.delta - lost) - math.log1p(-lost)

    @property
    def statement(self) -> PrivacyStatement:
        """What the sums guarantee, and so everything that is made of them."""
        notes = [
            "All texts that are drawn, in any number, and all tables of words come from one release and cost nothing more",
            "A second measurement of the same people adds its loss to this one",
            "Facts do not survive: texts are made of word counts, and no sentence of a record is kept",
        ]
        if math.isfinite(self.epsilon):
            replaced = self.replaced
            factor = f"exp({at_most(replaced, 3)}) = {factor_in_words(replaced)} times as likely"
            verb = "is" if self.authors is None else "are"
            notes.insert(
                0,
                f"If {unit_of(self.authors)} {verb} replaced, not added: {factor}, plus {at_most(self.delta, 3)}",
            )
        exposed = "whatever is common to many records, such as their number and what their classes differ in"
        own, summed = (" but for new words", " in sums") if self.share else ("", "")
        if self.authors is not None:
            notes.append(f"At most {self.authors:,} records of each author are used{summed}")
        if self.share:
            plan = _plan_of_words(noise_mu(self.epsilon, self.delta, self.share), self.share)
            least = threshold(plan, threshold_delta(self.delta, self.share))
            units = "authors" if self.authors else "records, which one person may have written"
            exposed += f", and each of the new words ({len(self.new_words):,}): it is in some {least:.0f} or more {units}"
            notes.append(
                f"New words are released in lower case. Noisy counts choose them under the same epsilon: a share of "
                f"{self.share:g} of its cost, and half of delta. At most {MOST_WORDS} words of {unit_of(self.authors)} count"
            )
        return PrivacyStatement(
            mechanism="synthesis: noisy word sums of whole records tilt a public language model",
            adjacency=ADJACENCY,
            epsilon=self.epsilon,
            delta=self.delta,
            unit=unit_of(self.authors),
            proved=math.isfinite(self.epsilon),
            proof="mechanisms.md 12.1: exact discrete Gaussian noise on sums of clipped records",
            assumptions=(
                f"vocabulary{own}, language model and settings are public and made without these texts",
                "the classes are declared",
                "the noise is secret, and released once",
            ),
            not_protected=(exposed,),
            notes=tuple(notes),
            by_distance=False,
        )

    def __repr__(self) -> str:
        return (
            f"NoisySums({len(self.classes)} classes, {self.cells} cells each, {self.words.shape[1]:,} words, "
            f"epsilon {self.epsilon:g})"
        )


def unit_of(authors: int | None) -> str:
    """Return whose presence is protected."""
    return "one record" if authors is None else "all records of one author"
