"""New texts from noisy sums: a tilted language model for each class and cell, matched to the sums, and its draws."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import TextprivError
from textpriv.language.ngrams import NGrams
from textpriv.synthesis.features import EDGES, STEP, WORDS_PART
from textpriv.synthesis.release import NoisySums
from textpriv.synthesis.shrinkage import Array, Prior, Tilts, shrunk
from textpriv.tokenization.batches import KEPT, RawBatch
from textpriv.tokenization.detokenizer import VERBS, Detokenizer
from textpriv.tokenization.policy import CLASSES

if TYPE_CHECKING:
    from textpriv.synthesis.synthesizer import PublicSide

_CORPUS, _CLASS, _CELL = Prior(1.0, 1.0), Prior(0.3, 0.4), Prior(0.3, 0.4)
_MATCHED, _ROUNDS = 4_000, 3  # texts that are drawn to match the corpus, and how often
_LONGEST = 400  # words of a text that is drawn to match
_LARGEST = 12.0  # of a tilt that is matched
_SURE = 4.0  # deviations of a bin of lengths that counts
_USUAL = 16  # words of a text where no bin does
_DOUBT = 5.0  # texts with a word, below which their share says little
_AT_ONCE, _MOST_AT_ONCE = 5_000, 25_000  # texts
_KEPT_MARK = KEPT - CLASSES.index("punctuation")
_ENDS = frozenset(".!?")  # of a sentence
_SHORTEST = 3  # words of a sentence
# Marks that are drawn: of pairs, such as brackets, a model of three words closes few.
_MARKS = _ENDS.union(",;:")


class Generator:
    """Draws texts from noisy sums, with the public side that they were made with."""

    def __init__(self, noisy: NoisySums, side: PublicSide) -> None:
        if noisy.words.shape[1] != len(side.words):
            raise TextprivError(
                "the sums are of another vocabulary. Pass the index that they were made with."
            )
        self.noisy, self.words, model = noisy, side.words, side.model
        self._space = side.space(noisy.classes[:1])
        rows = np.asarray(side.index.vocabulary.vectors, np.float64)
        rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
        rows = np.hstack([rows, np.ones((len(rows), 1))]) / np.sqrt(2.0)
        self._vectors = np.pad(rows, ((0, model.size - len(rows)), (0, 0)))
        spoken = np.zeros(model.tokens)
        spoken[: model.size] = 1.0
        spoken[model.size : -1] = [each in _MARKS for each in model.symbols]
        self._model, self._spoken = model, spoken
        self._ends, self._not, self._verbs = np.zeros((3, model.tokens), np.bool_)
        self._ends[model.size : -1] = [each in _ENDS for each in model.symbols]
        self._ends[model.start] = True  # before a text
        self._not[: model.size] = [word == "n't" for word in self.words]
        self._verbs[: model.size] = [word in VERBS for word in self.words]

    # What the released counts say

    @cached_property
    def shares(self) -> Array:
        """The share of each row in the records, shape (rows,)."""
        least = np.maximum(self.noisy.rows, 0.1 * self.noisy.rows_sigma)
        return np.asarray(least / least.sum())

    @cached_property
    def count(self) -> float:
        """The noisy number of records, at least 1."""
        return max(float(self.noisy.rows.sum()), 1.0)

    @cached_property
    def _lengths(self) -> Array:
        """The share of each bin of lengths; one that noise alone may have filled has none."""
        found = self.noisy.lengths
        sure = np.where(found > _SURE * self.noisy.lengths_sigma, found, 0.0)
        if not sure.any():
            sure = np.where(EDGES == _USUAL, 1.0, 0.0)
        return np.asarray(sure / sure.sum())

    def _draw_lengths(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        bins = rng.choice(len(EDGES), size=count, p=self._lengths)
        low, high = np.log(EDGES[bins]), np.log(np.append(EDGES, EDGES[-1])[bins + 1])
        return np.exp(rng.uniform(low, np.maximum(high, low))).astype(np.int64)

    # Tilts

    @cached_property
    def tilts(self) -> tuple[Tilts, NDArray[np.float32]]:
        """Tilts of each class against all records with their errors, and tilts of each row for its model."""
        noisy, rng = self.noisy, np.random.default_rng(0)
        sums = noisy.words.astype(np.float64) * (STEP / WORDS_PART)
        noise = (noisy.sigma * STEP / WORDS_PART) ** 2
        cells, classes = noisy.cells, len(noisy.classes)
        alone, typical = self._means(np.zeros(self._model.size), rng)

        def level(part: Array, expected: Array, blocks: int, prior: Prior) -> Tilts:
            # What one record adds for a word varies, too, as for counts: by about the sum times a typical entry.
            variance = blocks * noise + typical * np.maximum(part, expected)
            return shrunk(part, expected, variance, self._vectors, prior)

        corpus = level(sums.sum(axis=0), self.count * alone, len(sums), _CORPUS).tilts
        wanted = alone * np.exp(corpus)
        common = self._matched(corpus, wanted, rng)
        of_class: list[Tilts] = []
        rows = np.empty((len(sums), self._model.size), np.float32)
        for number in range(classes):
            own = slice(number * cells, (number + 1) * cells)
            expected = self.count * float(self.shares[own].sum()) * wanted
            of_class.append(level(sums[own].sum(axis=0), expected, cells, _CLASS))
            for row in range(own.start, own.stop):
                own_tilts = of_class[-1].tilts
                if cells > 1:
                    part = self.count * self.shares[row] * wanted * np.exp(own_tilts)
                    own_tilts = own_tilts + level(sums[row], part, 1, _CELL).tilts
                rows[row] = common + own_tilts
        tilts, errors = (np.stack(each) for each in zip(*of_class, strict=True))
        # A single class is compared with the public model.
        return Tilts(tilts if classes > 1 else tilts + corpus, errors), rows

    def _matched(self, tilts: Array, wanted: Array, rng: np.random.Generator) -> Array:
        """Correct tilts until drawn texts have the mean features that are wanted."""
        for _ in range(_ROUNDS):
            found, typical = self._means(tilts, rng)
            seen = _MATCHED * np.maximum(found, wanted) / typical
            least = _DOUBT * typical / _MATCHED
            change = np.log((wanted + least) / (found + least)) * seen / (seen + _DOUBT)
            tilts = np.clip(tilts + change, -_LARGEST, _LARGEST)
        return tilts

    def _means(self, tilts: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return the mean features of drawn texts, and about what one text with a word adds for it."""
        lengths = np.minimum(self._draw_lengths(_MATCHED, rng), _LONGEST)
        model = self._tilted(tilts)
        tokens, offsets = self._draw(model, lengths, rng)
        codes = np.where(tokens < self._model.size, tokens, _KEPT_MARK).astype(np.int32)
        records = self._space.read(RawBatch(codes, offsets, []))
        parts = self._space.word_parts(records) / WORDS_PART
        sums = np.bincount(records.ids, parts, minlength=model.size)
        squares = np.bincount(records.ids, parts**2, minlength=model.size)
        typical = (squares + parts.mean() ** 2) / (sums + parts.mean())
        # As if one more text had each word, in as many as its probability says: few texts say little of rare words.
        chance = -np.expm1(lengths.mean() * np.log1p(-model.weights[0][: model.size]))
        return (sums + typical) / (_MATCHED + 1 / chance), typical

    @property
    def apart(self) -> Tilts:
        """Tilts of each class against all records, with standard errors, shape (classes, V)."""
        return self.tilts[0]

    @cached_property
    def frequency(self) -> Array:
        """How often each word is written in all records, shape (V,): above 0, sums to 1."""
        rows = np.exp(self.tilts[1].astype(np.float64)) * self._model.weights[0][: self._model.size]
        shares = self.shares / rows.sum(axis=1)
        return np.asarray(shares @ rows)

    # Draws

    def _tilted(self, tilts: Array) -> NGrams:
        factors = self._spoken.copy()
        factors[: self._model.size] *= np.exp(tilts)
        return self._model.tilted(factors)

    @staticmethod
    def _draw(
        model: NGrams, lengths: NDArray[np.int64], rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Draw a text of so many words for each length; return tokens and where each text begins."""
        order = np.argsort(-lengths, kind="stable")
        left = lengths[order]
        active = np.arange(len(left))
        earlier = before = np.full(len(left), model.start)
        owners, tokens = [], []
        while len(active):
            earlier, before = before, model.draw(before, earlier, rng)
            owners.append(order[active])
            tokens.append(before)
            left = left - (before < model.size)
            goes_on = left > 0
            active, left = active[goes_on], left[goes_on]
            before, earlier = before[goes_on], earlier[goes_on]
        owner, token = np.concatenate(owners), np.concatenate(tokens)
        by_text = np.argsort(owner, kind="stable")
        offsets = np.searchsorted(owner[by_text], np.arange(len(lengths) + 1))
        return token[by_text], offsets

    @cached_property
    def _detokenizer(self) -> Detokenizer:
        """Joins words, and their capitalized forms behind all of them."""
        words = ["I" if word == "i" else word for word in self.words]
        return Detokenizer([*words, *(word[:1].upper() + word[1:] for word in words)])

    def _tidied(
        self, model: NGrams, tokens: NDArray[np.int64], offsets: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Leave out each "n't" that is after no verb, and join each short sentence to the next one."""
        before = _before(model, tokens, offsets)
        sentence = np.cumsum(self._ends[before])
        words = np.bincount(sentence, tokens < model.size)[sentence]
        is_kept = ~(self._ends[tokens] & (words < _SHORTEST))
        is_kept &= ~self._not[tokens] | self._verbs[before]
        return tokens[is_kept], np.append(0, np.cumsum(is_kept))[offsets]

    def _texts(
        self, model: NGrams, tokens: NDArray[np.int64], offsets: NDArray[np.int64]
    ) -> list[str]:
        """Return drawn tokens as texts: a sentence begins with a capital and the last one ends with a full stop."""
        tokens, offsets = self._tidied(model, tokens, offsets)
        is_word = tokens < model.size
        symbols = np.array(model.symbols, dtype=object)
        begins = self._ends[_before(model, tokens, offsets)]
        codes = np.where(is_word, tokens, _KEPT_MARK).astype(np.int32)
        drawn = (tokens + model.size * begins)[is_word].astype(np.int32)
        strings = symbols[tokens[~is_word] - model.size].tolist()
        joined = self._detokenizer.texts(RawBatch(codes, offsets, strings), drawn)
        return [text if text[-1:] in _ENDS else text + "." for text in joined]

    def texts(self, count: int, rng: np.random.Generator) -> Iterator[tuple[list[str], list[int]]]:
        """Yield batches of texts and the numbers of their classes, in random order."""
        tilts = self.tilts[1]
        while count > 0:
            size = min(count, max(_AT_ONCE, min(count // 4, _MOST_AT_ONCE)))
            count -= size
            rows = rng.choice(len(self.shares), size=size, p=self.shares)
            lengths = self._draw_lengths(size, rng)
            texts = np.empty(size, dtype=object)
            for row in np.unique(rows):
                own = np.flatnonzero(rows == row)
                model = self._tilted(tilts[row])
                texts[own] = self._texts(model, *self._draw(model, lengths[own], rng))
            yield texts.tolist(), (rows // self.noisy.cells).tolist()


def _before(
    model: NGrams, tokens: NDArray[np.int64], offsets: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the token before each; the start before the first one of a text."""
    is_first = np.isin(np.arange(len(tokens)), offsets)
    return np.where(is_first, model.start, np.roll(tokens, 1))
