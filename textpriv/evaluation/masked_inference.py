"""Guess a private word's original from its context: a public n-gram model, or a masked language model where one is given.

Single words are drawn independently, but text is not: the words around a place, private as they are, still say something
about what stood there. The attacker masks a place of the private text, asks a public language model for the word, and may
multiply in what the mechanism's law says of the output. Lone words are the business of ``textpriv.evaluation.inversion``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv.bounds import at_most
from textpriv.errors import TextprivError
from textpriv.evaluation.language_models import LanguageModel, score_in_context
from textpriv.evaluation.law import Law
from textpriv.evaluation.ngrams import NGrams
from textpriv.evaluation.roc import Attack, Rate, binomial_interval, score_attack

__all__ = ["infer_masked"]


def infer_masked(
    original: NDArray[np.int32],
    private: NDArray[np.int32],
    offsets: NDArray[np.int64],
    model: NGrams | LanguageModel,
    *,
    law: Law | None = None,
    words: Sequence[str] | None = None,
    places: int = 1_000,
    seed: int = 0,
    confidence: float = 0.95,
) -> Attack:
    """Guess the original words at random places of private text.

    Parameters
    ----------
    original, private : ndarray of int, shape (T,)
        Word ids before and after, of all documents one after the other.
    offsets : ndarray of int64, shape (D + 1,)
    model : NGrams or LanguageModel
    law : Law, optional
        Multiply in ``P_w(output)``, the attack of someone who knows the mechanism. Without it the place is only masked.
    words : sequence of str
        The vocabulary, for a language model, which reads text.
    places : int
        Places that are attacked, drawn among those whose original is in the vocabulary.
    seed : int
        Of the places and decoys.
    confidence : float

    Returns
    -------
    Attack
        ``success`` is the share of right first guesses. The AUC tells the original from a decoy of the public unigram law.
    """
    if original.shape != private.shape:
        raise TextprivError("private text must have as many words as the original.")
    rng = np.random.default_rng(seed)
    candidates = np.flatnonzero(original >= 0)
    if not len(candidates):
        raise TextprivError("no original word is in the vocabulary.")
    chosen = rng.choice(candidates, min(places, len(candidates)), replace=False)
    if isinstance(model, NGrams):
        size, base = model.size, model.single[:-1] / model.single[:-1].sum()
    elif words is None:
        raise TextprivError("a language model reads text: give words, the vocabulary.")
    else:
        size = len(words)
        base = np.full(size, 1 / size) if law is None else law.prior
    decoys = rng.choice(size, len(chosen), p=base)
    hits, true, false = 0, np.empty(len(chosen)), np.empty(len(chosen))
    scores = _scores(private, offsets, chosen, base, model, words, law)
    for number, (place, score) in enumerate(zip(chosen.tolist(), scores, strict=True)):
        hits += int(score.argmax() == original[place])
        # Lift over the unigram law: a common word is no better evidence than a rare one.
        true[number] = score[original[place]] - math.log(base[original[place]])
        false[number] = score[decoys[number]] - math.log(base[decoys[number]])
    low, high = binomial_interval(hits, len(chosen), confidence)
    loss = np.inf if law is None else float(getattr(law.mechanism, "worst_word_loss", np.inf))
    return score_attack(
        "masked inference" + ("" if law is None else " with the law"),
        true,
        false,
        loss=np.inf,
        confidence=confidence,
        success=Rate(hits / len(chosen), low, high),
        notes=(
            "the guarantee covers the output in its place; what the context says of the word comes on top",
            f"the output alone can move the odds by at most {at_most(loss, 3)} nats",
        ),
    )


def _scores(
    private: NDArray[np.int32],
    offsets: NDArray[np.int64],
    chosen: NDArray[np.int64],
    base: NDArray[np.floating[Any]],
    model: NGrams | LanguageModel,
    words: Sequence[str] | None,
    law: Law | None,
) -> Iterator[NDArray[np.float64]]:
    """Yield the log posterior of all words at each chosen place."""
    document = np.searchsorted(offsets, chosen, side="right") - 1
    likelihood = None if law is None else _columns(law, private[chosen])
    everything = np.arange(len(base), dtype=np.int32)
    for number, (place, home) in enumerate(zip(chosen.tolist(), document.tolist(), strict=True)):
        begin, end = int(offsets[home]), int(offsets[home + 1])
        score = score_in_context(model, private, begin, end, place, words, everything)
        if likelihood is not None:
            score = score + likelihood[number]
        if not np.isfinite(score.max()):
            # The language model knows no word that the output may come from: nothing but the unigram law is left.
            score = np.log(base)
        peak = score.max()
        yield score - (peak + math.log(np.exp(score - peak).sum()))


def _columns(law: Law, outputs: NDArray[np.int32]) -> NDArray[np.float32]:
    """Log P_w(y) over all words w for each given output y, shape (len(outputs), V)."""
    different, back = np.unique(outputs, return_inverse=True)
    columns = np.empty((len(different), len(law)), dtype=np.float32)
    for words, block in law.blocks():
        with np.errstate(divide="ignore"):
            columns[:, words] = np.log(block[:, different].T)
    return columns[back]
