"""What a release costs, read off a mechanism's statement, and the fingerprint of all settings that it hangs on.

Sums of such costs and their limits are kept in ``ledger.ledger``.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from textpriv.errors import LedgerError

if TYPE_CHECKING:
    from textpriv.mechanisms.base import Mechanism
    from textpriv.tokenization.policy import TokenPolicy

__all__ = ["Terms", "settings_fingerprint"]


@dataclass(frozen=True)
class Terms:
    """The settings of a release, and what they cost.

    Attributes
    ----------
    settings : bytes
        Fingerprint of everything that decides, with a key, what is drawn.
    distance : str
        Names the distance that epsilon is measured by; epsilons add only under one distance.
    epsilon : float
        In units of 1/distance.
    word_loss : float
        Largest loss of one drawn word, in nats.
    word_rho : float, optional
        Of one drawn word, in zCDP. Default: ``word_loss**2 / 2``, which holds of every law.
    """

    settings: bytes
    distance: str
    epsilon: float
    word_loss: float
    word_rho: float | None = None

    @classmethod
    def of(cls, mechanism: Mechanism, policy: TokenPolicy, language: str = "en") -> Terms:
        """Terms of releases with a mechanism under a policy, of texts read as a language.

        Raises
        ------
        LedgerError
            If the mechanism's statement is not proved or has no finite constants, so that there is nothing to add up; and
            for a metric of the user's own.
        """
        statement = mechanism.statement
        loss = statement.figures.get("worst_word_loss")
        if not statement.proved or statement.epsilon is None or loss is None:
            raise LedgerError(
                f"a ledger adds up proved guarantees, and {mechanism.name} as configured has none. Use exact lists "
                "(backend='exact') and a mechanism whose statement is proved."
            )
        index = mechanism.index
        return cls(
            settings=settings_fingerprint(mechanism, policy, language),
            distance=f"{index.space} {index.fingerprint[:16]}",
            epsilon=statement.epsilon,
            word_loss=loss + statement.figures.get("numerical_slack", 0.0),
            word_rho=statement.range_at(math.inf) ** 2 / 8,
        )


def settings_fingerprint(
    mechanism: Mechanism, policy: TokenPolicy, language: str = "en", spans: Any = None
) -> bytes:
    """Return 32 bytes that stand for everything that decides, with a key, what is drawn.

    A key is used again only where it gives the same words again. So whatever the sampler reads belongs here: the weights
    of the prior and the rate themselves, what leaves the law alone (the length of the lists, the bounds on what they leave
    out), and the versions of the package and of its algorithms, since a new one may draw in another order. Of typed spans
    their policy and detectors, in JSON types.
    """
    from textpriv import __version__

    settings = {
        "version": __version__,
        "mechanism": mechanism.binding(),
        "policy": policy.to_dict(),
        "language": language,
    }
    if spans is not None:
        settings["spans"] = spans
    return _fingerprint(settings)


def _fingerprint(settings: Any) -> bytes:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).digest()
