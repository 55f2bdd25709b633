"""The errors of this package: each says what was expected, what was found and what to do.

Only the classes live here. Where an input is judged is the business of the module that uses it. No message ever holds a
value taken from private data.
"""

from __future__ import annotations

__all__ = [
    "BudgetClosedError",
    "BudgetExceededError",
    "InvalidPairsError",
    "InvalidParameterError",
    "PairwiseError",
    "ServiceError",
    "UnsupportedEventError",
]


class PairwiseError(ValueError):
    """Base of all errors raised on purpose by this package."""


class InvalidParameterError(PairwiseError):
    """A setting is outside the range in which its guarantee or its meaning holds."""


class InvalidPairsError(PairwiseError):
    """A list of pairs is malformed: self pairs, duplicates, indices out of range, wrong shape."""


class UnsupportedEventError(PairwiseError):
    """A privacy event has no accountant that can analyse it under the adjacency asked for."""


class BudgetExceededError(PairwiseError):
    """A release was refused because it would pass the limit of its budget; nothing was drawn."""


class BudgetClosedError(PairwiseError):
    """A release was refused because its budget is closed or its store cannot be reached."""


class ServiceError(PairwiseError):
    """A server refused a request, cannot be reached, or answered with something that is no answer."""


# Names of before.
BudgetClosed = BudgetClosedError
BudgetExceeded = BudgetExceededError
InvalidPairs = InvalidPairsError
InvalidParameter = InvalidParameterError
UnsupportedEvent = UnsupportedEventError
