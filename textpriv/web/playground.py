"""What the playground answers: a typed text in its private form, what it is worth, and the law of a word.

Here stand the settings it takes and the mechanisms it keeps at hand. It holds a text only while it answers: nothing typed
is stored, logged or sent on. The web is ``web.server``'s; what is drawn, and what that guarantees, is the library's.
"""

from __future__ import annotations

import inspect
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from textpriv.amounts import amounts
from textpriv.bounds import odds_in_words
from textpriv.errors import TextprivError
from textpriv.evaluation.law import Law
from textpriv.evaluation.recovery import COMMON
from textpriv.guarantees.epsilon import eps_from_odds
from textpriv.index.folder import LEVELS
from textpriv.index.index import Index
from textpriv.index.tree import Tree
from textpriv.mechanisms import mechanism_names, registry
from textpriv.privatizer import Privatizer
from textpriv.randomness import Stream
from textpriv.vocabulary.sensitive_words import LISTS, words_in
from textpriv.web.guard import Refusal
from textpriv.web.render import kinds_of
from textpriv.web.report import odds_table, typical_pairs

if TYPE_CHECKING:
    from textpriv.mechanisms.base import Mechanism

__all__ = ["LONGEST", "Playground", "Settings"]

LONGEST = 20_000  # characters of a text
_AT_HAND = 8  # mechanisms kept; each holds tables of the words it has met
_WAITING = 4  # mechanisms being prepared, or in line
_PATIENCE = 0.5  # seconds until an answer says that it is not ready yet
_LARGEST_EPSILON = 1e6
_LARGEST_ODDS = 1e12
_ATTACKED = 50_000  # words of a vocabulary up to which the best attacker's guesses, a look at all pairs, are found
_SHOWN_WORDS = 8  # words of a text whose law is looked at: each costs a row at every draw, as nothing typed is stored
# Of the epsilon the page starts with over a tree, at the reference distance of the index.
_ODDS = 100.0

AGAIN = (
    "Every draw of the same text spends epsilon again. Whoever sees n draws of one text can tell two originals at distance "
    "d apart by odds of up to exp(n x epsilon x d): release one draw, and forget the others."
)

_PRIORS = ("full", "zipf", "uniform", "counts")


@dataclass(frozen=True)
class Settings:
    """What a text is drawn with.

    Attributes
    ----------
    epsilon : float or None
        None where levels are given.
    mechanism : str
    prior : str or None
        None where the mechanism takes none, or as its default.
    levels : tuple of (str, float)
        The odds at most of levels of a tree; empty where epsilon is given.
    """

    epsilon: float | None
    mechanism: str = "tem"
    prior: str | None = None
    levels: tuple[tuple[str, float], ...] = ()

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Settings:
        """Check the fields of a request.

        Raises
        ------
        Refusal
            422 for a field that is missing, unknown or without meaning.
        """
        levels = _levels(given["levels"]) if "levels" in given else ()
        if levels and "epsilon" in given:
            raise Refusal(422, "send epsilon or levels, not both.")
        epsilon = None if levels else _number("epsilon", given.get("epsilon"), _LARGEST_EPSILON)
        mechanism = _one_of("mechanism", given.get("mechanism", "tem"), tuple(mechanism_names()))
        prior = given.get("prior")
        if prior is not None:
            _one_of("prior", prior, _PRIORS)
        taken = options_of(mechanism)
        prior = prior if "prior" in taken else None
        if levels and "levels" not in taken:
            raise Refusal(422, f"levels are for a tree, and {mechanism} takes none; send epsilon.")
        return cls(epsilon, mechanism, prior, levels)

    def options(self) -> dict[str, Any]:
        """Keyword arguments of the registered mechanism."""
        levels = dict(self.levels) or None
        given = {"epsilon": self.epsilon, "prior": self.prior, "levels": levels}
        return {name: value for name, value in given.items() if value is not None}


