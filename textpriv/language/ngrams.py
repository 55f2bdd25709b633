"""A public n-gram model over a vocabulary, of one to three words: counted in public text, or read from an ARPA file.

Probabilities have the back-off form of ARPA files: those of n-grams that are listed are stored, all others are the weight of
the words before times the probability with one word less before. Words outside the vocabulary are one further word, the
last. What such a model says about private text is computed in ``context_recovery``; where a ready one comes from, in
``general_english``.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import TextprivError

__all__ = ["NGrams"]

_UNKNOWN = ("<unk>", "<UNK>")
_START = "<s>"
_LEAST = 1e-12  # probability of a word that a model does not have
_LIMIT = 99.0  # of logarithms of back-off weights, to base 10
_BLOCK = 1 << 24  # bytes of a file at a time


class _Level(NamedTuple):
    """N-grams of one length, sorted: the number of what stands before the last word, the last word, their probability."""

    before: NDArray[np.int64]
    last: NDArray[np.int64]
    probability: NDArray[np.float64]
    backoff: NDArray[np.float64]

    def offsets(self, contexts: int) -> NDArray[np.int64]:
        return np.searchsorted(self.before, np.arange(contexts + 1)).astype(np.int64)


_NONE = _Level(*(np.empty(0, np.int64),) * 2, *(np.empty(0),) * 2)


@dataclass(frozen=True)
class NGrams:
    """How likely a word is, alone and after one or two others. Words are ids 0 .. V - 1, and V stands for all others.

    Attributes
    ----------
    single : ndarray of float64, shape (V + 1,)
        Probabilities of words; they sum to 1.
    backoff : ndarray of float64, shape (V + 1,)
    offsets : ndarray of int64, shape (V + 2,)
        The pairs that begin with word v are those from ``offsets[v]`` to ``offsets[v + 1]``.
    seconds : ndarray of int32, shape (P,)
        The second words of all pairs; rising within those of one first word.
    pairs, pair_backoff : ndarray of float64, shape (P,)
        Their probabilities after the first word, and their weights.
    pair_offsets : ndarray of int64, shape (P + 1,)
        The triples that begin with pair p are those from ``pair_offsets[p]`` to ``pair_offsets[p + 1]``.
    thirds : ndarray of int32, shape (Q,)
    triples : ndarray of float64, shape (Q,)
        Probabilities of the third word after the first two.
    """

    single: NDArray[np.float64]
    backoff: NDArray[np.float64]
    offsets: NDArray[np.int64]
    seconds: NDArray[np.int32]
    pairs: NDArray[np.float64]
    pair_backoff: NDArray[np.float64]
    pair_offsets: NDArray[np.int64]
    thirds: NDArray[np.int32]
    triples: NDArray[np.float64]

    @classmethod
    def _of(
        cls,
        single: NDArray[np.float64],
        backoff: NDArray[np.float64],
        pairs: _Level = _NONE,
        triples: _Level = _NONE,
    ) -> NGrams:
        return cls(
            single,
            backoff,
            pairs.offsets(len(single)),
            pairs.last.astype(np.int32),
            pairs.probability,
            pairs.backoff,
            triples.offsets(len(pairs.last)),
            triples.last.astype(np.int32),
            triples.probability,
        )

    @classmethod
    def alone(cls, single: NDArray[np.float64]) -> NGrams:
        """The model in which no word says anything about another; ``single`` as above, the last entry for unknown words."""
        return cls._of(single, np.ones(len(single)))

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """All that the model is made of, in the order above."""
        return tuple(getattr(self, field.name) for field in fields(self))

    # What the model says

    @property
    def size(self) -> int:
        """Words V of the vocabulary."""
        return len(self.single) - 1

    @cached_property
    def _keys(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """All pairs and all triples as numbers, rising."""
        width = len(self.single)
        before = np.repeat(np.arange(width), np.diff(self.offsets))
        pair = np.repeat(np.arange(len(self.pairs)), np.diff(self.pair_offsets))
        return before * width + self.seconds, pair * width + self.thirds

    def _find(self, level: int, before: Any, last: Any) -> NDArray[np.int64]:
        """Where n-grams are listed, -1 where they are not."""
        keys = self._keys[level]
        wanted = np.asarray(before, np.int64) * len(self.single) + last
        if not len(keys):
            return np.full(wanted.shape, -1, np.int64)
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where((keys[at] == wanted) & (np.asarray(before) >= 0), at, -1)

    def probability(
        self, word: Any, before: Any = None, earlier: Any = None
    ) -> NDArray[np.float64]:
        """How likely words are after the word before them, and after the one still earlier.

        Parameters
        ----------
        word, before, earlier : int or ndarray of int
            Ids up to V; shapes that broadcast. None where no word stands there.
        """
        word = np.asarray(word)
        if before is None:
            return np.asarray(self.single[word])
        listed = self._find(0, before, word)
        low: NDArray[np.float64] = np.asarray(self.backoff)[before] * self.single[word]
        if len(self.pairs):
            low = np.where(listed >= 0, self.pairs[listed], low)
        if earlier is None or not len(self.triples):
            return low
        context = self._find(0, earlier, before)
        listed = self._find(1, context, word)
        low = np.where(context >= 0, self.pair_backoff[context], 1.0) * low
        return np.where(listed >= 0, self.triples[listed], low)

    def after(self, *words: int) -> NDArray[np.float64]:
        """The law of the word after up to two others, in the order in which they are written; shape (V + 1,)."""
        return self.probability(np.arange(len(self.single)), *words[::-1])

    def between(self, left: Sequence[int], right: Sequence[int]) -> NDArray[np.float64]:
        """Log-probability, up to a constant, of each word between others, shape (V,); only the nearest two count."""
        word = np.arange(self.size)
        context = [*left[-2:], word, *right[:2]]
        first = len(left[-2:])
        found = np.zeros(self.size)
        for position in range(first, len(context)):
            before = context[max(0, position - 2) : position][::-1]
            found += np.log(self.probability(context[position], *before))
        return found

    def log_probabilities(
        self, ids: NDArray[np.int32], offsets: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """The logarithm of the probability of each word after those before it in its document, shape (T,).

        Parameters
        ----------
        ids : ndarray of int, shape (T,)
            Of all documents, one after the other; negative ones stand for words outside the vocabulary.
        offsets : ndarray of int64, shape (D + 1,)
        """
        words = np.where(ids < 0, self.size, ids).astype(np.int64)
        position = np.arange(len(words)) - np.repeat(offsets[:-1], np.diff(offsets))
        found = self.single[words]
        for back in (1, 2):
            at = np.flatnonzero(position >= back)
            found[at] = self.probability(words[at], *(words[at - n] for n in range(1, back + 1)))
        return np.log(found)

    def perplexity(self, ids: NDArray[np.int32], offsets: NDArray[np.int64]) -> float:
        """The inverse of the geometric mean of all words' probabilities; see :meth:`log_probabilities`."""
        return float(np.exp(-self.log_probabilities(ids, offsets).mean()))

    def sample(self, length: int, rng: np.random.Generator) -> NDArray[np.int32]:
        """Draw a text of so many words, -1 for those outside the vocabulary."""
        text: list[int] = []
        for uniform in rng.random(length):
            law = np.cumsum(self.after(*text[-2:]) if text else self.single)
            text.append(int(np.searchsorted(law, uniform * law[-1], side="right")))
        words = np.minimum(text, self.size).astype(np.int32)
        return np.where(words == self.size, -1, words).astype(np.int32)

    # Where it comes from

    @classmethod
    def train(
        cls,
        ids: NDArray[np.int32],
        offsets: NDArray[np.int64],
        size: int,
        *,
        order: int = 3,
        discount: float = 0.75,
    ) -> NGrams:
        """Count words, pairs and triples in public text, by absolute discounting.

        Of each count ``discount`` is taken off and given to all words by their probability with one word less before; alone,
        every word is counted once more than it is there (Ney, Essen and Kneser 1994).

        Parameters
        ----------
        ids : ndarray of int, shape (T,)
            Word ids of all documents, one after the other; negative ones stand for words outside the vocabulary.
        offsets : ndarray of int64, shape (D + 1,)
            Document j holds ``ids[offsets[j]:offsets[j + 1]]``.
        size : int
            Words V of the vocabulary.
        order : int
            Words in the longest n-gram: 1, 2 or 3.
        discount : float
            In (0, 1).

        Raises
        ------
        TextprivError
        """
        if not 0 < discount < 1:
            raise TextprivError(f"discount lies between 0 and 1; got {discount}.")
        if order not in (1, 2, 3):
            raise TextprivError(f"order is 1, 2 or 3 words; got {order}.")
        if len(ids) and int(ids.max()) >= size:
            raise TextprivError(f"a word id lies beyond the {size:,} words of the vocabulary.")
        words = np.where(ids < 0, size, ids).astype(np.int64)
        document = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        width = size + 1
        single = (np.bincount(words, minlength=width) + 1) / (len(words) + width)
        model = cls.alone(single)
        if order == 1:
            return model
        context, backoff, pairs = words, np.ones(width), _NONE
        for length in range(1, order):
            inside = np.flatnonzero(document[:-length] == document[length:])
            keys, times = np.unique(
                context[inside] * width + words[inside + length], return_counts=True
            )
            before, last = np.divmod(keys, width)
            contexts = len(model.pairs) if length == 2 else width
            total = np.bincount(before, weights=times, minlength=contexts)
            kinds = np.bincount(before, minlength=contexts)
            weight = np.where(total > 0, discount * kinds / np.maximum(total, 1), 1.0)
            previous = () if length == 1 else (model.seconds[before],)
            share = (times - discount) / total[before]
            share += weight[before] * model.probability(last, *previous)
            if length == 1:
                backoff, pairs = weight, _Level(before, last, share, np.ones(len(keys)))
                model = cls._of(single, backoff, pairs)
                context = model._find(0, words[:-1], words[1:])
            else:
                triples = _Level(before, last, share, share)
                model = cls._of(single, backoff, pairs._replace(backoff=weight), triples)
        return model

    @classmethod
    def read_arpa(cls, path: Path, words: Sequence[str], *, order: int = 3) -> NGrams:
        """Read an ARPA file, packed by gzip or not; n-grams of more than ``order`` words are passed over.

        Words of the file that the vocabulary lacks are one with those that neither has; so what begins with one of them
        backs off. The probability of each word that the file lacks is set to 1e-12, and every law is scaled to sum to 1.

        Parameters
        ----------
        path : Path
        words : sequence of str
            The vocabulary.
        order : int
            Words in the longest n-gram that is read: 1, 2 or 3.

        Raises
        ------
        TextprivError
            Naming the line that cannot be read; for a probability that is none, and for a file that ends early.
        """
        if order not in (1, 2, 3):
            raise TextprivError(f"order is 1, 2 or 3 words; got {order}.")
        import pyarrow as pa

        vocabulary = pa.array(words, pa.string())
        size, width = len(words), len(words) + 1
        single, backoff = np.zeros(width), np.ones(width)
        kept: dict[int, list[tuple[NDArray[Any], ...]]] = {2: [], 3: []}
        for entries in _read_entries(path, order):
            ids = [_ids(column, vocabulary) for column in entries.words]
            if len(ids) > 1:
                at = np.flatnonzero(np.all(np.array(ids) < size, axis=0))
                columns = (*(each[at] for each in ids), entries.probability[at])
                kept[len(ids)].append((*columns, entries.weight[at], at + entries.line))
                continue
            texts = np.array(entries.words[0].to_pylist(), dtype=object)
            counted = texts != _START
            single += np.bincount(ids[0], entries.probability * counted, minlength=width)
            named = (ids[0] < size) | np.isin(texts, _UNKNOWN)
            backoff[ids[0][named]] = entries.weight[named]
        if not single.any():
            raise TextprivError(f"{path} holds no unigrams of the vocabulary; is it an ARPA file?")
        single = np.maximum(single, _LEAST)
        single /= single.sum()
        first, second, share, weight, _ = _joined(kept[2], 5)
        pairs, weights = _scaled(first * width + second, share, weight, backoff, cls.alone(single))
        model = cls._of(single, weights, pairs)
        if not kept[3]:
            return model
        first, second, third, share, weight, line = _joined(kept[3], 6)
        context = model._find(0, first, second)
        if (context < 0).any():
            raise TextprivError(
                f"{path}, line {line[context < 0][0]}: the first two words are no bigram of the file."
            )
        triples, weights = _scaled(context * width + third, share, weight, pairs.backoff, model)
        return cls._of(single, model.backoff, pairs._replace(backoff=weights), triples)


