"""The base class of all mechanisms: public parameters, an output distribution, a sampler over ids, and a statement.

A mechanism sees ids, distances and random words, never a string, a file or a pipeline.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import reprlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from textpriv.errors import MechanismError, WrongIndexError
from textpriv.index.index import Index
from textpriv.index.spaces import MANHATTAN
from textpriv.index.tree import Tree
from textpriv.mechanisms.pairs import log_normalisers, stay_bounds
from textpriv.randomness import RandomWords, as_stream
from textpriv.statement import PrivacyStatement, at_least
from textpriv.vocabulary.builtin import FIRST_NAMES, words_in

# The version of mechanisms, samplers and constants: run keys, ledgers and certificates are bound to it. Raise it when the
# same settings draw otherwise under the same key.
ALGORITHM = 4
_LOOKED_AT = 500  # words that bounds leave open and a statement looks at
_SMALL = 1500  # words of which every output distribution is computed
UNKNOWN = -1  # the id of every word outside the vocabulary: all of them are one input


def positive(name: str, value: Any) -> float:
    """Return a parameter as a float from 1e-30 to 1e30: beyond them the numbers of a statement overflow."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not 1e-30 <= number <= 1e30:
        hint = " To release text as it is, do not privatize it." if name == "epsilon" else ""
        raise MechanismError(
            f"{name} must be a finite number above 0, from 1e-30 to 1e30; got {value!r:.40}.{hint}"
        )
    return number


