"""Find the epsilon of a wanted protection: a recovery rate, odds at a distance, or how many words stay.

All figures follow from public tables and the output distribution, so choosing costs no privacy and needs no draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import MechanismError
from textpriv.index.index import Index
from textpriv.index.tree import Tree
from textpriv.mechanisms import default_name, find_mechanism
from textpriv.mechanisms.base import ALGORITHM, EPSILONS, Mechanism, checksum, positive
from textpriv.statement import at_most
from textpriv.vocabulary.vocabulary import Prior

if TYPE_CHECKING:
    from textpriv.evaluation.best_attacker import PublicText

__all__ = ["Choice", "choose_epsilon", "eps_from_odds", "epsilon_for", "keep_share"]

_SLACK = 1e-8  # nats that a statement of any mechanism adds for rounding, at most
_WORDS = 512  # looked at for the share of words that stay


def eps_from_odds(odds: float, d_ref: float) -> float:
    """Return the epsilon at which one output allows odds of at most ``odds`` to 1 between two words at a distance.

    Parameters
    ----------
    odds : float
        Above 1.
    d_ref : float
        A distance of the index, such as ``index.reference_distance`` or ``index.reference_distance_90``.

    Returns
    -------
    float
        ``ln(odds) / d_ref``, per unit of distance. :func:`epsilon_for` also leaves room for rounding.

    Raises
    ------
    MechanismError
        For odds of 1 or less and distances that are not above 0.

    Examples
    --------
    >>> round(eps_from_odds(20.0, 2.0), 4)
    1.4979
    """
    if positive("odds", odds) <= 1:
        raise MechanismError(f"odds must be above 1: at 1 to 1 no word gets through; got {odds}.")
    return math.log(odds) / positive("the reference distance", d_ref)


@dataclass(frozen=True)
class Choice:
    """An epsilon, and how it was found.

    Attributes
    ----------
    epsilon : float
    target : str
        "recovery", "odds" or "keep".
    wanted, value : float
        The figure asked for, and that at ``epsilon``.
    standard_error : float
        Of ``value``: 0 where it is exact.
    """

    epsilon: float
    target: str
    wanted: float
    value: float
    standard_error: float


def epsilon_for(index: Index, **wanted: Any) -> float:
    """Return the epsilon of a wanted protection; arguments as for :func:`choose_epsilon`.

    Examples
    --------
    >>> import numpy as np, textpriv
    >>> vocabulary = textpriv.Vocabulary(["good", "bad"], np.array([[0.0], [2.0]]))
    >>> index = textpriv.Index.build(vocabulary)
    >>> round(epsilon_for(index, keep=0.75, prior="uniform", gamma=9.0), 4)  # 2 words: keep = 1 / (1 + exp(-epsilon))
    1.0986
    """
    return choose_epsilon(index, **wanted).epsilon


def choose_epsilon(
    index: Index,
    *,
    recovery: float | None = None,
    odds: float | None = None,
    keep: float | None = None,
    of: str = "content",
    context: Iterable[str] | PublicText | None = None,
    distance: float | None = None,
    word_prior: Prior = "zipf",
    mechanism: str | None = None,
    **settings: Any,
) -> Choice:
    """Find the epsilon of a wanted protection.

    Parameters
    ----------
    index : Index
    recovery : float
        The largest share of tokens that the Bayes-optimal single-word attacker may recover, in (0, 1): the largest epsilon
        at which that holds, exactly, to a thousandth. For a mechanism that reads its context it is an estimate, from one
        draw of 4,000 words of general English (or of ``context``): the upper end of its 95 % interval is at most the
        share. ``value`` is then estimated on another such draw.
    odds : float
        The largest odds, to 1, that one output allows between two words at ``distance``, rounding included. Holds for every
        mechanism.
    keep : float
        The mean probability that a token stays as it is, over at most 512 words of a fixed public sample.
    of : {"content", "all"}
        With ``recovery``: which words. Content words are all but the 250 commonest, and the attacker is told.
    context : iterable of str, or PublicText, optional
        With ``recovery``: public texts in which a context attacker is tried, too; the better one counts. Never the private
        texts themselves.
    distance : float, optional
        With ``odds``; default ``index.reference_distance``.
    word_prior : see :meth:`Vocabulary.prior_weights`
        How often each word is written.
    mechanism : str, optional
        A registered name, or a short one. Default: that of :func:`textpriv.privatize` for a recovery without settings;
        TreeTEM over a tree; else TEM.
    **settings
        Further settings of the mechanism, such as ``prior`` and ``gamma``.

    Raises
    ------
    MechanismError
        Unless exactly one figure is asked for, and it is within reach.
    """
    asked = {"recovery": recovery, "odds": odds, "keep": keep}
    named = [name for name, value in asked.items() if value is not None]
    if len(named) != 1:
        raise MechanismError(
            f"say what is wanted by one of recovery=, odds= and keep=; got {' and '.join(named) or 'none'}."
        )
    if odds is not None:
        return _by_odds(index, odds, index.reference_distance if distance is None else distance)
    if mechanism is None:
        mechanism = "tree" if isinstance(index, Tree) else "tem"
        if recovery is not None and not settings:
            mechanism = default_name(index) if mechanism == "tem" else mechanism
    configure = find_mechanism(mechanism)
    prior = settings.get("prior")
    if prior is not None and not isinstance(
        prior, str
    ):  # a file is read once, not for every epsilon
        settings["prior"] = index.vocabulary.prior_weights(prior)
    weights = index.vocabulary.prior_weights(word_prior)

    def make(epsilon: float) -> Mechanism:
        return configure(epsilon=epsilon, **settings)(index)

    if keep is not None:
        return _by_keep(index, make, positive("keep", keep), weights)
    return _by_recovery(index, make, positive("recovery", recovery), of, context, weights)


def _by_odds(index: Index, odds: float, distance: float) -> Choice:
    epsilon = eps_from_odds(odds, distance) - _SLACK / distance
    least, most = EPSILONS
    if not least <= epsilon <= most:
        raise MechanismError(
            f"no epsilon gives such odds at distance {distance:.4g}; two words of this index are at most "
            f"{at_most(index.diameter_bound, 3)} apart. Choose a distance of that order, or larger odds."
        )
    return Choice(epsilon, "odds", float(odds), float(odds), 0.0)


def keep_share(
    mechanism: Mechanism, weights: NDArray[np.float64], words: int = _WORDS
) -> tuple[float, float]:
    """Return the mean probability that a token stays, and its standard error.

    Parameters
    ----------
    mechanism : Mechanism
        With a closed form.
    weights : ndarray, shape (V,)
        How often each word is written.
    words : int
        How many words of a fixed public sample are looked at.
    """
    from textpriv.evaluation.deniability import WordSample
    from textpriv.evaluation.law import Law

    sample = WordSample.of(weights, words)
    keep = np.empty(len(sample.ids))
    law = Law(mechanism)
    for start in range(0, len(keep), 64):
        some = sample.ids[start : start + 64].astype(np.int64)
        keep[start : start + 64] = law.rows(some)[np.arange(len(some)), some]
    return float(sample.mean(keep)), float(sample.standard_error(keep))


def _by_keep(
    index: Index,
    make: Callable[[float], Mechanism],
    wanted: float,
    weights: NDArray[np.float64],
) -> Choice:
    from scipy.optimize import brentq

    if wanted >= 1:
        raise MechanismError(f"keep is a probability strictly between 0 and 1; got {wanted:g}.")

    def excess(log_epsilon: float) -> float:
        return keep_share(make(math.exp(log_epsilon)), weights)[0] - wanted

    low = high = -math.log(index.reference_distance or 1.0)
    while excess(low) > 0 and low > high - 20:
        low -= 1
    while excess(high) < 0 and high < low + 40:
        high += 1
    if excess(low) > 0 or excess(high) < 0:
        end = min(excess(low), 0) or max(excess(high), 0)
        raise MechanismError(
            f"no epsilon keeps a share of {wanted:g} of the words: with these settings it is {wanted + end:.4g} at the end "
            "of the range. Choose another share, prior or gamma."
        )
    epsilon = math.exp(brentq(excess, low, high, xtol=1e-9))
    value, error = keep_share(make(epsilon), weights)
    return Choice(epsilon, "keep", wanted, value, error)


def _by_recovery(
    index: Index,
    make: Callable[[float], Mechanism],
    wanted: float,
    of: str,
    context: Iterable[str] | PublicText | None,
    weights: NDArray[np.float64],
) -> Choice:
    """Search for the epsilon, or return what was recorded for just this question: a search takes a minute."""
    from textpriv.evaluation.best_attacker import (
        BestAttacker,
        PublicText,
        cautious_epsilon,
        largest_epsilon,
        sampled_text,
    )
    from textpriv.language.general_english import general_english

    if context is not None and not isinstance(context, PublicText):
        context = PublicText.read(context, index)
    one = make(1.0)
    binding = {
        "kind": "chosen epsilon",
        "version": 4,
        "algorithm": ALGORITHM,
        "mechanism": one.binding(),
        "wanted": [wanted, of, checksum(weights), None if context is None else context.digests],
    }
    record = index.find_record(binding)
    if record is None:
        start = 4 / (index.reference_distance or 4.0)
        if one.reads_context:
            if context is None:
                model = general_english(index.vocabulary.words)
                tried, shown = (
                    BestAttacker(weights, of, sampled_text(model, seed=n)) for n in (0, 1)
                )
                found = cautious_epsilon(make, wanted, tried.alone_with_error, start * 1.5)
                # What is shown was not looked at by the search.
                share, error = shown.alone_with_error(make(found.epsilon))
                found = found._replace(share=share, error=error)
            else:
                success = BestAttacker(weights, of, context).success
                found = cautious_epsilon(make, wanted, success, start * 1.5)
        else:
            found = largest_epsilon(make, wanted, BestAttacker(weights, of, context), start)
        record = asdict(Choice(found.epsilon, "recovery", wanted, found.share, found.error))
        index.keep_record(binding, record)
    return Choice(**record)
