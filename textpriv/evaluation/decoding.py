"""Decoding: private text turned into words that were likely written, by public models alone.

Decoding is post-processing, so every guarantee of the private text also holds of the decoded one. At a large epsilon it is
often right: :func:`expected_recovery` measures how often.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import TextprivError
from textpriv.evaluation.context_recovery import ContextModel
from textpriv.language.ngrams import NGrams
from textpriv.mechanisms.base import UNKNOWN
from textpriv.privatizer import Privatizer
from textpriv.randomness import KeyedStreams
from textpriv.statement import PrivacyStatement
from textpriv.tokenization.batches import KEPT, RawBatch
from textpriv.tokenization.policy import CLASSES

__all__ = ["MARK", "Decoder", "Recovery", "expected_recovery"]

MARK = "[decoded] "  # before every decoded text
_CANDIDATES = 32  # of each private word; time grows with its square
NOTE = (
    "This text was decoded from private text by public models. Its words are guesses, made without the original. "
    "The statement holds if the private text was made with these settings"
)


class Decoder:
    """Turn private texts into texts that read like written ones.

    Parameters
    ----------
    privatizer : Privatizer
        With the settings of the private texts. Its mechanism has a closed output distribution.
    model : NGrams
        A public model over the same vocabulary.
    """

    def __init__(self, privatizer: Privatizer, model: NGrams) -> None:
        policy = privatizer.policy
        # What was not drawn stays as it is: masks, surfaces of spans, words outside the vocabulary.
        self._drawn = np.array([getattr(policy, name) == "sample" for name in CLASSES])
        read = replace(policy, **dict.fromkeys(CLASSES, "keep"), case="keep")
        self.privatizer = Privatizer(privatizer.mechanism, read, language=privatizer.language)
        self._stated = privatizer.statement
        # People read words, so "unknown" is no guess.
        prior = np.append(model.probability(np.arange(model.size)), 0.0)
        count = min(_CANDIDATES, model.size)
        self._model = ContextModel.of(privatizer.mechanism, model, prior, count)

    @property
    def statement(self) -> PrivacyStatement:
        """The guarantee of the private text, which is that of the decoded one."""
        return self._stated.extended(notes=(NOTE,))

    def texts(self, private: Sequence[str]) -> list[str]:
        """Decode private texts; each begins with ``[decoded]``."""
        batch = self._taken_up(self.privatizer.read_batch(private))
        drawn = np.flatnonzero(batch.codes > UNKNOWN)
        words = self.words(batch.codes[drawn], np.searchsorted(drawn, batch.offsets))
        return [MARK + text for text in self.privatizer.detokenizer.texts(batch, words)]

    def _taken_up(self, batch: RawBatch) -> RawBatch:
        """The batch with ids for the words of every class that was drawn, such as numbers."""
        vocabulary = self.privatizer.mechanism.index.vocabulary
        listed = [vocabulary.id(each) if each in vocabulary else -1 for each in batch.strings]
        ids = np.array(listed, dtype=np.int32)
        kept = np.flatnonzero(batch.codes <= KEPT)
        drawn = (ids >= 0) & self._drawn[KEPT - batch.codes[kept]]
        codes = batch.codes.copy()
        codes[kept[drawn]] = ids[drawn]
        left = [string for string, gone in zip(batch.strings, drawn, strict=True) if not gone]
        return replace(batch, codes=codes, strings=left)

    def words(self, outputs: NDArray[np.int32], offsets: NDArray[np.int64]) -> NDArray[np.int32]:
        """Decode released word ids, shape (T,), of documents ``outputs[offsets[j]:offsets[j + 1]]``."""
        return self._model.likeliest_words(outputs, offsets)


class Recovery(NamedTuple):
    """Recovery by decoding, measured on tokens of public text that are in the vocabulary."""

    words: int
    kept: float  # share of them that is unchanged in private text
    restored: float  # share that is right after decoding
    content_restored: float  # the same of content words; NaN without any


def expected_recovery(
    decoder: Decoder, ids: NDArray[np.int32], offsets: NDArray[np.int64]
) -> Recovery:
    """Privatize and decode public text that the model was not counted in, and count the words that come back.

    Documents are ``ids[offsets[j]:offsets[j + 1]]``, with -1 for words outside the vocabulary.
    """
    known, mechanism = ids >= 0, decoder.privatizer.mechanism
    if not known.any():
        raise TextprivError("no word of the public text is in the vocabulary.")
    # Nothing here is private.
    private = mechanism.sample(ids, KeyedStreams(seed=0).stream("public text"))
    right = decoder.words(private, offsets) == ids
    content = known & mechanism.index.vocabulary.is_content[ids]
    return Recovery(
        int(known.sum()),
        float((private == ids)[known].mean()),
        float(right[known].mean()),
        float(right[content].mean()) if content.any() else float("nan"),
    )
