"""What every mechanism is: public parameters, an output law, a sampler over ids, and a statement.

A mechanism sees ids, distances and random words, never a string, a file or a pipeline. Here stands only what all of them
share; each law is a file of its own.
"""

from __future__ import annotations

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from textpriv.arguments import shown, whole
from textpriv.bounds import at_least, odds_in_words
from textpriv.errors import MechanismError
from textpriv.index.index import Index
from textpriv.index.typical import REFERENCE
from textpriv.metrics import INTERPRETED, TREE
from textpriv.randomness import RandomWords, Stream, as_stream
from textpriv.statement import PrivacyStatement
from textpriv.vocabulary.sensitive_words import FIRST_NAMES, words_in

if TYPE_CHECKING:
    from textpriv.mechanisms.calibration.pair_sweep import Progress
    from textpriv.mechanisms.calibration.privacy_constant import Constant

__all__ = ["ALGORITHM", "EPSILONS", "UNKNOWN", "Group", "Mechanism", "checksum", "positive"]

# The version of laws, samplers and constants. Raised when the same settings draw otherwise under the same key, or when
# what is recorded with an index would be computed otherwise: keys, ledgers and records are bound to it.
ALGORITHM = 3
UNKNOWN = -1  # the id of every word outside the vocabulary: all of them are one input

_STATED_NAMES = 40  # first names that a statement looks at: each costs a row of the law


EPSILONS = 1e-30, 1e30  # beyond them a statement would be of numbers that overflow