def options_of(mechanism: str) -> Collection[str]:
    """Names of the settings that a mechanism takes."""
    return inspect.signature(registry.get(mechanism_names()[mechanism])).parameters


def _number(name: str, given: object, largest: float) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise Refusal(422, f"{name} is missing or no number; send one above 0.")
    try:
        number = float(given)
    except OverflowError:
        number = math.inf
    if not 0 < number <= largest:
        raise Refusal(422, f"{name} must be above 0 and at most {largest:g}.")
    return number


def _levels(given: object) -> tuple[tuple[str, float], ...]:
    if not isinstance(given, dict) or not 0 < len(given) <= LEVELS:
        raise Refusal(422, 'levels must be an object of odds by level, such as {"any": 3000}.')
    return tuple(
        (name, _number("each of the odds", odds, _LARGEST_ODDS)) for name, odds in given.items()
    )


def _one_of(name: str, value: object, known: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in known:
        raise Refusal(422, f"{name} must be one of: {', '.join(known)}.")
    return value


class Playground:
    """The answers, without the web: texts and settings to private texts and what they are worth.

    Parameters
    ----------
    index : Index

    Notes
    -----
    A mechanism is made when it is first asked for, in a thread of its own, and kept with the last few. Meanwhile
    :meth:`ready` returns None, and other settings are answered.
    """

    def __init__(self, index: Index) -> None:
        self.index = index
        self.epsilon = (
            rounded(eps_from_odds(_ODDS, index.reference_distance or 1.0))
            if index.space == "tree"
            else amounts(index)[1].epsilon
        )
        self._distances = typical_pairs(index)
        self._sensitive = {
            index.vocabulary.id(word)
            for words in LISTS.values()
            for word in words_in(index.vocabulary, words)
        }
        self._lock = threading.Lock()
        self._made: OrderedDict[Settings, tuple[Future[Privatizer], float]] = OrderedDict()
        self._guesses: OrderedDict[Settings, Future[NDArray[np.int64]]] = OrderedDict()
        weights = index.vocabulary.prior_weights(self._prior)
        self._content = np.ones(len(index), dtype=bool)
        self._content[np.argsort(-weights, kind="stable")[: min(COMMON, len(index) // 4)]] = False
        self._quick = ThreadPoolExecutor(2, thread_name_prefix="playground")
        # Tokens and classes hang on the policy alone, so one reader serves every mechanism.
        self._reader = self._make(Settings(self.epsilon, self.mechanisms[0]))
        self._reading = threading.Lock()
        self.warm()

    def warm(self) -> None:
        """Compile and load what the first answer would wait for, with a word of the vocabulary."""
        word = next((each for each in self.index.vocabulary.words if each.isalpha()), "a")
        self._reader.privatize(word)

    @property
    def mechanisms(self) -> list[str]:
        """Those that this index can carry."""
        tree = self.index.space == "tree"
        return [
            name
            for name, registered in mechanism_names().items()
            if getattr(registry.get(registered), "over_trees", False) == tree
            and not (name == "madlib" and self.index.space == "manhattan")
        ]

    @property
    def priors(self) -> list[str]:
        """Those that this index can carry."""
        stored = self.index.vocabulary.prior is not None
        tree = self.index.space == "tree"
        return [
            name for name in _PRIORS if (name != "counts" or stored) and (name != "full" or tree)
        ]

    @property
    def levels(self) -> tuple[str, ...]:
        """Names of the levels of a tree, the closest words first; none for an index of vectors."""
        return self.index.names if isinstance(self.index, Tree) else ()

    def __len__(self) -> int:
        """Mechanisms at hand or being prepared."""
        return len(self._made)

    def _make(self, settings: Settings) -> Privatizer:
        registered = registry.get(mechanism_names()[settings.mechanism])
        return Privatizer(registered(**settings.options())(self.index))

    def prepare(self, settings: Settings) -> tuple[Future[Privatizer], float]:
        """Return the mechanism of some settings, or its promise, and when it was asked for.

        Raises
        ------
        Refusal
            422 for what this index cannot carry; 503 where too many are being prepared.
        """
        if settings.mechanism not in self.mechanisms:
            raise Refusal(422, f"this index carries only: {', '.join(self.mechanisms)}.")
        if settings.prior is not None and settings.prior not in self.priors:
            raise Refusal(422, f"this index carries only the priors: {', '.join(self.priors)}.")
        with self._lock:
            if settings in self._made:
                self._made.move_to_end(settings)
                return self._made[settings]
            if sum(not future.done() for future, _ in self._made.values()) >= _WAITING:
                raise Refusal(503, "other settings are being prepared; try again in a minute.")
            self._made[settings] = self._quick.submit(self._make, settings), time.monotonic()
            for old in [each for each, (future, _) in self._made.items() if future.done()]:
                if len(self._made) <= _AT_HAND:
                    break
                del self._made[old]
            return self._made[settings]

    def ready(self, settings: Settings, patience: float = _PATIENCE) -> Privatizer | None:
        """Wait a little for a mechanism; None if it is not ready yet."""
        future, _ = self.prepare(settings)
        if not wait([future], timeout=patience).done:
            return None
        try:
            return future.result()
        except Exception as error:
            with self._lock:  # it may go better the next time
                self._made.pop(settings, None)
            if isinstance(error, TextprivError):
                raise Refusal(422, str(error)) from None
            raise

    def privatize(self, text: str, settings: Settings) -> dict[str, Any] | None:
        """Draw a text once; None if the mechanism is not ready yet.

        Returns
        -------
        dict
            ``tokens`` (word, whether a blank follows, kind, whether it came out as it went in), ``text``, ``drawn``,
            ``stays`` (how often words of the text come out as they are, most often first; None without a law),
            ``same``, ``attacker`` (what the best one names right of this draw, as a sentence), ``odds``,
            ``worst_document``, ``statement`` and its parts (``claim``, ``not_protected``, ``assumptions``, ``notes``,
            ``proved``), ``mechanism`` and ``again``.
        """
        privatizer = self.ready(settings)
        if privatizer is None:
            return None
        with self._reading:  # spaCy's tokenizer is not made for several threads
            raw = self._reader.read(text)
        (tokens,) = privatizer.release(raw, [Stream()])
        same = (raw.codes >= 0) & (raw.codes == tokens.outputs)
        drawn = int(np.count_nonzero(tokens.outputs >= 0))
        statement = privatizer.statement
        claim = replace(statement, assumptions=(), not_protected=(), notes=()).paragraph()
        levels = getattr(privatizer.mechanism, "levels_in_words", "")
        return {
            "tokens": [
                list(each)
                for each in zip(
                    tokens.words, tokens.spaces, kinds_of(tokens), same.tolist(), strict=True
                )
            ],
            "text": tokens.text,
            "drawn": drawn,
            "stays": self._stays(privatizer.mechanism, raw.codes),
            "same": int(np.count_nonzero(same)),
            "attacker": self._attacked(settings, privatizer.mechanism, raw.codes, tokens.outputs),
            "odds": odds_table(statement, self._distances),
            "worst_document": odds_in_words(statement.document_loss(drawn)),
            "statement": statement.paragraph(),
            "claim": f"{levels}. {claim}" if levels else claim,
            "not_protected": list(statement.not_protected),
            "assumptions": list(statement.assumptions),
            "notes": list(statement.notes),
            "proved": statement.proved,
            "mechanism": repr(privatizer.mechanism),
            "again": AGAIN,
        }

    @property
    def _prior(self) -> str:
        """How often each word is written, as the attacker knows it."""
        return "zipf" if self.index.vocabulary.prior is None else "counts"

    def _guessed(self, settings: Settings, mechanism: Mechanism) -> Future[NDArray[np.int64]]:
        """What the best attacker names for each output; found once for some settings, in the thread of slow work."""
        with self._lock:
            if settings not in self._guesses:
                self._guesses[settings] = self._slow.submit(
                    lambda: Law(mechanism, self._prior).likeliest()[0][0]
                )
                if len(self._guesses) > _AT_HAND:
                    self._guesses.popitem(last=False)
            return self._guesses[settings]

    def _attacked(
        self,
        settings: Settings,
        mechanism: Mechanism,
        codes: NDArray[np.int32],
        outputs: NDArray[np.int32],
    ) -> str:
        """What the Bayes-optimal attacker of lone words names right of this draw; no other does on average."""
        if not mechanism.has_law or len(self.index) > _ATTACKED:
            return "What the best attacker of lone words gets back is not known here."
        found = self._guessed(settings, mechanism)
        if not wait([found], timeout=_PATIENCE).done:
            return "What the best attacker of lone words gets back is being found, and is shown with a later draw."
        known = outputs >= 0
        original = codes[known]
        right = found.result()[outputs[known]] == original
        content = (original >= 0) & self._content[np.maximum(original, 0)]
        told = (
            "The best attacker of lone words, who knows these settings and how often each word is written, "
            f"names {int(right.sum()):,} of these {len(right):,} words right"
        )
        if not content.any():
            return told + "."
        words = self.index.vocabulary.words
        named = [words[word] for word in dict.fromkeys(original[right & content].tolist())]
        shown = ", ".join(f"“{word}”" for word in named[:_SHOWN_WORDS])
        more = f" and {len(named) - _SHOWN_WORDS:,} more" if len(named) > _SHOWN_WORDS else ""
        return (
            f"{told}, and {int((right & content).sum()):,} of the {int(content.sum()):,} that are not among the commonest"
            f"{f': {shown}{more}' if named else ''}. One who reads whole sentences may get more."
        )

    def _stays(
        self, mechanism: Mechanism, codes: NDArray[np.int32]
    ) -> list[tuple[str, float]] | None:
        """How often some words of a text stay as they are: names and illnesses of public lists first, then rare words."""
        if not mechanism.has_law:
            return None
        known = np.unique(codes[codes >= 0])[::-1].tolist()
        chosen = sorted(known, key=lambda word: word not in self._sensitive)[:_SHOWN_WORDS]
        words = self.index.vocabulary.words
        keep = [float(np.exp(mechanism.log_prob(word)[word])) for word in chosen]
        shares = zip((words[word] for word in chosen), keep, strict=True)
        return sorted(shares, key=lambda each: -each[1])

    def explain(self, word: str, settings: Settings) -> dict[str, Any] | None:
        """Return the law of one word; None if the mechanism is not ready yet.

        Raises
        ------
        Refusal
            404 for a word outside the vocabulary, 422 for a mechanism without a law.
        """
        privatizer = self.ready(settings)
        if privatizer is None:
            return None
        mechanism = privatizer.mechanism
        if not mechanism.has_law:
            raise Refusal(422, f"{mechanism.name} has no law in closed form.")
        known = next((each for each in (word, word.lower()) if each in self.index.vocabulary), None)
        if known is None:
            raise Refusal(404, "the word is not in the vocabulary: all such words share one law.")
        number = self.index.vocabulary.id(known)
        law = np.exp(mechanism.log_prob(number))
        top = np.argsort(-law, kind="stable")[:10]
        distances = self.index.distances_of(np.array([number]))[0]
        words = self.index.vocabulary.words
        groups = mechanism.groups(number, most=8)
        return {
            "word": known,
            "keep": float(law[number]),
            "groups": [each.in_words(known) for each in reversed(groups or ())],
            "outputs": [[words[i], float(law[i]), float(distances[i])] for i in top],
        }

    def close(self) -> None:
        """Let the threads go."""
        self._quick.shutdown(wait=False, cancel_futures=True)
        self._slow.shutdown(wait=False, cancel_futures=True)


def rounded(value: float) -> float:
    """Return a number with two digits."""
    return float(f"{value:.2g}")
