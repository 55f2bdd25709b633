"""A public bigram model over a vocabulary: trained on public word ids, or read from an ARPA file.

Probabilities have the form of a back-off model: those of pairs that are listed are stored, all others are the back-off
weight of the first word times the probability of the second. Words outside the vocabulary are one further word, the last.
What such a model says about private text is computed in ``context_recovery``.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import TextprivError

__all__ = ["Bigrams"]

_UNKNOWN = ("<unk>", "<UNK>")
_LEAST = 1e-12  # probability of a word that a model does not have


@dataclass(frozen=True)
class Bigrams:
    """How likely a word is, alone and after another. Words are ids 0 .. V - 1, and V stands for all others.

    Attributes
    ----------
    single : ndarray of float64, shape (V + 1,)
        Probabilities of words; they sum to 1.
    backoff : ndarray of float64, shape (V + 1,)
    offsets : ndarray of int64, shape (V + 2,)
        The pairs that begin with word v are those from ``offsets[v]`` to ``offsets[v + 1]``.
    seconds : ndarray of int32, shape (P,)
        The second words of all pairs; rising within those of one first word.
    pairs : ndarray of float64, shape (P,)
        Their probabilities after the first word.
    """

    single: NDArray[np.float64]
    backoff: NDArray[np.float64]
    offsets: NDArray[np.int64]
    seconds: NDArray[np.int32]
    pairs: NDArray[np.float64]

    def after(self, word: int) -> NDArray[np.float64]:
        """The law of the word after another, shape (V + 1,)."""
        law = self.backoff[word] * self.single
        listed = slice(self.offsets[word], self.offsets[word + 1])
        law[self.seconds[listed]] = self.pairs[listed]
        return law

    @classmethod
    def train(
        cls,
        ids: NDArray[np.int32],
        offsets: NDArray[np.int64],
        size: int,
        *,
        discount: float = 0.75,
    ) -> Bigrams:
        """Count pairs in public text, by absolute discounting.

        Of each count of a pair ``discount`` is taken off and given to all words by their probability alone, for which every
        word is counted once more than it is there (Ney, Essen and Kneser 1994).

        Parameters
        ----------
        ids : ndarray of int, shape (T,)
            Word ids of all documents, one after the other; negative ones stand for words outside the vocabulary.
        offsets : ndarray of int64, shape (D + 1,)
            Document j holds ``ids[offsets[j]:offsets[j + 1]]``.
        size : int
            Words V of the vocabulary.
        discount : float
            In (0, 1).

        Raises
        ------
        TextprivError
        """
        if not 0 < discount < 1:
            raise TextprivError(f"discount lies between 0 and 1; got {discount}.")
        if len(ids) and int(ids.max()) >= size:
            raise TextprivError(f"a word id lies beyond the {size:,} words of the vocabulary.")
        words = np.where(ids < 0, size, ids).astype(np.int64)
        counts = np.bincount(words, minlength=size + 1)
        single = (counts + 1) / (len(words) + size + 1)
        inside = np.ones(max(len(words) - 1, 0), dtype=np.bool_)
        ends = offsets[1:-1]
        inside[ends[(ends > 0) & (ends < len(words))] - 1] = False  # no pair spans two documents
        keys, times = np.unique((words[:-1] * (size + 1) + words[1:])[inside], return_counts=True)
        first, second = np.divmod(keys, size + 1)
        total = np.bincount(first, weights=times, minlength=size + 1)
        kinds = np.bincount(first, minlength=size + 1)
        backoff = np.where(total > 0, discount * kinds / np.maximum(total, 1), 1.0)
        pairs = (times - discount) / total[first] + backoff[first] * single[second]
        begins = np.searchsorted(first, np.arange(size + 2)).astype(np.int64)
        return cls(single, backoff, begins, second.astype(np.int32), pairs)

    @classmethod
    def read_arpa(cls, path: Path, words: dict[str, int]) -> Bigrams:
        """Read the unigrams and bigrams of an ARPA file, packed by gzip or not; longer ones are passed over.

        Words of the file that the vocabulary lacks are one with those that neither has; so a first word among them backs
        off. The probability of each word that the file lacks is set to 1e-12, and all are scaled to sum to 1.

        Parameters
        ----------
        path : Path
        words : dict of str to int
            The ids of the vocabulary's words.

        Raises
        ------
        TextprivError
            Naming the line that cannot be read.
        """
        size = len(words)
        single, backoff = np.zeros(size + 1), np.ones(size + 1)
        found: dict[tuple[int, int], float] = {}
        section = 0
        try:
            with (gzip.open if path.suffix == ".gz" else open)(
                path, "rt", encoding="utf-8"
            ) as lines:
                for number, line in enumerate(lines, start=1):
                    text = line.strip()
                    if text.startswith("\\"):
                        section = int(text[1]) if text[1:2].isdigit() else 0
                        continue
                    if not text or section not in (1, 2):
                        continue
                    try:
                        value, given, weight = _entry(text.split(), section)
                    except (ValueError, OverflowError):
                        raise TextprivError(
                            f"{path}, line {number}: expected a logarithm, {section} words and perhaps a back-off weight."
                        ) from None
                    ids = [words.get(each, size) for each in given]
                    if section == 2:
                        if size not in ids:
                            found[ids[0], ids[1]] = value
                    elif given[0] != "<s>":
                        single[ids[0]] += value
                        if ids[0] < size or given[0] in _UNKNOWN:
                            backoff[ids[0]] = weight
        except (OSError, UnicodeDecodeError, EOFError):
            raise TextprivError(f"{path} cannot be read as an ARPA file.") from None
        if not single.any():
            raise TextprivError(f"{path} holds no unigrams of the vocabulary; is it an ARPA file?")
        single = np.maximum(single, _LEAST)
        single /= single.sum()
        keys = np.array(sorted(found), dtype=np.int64).reshape(-1, 2)
        pairs = np.array([found[one, other] for one, other in keys.tolist()], dtype=np.float64)
        # Scaled so that each law sums to 1, whatever the file has of words that are not here.
        begins = np.searchsorted(keys[:, 0], np.arange(size + 2)).astype(np.int64)
        listed = np.bincount(keys[:, 0], weights=pairs, minlength=size + 1)
        covered = np.bincount(keys[:, 0], weights=single[keys[:, 1]], minlength=size + 1)
        total = listed + backoff * (1 - covered)
        return cls(
            single,
            backoff / total,
            begins,
            keys[:, 1].astype(np.int32),
            pairs / total[keys[:, 0]],
        )


def _entry(parts: list[str], order: int) -> tuple[float, list[str], float]:
    """The probability, the words and the back-off weight of a line of an ARPA file."""
    if not order + 1 <= len(parts) <= order + 2:
        raise ValueError
    weight = 10.0 ** float(parts[-1]) if len(parts) == order + 2 else 1.0
    return 10.0 ** float(parts[0]), parts[1 : order + 1], weight
