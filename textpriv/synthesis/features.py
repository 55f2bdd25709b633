"""What one record adds to the sums: whole numbers whose squares add up to at most ``STEP**2``.

A record of a class adds a part for its different vocabulary words, scaled to a fixed norm, a part for its class and a part
for its length. Everything but the record is public. All arithmetic is of whole numbers and rounds towards zero, so the norm
holds for what is computed, and sums do not depend on the order of records.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import TextprivError
from textpriv.language.ngrams import NGrams
from textpriv.tokenization.batches import RawBatch

STEP = 1 << 20  # whole numbers in one unit of norm
# Norms of the three parts of a record: words, class and length. Their squares add up to at most STEP**2.
WORDS_PART, CLASS_PART = 960 * STEP // 1000, STEP // 5
LENGTH_PART = math.isqrt(STEP**2 - WORDS_PART**2 - CLASS_PART**2)
# The same for number, mean vector and products of its entries. With 4 * .2 * .4 above .4**2 no two records have a negative
# inner product, whatever their mean vectors are.
ONE_PART, MEAN_PART = math.isqrt(STEP**2 // 5), math.isqrt(2 * STEP**2 // 5)
PRODUCTS_PART = math.isqrt(STEP**2 - ONE_PART**2 - MEAN_PART**2)
_ROOT_TWO = 1448  # of 1024, rounded down

_WEIGHT = 1 << 10  # whole numbers in a weight of one
_VECTOR = 1 << 10  # and in an entry of a word's vector
_TYPICAL = 100  # words of the text in which a word's document frequency is looked up
_DIMENSIONS = 16  # of mean vectors
EDGES = np.unique(np.rint(2.0 ** np.arange(0, 13.5, 0.5)).astype(np.int64))  # of bins of lengths

Label = str | int


class Records(NamedTuple):
    """What is read of some records: different words of each, one after the other, its class, and its number of words."""

    ids: NDArray[np.int64]
    offsets: NDArray[np.int64]
    classes: NDArray[np.int64]
    lengths: NDArray[np.int64]

    def __repr__(self) -> str:
        return "Records(<private>)"


@dataclass(frozen=True, repr=False)
class Topics:
    """Cells of a class: signs of a record's mean vector, less a centre, along some directions. Both are released."""

    centre: NDArray[np.int64]  # of shape (d,)
    directions: NDArray[np.int64]  # principal ones, of shape (bits, d)


