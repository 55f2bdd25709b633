"""A public n-gram model over the words of a vocabulary, of up to three tokens.

Tokens are numbers: words 0 to V - 1, then released symbols such as punctuation, and last all other words. After a context c
the probability of a token interpolates the orders: that of its successors, and a back-off weight times the probability after
one token less: ``P(y | c) = e(y | c) + b(c) P(y | c')`` with ``b(c) > 0``, so that every word is possible. Weights are
whole multiples of ``1 / ONE``, so a draw is exact: one whole number for each order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import TextprivError
from textpriv.files import flush
from textpriv.vocabulary.vocabulary import Vocabulary

ONE = 1 << 30  # the sum of whole weights
START, OTHER = "<s>", "<other>"
SYMBOLS = (START, OTHER, *".,!?;:-()[]/\"'", "...", "--")
_DISCOUNT = 0.75  # taken off each count and left to the back-off
_NONE = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))  # of n-grams
_ENDS = frozenset((".", "!", "?", "..."))  # of a sentence


@dataclass(frozen=True, repr=False, eq=False)
class NGrams:
    """Probabilities of tokens, alone and after one or two others.

    Weights are stored as running sums: within one context, an entry is the sum of the weights up to its own. What the last
    entry of a context lacks of ``ONE`` is its back-off weight.

    Attributes
    ----------
    size : int
        Words V of the vocabulary.
    symbols : tuple of str
        Symbol number s is token ``V + s``; the first is the start of a document. The last token is any other word.
    single : ndarray of uint32, shape (N,)
        Of all N tokens; the last entry is ``ONE``.
    offsets, seconds, pairs : ndarray of int64, shape (N + 1,), of int32 and of uint32, shape (P,)
        Pairs that begin with token v are in ``offsets[v]:offsets[v + 1]``, by rising second tokens.
    pair_offsets, thirds, triples : ndarray of int64, shape (P + 1,), of int32 and of uint32, shape (Q,)
        The same of triples that begin with a pair.
    """

    size: int
    symbols: tuple[str, ...]
    single: NDArray[np.uint32]
    offsets: NDArray[np.int64]
    seconds: NDArray[np.int32]
    pairs: NDArray[np.uint32]
    pair_offsets: NDArray[np.int64]
    thirds: NDArray[np.int32]
    triples: NDArray[np.uint32]

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """All arrays, in the order above."""
        return tuple(getattr(self, each.name) for each in fields(self)[2:])

    @property
    def tokens(self) -> int:
        """Number N of tokens."""
        return len(self.single)

    @property
    def start(self) -> int:
        """The token before the first one of a document."""
        return self.size

    @cached_property
    def symbol_tokens(self) -> NDArray[np.int64]:
        """The token of each of ``SYMBOLS``: of one that the model lacks the start if it ends a sentence, else ``OTHER``."""
        own = {text: number for number, text in enumerate(self.symbols)}
        numbers = [own.get(text, 0 if text in _ENDS else 1) for text in SYMBOLS]
        return self.size + np.array(numbers)

    def of_ids(self, ids: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return tokens of word ids: -1 is another word, -2 - s symbol number s of ``SYMBOLS``."""
        given = np.asarray(ids, dtype=np.int64)
        symbols = self.symbol_tokens[np.maximum(-2 - given, 0)]
        return np.select([given >= 0, given == -1], [given, self.tokens - 1], symbols)

    # Probabilities

    @cached_property
    def _contexts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The first token of each pair, and the pair that begins each triple."""
        before = np.repeat(np.arange(self.tokens), np.diff(self.offsets))
        return before, np.repeat(np.arange(len(self.pairs)), np.diff(self.pair_offsets))

    @cached_property
    def _keys(self) -> tuple[NDArray[np.int64], ...]:
        """All pairs and triples as rising numbers, and a last one that is none of them."""
        before, pair = self._contexts
        keys = before * self.tokens + self.seconds, pair * self.tokens + self.thirds
        return tuple(np.append(each, np.iinfo(np.int64).max) for each in keys)

    def find(self, level: int, context: Any, last: Any) -> NDArray[np.int64]:
        """Return positions of pairs (level 0, after tokens) or triples (1, after pairs); -1 for those not listed."""
        keys = self._keys[level]
        wanted = np.asarray(context, np.int64) * self.tokens + last
        at = np.searchsorted(keys, wanted)
        return np.where(keys[at] == wanted, at, -1)

    @cached_property
    def weights(self) -> tuple[NDArray[np.float64], ...]:
        """Probabilities of single tokens, weights of pairs and triples, and back-off weights after tokens and pairs."""
        single = np.diff(self.single, prepend=np.uint32(0)) / ONE
        pairs = _steps(self.pairs, self.offsets)
        triples = _steps(self.triples, self.pair_offsets)
        return single, pairs, triples, *(1.0 - each for each in self._sums(pairs, triples))

    def _sums(self, *weights: NDArray[np.float64]) -> list[NDArray[Any]]:
        """Sum weights of pairs and of triples by context; exact for multiples of ``1 / ONE``."""
        sizes = self.tokens, len(self.pairs)
        return [np.bincount(*each) for each in zip(self._contexts, weights, sizes, strict=True)]

    def probability(
        self, token: Any, before: Any = None, earlier: Any = None
    ) -> NDArray[np.float64]:
        """Return the probability of tokens after the token before them, and after the one still earlier.

        Shapes broadcast; None where no token is looked at.
        """
        single, pairs, triples, backoff, pair_backoff = self.weights
        found: NDArray[np.float64] = single[np.asarray(token)]
        if before is None:
            return found
        listed = self.find(0, before, token)
        found = backoff[np.asarray(before)] * found
        if len(pairs):
            found = found + np.where(listed >= 0, pairs[listed], 0.0)
        if earlier is None or not len(triples):
            return found
        context = self.find(0, earlier, before)
        listed = self.find(1, context, token)
        found = np.where(context >= 0, pair_backoff[context], 1.0) * found
        return np.asarray(found + np.where(listed >= 0, triples[listed], 0.0))

    def after(self, *context: int) -> NDArray[np.float64]:
        """Return the distribution of the token after up to two others, as they are written; shape (N,)."""
        return self.probability(np.arange(self.tokens), *context[::-1])

    def perplexity(self, ids: NDArray[np.integer], offsets: NDArray[np.int64]) -> float:
        """Return the inverse geometric mean of the probabilities of all words of the vocabulary.

        ``ids``, shape (T,), are as for :meth:`of_ids`; document j is ``ids[offsets[j]:offsets[j + 1]]``.
        """
        tokens = self.of_ids(ids)
        probability = self.probability(tokens, *_tokens_before(tokens, offsets, self.start))
        return float(np.exp(-np.log(probability)[np.asarray(ids) >= 0].mean()))

    # Draws

    @cached_property
    def _ladders(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Running sums of pairs and triples, those of a context above all of the context before it."""
        before, pair = self._contexts
        return before * ONE + self.pairs, pair * ONE + self.triples

    def draw(
        self, before: NDArray[np.int64], earlier: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """Draw a token after each of some contexts, exactly from :meth:`probability`; shape (D,)."""
        last = np.searchsorted(self.single, rng.integers(ONE, size=len(before)), side="right")
        pair = self.find(0, earlier, before)
        steps = ((before, self.offsets, self.seconds), (pair, self.pair_offsets, self.thirds))
        for ladder, (context, offsets, words) in zip(self._ladders, steps, strict=True):
            point = context * ONE + rng.integers(ONE, size=len(before))
            at = np.searchsorted(ladder, point, side="right")
            listed = at < offsets[context + 1]  # never after a pair of -1, which is not listed
            last[listed] = words[at[listed]]
        return last

    def sample(self, length: int, rng: np.random.Generator) -> NDArray[np.int32]:
        """Draw a document of so many words; -1 for other words."""
        words, found = self.words_only(), np.empty(length, np.int32)
        earlier = before = np.array([self.start])
        for position in range(length):
            earlier, before = before, words.draw(before, earlier, rng)
            found[position] = before[0] if before[0] < self.size else -1
        return found

    def words_only(self, *, other: bool = True) -> NGrams:
        """Return the model of the next word, given that it is no symbol; without ``other`` it is of the vocabulary."""
        kept = np.arange(self.tokens) < self.size
        kept[-1] = other
        return self.tilted(kept.astype(np.float64))

    def tilted(self, factors: NDArray[np.float64]) -> NGrams:
        """Return the model with each token's probability times a factor of 0 or more, in every context, scaled to 1."""
        single, pairs, triples, backoff, pair_backoff = self.weights
        pairs, triples = pairs * factors[self.seconds], triples * factors[self.thirds]
        before, pair = self._contexts
        listed, pair_listed = self._sums(pairs, triples)
        alone = (single * factors).sum()
        whole = listed + backoff * alone
        pair_whole = pair_listed + pair_backoff * whole[self.seconds]
        return replace(
            self,
            single=_single(single * factors / alone, factors > 0),
            pairs=_running(pairs / whole[before], self.offsets),
            triples=_running(triples / pair_whole[pair], self.pair_offsets),
        )

    def with_words(self, count: int) -> NGrams:
        """Return the model with so many words more, which share a probability like that of all other words."""
        after = self.size
        single = np.insert(self.weights[0], after, np.full(count, self.weights[0][-1] / count))
        return replace(
            self,
            size=after + count,
            single=_single(single / single.sum(), single > 0),
            offsets=np.insert(self.offsets, after, np.full(count, self.offsets[after])),
            seconds=self.seconds + (count * (self.seconds >= after)).astype(np.int32),
            thirds=self.thirds + (count * (self.thirds >= after)).astype(np.int32),
        )

    # Making

    @classmethod
    def from_probabilities(
        cls,
        size: int,
        symbols: tuple[str, ...],
        single: NDArray[np.float64],
        pairs: tuple[NDArray[Any], ...] = _NONE,
        triples: tuple[NDArray[Any], ...] = _NONE,
    ) -> NGrams:
        """Make a model of weights: of single tokens, and with contexts (rising) and last tokens, of longer n-grams.

        Contexts of ``triples`` are positions in ``pairs``.
        """
        before, seconds, pair_weights = pairs
        context, thirds, triple_weights = triples
        offsets = np.searchsorted(before, np.arange(len(single) + 1))
        pair_offsets = np.searchsorted(context, np.arange(len(seconds) + 1))
        return cls(
            size,
            symbols,
            _single(single / math.fsum(single), np.ones(len(single), np.bool_)),
            offsets,
            seconds.astype(np.int32),
            _running(pair_weights, offsets),
            pair_offsets,
            thirds.astype(np.int32),
            _running(triple_weights, pair_offsets),
        )

    @classmethod
    def count(cls, texts: Iterable[str], vocabulary: Vocabulary) -> NGrams:
        """Count n-grams of up to three tokens in public texts, by the tokenizer of the vocabulary's language.

        Never count private texts: the model is public.

        Examples
        --------
        >>> import numpy as np
        >>> vocabulary = Vocabulary(["good", "film", "bad"], np.eye(3))
        >>> model = NGrams.count(["A good film.", "A good film!", "A bad one."], vocabulary)
        >>> bool(model.probability(1, before=0) > 0.5)
        True
        """
        return cls.from_ids(*token_ids(texts, vocabulary), len(vocabulary))

    @classmethod
    def from_ids(
        cls,
        ids: NDArray[np.integer],
        offsets: NDArray[np.int64],
        size: int,
        symbols: tuple[str, ...] = SYMBOLS,
    ) -> NGrams:
        """Count n-grams in public documents, by absolute discounting (Ney, Essen and Kneser 1994).

        ``ids`` and ``offsets`` are as for :meth:`perplexity`; ``symbols`` begin with ``START`` and ``OTHER``.
        """
        model = cls.from_probabilities(size, symbols, np.ones(size + len(symbols) + 1))
        if len(ids) and not -1 - len(SYMBOLS) <= ids.min() <= ids.max() < size:
            raise TextprivError(f"a word id is beyond the {size:,} words of the vocabulary.")
        tokens = model.of_ids(ids)
        before, earlier = _tokens_before(tokens, offsets, model.start)
        single = (np.bincount(tokens, minlength=model.tokens) + 1).astype(np.float64)
        pairs = _counted(before, tokens, model.tokens)
        model = cls.from_probabilities(size, symbols, single, pairs)
        triples = _counted(model.find(0, earlier, before), tokens, model.tokens)
        return cls.from_probabilities(size, symbols, single, pairs, triples)


def symbol_id(text: str) -> int:
    """Return the id of a token that is released as it is, -2 and below; all but ``SYMBOLS`` have that of ``OTHER``."""
    return -2 - (SYMBOLS.index(text) if text in SYMBOLS else 1)


def token_ids(
    texts: Iterable[str], vocabulary: Vocabulary
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return tokens of public texts as for :meth:`NGrams.of_ids`, one text after the other, and where each begins."""
    import spacy

    tokenizer = spacy.blank(vocabulary.language or "en").tokenizer
    number = {word: at for at, word in enumerate(vocabulary.words)}
    number |= {text: symbol_id(text) for text in SYMBOLS}
    known: dict[str, list[int]] = {}
    ids: list[int] = []
    ends = [0]
    for text in texts:
        for chunk in text.split():
            if chunk not in known:
                known[chunk] = [number.get(each.text.lower(), -1) for each in tokenizer(chunk)]
            ids += known[chunk]
        ends.append(len(ids))
    return np.array(ids, np.int32), np.array(ends, np.int64)


def _tokens_before(
    tokens: NDArray[np.int64], offsets: NDArray[np.int64], start: int
) -> tuple[NDArray[np.int64], ...]:
    """Return the token before each, and the one before that; a document begins after the start."""
    position = np.arange(len(tokens)) - np.repeat(offsets[:-1], np.diff(offsets))
    return tuple(np.where(position >= back, np.roll(tokens, back), start) for back in (1, 2))


def _counted(
    context: NDArray[np.int64], last: NDArray[np.int64], count: int
) -> tuple[NDArray[Any], ...]:
    """Return contexts, last tokens and discounted shares of all n-grams that occur after a listed context."""
    keys, times = np.unique((context * count + last)[context >= 0], return_counts=True)
    before, token = np.divmod(keys, count)
    total = np.bincount(before, weights=times)
    return before, token, (times - _DISCOUNT) / total[before]


def _steps(ends: NDArray[np.uint32], offsets: NDArray[np.int64]) -> NDArray[np.float64]:
    weights: NDArray[Any] = np.diff(ends.astype(np.int64), prepend=0)
    first = offsets[:-1][np.diff(offsets) > 0]
    weights[first] = ends[first]
    return weights / ONE


def _running(weights: NDArray[np.float64], offsets: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Return running sums of whole weights, rounded down, so that every context keeps a back-off weight."""
    total = np.cumsum(np.minimum(weights * ONE, ONE - 1).astype(np.int64))
    base = np.concatenate([[0], total])[offsets[:-1]]
    ends = total - np.repeat(base, np.diff(offsets))
    if len(ends) and ends.max() >= ONE:
        raise TextprivError("the successors of a context leave no weight for all other words.")
    return ends.astype(np.uint32)


def _single(share: NDArray[np.float64], kept: NDArray[np.bool_]) -> NDArray[np.uint32]:
    """Return running sums of whole weights of single tokens: at least 1 for those that are kept, in all ``ONE``."""
    weights = np.where(kept, np.maximum((share * (ONE - len(share))).astype(np.int64), 1), 0)
    weights[int(weights.argmax())] += ONE - int(weights.sum())
    return np.cumsum(weights).astype(np.uint32)


# A model as one file of arrays. Compiled code reads by its values, so the reader checks all of them.

_TYPES = [np.dtype(each) for each in ("u4", *("i8", "i4", "u4") * 2)]
_NAMES = [each.name for each in fields(NGrams)]


def write_model(path: Path, model: NGrams) -> None:
    """Write all fields of a model, on the disk."""
    with open(path, "wb") as file:
        np.savez_compressed(file, **{name: getattr(model, name) for name in _NAMES})
        flush(file)


def read_model(path: Path, size: int) -> NGrams:
    """Return the model in a file; any error if it is damaged or is not over so many words."""
    with np.load(path) as stored:
        own_size, symbols, *arrays = (stored[name] for name in _NAMES)
    model = NGrams(size, tuple(map(str, symbols.ravel())), *arrays)
    tokens, single = size + len(model.symbols) + 1, model.single
    is_damaged = (
        [each.dtype for each in arrays] != _TYPES
        or any(each.ndim != 1 for each in arrays)
        or own_size.tolist() != size
        or len(single) != tokens
        or not (single[-1] == ONE and single[0] and (single[1:] > single[:-1]).all())
        or not _lists_tokens(tokens, tokens, *arrays[1:4])
        or not _lists_tokens(tokens, len(model.pairs), *arrays[4:])
        or any((each < 0).any() for each in model.weights[1:3])
        or any((each <= 0).any() for each in model.weights[3:])
    )
    if is_damaged:
        raise TextprivError(f"{path} is no language model of these words.")
    return model


def _lists_tokens(
    tokens: int, contexts: int, offsets: NDArray[Any], last: NDArray[Any], ends: NDArray[Any]
) -> bool:
    counts = np.diff(offsets)
    if len(offsets) != contexts + 1 or not offsets[0] == 0 <= counts.min(initial=0):
        return False
    if not offsets[-1] == len(ends) == len(last) or (last < 0).any() or (last >= tokens).any():
        return False
    keys = np.repeat(np.arange(contexts), counts) * tokens + last
    return bool((np.diff(keys) > 0).all())
