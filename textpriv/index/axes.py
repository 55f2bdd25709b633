"""Axes of an index: coordinates beside the recommended space, along which the words of different labels are apart."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import TextprivError
from textpriv.statement import PrivacyStatement, at_most, factor_in_words

AXES, FREQUENCY = "axes.npy", "frequency.npy"  # files of an index folder
_NAMED = ("labels", "unit", "epsilon", "delta", "changed", "vocabulary")


@dataclass(frozen=True, eq=False, repr=False)
class Axes:
    """One coordinate of every word for each label, and how often the domain writes each word.

    Make them with :class:`textpriv.LabelAxes`.
    """

    labels: tuple[str, ...]
    values: NDArray[np.float64]  # (V, labels), in root mean square lengths of the space, weighted
    frequency: NDArray[np.float64]  # (V,), of words in texts of the domain; above 0, sums to 1
    unit: str  # whose presence the axes protect, such as "one record"
    epsilon: float  # of the presence of a unit; infinite if texts and labels are public
    delta: float
    changed: float  # epsilon of a unit whose words change, at the same delta
    vocabulary: str  # fingerprint of the words and their vectors

    def __post_init__(self) -> None:
        is_sound = (
            len(self.labels) > 0
            and all(isinstance(each, str) for each in (*self.labels, self.unit))
            and self.values.shape == (len(self.frequency), len(self.labels))
            and np.isfinite(self.values).all()
            and (self.frequency > 0).all()
            and abs(self.frequency.sum() - 1) < 1e-6
            and all(each >= 0 for each in (self.epsilon, self.delta, self.changed))
        )
        if not is_sound:
            raise TextprivError(
                "axes need one finite coordinate of every word for each label, frequencies above 0 that sum to 1, and "
                "epsilons from 0 up. Make them with LabelAxes."
            )

    @property
    def listing(self) -> dict[str, Any]:
        """What a folder says of the axes beside their arrays, in JSON types."""
        return {name: getattr(self, name) for name in _NAMED}

    @property
    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """The arrays of an index folder by file name."""
        own = {AXES: self.values, FREQUENCY: self.frequency}
        return {name: np.ascontiguousarray(each, "<f8") for name, each in own.items()}

    @property
    def digest(self) -> str:
        """SHA-256 over all attributes."""
        found = hashlib.sha256(json.dumps(self.listing, sort_keys=True).encode())
        for array in self.arrays.values():
            found.update(array.data)
        return found.hexdigest()

    def added_to(self, statement: PrivacyStatement) -> PrivacyStatement:
        """Return the statement of words drawn under a metric with these axes."""
        exposed = f"the label of a text ({', '.join(self.labels)}): each word tells more of it than in the plain space"
        learned = "the texts and labels from which the axes of the metric were learned are public"
        if not math.isinf(self.epsilon):
            learned = (
                "the axes alone were not fixed before private texts were seen: these reach the metric only by noisy sums, "
                f"with epsilon {at_most(self.epsilon, 3)} and delta {at_most(self.delta, 3)} for {self.unit} more or less"
            )
        return statement.extended(assumptions=[learned], not_protected=[exposed], notes=[self.note])

    @property
    def note(self) -> str:
        """How the loss of the metric and that of the words add up."""
        if math.isinf(self.epsilon):
            return f"The metric has axes for the labels {', '.join(self.labels)}, learned from public texts"
        return (
            f"The loss of the metric and that of the words add up. If words of {self.unit} change, metric and words "
            f"together are at most exp({at_most(self.changed, 3)}) = {factor_in_words(self.changed)} times the product of "
            f"all exp(epsilon x d) as likely, plus {at_most(self.delta, 3)}. Here d is the distance in the learned metric"
        )

    def __repr__(self) -> str:
        return f"Axes({', '.join(self.labels)}; epsilon {self.epsilon:g})"
