"""Guess a private word's original from its context: a public n-gram model, or a masked language model where one is given.

Single words are drawn independently, but text is not: the words around a place, private as they are, still say something
about what stood there. The attacker masks a place of the private text, asks a public language model for the word, and may
multiply in what the mechanism's law says of the output. Lone words are the business of ``textpriv.evaluation.inversion``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from textpriv.bounds import at_most
from textpriv.errors import TextprivError
from textpriv.evaluation.law import Law
from textpriv.evaluation.roc import Attack, Rate, binomial_interval, score_attack
from textpriv.optional import needs

__all__ = ["NGrams", "infer_masked", "masked_language_model"]


class NGrams:
    """A bigram model of public text, interpolated with unigrams: what word stands between two others.

    Parameters
    ----------
    ids : ndarray of int, shape (T,)
        Word ids of public documents, one after the other; negative ones are unknown and break a bigram.
    offsets : ndarray of int64, shape (D + 1,)
        Document j holds ``ids[offsets[j]:offsets[j + 1]]``.
    words : int
        Size V of the vocabulary.
    weight : float
        Of the bigrams, in [0, 1); the rest goes to unigrams with one count more a word.
    """

    def __init__(
        self,
        ids: NDArray[np.int32],
        offsets: NDArray[np.int64],
        words: int,
        weight: float = 0.75,
    ) -> None:
        if not 0 <= weight < 1:
            raise TextprivError(f"weight lies in [0, 1); got {weight}.")
        known = ids[ids >= 0]
        if len(known) and known.max() >= words:
            raise TextprivError(f"word ids must be below {words}; got {int(known.max())}.")
        self.weight = weight
        self.unigrams = np.bincount(known, minlength=words) + 1.0
        self.unigrams /= self.unigrams.sum()
        follows = np.ones(max(len(ids) - 1, 0), dtype=np.bool_)
        ends = offsets[1:-1]
        follows[ends[(ends > 0) & (ends < len(ids))] - 1] = False
        follows &= (ids[:-1] >= 0) & (ids[1:] >= 0)
        pairs = csr_matrix(
            (np.ones(int(follows.sum())), (ids[:-1][follows], ids[1:][follows])),
            shape=(words, words),
        )
        pairs.sum_duplicates()
        self._next = pairs
        self._previous = pairs.T.tocsr()
        self._left = np.asarray(pairs.sum(axis=1)).ravel()

    def log_prob(self, left: int, right: int) -> NDArray[np.float64]:
        """Log-probability, up to a constant, of each word between two others; -1 is no or an unknown neighbour."""
        after = self.unigrams.copy()
        if left >= 0 and self._left[left]:
            row = self._next[left]
            after *= 1 - self.weight
            after[row.indices] += self.weight * row.data / self._left[left]
        found: NDArray[np.float64] = np.log(after)
        if right >= 0:
            share = np.full(len(self.unigrams), (1 - self.weight) * self.unigrams[right])
            # A word that was never followed has nothing but unigrams to say.
            share[self._left == 0] = self.unigrams[right]
            column = self._previous[right]
            share[column.indices] += self.weight * column.data / self._left[column.indices]
            found += np.log(share)
        return found


def masked_language_model(path: str, words: Sequence[str]) -> Any:
    """Return a function from (left text, right text) to the log-probabilities of the words, by a local masked model.

    Parameters
    ----------
    path : str
        A folder with a model for ``transformers``, its weights in safetensors; nothing is downloaded.
    words : sequence of str
        The vocabulary. Words that the model does not know, or cuts into several pieces, get no probability.

    Returns
    -------
    function of (str, str) to ndarray of float64, shape (V,)
        The model's own log-probabilities at the mask between the two texts. They sum to less than one over the words. A text
        too long for the model is cut at both ends, around the mask.

    Raises
    ------
    TextprivError
        Without transformers and torch, for a folder without a model, or where the model knows none of the words.
    """
    if not Path(path).is_dir():
        raise TextprivError(
            f"{path} is not a folder with a model; download one and name its folder."
        )
    torch = needs("torch")
    try:
        transformers = import_module("transformers")
    except ModuleNotFoundError as error:
        raise TextprivError(
            "a masked language model needs transformers; install it with: pip install transformers."
        ) from error
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(path, local_files_only=True)
        # Weights as plain numbers: the older form of them is a pickle, which may run what it likes.
        model = transformers.AutoModelForMaskedLM.from_pretrained(
            path, local_files_only=True, use_safetensors=True
        )
    except (OSError, ValueError) as error:
        raise TextprivError(f"{path} holds no masked language model: {error}") from error
    model.eval()
    pieces = [tokenizer.encode(" " + word, add_special_tokens=False) for word in words]
    # An unknown word is one piece too, but the piece of all unknown words.
    special = set(tokenizer.all_special_ids)
    whole = np.array([len(each) == 1 and each[0] not in special for each in pieces])
    if not whole.any():
        raise TextprivError(f"the model in {path} has none of the words as a piece of its own.")
    token = np.array([each[0] if each else 0 for each in pieces])
    longest = min(tokenizer.model_max_length, model.config.max_position_embeddings)

    def log_prob(left: str, right: str) -> NDArray[np.float64]:
        inputs = tokenizer(f"{left} {tokenizer.mask_token} {right}", return_tensors="pt")
        ids = inputs["input_ids"][0]
        position = int((ids == tokenizer.mask_token_id).nonzero()[0, 0])
        begin = max(0, min(position - longest // 2, len(ids) - longest))
        inputs_within = {name: each[:, begin : begin + longest] for name, each in inputs.items()}
        with torch.no_grad():
            scores = (
                model(**inputs_within).logits[0, position - begin].double().log_softmax(-1).numpy()
            )
        return np.where(whole, scores[token], -np.inf)

    return log_prob


def infer_masked(
    original: NDArray[np.int32],
    private: NDArray[np.int32],
    offsets: NDArray[np.int64],
    model: NGrams | Any,
    *,
    law: Law | None = None,
    words: Sequence[str] | None = None,
    places: int = 1_000,
    seed: int = 0,
    window: int = 32,
    confidence: float = 0.95,
) -> Attack:
    """Guess the original words at random places of private text.

    Parameters
    ----------
    original, private : ndarray of int, shape (T,)
        Word ids before and after, of all documents one after the other.
    offsets : ndarray of int64, shape (D + 1,)
    model : NGrams, or a function of :func:`masked_language_model`
    law : Law, optional
        Multiply in ``P_w(output)``, the attack of someone who knows the mechanism. Without it the place is only masked.
    words : sequence of str
        The vocabulary, for a language model, which reads text.
    places : int
        Places that are attacked, drawn among those whose original is in the vocabulary.
    seed : int
        Of the places and decoys.
    window : int
        Words to each side for a language model.
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
    size = len(law) if law is not None else len(model.unigrams) if words is None else len(words)
    base = (
        model.unigrams
        if isinstance(model, NGrams)
        else np.full(size, 1 / size)
        if law is None
        else law.prior
    )
    decoys = rng.choice(size, len(chosen), p=base)
    hits, true, false = 0, np.empty(len(chosen)), np.empty(len(chosen))
    scores = _scores(
        private, offsets, chosen, base, _context_scores(private, model, words, window), law
    )
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
    in_context: Callable[[int, int, int], NDArray[np.float64]],
    law: Law | None,
) -> Iterator[NDArray[np.float64]]:
    """Yield the log posterior of all words at each chosen place."""
    document = np.searchsorted(offsets, chosen, side="right") - 1
    likelihood = None if law is None else _columns(law, private[chosen])
    for number, (place, home) in enumerate(zip(chosen.tolist(), document.tolist(), strict=True)):
        score = in_context(place, int(offsets[home]), int(offsets[home + 1]))
        if likelihood is not None:
            score = score + likelihood[number]
        if not np.isfinite(score.max()):
            # The language model knows no word that the output may come from: nothing but the unigram law is left.
            score = np.log(base)
        peak = score.max()
        yield score - (peak + math.log(np.exp(score - peak).sum()))


