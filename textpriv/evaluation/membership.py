"""Whether a document was in a model's training data: shadow models as in TEM's Appendix C, and an offline likelihood ratio.

Both attacks see class probabilities only. The shadow attack (Shokri et al. 2017, as set up by Carvalho, Vasiloudis,
Feyisetan, Appendix C) trains a classifier on the outputs of one shadow model, whose members are known; offline LiRA (Carlini
et al. 2022) compares a document's logit with what shadow models that never saw it say of it. Training the models is left to
the caller; figures are made in ``textpriv.evaluation.roc``.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from textpriv.errors import TextprivError
from textpriv.evaluation.roc import Attack, score_attack
from textpriv.optional import needs

__all__ = ["attack_scores", "offline_lira", "shadow_attack", "true_class_logit"]


def attack_scores(
    shadow_members: NDArray[np.float64],
    shadow_others: NDArray[np.float64],
    *candidates: NDArray[np.float64],
    epochs: int = 20,
    batch_size: int = 64,
    seed: int = 0,
) -> list[NDArray[np.float64]]:
    """Train the attack model and score candidates: two hidden layers of 64 ReLU units, Adam, binary cross-entropy.

    Parameters
    ----------
    shadow_members, shadow_others : ndarray, shapes (a, c) and (b, c)
        Outputs of the shadow model on its own training documents and on others (Appendix C: TE2 and TE1).
    *candidates : ndarray, shape (m, c)
        Outputs of the target model.
    epochs, batch_size, seed

    Returns
    -------
    list of ndarray, shape (m,)
        The attack model's logit of "in" for each group of candidates.
    """
    torch = needs("torch")
    state = torch.Generator().manual_seed(seed)
    features = np.concatenate([shadow_members, shadow_others]).astype(np.float32)
    answers = torch.from_numpy(
        np.repeat([1.0, 0.0], [len(shadow_members), len(shadow_others)]).astype(np.float32)
    )[:, None]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = torch.nn.Sequential(
            torch.nn.Linear(features.shape[1], 64),
            torch.nn.ReLU(),
            torch.nn.Linear(64, 64),
            torch.nn.ReLU(),
            torch.nn.Linear(64, 1),
        )
    step = torch.optim.Adam(model.parameters())
    inputs = torch.from_numpy(features)
    for _ in range(epochs):
        for batch in torch.randperm(len(features), generator=state).split(batch_size):
            step.zero_grad(set_to_none=True)
            torch.nn.functional.binary_cross_entropy_with_logits(
                model(inputs[batch]), answers[batch]
            ).backward()
            step.step()
    with torch.no_grad():
        return [
            model(torch.from_numpy(each.astype(np.float32)))[:, 0].numpy().astype(np.float64)
            for each in candidates
        ]


def shadow_attack(
    shadow_members: ArrayLike,
    shadow_others: ArrayLike,
    members: ArrayLike,
    others: ArrayLike,
    *,
    loss: float = math.inf,
    epochs: int = 20,
    seed: int = 0,
) -> Attack:
    """Run the shadow-model attack of Appendix C.

    Parameters
    ----------
    shadow_members, shadow_others : array_like, shapes (a, c), (b, c)
        Outputs (class probabilities) of the shadow model on TE2, its training data, and on TE1.
    members, others : array_like, shapes (m, c), (n, c)
        Outputs of the target model on TR1, its training data, and on TR2.
    loss : float
        What the guarantee allows between two training sets that differ in one document, in nats: the ceiling.
    epochs, seed
    """
    known_in, known_out, yes, no = (
        _outputs(each) for each in (shadow_members, shadow_others, members, others)
    )
    if len({each.shape[1] for each in (known_in, known_out, yes, no)}) != 1:
        raise TextprivError("shadow and target models must have the same classes.")
    scores = attack_scores(known_in, known_out, yes, no, epochs=epochs, seed=seed)
    return score_attack("membership, shadow models", *scores, loss=loss)


def true_class_logit(outputs: ArrayLike, labels: ArrayLike) -> NDArray[np.float64]:
    """Return log(p / (1 - p)) of each document's true class, shape (D,)."""
    scores = _outputs(outputs)
    true = np.clip(scores[np.arange(len(scores)), np.asarray(labels)], 1e-12, 1 - 1e-12)
    return np.log(true) - np.log1p(-true)


def offline_lira(
    target: ArrayLike,
    shadows: ArrayLike,
    member: ArrayLike,
    *,
    loss: float = math.inf,
) -> Attack:
    """Run the offline likelihood-ratio attack.

    Parameters
    ----------
    target : array_like, shape (m,)
        The target model's logit of each candidate's true class.
    shadows : array_like, shape (s, m)
        The same for s >= 2 shadow models trained without any of the candidates.
    member : array_like of bool, shape (m,)
        Which candidates were trained on.
    loss : float
        As in :func:`shadow_attack`.

    Returns
    -------
    Attack
        The score is the normal distance of the target's logit above the shadows', with one spread for all candidates.
    """
    seen, beside = np.asarray(target, dtype=np.float64), np.asarray(shadows, dtype=np.float64)
    truth = np.asarray(member, dtype=np.bool_)
    if beside.ndim != 2 or beside.shape[0] < 2 or beside.shape[1:] != seen.shape:
        raise TextprivError(
            f"the offline attack needs two or more shadow models' logits of the same {len(seen)} candidates; got "
            f"shape {beside.shape}."
        )
    spread = math.sqrt(float(beside.var(axis=0, ddof=1).mean()))
    score = (seen - beside.mean(axis=0)) / (spread if spread > 0 else 1.0)
    return score_attack("membership, offline LiRA", score[truth], score[~truth], loss=loss)


def _outputs(values: ArrayLike) -> NDArray[np.float64]:
    scores = np.asarray(values, dtype=np.float64)
    if scores.ndim != 2 or scores.shape[1] < 2:
        raise TextprivError(
            f"a model's outputs have one row a document and one column a class; got shape {scores.shape}."
        )
    return scores