def _joined(parts: list[tuple[NDArray[Any], ...]], columns: int) -> list[NDArray[Any]]:
    if not parts:
        return [np.empty(0, np.int64 if n < 2 else np.float64) for n in range(columns)]
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def _scaled(
    keys: NDArray[np.int64],
    share: NDArray[np.float64],
    weight: NDArray[np.float64],
    backoff: NDArray[np.float64],
    lower: NGrams,
) -> tuple[_Level, NDArray[np.float64]]:
    """N-grams sorted, with the weights of what stands before them, so that each law sums to 1."""
    keys, first = np.unique(keys, return_index=True)
    share, weight = share[first], weight[first]
    before, last = np.divmod(keys, len(lower.single))
    # The last word by the model of one word less: after nothing, or after the second word of the pair before it.
    less = lower.probability(last, *((lower.seconds[before],) if len(lower.pairs) else ()))
    listed = np.bincount(before, share, minlength=len(backoff))
    covered = np.bincount(before, less, minlength=len(backoff))
    total = listed + backoff * np.maximum(1 - covered, 0)
    return _Level(before, last, share / total[before], weight), backoff / total


class _Entries(NamedTuple):
    """Lines of one section of an ARPA file: its first line's number, and columns."""

    line: int
    probability: NDArray[np.float64]
    words: list[Any]
    weight: NDArray[np.float64]


