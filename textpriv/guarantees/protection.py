"""Laws at equal protection, compared by what they keep of the words.

A person names what must not be possible; the laws that an index or several of them can carry are set to that, and compared
by how near the drawn words stay. The epsilon of one law is found in ``guarantees.epsilon``. Only public tables and public
text are looked at, so choosing costs no privacy.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from textpriv.errors import MechanismError, OutOfReachError
from textpriv.evaluation.best_attacker import PublicText
from textpriv.evaluation.deniability import WordSample
from textpriv.evaluation.law import Law
from textpriv.guarantees.epsilon import choose_epsilon
from textpriv.index.builtin import ENGLISH
from textpriv.index.index import Index
from textpriv.index.tree import Tree
from textpriv.mechanisms import find_mechanism
from textpriv.mechanisms.base import Mechanism
from textpriv.statement import at_least
from textpriv.vocabulary.vocabulary import Prior

__all__ = ["Candidate", "Comparison", "choose"]

_LOOKED_AT = 512  # words by which likeness is measured, of a larger vocabulary
_NEAREST = 10
_DIGITS = 4  # of an epsilon that is printed, rounded down


@dataclass(frozen=True)
class Candidate:
    """A law at the wished protection, and what is left of the words.

    Attributes
    ----------
    index : str
        The index, by the name it was given under.
    mechanism : str
        Short name, as for ``--mechanism``.
    prior : str
    epsilon : float
        Rounded down, so that the protection stays what was asked for.
    recovered : float
        Share of words that is got back: by the best attacker of lone words, or by a reader in context who does better.
    kept : float
        Share of running words that stay as they are.
    near : float
        Share that come out as themselves or one of their 10 nearest words.
    distance : float
        Mean distance between a word and what comes out, as a part of that between two unrelated running words: 0 where
        nothing changes, 1 where nothing is left.
    """

    index: str
    mechanism: str
    prior: str
    epsilon: float
    recovered: float
    kept: float
    near: float
    distance: float

    @property
    def command(self) -> str:
        """The command line that privatizes a file by this law."""
        prior = f" --prior {self.prior}" if self.prior else ""
        where = "" if self.index == ENGLISH else f" --index {shlex.quote(self.index)}"
        return (
            f"textpriv privatize IN OUT{where} --mechanism {self.mechanism}{prior} "
            f"--epsilon {self.epsilon:g}"
        )


@dataclass(frozen=True)
class Comparison:
    """Candidates at equal protection, the one that keeps words nearest first.

    Attributes
    ----------
    candidates : tuple of Candidate
    left_out : tuple of str
        Laws that cannot give this protection, with the reason.
    """

    candidates: tuple[Candidate, ...]
    left_out: tuple[str, ...] = ()

    @property
    def best(self) -> Candidate:
        """The law to use."""
        return self.candidates[0]

    def to_dict(self) -> dict[str, Any]:
        """Return what was compared as JSON types."""
        return {
            "command": self.best.command,
            "candidates": [asdict(each) for each in self.candidates],
            "left_out": list(self.left_out),
        }


def choose(
    indexes: Index | Mapping[str, Index] | None = None,
    *,
    recovery: float,
    of: str = "content",
    context: Iterable[str] | None = None,
    word_prior: Prior = "zipf",
    priors: Sequence[str] = (),
    mechanisms: Sequence[str] = (),
) -> Comparison:
    """Compare laws at which attackers get back at most a share of words, by how near the drawn words stay.

    Parameters
    ----------
    indexes : Index, or mapping of str to Index, optional
        Of one vocabulary, vectors or trees; by the names that are to be printed, else by its folder. Nearness is measured in
        the first one of vectors, or in the first one. Default: the built-in index of English words.
    recovery : float
        What must not be possible to the best attacker of lone words, who knows the law and how often each word is written:
        to guess more than this share of running words, in (0, 1).
    of : {"content", "all"}
        Which words count. Content words are all but the 250 commonest, and the attacker is told that a word is one.
    context : iterable of str, optional
        Public texts: an attacker who reads words in context, by a model counted in four fifths of them and tried on the
        last, must not get back more either; one with a better model may. Never the private texts themselves.
    word_prior : see :meth:`Vocabulary.prior_weights`
        How often each word is written.
    priors : sequence of str
        Base measures to try. Default: all that an index carries.
    mechanisms : sequence of str
        Registered names of further mechanisms, to compare with their own settings.

    Raises
    ------
    TextprivError
        For indexes of different words, and where no law can give that protection.

    Examples
    --------
    >>> import numpy as np, textpriv
    >>> words = [f"word{number}" for number in range(400)]
    >>> vocabulary = textpriv.Vocabulary(words, np.random.default_rng(0).normal(size=(400, 8)))
    >>> found = textpriv.choose({"my.idx": textpriv.Index.build(vocabulary)}, recovery=0.1)
    >>> found.best.recovered <= 0.1
    True
    """
    given = {ENGLISH: Index.builtin("en")} if indexes is None else indexes
    named = {str(given.path or "INDEX"): given} if isinstance(given, Index) else dict(given)
    first = next(iter(named.values()))
    for name, index in named.items():
        if list(index.vocabulary.words) != list(first.vocabulary.words):
            raise MechanismError(
                f"{name} has other words than the first index, so what is kept of them does not compare; make all of them "
                "from one vocabulary."
            )
    ruler = next((each for each in named.values() if not isinstance(each, Tree)), first)
    text = None if context is None else PublicText.read(context, first)
    find = partial(choose_epsilon, recovery=recovery, of=of, context=text, word_prior=word_prior)
    likeness = _Likeness(ruler, word_prior)
    compared, left_out = [], []
    for name, index in named.items():
        own = "tree" if isinstance(index, Tree) else "tem"
        tried = [(own, prior) for prior in priors or _priors(index)]
        for short, prior in [*tried, *((each, "") for each in mechanisms)]:
            settings: dict[str, Any] = {"prior": prior} if prior else {}
            try:
                found = find(index, mechanism=short, **settings)
            except OutOfReachError as error:
                left_out.append(f"{short} over {name} with prior {prior}: {error}")
                continue
            epsilon = float(at_least(found.epsilon, _DIGITS))
            law = find_mechanism(short)(epsilon=epsilon, **settings)(index)
            near = likeness.of(law)
            compared.append(Candidate(name, short, prior, epsilon, found.value, *near))
    if not compared:
        raise MechanismError(f"no law gives this protection. {' '.join(left_out)}")
    compared.sort(key=lambda each: each.distance)
    return Comparison(tuple(compared), tuple(left_out))


def _priors(index: Index) -> list[str]:
    """Base measures that an index carries."""
    full = ["full"] if isinstance(index, Tree) else []
    counts = ["counts"] if index.vocabulary.prior is not None else []
    return [*full, "zipf", "uniform", *counts]


class _Likeness:
    """How near to a word its outputs stay, measured in one index, over running words or a fixed public sample of them."""

    def __init__(self, index: Index, word_prior: Prior) -> None:
        self.index = index
        prior = index.vocabulary.prior_weights(word_prior)
        self.sample = WordSample.of(prior, _LOOKED_AT)
        self.ids = self.sample.ids.astype(np.int64)
        self.distances = index.distances_of(self.ids)
        self.unrelated = float(self.sample.mean(self.distances @ prior))
        nearest = np.partition(self.distances, min(_NEAREST, len(index) - 1), axis=1)
        self.edge = nearest[:, min(_NEAREST, len(index) - 1), None]

    def of(self, mechanism: Mechanism) -> tuple[float, float, float]:
        """What a :class:`Candidate` says of words that stay, that stay near, and of the distance."""
        law = Law(mechanism).rows(self.ids)
        own = law[np.arange(len(law)), self.ids].astype(np.float64)
        near = np.where(self.distances <= self.edge, law, 0).sum(axis=1, dtype=np.float64)
        apart = np.einsum("ij,ij->i", law, self.distances, dtype=np.float64)
        kept, close, far = (float(self.sample.mean(each)) for each in (own, near, apart))
        return kept, close, far / self.unrelated if self.unrelated > 0 else math.nan
