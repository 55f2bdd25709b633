"""What holds when private text also trains a private model: words protected by a mechanism, records by the learner.

Two guarantees of different kinds: one between two documents by the distances of their words, one between two training sets
that differ in one document. Whoever sees the model alone meets both, and together they are stronger than either. Nothing is
trained here, and no learner is known to this module.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from textpriv.errors import TextprivError

__all__ = ["JointGuarantee", "joint_guarantee"]


@dataclass(frozen=True)
class JointGuarantee:
    """A model's guarantee between two training sets that differ in one document, for a total loss of its words.

    Attributes
    ----------
    epsilon, delta : float
        Of the model. As post-processing of the words it is also (word_loss, 0)-private.
    """

    epsilon: float
    delta: float


def joint_guarantee(word_loss: float, epsilon: float, delta: float = 0.0) -> JointGuarantee:
    """Combine the loss of a document's words with the guarantee of a learner on private documents.

    Two private documents of loss E are post-processing of binary randomised response of loss E (Kairouz, Oh, Viswanath
    2015), so the model sees a bit that is flipped with probability ``1 / (1 + exp(E))``. A learner that is (epsilon,
    delta)-private under replace-one is then (epsilon', delta')-private between the two documents, with

        exp(epsilon') = (exp(E + epsilon) + 1) / (exp(E) + exp(epsilon)),
        delta' = delta (exp(E) - exp(epsilon')) / (exp(E) + 1).

    Two randomised responses attain it. It is below both E and epsilon.

    Parameters
    ----------
    word_loss : float
        Largest loss E between the two documents in nats: the sum over their words of epsilon times distance.
    epsilon, delta : float
        The learner's, for replace-one of a document.

    Raises
    ------
    TextprivError
        For numbers without meaning.

    Examples
    --------
    >>> round(joint_guarantee(0.5, 1.0).epsilon, 3)
    0.227
    """
    if not word_loss >= 0 or not epsilon >= 0 or not 0 <= delta <= 1:
        raise TextprivError(
            f"losses are numbers from 0 up and delta is a probability; got {word_loss}, {epsilon} and {delta}."
        )
    low, high = sorted((word_loss, epsilon))
    if math.isinf(high):
        # One of the two promises nothing. Where that is the words, all of the learner's delta remains.
        return JointGuarantee(low, delta if math.isinf(word_loss) else 0.0)
    # Divided by exp(high), so that nothing overflows.
    joint = low + math.log1p(math.exp(-low - high)) - math.log1p(math.exp(low - high))
    joint = max(joint, 0.0)
    share = -math.expm1(joint - word_loss) / (1.0 + math.exp(-word_loss))
    return JointGuarantee(joint, max(share, 0.0) * delta)