def _read_entries(path: Path, order: int) -> Iterator[_Entries]:
    """Yield the n-grams of up to so many words, section by section; a file that ends early is refused."""
    declared: dict[int, int] = {}
    counted: dict[int, int] = {}
    section, number = 0, 0
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            while lines := file.readlines(_BLOCK):
                heads = [n for n, line in enumerate(lines) if line.startswith(b"\\")]
                for begin, end in zip(
                    [0, *(n + 1 for n in heads)], [*heads, len(lines)], strict=True
                ):
                    part = lines[begin:end]
                    if begin:
                        head = lines[begin - 1]
                        section = int(head[1:2]) if head[1:2].isdigit() else 0
                    if section == 0:
                        declared |= dict(map(_declared, filter(_declares, part)))
                    elif section <= order:
                        found = _parse(path, part, section, number + begin + 1)
                        counted[section] = counted.get(section, 0) + len(found.probability)
                        yield found
                number += len(lines)
    except (OSError, EOFError, zlib.error):
        raise TextprivError(f"{path} cannot be read as an ARPA file.") from None
    for length, count in declared.items():
        if length <= order and counted.get(length, 0) != count:
            raise TextprivError(
                f"{path} says that it holds {count:,} n-grams of length {length}, and holds {counted.get(length, 0):,}: is "
                "it whole?"
            )


