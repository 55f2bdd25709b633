"""How often the best possible guess of a single word is right: exact, bounded by the guarantee, and simulated.

The attacker knows the mechanism and how often each word is written, sees one output, and names the likeliest word. No other
attack on a lone word is right more often. The bound uses the guarantee alone, so it holds for every mechanism that keeps the
same promise. Words in context are the business of ``textpriv.evaluation.masked_inference``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import TextprivError
from textpriv.evaluation.law import Law
from textpriv.evaluation.roc import Attack, Rate, binomial_interval, score_attack
from textpriv.mechanisms.base import Mechanism
from textpriv.randomness import RandomWords
from textpriv.vocabulary.vocabulary import Prior

__all__ = ["Inversion", "invert", "simulate", "success_bound"]


@dataclass(frozen=True)
class Inversion:
    """The Bayes-optimal guess and its success.

    Attributes
    ----------
    success : float
        Probability that the guess is right, exact from the law and the prior.
    bound : float
        The most that the statement's guarantee allows under the same prior.
    blind : float
        Success of a guess that does not look: the largest prior probability.
    guess : ndarray of int64, shape (V,)
        The likeliest word for each output.
    """

    success: float
    bound: float
    blind: float
    guess: NDArray[np.int64]

    def to_dict(self) -> dict[str, Any]:
        """Return the three probabilities."""
        return {"success": self.success, "bound": self.bound, "blind": self.blind}


def invert(mechanism: Mechanism, word_prior: Prior = "zipf", *, rounds: int = 2) -> Inversion:
    """Compute the success of the best guess, and its bound.

    Parameters
    ----------
    mechanism : Mechanism
        With a closed law. Costs a pass over all pairs of words, and one more for each round of the bound.
    word_prior : see :meth:`Vocabulary.prior_weights`
        How often each word is written. Public.
    rounds : int
        See :func:`success_bound`.
    """
    law = Law(mechanism, word_prior)
    guess, joint = law.likeliest()
    return Inversion(
        success=float(joint.sum()),
        bound=success_bound(law, rounds=rounds),
        blind=float(law.prior.max()),
        guess=guess,
    )


def success_bound(law: Law, *, rounds: int = 2) -> float:
    """Bound the success of any guess by the guarantee ``P_w(y) <= exp(epsilon d(w, w')) P_w'(y)`` alone.

    With r_w the probability that word w is guessed when it was written, the guarantee gives for every w'

        sum over w of exp(-epsilon d(w, w')) r_w <= 1,

    since the left side is at most the probability that w' is answered by some word. The success is the sum of pi(w) r_w, and
    by duality of linear programs every weighting q >= 0 of these constraints bounds it by

        sum(q) * max over w of pi(w) / sum over w' of q(w') exp(-epsilon d(w, w')).

    Parameters
    ----------
    law : Law
    rounds : int
        How often q, the prior at first, is moved towards a better weighting; any q gives a bound, and the least is kept.

    Returns
    -------
    float
        At most 1.
    """
    if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 0:
        raise TextprivError(f"rounds is a whole number from 0 up; got {rounds!r}.")
    # The statement's constant; it holds per unit of true distance, and rounding of distances is charged below.
    epsilon = law.mechanism.epsilon
    weights = law.prior.copy()
    best = 1.0
    for _ in range(rounds + 1):
        reached = np.zeros(len(law))
        for start in range(0, len(law), 256):
            words = np.arange(start, min(start + 256, len(law)))
            kernel = law.distances(words)
            # Single precision may understate a distance between words far apart; the factor below covers it.
            kernel *= np.float32(-epsilon)
            np.exp(kernel, out=kernel)
            reached[words] = kernel @ weights.astype(np.float32)
        ratio = law.prior / np.maximum(reached, np.finfo(np.float64).tiny)
        best = min(best, float(weights.sum() * ratio.max()) * (1 + 1e-4))
        weights = weights * ratio
    return best


def simulate(
    mechanism: Mechanism,
    inversion: Inversion,
    rng: RandomWords | np.random.Generator,
    *,
    word_prior: Prior = "zipf",
    draws: int = 100_000,
    seed: int = 0,
    confidence: float = 0.95,
) -> Attack:
    """Attack words drawn from the prior with the mechanism's own draws.

    Parameters
    ----------
    mechanism : Mechanism
    inversion : Inversion
        Of the same mechanism and prior.
    rng : random stream or numpy.random.Generator
        Of the mechanism.
    word_prior, draws
        The words that are written, and how many.
    seed : int
        Of the words, which are public.
    confidence : float

    Returns
    -------
    Attack
        ``success`` is the share of right guesses beside the bound. The AUC is that of telling whether the written word was
        the one that is guessed: the score is -1 or 0, so it has one step.
    """
    prior = mechanism.index.vocabulary.prior_weights(word_prior)
    words = np.random.default_rng(seed).choice(len(prior), draws, p=prior).astype(np.int32)
    answered = inversion.guess[mechanism.sample(words, rng)]
    hits = int((answered == words).sum())
    low, high = binomial_interval(hits, draws, confidence)
    # A negative is the answer to another word of the same prior.
    others = np.random.default_rng(seed + 1).permutation(words)
    return score_attack(
        "word inversion",
        (answered == words).astype(np.float64),
        (answered == others).astype(np.float64),
        loss=float(getattr(mechanism, "worst_word_loss", np.inf)),
        confidence=confidence,
        success=Rate(hits / draws, low, high, inversion.bound),
    )
