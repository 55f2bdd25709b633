"""What an amount of privacy means on an index: odds at typical distances, how many words stay, what the best guess recovers.

Nobody can choose an epsilon by its number, so whoever is asked for one is shown a few of them with what they mean. They
follow from public tables alone. To find the epsilon of a wished meaning is the matter of ``guarantees.epsilon``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from textpriv.errors import TextprivError
from textpriv.index.builtin import BUILTIN, ENGLISH, open_index
from textpriv.index.index import Index
from textpriv.mechanisms.tem import TEM
from textpriv.statement import at_most, odds_in_words
from textpriv.vocabulary.builtin import read_manifest

__all__ = [
    "AMOUNTS_BINDING",
    "SHARES",
    "Amount",
    "amounts",
    "amounts_table",
    "builtin_amounts",
    "explain_missing",
    "keep_share",
    "record_of",
]

SHARES = (0.15, 0.5, 0.9)  # of running words that stay: few, half, most
AMOUNTS_BINDING = {"kind": "amounts", "version": 1, "shares": list(SHARES)}
_WORDS = 200  # looked at where no more is recorded
_ROWS = 256


@dataclass(frozen=True)
class Amount:
    """An epsilon of TEM with a Zipf prior, and what it means on one index.

    Attributes
    ----------
    epsilon : float
        Per unit of distance.
    keep : float
        Share of running words that stay as they are.
    loss, loss_90 : float
        Log odds, in nats, at most, between a word and its 10th nearest: for half and for nine tenths of running words.
    recovered : float or None
        Share of running words that the best guess of a lone word names rightly, knowing the law and how often each word is
        written; None where it was not computed.
    """

    epsilon: float
    keep: float
    loss: float
    loss_90: float
    recovered: float | None = None

    @classmethod
    def of(
        cls, index: Index, epsilon: float, *, recovered: float | None = None, every: bool = False
    ) -> Amount:
        """Compute what an epsilon means; ``every`` looks at all words, and not at a sample."""
        mechanism = TEM(index, epsilon=epsilon)
        figures = mechanism.statement.figures
        # A bound is rounded up.
        loss, loss_90 = (
            float(at_most(figures[f"reference_loss{which}"], 9)) for which in ("", "_90")
        )
        kept = round(keep_share(mechanism, len(index) if every else _WORDS), 4)
        return cls(epsilon, kept, loss, loss_90, recovered)


def keep_share(mechanism: TEM, words: int) -> float:
    """Share of running words, counted by rank, that stay as they are.

    Parameters
    ----------
    mechanism : TEM
    words : int
        How many words are looked at: those that part running words into so many equal parts. All of them, each with its
        weight, if there are no more.
    """
    index = mechanism.index
    prior = index.vocabulary.prior_weights("zipf")
    measure, rate, gamma = mechanism.exponential_law()
    if words >= len(index):
        ids, weights = np.arange(len(index)), prior
    else:
        middles = (np.arange(words) + 0.5) / words
        ids = np.minimum(np.searchsorted(np.cumsum(prior), middles), len(index) - 1)
        weights = np.full(words, 1 / words)
    share = 0.0
    for start in range(0, len(ids), _ROWS):
        rows = ids[start : start + _ROWS]
        law = measure * np.exp(-rate * np.minimum(index.distances_of(rows), gamma))
        own = law[np.arange(len(rows)), rows] / law.sum(axis=1)
        share += float(own @ weights[start : start + _ROWS])
    return share


def record_of(values: Sequence[Amount]) -> dict[str, Any]:
    """Return amounts as they are recorded with an index."""
    return {"amounts": [asdict(amount) for amount in values]}


def amounts(index: Index) -> list[Amount]:
    """Three amounts, at which few, half and most of the running words stay; found once and kept with the index."""
    record = index.find_record(AMOUNTS_BINDING)
    if record is None:
        record = record_of([_with_share(index, share) for share in SHARES])
        index.keep_record(AMOUNTS_BINDING, record)
    return _read(record)


def builtin_amounts(language: str) -> list[Amount]:
    """The amounts that are recorded of a built-in index, which need not be built for them.

    Raises
    ------
    VocabularyError
        Where there is none of that language.
    """
    records = read_manifest(language)["records"]
    return _read(next(r["content"] for r in records if r["binding"] == AMOUNTS_BINDING))


def _read(record: Mapping[str, Any]) -> list[Amount]:
    return [Amount(**amount) for amount in record["amounts"]]


def _with_share(index: Index, share: float) -> Amount:
    """The amount, its epsilon of two digits, at which a share of the running words stays."""
    low = high = 1.0 / (index.reference_distance or 1.0)
    while keep_share(TEM(index, epsilon=high), _WORDS) < share and high < 2.0**40:
        high *= 2
    while keep_share(TEM(index, epsilon=low), _WORDS) > share and low > 2.0**-40:
        low /= 2
    for _ in range(8):
        middle = (low * high) ** 0.5
        below = keep_share(TEM(index, epsilon=middle), _WORDS) < share
        low, high = (middle, high) if below else (low, middle)
    return Amount.of(index, float(f"{(low * high) ** 0.5:.2g}"))


def explain_missing(given: Index | str | os.PathLike[str]) -> str:
    """Say that an epsilon is missing, and what three of them mean on the index of a name.

    Parameters
    ----------
    given : Index, str or path
        Or a name, as for :func:`textpriv.index.builtin.open_index`. Where there is no such index, that is said instead.
    """
    ask = "how much privacy is enough is your decision, so epsilon has no default."
    where = "this index" if isinstance(given, Index) else os.fspath(given)
    try:
        if isinstance(given, Index):
            values = amounts(given)
        elif where.startswith(BUILTIN):
            values = builtin_amounts(where.removeprefix(BUILTIN))
        else:
            values = amounts(open_index(given))
    except TextprivError as error:
        return f"{ask} What some of them mean could not be shown: {error}"
    table = amounts_table(values)
    found = f"{ask}\nThree of them on {where}, for TEM with a Zipf prior:\n\n{table}"
    if where == ENGLISH:
        found += "\n\n  The default here is ContextualTEM: a recovery of 0.1 finds its epsilon."
    return found


def amounts_table(values: Sequence[Amount]) -> str:
    """Amounts and what they mean, a line each, for a screen."""
    known = all(each.recovered is not None for each in values)
    heads = "epsilon", "words that stay", "odds, half", "odds, nine tenths"
    rows = [(*heads, "guessed" if known else "")]
    for each in values:
        odds = odds_in_words(each.loss), odds_in_words(each.loss_90)
        guess = f"{each.recovered:.0%}" if known else ""
        rows.append((f"{each.epsilon:g}", f"about {each.keep:.0%}", *odds, guess))
    lines = ["  {:<7}  {:<15}  {:<17}  {:<17}  {}".format(*row).rstrip() for row in rows]
    lines.append("  Odds: at most, between a word and its 10th nearest one, by one output,")
    lines.append("  for half and for nine tenths of all words.")
    if known:
        lines[-1] += " Guessed: by the best attacker"
        lines.append("  of lone words.")
    return "\n".join(lines)