def _declares(line: bytes) -> bool:
    return line.startswith(b"ngram ")


def _declared(line: bytes) -> tuple[int, int]:
    length, _, count = line[6:].partition(b"=")
    try:
        return int(length), int(count)
    except ValueError:
        return 0, 0


def _parse(path: Path, lines: list[bytes], order: int, number: int) -> _Entries:
    """The columns of lines of a section, the first of which has a number; blank ones are left out at its ends only."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def refuse(at: int, expected: str) -> TextprivError:
        return TextprivError(f"{path}, line {number + at}: expected {expected}.")

    form = f"a logarithm, {order} words and perhaps a back-off weight"
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    while lines and not lines[0].strip():
        lines, number = lines[1:], number + 1
    try:
        text = pa.array(lines, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        raise TextprivError(
            f"{path} is no UTF-8 text, so it cannot be read as an ARPA file."
        ) from None
    tokens = pc.ascii_split_whitespace(pc.ascii_trim_whitespace(text))
    lengths = tokens.value_lengths().to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero((lengths < order + 1) | (lengths > order + 2))
    if len(wrong):
        raise refuse(int(wrong[0]), form)
    starts, flat = np.cumsum(lengths) - lengths, tokens.flatten()
    weighted = np.flatnonzero(lengths == order + 2)
    weight = np.ones(len(lines))
    logarithm = _numbers(flat.take(pa.array(starts)))
    given = _numbers(flat.take(pa.array(starts[weighted] + order + 1)))
    wrong = np.flatnonzero(~(np.isfinite(logarithm) & (logarithm <= 0)))
    if len(wrong):
        raise refuse(int(wrong[0]), f"{form}; the logarithm of a probability is a number up to 0")
    wrong = weighted[~(np.abs(given) <= _LIMIT)]
    if len(wrong):
        raise refuse(int(wrong[0]), f"{form}, from -{_LIMIT:g} to {_LIMIT:g}")
    weight[weighted] = 10.0**given
    columns = [flat.take(pa.array(starts + n)) for n in range(1, order + 1)]
    return _Entries(number, 10.0 ** np.maximum(logarithm, -_LIMIT), columns, weight)


def _numbers(texts: Any) -> NDArray[np.float64]:
    """Texts as numbers; NaN for what is none."""
    import pyarrow as pa

    try:
        return np.asarray(texts.cast(pa.float64()))
    except pa.ArrowInvalid:

        def number(text: str) -> float:
            try:
                return float(text)
            except ValueError:
                return np.nan

        return np.array([number(text) for text in texts.to_pylist()])


def _ids(column: Any, vocabulary: Any) -> NDArray[np.int64]:
    """Ids of a column of words; those outside the vocabulary are the last."""
    import pyarrow.compute as pc

    found = pc.index_in(column, value_set=vocabulary).fill_null(len(vocabulary))
    return np.asarray(found).astype(np.int64)
