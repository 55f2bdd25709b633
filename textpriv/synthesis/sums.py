"""Exact sums of private records, which any split of the records gives alike, and their one noisy release."""

from __future__ import annotations

import hashlib
import io
import math
import os
from collections import defaultdict
from collections.abc import Sequence, Set
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import TextprivError
from textpriv.mechanisms.base import UNKNOWN
from textpriv.randomness import framed, identity_bytes
from textpriv.synthesis.features import STEP, Records, Space, plain_label
from textpriv.tokenization.batches import KEPT, RawBatch
from textpriv.tokenization.policy import CLASSES

if TYPE_CHECKING:
    from typing_extensions import Self

_AT_ONCE = 1000  # chosen records that are added together
_MARK = 16  # bytes of a keyed hash

MOST_WORDS = 10  # new words of a record, or of all records of an author, that count
_LETTERS = range(2, 31)  # of a new word
_UNKNOWN_WORD = KEPT - CLASSES.index("unknown")


class _Unreleased:
    """What is counted of private records, in memory until its release.

    Parameters
    ----------
    space : Space
    key : bytes, optional
        Secret, shared by all parts of one measurement: chooses what counts of an author. Default: a fresh one.
    """

    def __init__(self, space: Space, key: bytes | None = None) -> None:
        self.space = space
        self.key = os.urandom(32) if key is None else key

    def empty(self) -> Self:
        """Return the same of no records, for another part of the same measurement."""
        return type(self)(self.space, self.key)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<private>)"