class Mechanism(ABC):
    """A randomised map from word ids to word ids over a public index.

    Parameters
    ----------
    index : Index
    epsilon : float
        In units of one over the index's distance; above 0 and finite.
    **settings
        All other arguments that rebuild the mechanism on the same index.

    Attributes
    ----------
    over_trees : bool
        Whether it draws from a :class:`textpriv.index.tree.Tree` and from nothing else.
    reads_context : bool
        Whether its draws depend on what the document has released before. Then :meth:`sample_documents` is given all tokens:
        those that are released as they are have ids of -2 and below, by :func:`textpriv.language.ngrams.symbol_id`.
    """

    name: str
    over_trees: bool = False
    reads_context: bool = False

    def __init__(self, index: Index, epsilon: float, **settings: Any) -> None:
        if not isinstance(index, Index):
            raise MechanismError(
                f"a mechanism needs a textpriv.Index; got {type(index).__name__}. Build one with Index.build(vocab)."
            )
        if isinstance(index, Tree) != self.over_trees:
            raise WrongIndexError(
                f"{self.name} draws from a tree, and this index is none. Build one with Tree.build(vocabulary)."
                if self.over_trees
                else f"{self.name} draws from vectors, and this index is a tree. Use TreeTEM (--mechanism tree)."
            )
        self.index = index
        self.epsilon = positive("epsilon", epsilon)
        self._settings = {"epsilon": self.epsilon, **settings}

    @property
    @abstractmethod
    def statement(self) -> PrivacyStatement:
        """The guarantee of one drawn word."""

    def settings(self) -> dict[str, Any]:
        """Return keyword arguments that rebuild this mechanism on the same index."""
        return dict(self._settings)

    @abstractmethod
    def sample_documents(
        self, ids: NDArray[np.int32], offsets: NDArray[np.int64], streams: Sequence[RandomWords]
    ) -> NDArray[np.int32]:
        """Draw one output for every token of several documents, shape (T,).

        ``ids``, shape (T,), are word ids or ``UNKNOWN``; document j is ``ids[offsets[j]:offsets[j + 1]]``. It reads only its
        own stream, so that its draws depend on nothing else.
        """

    def sample(self, ids: ArrayLike, rng: RandomWords | np.random.Generator) -> NDArray[np.int32]:
        """Draw an independent output for every word id, shape (T,); -1 stands for any unknown word.

        ``rng`` is a :class:`textpriv.randomness.Stream`, or for experiments a generator, which is predictable.
        """
        given = np.asarray(ids)
        if given.size == 0:
            return np.empty(0, dtype=np.int32)
        if given.ndim != 1 or not np.issubdtype(given.dtype, np.integer):
            raise MechanismError(
                f"ids must be whole numbers in one dimension; got {given.dtype} of shape {given.shape}. "
                "Use index.vocabulary.ids(words)."
            )
        if given.min() < UNKNOWN or given.max() >= len(self.index):
            raise MechanismError(
                f"ids must be from -1 to {len(self.index) - 1}; got {given.min()} to {given.max()}."
            )
        offsets = np.array([0, len(given)], dtype=np.int64)
        return self.sample_documents(
            np.ascontiguousarray(given, dtype=np.int32), offsets, [as_stream(rng)]
        )

    # What evaluations and guarantees ask; the defaults hold for every mechanism. Closed forms only save time.

    def at_epsilon(self, epsilon: float) -> Mechanism:
        """Return the same mechanism at another epsilon."""
        return type(self)(self.index, **{**self.settings(), "epsilon": epsilon})

    def log_prob(self, word: str | int) -> NDArray[np.float64]:
        """Return the natural logarithm of the output distribution of a word, shape (V,)."""
        raise MechanismError(
            f"{self.name} has no output distribution in closed form, so there is no log_prob. Recovery rates and "
            "explanations need one; draws do not."
        )

    def emissions(
        self, released: NDArray[np.integer], words: NDArray[np.integer]
    ) -> NDArray[np.float64]:
        """Return the probability of each drawn word after candidates for its original, shape (D, K), for attacks in context.

        ``released``, shape (T,), are all tokens, -2 - s for symbol number s. D of them were drawn, and ``words``, shape
        (D, K), are their candidates; V stands for an unknown word.
        """
        raise MechanismError(
            f"{self.name} reads its context and has no emissions(), so no attack on it can be measured. Add the method, or "
            "give an epsilon instead of a recovery."
        )

    def average(self) -> Mechanism:
        """Return a mechanism with nearly this output distribution over all contexts, and none of its own."""
        return self

    @property
    def has_log_prob(self) -> bool:
        """Whether there is :meth:`log_prob`."""
        return type(self).log_prob is not Mechanism.log_prob

    def distances(self, word: int) -> NDArray[np.float64]:
        """Return the distances of a word to every output, shape (V,)."""
        return self.index.distances_of(np.array([word]))[0]

    def explain(self, word: str | int, n: int = 10) -> list[tuple[str, float, float]]:
        """Return the ``n`` most likely outputs of a word: (word, probability, distance), likeliest first."""
        number = self.resolve(word)
        logs = self.log_prob(number)
        distance = np.full(len(logs), math.nan) if number == UNKNOWN else self.distances(number)
        words = self.index.vocabulary.words
        top = np.argsort(-logs, kind="stable")[:n]
        return [(words[i], float(np.exp(logs[i])), float(distance[i])) for i in top]

    def exponential_decay(self) -> tuple[NDArray[np.float64], float, float] | None:
        """Return the base measure (V,), rate and truncation of ``nu(y) exp(-t min(d, gamma)) / Z``; None for other forms."""
        return None

    @cached_property
    def log_normalisers(self) -> NDArray[np.float64]:
        """``ln Z`` of every word, shape (V,), of an exponential mechanism: a pass over all pairs of words."""
        decay = self.exponential_decay()
        assert decay is not None
        return log_normalisers(self.index, *decay)

    def stay_probabilities(self) -> NDArray[np.float64] | None:
        """Return how often each word stays, shape (V,): a pass over all pairs; None where that takes too long."""
        decay = self.exponential_decay()
        if decay is not None:
            return np.asarray(decay[0] * np.exp(-self.log_normalisers))
        if not self.has_log_prob or len(self.index) > _SMALL:
            return None
        return np.exp([self.log_prob(word)[word] for word in range(len(self.index))])

    def closed_constant(self) -> tuple[float, tuple[int, int]] | None:
        """Return a constant over all pairs that the mechanism knows, and the pair of words; None for most."""
        return None

    def likeliest_inputs(
        self, prior: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]] | None:
        """Return for each output its likeliest input under a prior, and their joint probability, if there is a quick way."""
        return None

    def caveats(self) -> tuple[str, ...]:
        """Return sentences for statement and certificate on what the promise leaves out."""
        return ()

    def binding(self) -> dict[str, Any]:
        """Return what keys, ledgers and certificates are bound to: all that draws are made from, in JSON types."""
        return {
            "algorithm": ALGORITHM,
            "mechanism": f"{type(self).__module__}.{type(self).__qualname__}",
            "vocabulary": self.index.fingerprint,
            "lists": self.index.k,
            "settings": json.loads(json.dumps(self.settings(), default=_plain)),
        }

    def _stated(self, title: str, proof: str, public: str, **figures: float) -> PrivacyStatement:
        """Return the statement ``P_w(y) <= exp(epsilon d(w, w')) P_w'(y)`` of one drawn word, of what must be ``public``."""
        index, worst, slack = self.index, figures["worst_word_loss"], figures["numerical_slack"]
        half, most = index.reference_distance, index.reference_distance_90
        kind = "Manhattan" if index.space == MANHATTAN else "Euclidean"
        unit = f"per unit of {kind} distance between the rounded vectors"
        if isinstance(index, Tree):
            unit = "per unit of the tree's height"
        elif index.axes is not None:
            unit += " and learned axes"
        note = f"{self.name} has no closed form, so the statement cannot say how often names stay"
        stated = PrivacyStatement(
            mechanism=title,
            adjacency="any two words of the vocabulary, or one of them and an unknown word, in one place of the text",
            epsilon=self.epsilon,
            delta=0.0,
            unit=unit,
            proved=True,
            proof=proof,
            assumptions=(
                f"{public} are public and were fixed before any private text was seen",
                "the operating system's randomness is unpredictable and the run key stays secret",
                "nobody who sees the output can observe timing or memory",
            ),
            not_protected=(*self._kept_names, *self._kept_words),
            figures={
                "local_dp_epsilon": worst + slack,
                "reference_distance": half,
                "reference_loss": min(self.epsilon * half, worst) + slack,
                "reference_distance_90": most,
                "reference_loss_90": min(self.epsilon * most, worst) + slack,
                **figures,
            },
            notes=() if self.has_log_prob else (note,),
        )
        if index.domain is not None:
            told = "Recovery rates are about words as texts of the domain write them"
            is_public = () if index.axes else ("the texts of the domain are public",)
            notes = [f"{told} (SHA-256 of their frequencies: {checksum(index.domain)[:16]})"]
            stated = stated.extended(assumptions=is_public, notes=notes)
        return stated if index.axes is None else index.axes.added_to(stated)

    @cached_property
    def _kept_names(self) -> tuple[str, ...]:
        """Say how often common first names stay: a bound in nats does not show it."""
        names = words_in(self.index.vocabulary, FIRST_NAMES)
        if not names or not self.has_log_prob:
            return ()
        ids = [self.index.vocabulary.id(name) for name in names]
        keep = [float(np.exp(self.log_prob(word)[word])) for word in ids]
        half = sorted(keep, reverse=True)[(len(keep) - 1) // 2]
        where = " at the start of a text" if self.reads_context else ""
        return (
            f"common first names that stay: half of {len(names)} stay unchanged{where} with probability "
            f"{at_least(half, 2)} or more ({names[0]!r} with {at_least(keep[0], 2)})",
        )

    @cached_property
    def _kept_words(self) -> tuple[str, ...]:
        """Name the function words and how often they stay, and count content words that stay more often than not."""
        is_content = self.index.vocabulary.is_content
        listed, decay = self.index.vocabulary.function_words, self.exponential_decay()
        lines = [listed.sentence] if listed.words else []
        where = " at the start of a text" if self.reads_context else ""
        if decay is not None:
            least, most = stay_bounds(self.index, *decay)
        elif (exact := self.stay_probabilities()) is not None:
            least = most = exact
        else:
            return tuple(lines)
        if listed.words:
            half = float(np.quantile(least[~is_content], 0.5, method="higher"))
            lines[0] += f". Half of them stay{where} with probability {at_least(half, 2)} or more"
        sure = is_content & (least > 0.5)
        doubtful = np.flatnonzero(is_content & ~sure & (most > 0.5))
        step = -(-len(doubtful) // _LOOKED_AT) or 1
        kept = [word for word in doubtful[::step] if np.exp(self.log_prob(word)[word]) > 0.5]
        lines.append(
            f"content words that stay{where} in more than half of their uses: {'about ' * (step > 1)}"
            f"{int(sure.sum()) + step * len(kept):,} of {int(is_content.sum()):,}"
        )
        return tuple(lines)

    def resolve(self, word: str | int) -> int:
        """Return the id of a word given as text or id, such as ``UNKNOWN``."""
        is_unknown = isinstance(word, int | np.integer) and word == UNKNOWN
        return UNKNOWN if is_unknown else self.index.vocabulary.resolve(word)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), self.index, **self.settings()), ()

    def __deepcopy__(self, memo: Any) -> Mechanism:
        return self  # it never changes, so clones of an estimator share its tables

    def __repr__(self) -> str:
        listed = [f"{key}={reprlib.repr(value)}" for key, value in self.settings().items()]
        return f"{self.name}({', '.join(listed)})"


def configured(kind: Callable[..., Mechanism]) -> Callable[..., Callable[[Index], Mechanism]]:
    """Return the function that is registered for a mechanism: it takes the settings, and returns what takes the index."""

    def configure(**settings: Any) -> Callable[[Index], Mechanism]:
        return partial(kind, **settings)

    _, *own = inspect.signature(kind).parameters.values()
    # spaCy reads the names and the defaults of a config here.
    keywords = [each.replace(kind=each.KEYWORD_ONLY, annotation=Any) for each in own]
    configure.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    return configure


def checksum(array: NDArray[Any]) -> str:
    """Return a checksum of the values of an array."""
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()


def _plain(value: Any) -> str:
    """Return a checksum of an array, and what else is no JSON in words."""
    return checksum(value) if isinstance(value, np.ndarray) else str(value)
