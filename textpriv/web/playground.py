"""What the playground answers: a text in its private form, what that is worth, and what a word becomes.

A text is held while it is answered; it is not stored, logged or sent on.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from starlette.exceptions import HTTPException

from textpriv.errors import TextprivError, WrongIndexError
from textpriv.evaluation.distribution import OutputDistribution
from textpriv.index.index import Index
from textpriv.index.tree import Tree
from textpriv.mechanisms import default_name, make_mechanism, mechanism_names
from textpriv.privatizer import Privatizer
from textpriv.statement import odds_in_words
from textpriv.vocabulary.builtin import LISTS, words_in
from textpriv.vocabulary.vocabulary import Vocabulary
from textpriv.web.report import drawn_kinds, group_in_words, odds_table, typical_pairs

if TYPE_CHECKING:
    from textpriv.mechanisms.base import Mechanism

LONGEST = 20_000  # characters of a text
_AT_HAND = 8  # mechanisms kept; each holds tables of the words it has met
_PATIENCE = 0.5  # seconds until an answer says that the attacker is not ready yet
_LARGEST_EPSILON = 1e6
_ATTACKED = 50_000  # words of a vocabulary up to which all pairs are compared
_SHOWN = 8  # words of a text whose distribution is computed at every draw


class Settings(NamedTuple):
    """With what a text is drawn."""

    epsilon: float
    mechanism: str | None = None  # that of the index

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Settings:
        """Check the fields of a request; a wrong one is refused with 422."""
        epsilon, mechanism = given.get("epsilon"), given.get("mechanism")
        if not isinstance(epsilon, int | float) or not 0 < epsilon <= _LARGEST_EPSILON:
            raise HTTPException(
                422, f"epsilon is a number above 0 and at most {_LARGEST_EPSILON:g}."
            )
        if mechanism not in (None, *mechanism_names()):
            raise HTTPException(422, f"mechanism is one of: {', '.join(mechanism_names())}.")
        return cls(float(epsilon), mechanism)


class Playground:
    """The answers, without the web. The page begins with an epsilon; default: by the distances of the index."""

    def __init__(self, index: Index, epsilon: float | None = None) -> None:
        self.index = index
        if epsilon is None:
            epsilon = (4 if isinstance(index, Tree) else 10) / (index.reference_distance or 1.0)
        self.epsilon = float(f"{epsilon:.4g}")
        self._distances = typical_pairs(index)
        self._sensitive = {
            index.vocabulary.id(word)
            for words in LISTS.values()
            for word in words_in(index.vocabulary, words)
        }
        self._background = ThreadPoolExecutor(1, thread_name_prefix="playground")
        self.prepare = lru_cache(_AT_HAND)(self._prepare)
        self._guessed = lru_cache(_AT_HAND)(self._guess)
        # How a text is read depends on the policy alone, so one reader serves every mechanism.
        self._reader = self.prepare(Settings(self.epsilon, self.mechanisms[0]))
        self._reader.warm()

    @cached_property
    def mechanisms(self) -> list[str]:
        """Those that draw from an index of this kind, the default of the index first."""
        words = Vocabulary(["one", "two"], np.eye(2))
        is_tree = isinstance(self.index, Tree)
        small = Tree(words, [0, 1], [1], [1.0]) if is_tree else Index.build(words, "euclidean")
        names = [name for name in mechanism_names() if _draws_from(small, name)]
        return sorted(names, key=lambda name: name != default_name(self.index))

    def _prepare(self, settings: Settings) -> Privatizer:
        try:
            own = make_mechanism(self.index, settings.mechanism, epsilon=settings.epsilon)
            return Privatizer(own)
        except TextprivError as error:
            raise HTTPException(422, str(error)) from None

    def privatize(self, text: str, settings: Settings) -> dict[str, Any]:
        """Draw a text once: its tokens (word, whether a blank follows, kind), how often words stay, and the bounds."""
        privatizer = self.prepare(settings)
        raw = self._reader.read(text)
        tokens, kinds = drawn_kinds(privatizer, raw)
        drawn = int(np.count_nonzero(tokens.outputs >= 0))
        statement, mechanism = privatizer.statement, privatizer.mechanism
        parts = zip(tokens.words, tokens.spaces, kinds, strict=True)
        return {
            "tokens": [[word, bool(space), kind] for word, space, kind in parts],
            "drawn": drawn,
            "stays": self._stays(mechanism, raw.codes),
            "where": "at the start of a text" if mechanism.reads_context else "of the time",
            "attacker": self._attacked(settings, raw.codes, tokens.outputs),
            "odds": odds_table(statement, self._distances),
            "worst_document": odds_in_words(statement.documents_within(drawn).total),
            "typical": statement.typical_odds,
            "not_protected": list(statement.not_protected),
            "assumptions": [*statement.assumptions, *statement.notes],
            "proved": statement.proved,
            "mechanism": f"{settings.mechanism or self.mechanisms[0]} at epsilon {settings.epsilon:g}",
        }

    def _guess(self, settings: Settings) -> Future[NDArray[np.int64]]:
        mechanism = self.prepare(settings).mechanism
        return self._background.submit(lambda: OutputDistribution(mechanism).likeliest()[0])

    def _attacked(
        self, settings: Settings, codes: NDArray[np.int32], outputs: NDArray[np.int32]
    ) -> str:
        """How many words of this draw the Bayes attacker on single words recovers."""
        mechanism = self.prepare(settings).mechanism
        if not mechanism.has_log_prob or len(self.index) > _ATTACKED:
            return "The recovery rate of an attacker is not known here."
        found = self._guessed(settings)
        if not wait([found], timeout=_PATIENCE).done:
            return "The attack on this draw is being computed. It is shown with a later draw."
        known = outputs >= 0
        original = codes[known]
        right = found.result()[outputs[known]] == original
        content = (original >= 0) & self.index.vocabulary.is_content[original]
        words = self.index.vocabulary.words
        named = [words[word] for word in dict.fromkeys(original[right & content].tolist())]
        shown = ", ".join(f"“{word}”" for word in named[:_SHOWN])
        return (
            f"An attacker who knows these settings and guesses word by word recovers {int(right.sum()):,} of these "
            f"{len(right):,} words. Of the {int(content.sum()):,} content words these are "
            f"{int((right & content).sum()):,}{f': {shown}' if named else ''}. A reader of whole texts may recover "
            "more: 'textpriv report' measures how much."
        )

    def _stays(
        self, mechanism: Mechanism, codes: NDArray[np.int32]
    ) -> list[tuple[str, float]] | None:
        """How often words of a text stay: names and illnesses of public lists first, then rare words."""
        if not mechanism.has_log_prob:
            return None
        known = np.unique(codes[codes >= 0])[::-1].tolist()
        chosen = sorted(known, key=lambda word: word not in self._sensitive)[:_SHOWN]
        keep = [float(np.exp(mechanism.log_prob(word)[word])) for word in chosen]
        words = [self.index.vocabulary.words[word] for word in chosen]
        return sorted(zip(words, keep, strict=True), key=lambda each: -each[1])

    def explain(self, word: str, settings: Settings) -> dict[str, Any]:
        """Return what a word becomes: 404 outside the vocabulary, 422 without a closed form."""
        mechanism, vocabulary = self.prepare(settings).mechanism, self.index.vocabulary
        if not mechanism.has_log_prob:
            raise HTTPException(422, f"{mechanism.name} has no output distribution in closed form.")
        known = next((each for each in (word, word.lower()) if each in vocabulary), None)
        if known is None:
            raise HTTPException(
                404, "The word is not in the vocabulary. All such words are treated alike."
            )
        number, chances = vocabulary.id(known), np.exp(mechanism.log_prob(known))
        groups = self.index.groups_of(number, chances, mechanism.statement.loss_at)
        return {
            "word": known,
            "keep": float(chances[number]),
            "groups": [group_in_words(each) for each in reversed(groups)],
            "outputs": mechanism.explain(known, n=10),
        }

    def close(self) -> None:
        """Stop the background thread."""
        self._background.shutdown(wait=False, cancel_futures=True)


def _draws_from(index: Index, name: str) -> bool:
    try:
        make_mechanism(index, name, epsilon=1.0)
    except WrongIndexError:
        return False
    except Exception:  # what else it needs, a larger index may have
        return True
    return True
