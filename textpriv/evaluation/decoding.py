"""Private text read for people: the words that were likeliest written, by public models alone.

Decoding is post-processing (mechanisms.md 10.3): a function of the private text, the settings of its release and public
models, so what was guaranteed of the private text is guaranteed of the decoded one. It guesses, and at a large epsilon it
guesses right: :func:`expected_recovery` says how often. Files are read and written by the command ``textpriv decode``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import TextprivError
from textpriv.evaluation.context_recovery import (
    Candidates,
    context_posterior,
    likeliest_paths,
    sampled_paths,
)
from textpriv.evaluation.recovery import COMMON
from textpriv.language.ngrams import NGrams
from textpriv.mechanisms.base import UNKNOWN
from textpriv.privatizer import Privatizer
from textpriv.randomness import KeyedStreams
from textpriv.statement import PrivacyStatement
from textpriv.tokenization.batches import KEPT, RawBatch
from textpriv.tokenization.policy import CLASSES

__all__ = ["FORMS", "MARK", "Decoder", "Recovery", "expected_recovery"]

FORMS = ("probable", "sampled", "nearest")
MARK = "[decoded] "  # before every decoded text
NOTE = (
    "This text was decoded from private text by public models: its words are guesses, and no further look at the original. "
    "The statement holds if the private text was made with these settings"
)
_COUNT = 32


class Decoder:
    """Turn private texts into texts that read like written ones.

    Parameters
    ----------
    privatizer : Privatizer
        With the settings by which the private texts were made. Its mechanism has a closed law.
    model : NGrams
        A public model over the same vocabulary.
    form : {"probable", "sampled", "nearest"}
        The likeliest words of a text, all together; words drawn as likely as they are; or for each position the word whose
        expected distance from what was written is least.
    count : int
        Candidates that are looked at for each private word. Time grows with its square.
    seed : int, optional
        Of ``"sampled"``.

    Raises
    ------
    TextprivError
    """

    def __init__(
        self,
        privatizer: Privatizer,
        model: NGrams,
        *,
        form: str = "probable",
        count: int = _COUNT,
        seed: int | None = None,
    ) -> None:
        if form not in FORMS:
            raise TextprivError(f"form is one of {', '.join(FORMS)}; got {form!r}.")
        policy = privatizer.policy
        # Whatever was not drawn stands, as masks, surfaces of spans and all that is outside the vocabulary; of a class that
        # was drawn the words of the vocabulary are taken up again in ``texts``.
        self._drawn = np.array([policy.draws(name) for name in CLASSES])
        read = replace(policy, **dict.fromkeys(CLASSES, "keep"), case="keep")
        self.privatizer = Privatizer(privatizer.mechanism, read, language=privatizer.language)
        self.model, self.form = model, form
        self._stated = privatizer.statement
        self._rng = np.random.default_rng(seed)
        size = len(privatizer.mechanism.index)
        if model.size != size:
            raise TextprivError(
                f"the model knows {model.size:,} words, and the mechanism {size:,}: use one vocabulary."
            )
        prior = np.append(model.single[:-1], 0.0)  # people read words, so "unknown" is no guess
        self._candidates = Candidates.of(privatizer.mechanism, prior, min(count, size))

    @property
    def statement(self) -> PrivacyStatement:
        """The guarantee of the private text, which is that of the decoded one."""
        return self._stated.extended(notes=(NOTE,))

    def texts(self, private: Sequence[str]) -> list[str]:
        """Decode private texts; each begins with ``[decoded]``."""
        batch = self._taken_up(self.privatizer.read_batch(private))
        drawn = np.flatnonzero(batch.codes > UNKNOWN)
        words = self.words(batch.codes[drawn], np.searchsorted(drawn, batch.offsets))
        return [MARK + text for text in self.privatizer.put_together(batch, words)]

    def _taken_up(self, batch: RawBatch) -> RawBatch:
        """The batch with the ids of words of the vocabulary that are of a class that was drawn, such as numbers."""
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
        given = outputs, offsets, self._candidates, self.model
        if self.form == "probable":
            return likeliest_paths(*given)
        if self.form == "sampled":
            return sampled_paths(*given, self._rng)
        return self._nearest(outputs, context_posterior(*given))

    def _nearest(
        self, outputs: NDArray[np.int32], shares: NDArray[np.float32]
    ) -> NDArray[np.int32]:
        """The candidate of least expected distance at each position."""
        index, choice = self.privatizer.mechanism.index, self._candidates.words
        found = np.empty(len(outputs), np.int32)
        order = np.argsort(outputs, kind="stable")
        different, starts = np.unique(outputs[order], return_index=True)
        for output, rows in zip(different, np.split(order, starts[1:]), strict=True):
            words = choice[output]
            apart = np.array([index.distances_between(word, words) for word in words.tolist()])
            found[rows] = words[np.argmin(shares[rows] @ apart, axis=1)]
        return found


@dataclass(frozen=True)
class Recovery:
    """How often words of public text come back, and how often they were never replaced.

    Attributes
    ----------
    words : int
        Running words of the vocabulary that were looked at.
    kept, restored : float
        Shares of them that stay as they are in private text, and that are right after decoding.
    content_restored : float
        The same for words beyond the 250 commonest of the model; NaN without any.
    """

    words: int
    kept: float
    restored: float
    content_restored: float

    def to_dict(self) -> dict[str, Any]:
        """Return the four figures."""
        return asdict(self)

    def __str__(self) -> str:
        content = f" ({self.content_restored:.1%} of content words)"
        return (
            f"Of {self.words:,} words of public text {self.kept:.1%} stay as they are, and decoding gives "
            f"{self.restored:.1%} as they were written{'' if np.isnan(self.content_restored) else content}."
        )


def expected_recovery(
    decoder: Decoder, ids: NDArray[np.int32], offsets: NDArray[np.int64]
) -> Recovery:
    """Privatize and decode public text, and count what comes back.

    Parameters
    ----------
    decoder : Decoder
    ids : ndarray of int, shape (T,)
        Word ids of public documents, one after the other; negative ones for words outside the vocabulary. Not what the
        model was counted in, which it would know by heart.
    offsets : ndarray of int64, shape (D + 1,)

    Raises
    ------
    TextprivError
        Without a word of the vocabulary.
    """
    known = ids >= 0
    if not known.any():
        raise TextprivError("no word of the public text is in the vocabulary.")
    stream = KeyedStreams(seed=0).stream("public text")  # nothing here is private
    private = decoder.privatizer.mechanism.sample(ids, stream)
    right = decoder.words(private, offsets) == ids
    common = np.argsort(-decoder.model.single[:-1], kind="stable")[:COMMON]
    content = known & ~np.isin(ids, common)
    return Recovery(
        int(known.sum()),
        float((private == ids)[known].mean()),
        float(right[known].mean()),
        float(right[content].mean()) if content.any() else float("nan"),
    )