class Sums(_Unreleased):
    """Sums over private records, in whole numbers. Workers may pickle or pack them to hand them back."""

    def __init__(self, space: Space, key: bytes | None = None) -> None:
        super().__init__(space, key)
        self._total = np.zeros(space.dimension, np.int64)
        self._moments = np.zeros(space.moments, np.int64)
        self._settled = False
        # Of each author (identity bytes) the chosen records, by rising marks: a mark, a class, a length and the words.
        self._chosen: defaultdict[bytes, list[tuple[bytes, int, int, bytes]]] = defaultdict(list)

    def add(
        self,
        batch: RawBatch,
        labels: Sequence[Any] | None = None,
        authors: Sequence[Any] | None = None,
    ) -> None:
        """Add tokenized records with their labels, and with their authors where the space counts records of authors.

        A label that is no class and a missing author raise TextprivError; nothing of the batch is then added.
        """
        self._check_open()
        records = self.space.read(batch, labels)
        if self.space.authors is None:
            self._add(records)
            return
        for number, name in enumerate(_names(authors, len(batch))):
            of_record = slice(*records.offsets[number : number + 2])
            label, length = int(records.classes[number]), int(records.lengths[number])
            words = records.ids[of_record].astype(np.int32).tobytes()
            mark = _keyed(self.key, framed(name) + b"%d %d " % (label, length) + words)
            own = self._chosen[name]
            own.append((mark, label, length, words))
            own.sort()
            del own[self.space.authors :]

    @property
    def authors(self) -> Set[bytes]:
        """The ``identity_bytes`` of all authors whose records were added."""
        return self._chosen.keys()

    def _add(self, records: Records) -> None:
        self.space.add_to(self._total, records)
        self.space.add_moments_to(self._moments, records)

    def merge(self, other: Sums) -> None:
        """Add the sums of other records of the same measurement."""
        self._check_open()
        other._check_open()
        self._total += other._total
        self._moments += other._moments
        for author, records in other._chosen.items():
            own = self._chosen[author]
            own += records
            own.sort()
            del own[self.space.authors :]

    def packed(self) -> bytes:
        """Return the sums as a file of plain arrays, to be merged on another machine."""
        self._check_open()
        rows = [(author, *record) for author, own in self._chosen.items() for record in own]
        numbers = [
            (label, length, len(words) // 4, len(author))
            for author, _, label, length, words in rows
        ]
        file = io.BytesIO()
        np.savez_compressed(
            file,
            total=self._total,
            moments=self._moments,
            names=np.frombuffer(b"".join(author for author, *_ in rows), np.uint8),
            marks=np.frombuffer(b"".join(mark for _, mark, *_ in rows), np.uint8),
            numbers=np.array(numbers, np.int64).reshape(-1, 4),
            words=np.frombuffer(b"".join(words for *_, words in rows), np.int32),
        )
        return file.getvalue()

    def merge_packed(self, packed: bytes) -> None:
        """Add sums from :meth:`packed` of the same measurement."""
        other = self.empty()
        with np.load(io.BytesIO(packed), allow_pickle=False) as arrays:
            other._total, other._moments = arrays["total"], arrays["moments"]
            marks, numbers = arrays["marks"].reshape(-1, _MARK), arrays["numbers"]
            words, names = (
                np.split(arrays[name], np.cumsum(numbers[:, at]))[:-1]
                for name, at in (("words", 2), ("names", 3))
            )
        rows = zip(names, marks, numbers[:, :2].tolist(), words, strict=True)
        for author, mark, (label, length), ids in rows:
            record = mark.tobytes(), label, length, ids.tobytes()
            other._chosen[author.tobytes()].append(record)
        self.merge(other)

    def _check_open(self) -> None:
        # Records of an author who was counted already would pass the bound.
        if self._settled:
            raise TextprivError("these sums were released. Start new ones with Sums(space).")

    def _settle(self) -> None:
        """Add the chosen records of all authors; nothing can be added or merged after that."""
        self._settled = True
        chosen = [record for own in self._chosen.values() for record in own]
        self._chosen = defaultdict(list, {author: [] for author in self._chosen})
        for start in range(0, len(chosen), _AT_ONCE):
            part = chosen[start : start + _AT_ONCE]
            ids = [np.frombuffer(words, np.int32).astype(np.int64) for *_, words in part]
            offsets = np.cumsum([0, *map(len, ids)])
            classes, lengths = (np.array([each[at] for each in part]) for at in (1, 2))
            self._add(Records(np.concatenate(ids), offsets, classes, lengths))

    def total(self) -> NDArray[np.int64]:
        """Return the sums; private, for the release alone."""
        self._settle()
        return self._total

    def moments(self) -> NDArray[np.int64]:
        """Return number, mean vectors and products; private, for the release alone."""
        self._settle()
        return self._moments


class WordCounts(_Unreleased):
    """How many private records use each word outside the vocabulary.

    A record adds the same to each of its words, together a vector of norm at most ``STEP``. Of more than ``MOST_WORDS`` a
    keyed hash chooses. Where authors are protected, all words of an author count as those of one record.
    """

    def __init__(self, space: Space, key: bytes | None = None) -> None:
        super().__init__(space, key)
        self._weights: defaultdict[str, int] = defaultdict(int)
        self._of_author: dict[bytes, set[str]] = {}

    def add(
        self,
        batch: RawBatch,
        labels: Sequence[Any] | None = None,
        authors: Sequence[Any] | None = None,
    ) -> None:
        """Add tokenized records, whose unknown words are kept; parameters and errors as of :meth:`Sums.add`."""
        self.space.classes_of(labels, len(batch))
        records = unknown_words(batch)
        if self.space.authors is None:
            for words in records:
                self._count(self._chosen(words, "\n".join(sorted(words)).encode()))
            return
        for name, words in zip(_names(authors, len(batch)), records, strict=True):
            self._add_to_author(_keyed(self.key, name), words)

    def _chosen(self, words: set[str], owner: bytes) -> set[str]:
        """Return the words that count: what others write changes nothing."""
        if len(words) <= MOST_WORDS:
            return words
        ranked = sorted(words, key=lambda word: _keyed(self.key, framed(owner) + word.encode()))
        return set(ranked[:MOST_WORDS])

    def _add_to_author(self, author: bytes, words: set[str]) -> None:
        known = self._of_author.get(author, set())
        self._of_author[author] = self._chosen(known | words, author)

    def _count(self, words: set[str]) -> None:
        each = math.isqrt(STEP**2 // max(len(words), 1))
        for word in words:
            self._weights[word] += each

    def merge(self, other: WordCounts) -> None:
        """Add the counts of other records of the same measurement."""
        for word, weight in other._weights.items():
            self._weights[word] += weight
        for author, words in other._of_author.items():
            self._add_to_author(author, words)

    def total(self) -> dict[str, int]:
        """Return the weight of each word; private, for the release alone."""
        for author in [*self._of_author]:
            self._count(self._of_author.pop(author))
        return dict(sorted(self._weights.items()))


def unknown_words(batch: RawBatch) -> list[set[str]]:
    """Return the unknown words of each record. They have letters alone: no number, name of a user, address or URL."""
    found: list[set[str]] = [set() for _ in range(len(batch))]
    kept = np.flatnonzero(batch.codes < UNKNOWN)
    owners = np.searchsorted(batch.offsets, kept, side="right") - 1
    codes = batch.codes[kept].tolist()
    for owner, code, token in zip(owners.tolist(), codes, batch.strings, strict=True):
        if code == _UNKNOWN_WORD and token.isalpha() and len(token) in _LETTERS:
            found[owner].add(token)
    return found


def _keyed(key: bytes, content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_MARK, key=key).digest()


def _names(authors: Sequence[Any] | None, count: int) -> list[bytes]:
    names = [_author(each) for each in (() if authors is None else authors)]
    if len(names) != count:
        raise TextprivError("every record needs an author. Give one author for each record.")
    return names


def _author(name: Any) -> bytes:
    """Return the bytes that stand for an author; a missing one is refused."""
    plain = plain_label(name)
    if not isinstance(plain, str | bytes | int) or plain in ("", b""):
        raise TextprivError(
            "a record has no author. Give every record one, as text or a whole number, or leave the record out."
        )
    # 7 and "7" are one author, as in a word-level release, for CSV cannot distinguish them.
    return identity_bytes(str(plain) if isinstance(plain, int) else plain)