def positive(name: str, value: Any, *, infinite: bool = False) -> float:
    """Return a parameter as a positive float, or say what is wrong with it."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise MechanismError(f"{name} must be a number above 0; got {shown(value)}.")
    try:
        number = float(value)
    except OverflowError:  # a whole number beyond all floats
        number = math.inf
    if math.isnan(number) or number <= 0 or (math.isinf(number) and not infinite):
        hint = (
            "To release text as it is, do not privatize it."
            if name == "epsilon"
            else "Leave it out for the default."
        )
        raise MechanismError(f"{name} must be a finite number above 0; got {number}. {hint}")
    return number


class Group(NamedTuple):
    """The words within a distance of a word, in a tree.

    Attributes
    ----------
    name : str
        Of its level.
    words : int
        How many, the word itself among them.
    loss : float
        Nats by which two of them are told apart at most.
    probability : float
        That the word becomes one of them.
    likeliest : tuple of str
        Some of those that are in no closer group, likeliest first.
    """

    name: str
    words: int
    loss: float
    probability: float
    likeliest: tuple[str, ...]

    def in_words(self, word: str) -> str:
        """What the group is to a word of it, in one sentence."""
        return (
            f"{self.name}: {self.words:,} words, told apart by odds of at most {odds_in_words(self.loss)}; {word} becomes "
            f"one of them with probability {self.probability:.4f} ({', '.join(self.likeliest)})"
        )


class Mechanism(ABC):
    """A randomised map from word ids to word ids over a public index.

    Parameters
    ----------
    index : Index
    epsilon : float
        In units of one over the index's distance; above 0 and finite.

    Attributes
    ----------
    needs_exact_lists : bool
        Whether the guarantee rests on the nearest lists; then an approximate index voids it.
    reads_bands : bool
        Whether what is drawn, and not its law, depends on the index's bounds on what its lists leave out.
    over_trees : bool
        Whether it draws from a :class:`textpriv.index.tree.Tree`, which has no vectors and no lists, and from nothing else.
    """

    name: str
    needs_exact_lists: bool
    reads_bands: bool = False
    over_trees: bool = False
    _log_normalisers: NDArray[np.float64] | None = None

    def __init__(self, index: Index, epsilon: float) -> None:
        if not isinstance(index, Index):
            raise MechanismError(
                f"a mechanism needs a textpriv.Index; got {type(index).__name__}. Build one with Index.build(vocab)."
            )
        if (index.metric.kind == TREE) != self.over_trees:
            raise MechanismError(
                f"{self.name} draws from a tree, and this index is none. Make one with: textpriv tree SOURCE OUT"
                if self.over_trees
                else f"{self.name} draws from vectors, and this index is a tree. Use TreeTEM (--mechanism tree), or an "
                "index made with: textpriv index SOURCE OUT"
            )
        self.index = index
        self.epsilon = positive("epsilon", epsilon)
        least, most = EPSILONS
        if not least <= self.epsilon <= most:
            raise MechanismError(
                f"epsilon lies between {least:g} and {most:g}, where floats hold what follows from it; got {self.epsilon:g}."
            )

    @property
    @abstractmethod
    def statement(self) -> PrivacyStatement:
        """The guarantee of one drawn word."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Keyword arguments that rebuild this mechanism on the same index."""

    @abstractmethod
    def sample_documents(
        self, ids: NDArray[np.int32], offsets: NDArray[np.int64], streams: Sequence[RandomWords]
    ) -> NDArray[np.int32]:
        """Draw one output for every token of several documents.

        Parameters
        ----------
        ids : ndarray of int32, shape (T,)
            Word ids, or ``UNKNOWN``, of all documents one after the other.
        offsets : ndarray of int64, shape (D + 1,)
            Document j holds ``ids[offsets[j]:offsets[j + 1]]``.
        streams : sequence of D random streams
            Document j reads only its own, in the order of its tokens, so that its draws depend on nothing else.

        Returns
        -------
        ndarray of int32, shape (T,)
        """

    def compile(self) -> None:
        """Have the compiled code ready by which many words are drawn; what is drawn does not depend on it."""
        self.sample([UNKNOWN], Stream())

    def sample(self, ids: ArrayLike, rng: RandomWords | np.random.Generator) -> NDArray[np.int32]:
        """Draw an independent output for every word.

        Parameters
        ----------
        ids : array_like of int, shape (T,)
            Word ids; -1 stands for any unknown word.
        rng : textpriv.randomness.Stream or numpy.random.Generator
            A generator is predictable: for experiments only.

        Returns
        -------
        ndarray of int32, shape (T,)
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
                f"ids must lie in -1..{len(self.index) - 1}; got {given.min()}..{given.max()}."
            )
        offsets = np.array([0, len(given)], dtype=np.int64)
        return self.sample_documents(
            np.ascontiguousarray(given, dtype=np.int32), offsets, [as_stream(rng)]
        )

    def log_prob(self, word: str | int) -> NDArray[np.float64]:
        """Natural logarithm of the output law of a word, shape (V,).

        Raises
        ------
        MechanismError
            If the mechanism has no closed law.
        """
        raise MechanismError(
            f"{self.name} has no closed output law, so there is no log_prob; sample from it instead."
        )

    @property
    def has_law(self) -> bool:
        """Whether there is a closed output law, and so :meth:`log_prob`."""
        try:
            self.log_prob(0)
        except MechanismError:
            return False
        return True

    def distances(self, word: int) -> NDArray[np.float64]:
        """Distances of a word to every output, shape (V,), as its law is drawn by them."""
        return self.index.distances_of(np.array([word]))[0]

    def explain(self, word: str | int, n: int = 10) -> list[tuple[str, float, float]]:
        """The ``n`` most likely outputs of a word: (word, probability, distance), likeliest first.

        Raises
        ------
        MechanismError
            If the mechanism has no closed law, or ``n`` is no whole number from 1 up.
        """
        number = self.resolve(word)
        law = self.log_prob(number)
        distance = np.full(len(law), math.nan) if number == UNKNOWN else self.distances(number)
        top = np.argsort(-law, kind="stable")[: whole("n", n, error=MechanismError)]
        words = self.index.vocabulary.words
        return [(words[i], float(np.exp(law[i])), float(distance[i])) for i in top]

    def groups(self, word: str | int, most: int | None = None) -> list[Group] | None:
        """The groups of a word, the closest first, or so many of them at most, evenly; None without a tree."""
        return None

    def exponential_law(self) -> tuple[NDArray[np.float64], float, float] | None:
        """The base measure (V,), rate and truncation if the law is ``nu(y) exp(-t min(d, gamma)) / Z``, else None."""
        return None

    def log_normalisers(self, progress: Progress | None = None) -> NDArray[np.float64]:
        """``ln Z`` of every word, shape (V,), for an exponential law: a pass over all pairs of words, kept afterwards.

        Raises
        ------
        MechanismError
            If the law is of another kind.
        """
        if self._log_normalisers is None:
            law = self.exponential_law()
            if law is None:
                raise MechanismError(f"{self.name} has no exponential law, so no normalisers.")
            from textpriv.mechanisms.calibration.privacy_constant import log_normalisers

            weights, rate, gamma = law
            (found,) = log_normalisers(self.index, weights, [rate], [gamma], progress)
            self._log_normalisers = found
        return self._log_normalisers

    @cached_property
    def _names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What a statement says of common first names: under what is not protected, and in its notes.

        A bound in nats does not show that at a large epsilon a name comes out nearly always; its law does. Looked for when
        a statement is first asked for, and recorded with the index.
        """
        names = words_in(self.index.vocabulary, FIRST_NAMES)[:_STATED_NAMES]
        if not names:
            return (), ()
        ids = map(self.index.vocabulary.id, names)
        rows = (float(np.exp(self.log_prob(each)[each])) for each in ids)
        try:
            first = next(rows)
        except MechanismError:
            return (), (
                f"How often common first names stay as they are is not stated: {self.name} has no closed law",
            )
        binding = {"kind": "names kept", "version": 1, "names": names, **self.binding()}
        record = self.index.find_record(binding)
        # A law whose code has changed since, which no binding shows, is told by its first row.
        if record is None or record.get("first") != first:
            record = {"first": first, "half": _half_keep(chain([first], rows), len(names))}
            self.index.keep_record(binding, record)
        half = record["half"]
        if half is None:
            return (), ()
        return (
            f"in practice, common first names: half of the {len(names)} that were looked at stay as they are with "
            f"probability {at_least(half, 3)} or more ({names[0]!r} with {at_least(first, 3)})",
        ), ()

    def closed_constant(self, progress: Progress | None = None) -> Constant | None:
        """The constant over all pairs by a closed form of the mechanism's own.

        None for a mechanism without one. A certificate tries its worst pair, and others, by the law before it is believed.
        """
        return None

    def likeliest_inputs(
        self, prior: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]] | None:
        """For each output the word that it most likely came from, and the joint probability of the two, by a closed form.

        None for a mechanism without one, whose law is then looked through (``evaluation.law``).

        Parameters
        ----------
        prior : ndarray, shape (V,)
            How often each word is written. Public.
        """
        return None

    def caveats(self) -> tuple[str, ...]:
        """What the promise leaves out although a reader might not expect it: sentences for statement and certificate."""
        return ()

    def binding(self) -> dict[str, Any]:
        """What a record about this mechanism is bound to: its law on its vocabulary, in JSON types and checksums."""
        settings = {
            key: _digest(value) if not isinstance(value, str | int | float | None) else value
            for key, value in self.settings().items()
        }
        return {
            "algorithm": ALGORITHM,
            "mechanism": f"{type(self).__module__}.{type(self).__qualname__}",
            "vocabulary": self.index.fingerprint,
            "metric": _digest(self.index.metric.settings()),
            "backend": self.index.backend,
            "settings": settings,
        }

    def drawn_from(self) -> dict[str, Any]:
        """What the sampler reads besides what :meth:`binding` names, in JSON types and checksums.

        A key is used again only where it draws the same words by the same law. So whatever a mechanism computes and then
        draws from belongs here, also what leaves the law alone and changes only which words a key gives.
        """
        return {
            "inputs": checksum(self.index.representatives),
            "lists": self.index.k,
            "bands": self.index.bands_digest if self.reads_bands else None,
        }

    def _stated(
        self,
        title: str,
        proof: str,
        public: str,
        worst: float,
        unknown: float,
        further: Sequence[str] = (),
        **figures: float,
    ) -> PrivacyStatement:
        """The statement ``P_w(y) <= exp(epsilon d(w, w')) P_w'(y)`` of one drawn word, with what all that claim it assume.

        Parameters
        ----------
        title, proof : str
            As in :class:`PrivacyStatement`.
        public : str
            What must be public, and fixed before any private text was seen.
        worst : float
            Largest loss between any two words, unknown ones included, in nats.
        unknown : float
            Largest loss between an unknown word and any word of the vocabulary, in nats.
        further : sequence of str
            What is assumed besides.
        **figures : float
            What is stated besides; ``numerical_slack`` is what rounding may add to the loss between two words that have laws
            of their own, in nats.
        """
        index = self.index
        assumptions = [
            f"{public} are public and were fixed before any private text was seen",
            "the operating system's randomness is unpredictable and the run key stays secret",
            "whoever sees the output cannot observe timing or memory",
            *further,
        ]
        if index.metric.kind == INTERPRETED:
            assumptions.append(f"{index.metric.name} satisfies the triangle inequality")
        # A word that uses another one's law is at most so far from it, and so is the other word of a pair.
        slack = figures.pop("numerical_slack", 0.0) + 2 * self.epsilon * index.width
        proved = index.exact or not self.needs_exact_lists
        half, most = index.typical[REFERENCE]
        missed = (
            f"The nearest lists are approximate (measured recall {index.recall:.4f}); a missed neighbour voids "
            "the guarantee"
        )
        shared: tuple[str, ...] = ()
        if len(index.wide):
            shared = (
                f"{len(index.wide):,} words share the law of another word up to {index.width:.3g} away; what that may add "
                f"to a loss, {2 * self.epsilon * index.width:.3g} nats, is charged as rounding",
            )
        return PrivacyStatement(
            mechanism=title,
            adjacency="any two words of the vocabulary, or one of them and an unknown word, in one place of the text",
            epsilon=self.epsilon,
            delta=0.0,
            unit=f"per unit of {index.metric.unit}",
            proved=proved,
            proof=proof,
            assumptions=tuple(assumptions),
            not_protected=self._names[0],
            figures={
                "worst_word_loss": worst,
                "unknown_word_loss": unknown,
                "local_dp_epsilon": worst + slack,
                "numerical_slack": slack,
                "reference_distance": half,
                "reference_loss": min(self.epsilon * half, worst) + slack,
                "reference_distance_90": most,
                "reference_loss_90": min(self.epsilon * most, worst) + slack,
                **figures,
            },
            notes=(*(() if proved else (missed,)), *self._names[1], *shared),
        )

    def resolve(self, word: str | int) -> int:
        """Return the id of a word given as text or id, such as ``UNKNOWN``.

        Raises
        ------
        VocabularyError
            For what is neither a word of the vocabulary nor an id.
        """
        if isinstance(word, int | np.integer) and word == UNKNOWN:
            return UNKNOWN
        return self.index.vocabulary.resolve(word)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), self.index, **self.settings()), ()

    def __repr__(self) -> str:
        listed = ", ".join(
            f"{key}={value!r}"
            if not isinstance(value, np.ndarray)
            else f"{key}=<array of {len(value)}>"
            for key, value in self.settings().items()
        )
        return f"{self.name}({listed})"


def checksum(array: NDArray[Any]) -> str:
    """A checksum of the values of an array."""
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()


def _half_keep(keep: Iterable[float], count: int) -> float | None:
    """What half of some probabilities reach, or None if that is not above one half; no more are taken than decide it."""
    half = (count - 1) // 2
    taken: list[float] = []
    for each in keep:
        taken.append(each)
        if sum(one <= 0.5 for one in taken) >= count - half:
            return None
    return sorted(taken, reverse=True)[half]


def _digest(value: Any) -> str:
    """A checksum of a setting that is no plain number or word."""

    def plain(part: Any) -> Any:
        if isinstance(part, np.ndarray):
            return [part.dtype.str, part.tolist()]
        if isinstance(part, np.generic):
            return part.item()
        return dict(part) if isinstance(part, Mapping) else str(part)

    return hashlib.sha256(json.dumps(value, sort_keys=True, default=plain).encode()).hexdigest()