def _context_scores(
    private: NDArray[np.int32], model: NGrams | Any, words: Sequence[str] | None, window: int
) -> Callable[[int, int, int], NDArray[np.float64]]:
    """Log scores of all words at a position of a document, from its beginning and end, by the private words around it."""
    if isinstance(model, NGrams):

        def neighbours(place: int, begin: int, end: int) -> NDArray[np.float64]:
            left = int(private[place - 1]) if place > begin else -1
            right = int(private[place + 1]) if place + 1 < end else -1
            return model.log_prob(left, right)

        return neighbours
    if words is None:
        raise TextprivError("a language model reads text: give words, the vocabulary.")

    def text(place: int, begin: int, end: int) -> NDArray[np.float64]:
        before = private[max(begin, place - window) : place]
        after = private[place + 1 : min(end, place + 1 + window)]
        scores: NDArray[np.float64] = model(
            *(" ".join(words[i] for i in side if i >= 0) for side in (before, after))
        )
        return scores

    return text


def _columns(law: Law, outputs: NDArray[np.int32]) -> NDArray[np.float32]:
    """Log P_w(y) over all words w for each given output y, shape (len(outputs), V)."""
    different, back = np.unique(outputs, return_inverse=True)
    columns = np.empty((len(different), len(law)), dtype=np.float32)
    for words, block in law.blocks():
        with np.errstate(divide="ignore"):
            columns[:, words] = np.log(block[:, different].T)
    return columns[back]
