"""Public language models of text: what a word says about others, from an n-gram model or a network of the user's own.

A network is a function of the text around a position; two adapters make one of a local model for ``transformers``. Nothing
is downloaded, and nothing here knows a mechanism.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import TextprivError
from textpriv.evaluation.ngrams import NGrams
from textpriv.optional import needs

__all__ = [
    "LanguageModel",
    "causal_language_model",
    "masked_language_model",
    "score_in_context",
]

_WINDOW = 32  # words to each side


class LanguageModel(Protocol):
    """A function that says how likely words are between two pieces of text, such as a masked or causal language model."""

    def __call__(self, left: str, right: str, candidates: NDArray[np.int32]) -> NDArray[np.float64]:
        """Return the log-probabilities of candidates, up to one constant.

        Parameters
        ----------
        left, right : str
            Up to 32 private words before and after the position.
        candidates : ndarray of int32, shape (K,)
            Ids of the vocabulary.

        Returns
        -------
        ndarray of float64, shape (K,)
            ``-inf`` for a word that the model does not know.
        """


def score_in_context(
    model: NGrams | LanguageModel,
    private: NDArray[np.int32],
    begin: int,
    end: int,
    position: int,
    words: Sequence[str] | None,
    candidates: NDArray[np.int32],
) -> NDArray[np.float64]:
    """Log scores of candidates at a position of the document ``private[begin:end]``, by the private words around it.

    Raises
    ------
    TextprivError
        For a language model without words, and for scores of another shape.
    """
    if isinstance(model, NGrams):
        sides = private[max(begin, position - 2) : position], private[position + 1 : end][:2]
        near = (np.where(side < 0, model.size, side).tolist() for side in sides)
        return model.between(*near)[candidates]
    if words is None:
        raise TextprivError("a language model reads text: give words, the vocabulary.")
    sides = (
        private[max(begin, position - _WINDOW) : position],
        private[position + 1 : end][:_WINDOW],
    )
    before, after = (" ".join(words[i] for i in side.tolist() if i >= 0) for side in sides)
    scores = np.asarray(model(before, after, candidates), dtype=np.float64)
    if scores.shape != candidates.shape or np.isnan(scores).any():
        raise TextprivError(
            f"a language model returns one log-probability a candidate, {len(candidates)}; got shape {scores.shape}, or "
            "numbers that are none."
        )
    return scores


def masked_language_model(path: str, words: Sequence[str]) -> LanguageModel:
    """Return the log-probabilities that a local masked model gives to single words.

    Parameters
    ----------
    path : str
        A folder with a model for ``transformers``, its weights in safetensors; nothing is downloaded.
    words : sequence of str
        The vocabulary. Words that the model does not know, or cuts into several pieces, get no probability.

    Returns
    -------
    LanguageModel
        The model's own log-probabilities at the mask between the two texts. They sum to less than one over the words. A text
        too long for the model is cut at both ends, around the mask.

    Raises
    ------
    TextprivError
        Without transformers and torch, for a folder without a model, or where the model knows none of the words.
    """
    torch, tokenizer, model = _local_model(path, "AutoModelForMaskedLM", "masked language model")
    pieces = [tokenizer.encode(" " + word, add_special_tokens=False) for word in words]
    # An unknown word is one piece too, but the piece of all unknown words.
    special = set(tokenizer.all_special_ids)
    whole = np.array([len(each) == 1 and each[0] not in special for each in pieces])
    if not whole.any():
        raise TextprivError(f"the model in {path} has none of the words as a piece of its own.")
    token = np.array([each[0] if each else 0 for each in pieces])
    longest = min(tokenizer.model_max_length, model.config.max_position_embeddings)

    def log_prob(left: str, right: str, candidates: NDArray[np.int32]) -> NDArray[np.float64]:
        inputs = tokenizer(f"{left} {tokenizer.mask_token} {right}", return_tensors="pt")
        ids = inputs["input_ids"][0]
        position = int((ids == tokenizer.mask_token_id).nonzero()[0, 0])
        begin = max(0, min(position - longest // 2, len(ids) - longest))
        inputs_within = {name: each[:, begin : begin + longest] for name, each in inputs.items()}
        with torch.no_grad():
            scores = (
                model(**inputs_within).logits[0, position - begin].double().log_softmax(-1).numpy()
            )
        return np.where(whole[candidates], scores[token[candidates]], -np.inf)

    return log_prob


def causal_language_model(path: str, words: Sequence[str]) -> LanguageModel:
    """Return the log-probabilities that a local causal model gives to a text with each word in its position.

    Parameters
    ----------
    path : str
        A folder with a model for ``transformers``, its weights in safetensors; nothing is downloaded.
    words : sequence of str
        The vocabulary.

    Returns
    -------
    LanguageModel
        The sum over the pieces of the left text, the word and the right text, each after those before it. Candidates are
        read in one batch; a text too long for the model is cut at its beginning.

    Raises
    ------
    TextprivError
        Without transformers and torch, and for a folder without a model.
    """
    torch, tokenizer, model = _local_model(path, "AutoModelForCausalLM", "causal language model")
    longest = min(tokenizer.model_max_length, model.config.max_position_embeddings)

    def log_prob(left: str, right: str, candidates: NDArray[np.int32]) -> NDArray[np.float64]:
        texts = [f"{left} {words[i]} {right}".strip() for i in candidates.tolist()]
        rows = [tokenizer.encode(text, add_special_tokens=False)[-longest:] for text in texts]
        width = max(map(len, rows))
        ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
        mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
        with torch.no_grad():
            logs = model(input_ids=ids, attention_mask=mask).logits.double().log_softmax(-1)
        each = logs[:, :-1].gather(2, ids[:, 1:, None])[..., 0] * mask[:, 1:]
        return each.sum(dim=1).numpy()

    return log_prob


def _local_model(path: str, kind: str, name: str) -> tuple[Any, Any, Any]:
    """Torch, and the tokenizer and model of a folder."""
    if not Path(path).is_dir():
        raise TextprivError(
            f"{path} is not a folder with a model; download one and name its folder."
        )
    torch = needs("torch")
    try:
        transformers = import_module("transformers")
    except ModuleNotFoundError as error:
        raise TextprivError(
            f"a {name} needs transformers; install it with: pip install transformers."
        ) from error
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(path, local_files_only=True)
        # Weights as plain numbers: the older form of them is a pickle, which may run what it likes.
        model = getattr(transformers, kind).from_pretrained(
            path, local_files_only=True, use_safetensors=True
        )
    except (OSError, ValueError) as error:
        raise TextprivError(f"{path} holds no {name}: {error}") from error
    model.eval()
    return torch, tokenizer, model