@dataclass(frozen=True, repr=False)
class Space:
    """The public coordinates of the sums."""

    weights: NDArray[np.int64]  # of each word of the vocabulary, from 1 up, of shape (V,)
    vectors: NDArray[np.int64]  # of each word, for mean vectors, of shape (V, d)
    classes: tuple[Label, ...]  # declared; one class for records without labels
    # Records of one author that count; None if each record is protected by itself.
    authors: int | None = None
    topics: Topics | None = None

    @property
    def words(self) -> int:
        """Number V of words."""
        return len(self.weights)

    @property
    def cells(self) -> int:
        """Number of cells of each class."""
        return 1 if self.topics is None else 1 << len(self.topics.directions)

    @property
    def rows(self) -> int:
        """Number of classes times cells."""
        return len(self.classes) * self.cells

    @property
    def dimension(self) -> int:
        """Coordinates of the sums: words of each row, rows, bins of lengths."""
        return self.rows * (self.words + 1) + len(EDGES)

    @property
    def moments(self) -> int:
        """Coordinates of the number of records, their mean vectors and products of entries."""
        size = self.vectors.shape[1]
        return 1 + size + size * (size + 1) // 2

    @cached_property
    def _numbers(self) -> dict[Label, int]:
        return {label: number for number, label in enumerate(self.classes)}

    def read(self, batch: RawBatch, labels: Sequence[Any] | None = None) -> Records:
        """Return what counts of some tokenized records, in the order of the records."""
        is_word = batch.codes >= 0
        lengths = np.diff(np.append(0, np.cumsum(is_word))[batch.offsets])
        document = np.repeat(np.arange(len(lengths)), lengths)
        keys = np.unique(document * self.words + batch.codes[is_word])
        document, ids = np.divmod(keys, self.words)
        offsets = np.searchsorted(document, np.arange(len(lengths) + 1))
        return Records(ids, offsets, self.classes_of(labels, len(lengths)), lengths)

    def classes_of(self, labels: Sequence[Any] | None, count: int) -> NDArray[np.int64]:
        """Return the number of each label's class; a label that is not declared is refused."""
        if labels is None:
            return np.zeros(count, np.int64)
        found = [self._numbers.get(label, -1) for label in map(plain_label, labels)]
        if len(found) != count or -1 in found:
            raise TextprivError(
                "a record has a label that is not among the classes. Declare all classes, or correct the label."
            )
        return np.array(found, np.int64)

    def word_parts(self, records: Records) -> NDArray[np.int64]:
        """Return what each word of each record adds; the squares of a record add up to at most ``WORDS_PART**2``."""
        weights = self.weights[records.ids]
        lengths = _length(_sums(weights * weights, records.offsets))
        return WORDS_PART * weights // np.repeat(lengths, np.diff(records.offsets))

    def add_to(self, total: NDArray[np.int64], records: Records) -> None:
        """Add what some records add to the sums, of shape (dimension,)."""
        rows = records.classes * self.cells + self.cells_of(records)
        places = np.repeat(rows, np.diff(records.offsets)) * self.words + records.ids
        np.add.at(total, places, self.word_parts(records))
        np.add.at(total, self.rows * self.words + rows, CLASS_PART)
        bins = np.searchsorted(EDGES, np.maximum(records.lengths, 1), side="right") - 1
        np.add.at(total, self.rows * (self.words + 1) + bins, LENGTH_PART)

    def mean_vectors(self, records: Records) -> NDArray[np.int64]:
        """Return the weighted mean vector of each record's words, scaled to a norm of at most ``STEP``, shape (D, d)."""
        weighted = self.weights[records.ids][:, None] * self.vectors[records.ids]
        sums = np.stack([_sums(column, records.offsets) for column in weighted.T], axis=1)
        counts = np.maximum(np.diff(records.offsets), 1)[:, None]
        means = _towards_zero(sums, counts)
        return _towards_zero(STEP * means, _length(np.square(means).sum(axis=1))[:, None])

    def cells_of(self, records: Records) -> NDArray[np.int64]:
        """Return the cell of each record within its class."""
        if self.topics is None:
            return np.zeros(len(records.lengths), np.int64)
        sides = (self.mean_vectors(records) - self.topics.centre) @ self.topics.directions.T > 0
        return sides @ (1 << np.arange(sides.shape[1]))

    def add_moments_to(self, total: NDArray[np.int64], records: Records) -> None:
        """Add the number, mean vectors and products of some records, of shape (moments,)."""
        means = self.mean_vectors(records)
        one, two = np.triu_indices(means.shape[1])
        products = _towards_zero(means[:, one] * means[:, two], STEP)
        products = np.where(one == two, products, _towards_zero(products * _ROOT_TWO, 1024))
        total[0] += ONE_PART * len(means)
        total[1 : len(means.T) + 1] += _towards_zero(means * MEAN_PART, STEP).sum(axis=0)
        total[len(means.T) + 1 :] += _towards_zero(products * PRODUCTS_PART, STEP).sum(axis=0)


def plain_label(label: Any) -> Any:
    """Return a label as a plain Python value; that of a numpy scalar."""
    return label.item() if isinstance(label, np.generic) else label


def public_weights(model: NGrams) -> NDArray[np.int64]:
    """Return the root of each word's inverse document frequency under a public model, in whole numbers from 1 up."""
    alone = model.words_only(other=False).weights[0][: model.size]
    idf = -np.log(-np.expm1(_TYPICAL * np.log1p(-np.minimum(alone, 0.5))))
    return np.maximum(np.sqrt(np.minimum(idf, 9.0)) * _WEIGHT / 3.0, 1.0).astype(np.int64)


def public_vectors(vectors: NDArray[np.floating[Any]]) -> NDArray[np.int64]:
    """Return the vectors of words along their principal directions, in whole numbers."""
    rows = np.asarray(vectors, np.float64)
    rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    rows = rows - rows.mean(axis=0)
    _, directions = np.linalg.eigh(rows.T @ rows)
    return np.rint(rows @ directions[:, ::-1][:, :_DIMENSIONS] * _VECTOR).astype(np.int64)


def _sums(values: NDArray[np.int64], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sum the values of each record."""
    return np.diff(np.append(0, np.cumsum(values))[offsets])


def _length(squares: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return roots rounded up to whole numbers, at least 1; squares are below 2^52."""
    root = np.sqrt(squares).astype(np.int64)
    return np.maximum(root + (root * root < squares), 1)


def _towards_zero(values: NDArray[np.int64], divisor: Any) -> NDArray[np.int64]:
    return np.sign(values) * (np.abs(values) // divisor)
