"""TEM, the truncated exponential mechanism on words, with any public prior.

Source: Carvalho, Vasiloudis, Feyisetan, "TEM: High Utility Metric Differential Privacy on Text", Algorithm 2 and Theorems
2 and 3. The output law of a word w is ``P_w(y) = nu(y) exp(-t min(d(w, y), gamma)) / Z(w)`` with a public prior nu (uniform
as published) and rate t = epsilon / 2. It is drawn exactly, without computing Z, by the envelope sampler (mechanisms.md
3.4): the word's nearest list holds the head of the law, and a rejection step on the prior draws the rest.
"""

from __future__ import annotations

import hashlib
import math
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from textpriv.errors import MechanismError
from textpriv.index import Index
from textpriv.mechanisms.constant import largest_rate
from textpriv.mechanisms.draws import (
    ROOM,
    apart,
    draw_documents,
    drawn_distances,
    listed,
    surely_below,
)
from textpriv.mechanisms.levelling import level
from textpriv.mechanisms.measure import PARTS, BaseMeasure, bernoulli, draw, integer_parts, numbers
from textpriv.mechanisms.mechanism import UNKNOWN, Mechanism, positive
from textpriv.metrics import INTERPRETED
from textpriv.randomness import RandomWords, Stream
from textpriv.statement import PrivacyStatement, UnsoundWarning

__all__ = ["TEM", "configure", "truncation"]

# A truncated distance of this many nats is the most that keeps every probability representable to a known relative error
# (mechanisms.md 2.4): "no truncation" means this.
LARGEST_EXPONENT = 30.0

_NEW, _ENVELOPE, _ROW = np.uint8(0), np.uint8(1), np.uint8(2)
# A word whose expected number of draws from the prior exceeds this is drawn from its full row instead: a row costs about
# as much as some thousands of them.
_PATIENCE = 4096.0
# Parts below this are accepted against their exact real weight, so that rounding to whole parts never changes a
# probability by more than 2^-32 of itself.
_COARSE = np.uint64(1 << 32)
_SPARE = 12  # random words a token read ahead
# A word's row of the table begins with what every draw asks for, so that it comes in one cache line: the end of the head,
# the edge, the reach and the scale as floats, and then the cumulative parts of the head.
_END, _EDGE, _REACH, _SCALE, _HEAD = range(5)


def truncation(beta: float, size: int, rate: float) -> float:
    """Theorem 3: the gamma outside which any word falls with probability at most ``beta`` under the uniform prior.

    Parameters
    ----------
    beta : float
        In (0, 1).
    size : int
        Number of words in the vocabulary.
    rate : float
        The rate t; epsilon / 2 as published.
    """
    if not 0 < beta < 1:
        raise MechanismError(f"beta is a probability strictly between 0 and 1; got {beta}.")
    odds = (1 - beta) * (size - 1) / beta
    if odds <= 1:
        # Every other word together is rarer than beta at any distance: nothing needs truncating.
        return LARGEST_EXPONENT / rate
    return math.log(odds) / rate


class TEM(Mechanism):
    """Truncated exponential mechanism: exact draws, any public prior.

    Parameters
    ----------
    index : Index
        With exact lists; approximate ones void the proof, and the statement says so.
    epsilon : float
        Constant of the guarantee ``P_w(y) <= exp(epsilon d(w, w')) P_w'(y)``.
    prior : {"zipf", "uniform", "counts"}, array, mapping or path
        Public base measure, as in :meth:`Vocabulary.prior_weights`. "uniform" is the mechanism as published. Weights
        below 2^-40 of the total are raised to it.
    gamma : float, optional
        Truncation of the distance. Default: Theorem 3 from ``beta`` with the uniform prior, none with any other. At most
        30 / t in any case, so that every probability keeps a known relative precision.
    beta : float
        Used by the default gamma of the uniform prior, which is Theorem 3's at rate epsilon / 2 (it serves larger rates).
    rate : {"half", "calibrated", "best"}
        "half": t = epsilon / 2, as published. "calibrated": the largest t in [epsilon / 2, epsilon] whose exact constant
        over all pairs is at most epsilon (1 - 1e-6), computed once and recorded with the index; it needs exact lists.
        "best": first moves the prior some half steps towards the measure on which the normaliser is constant, as many as
        keep the most words (:mod:`textpriv.mechanisms.levelling`; a small vocabulary may start from the uniform measure),
        then calibrates. The guarantee is the same.

    Attributes
    ----------
    t : float
        The rate in use.
    gamma : float
        The truncation in use.
    rho_bound : float
        Nothing tells two words apart by more than this per unit of distance: epsilon at the half rate, the constant over
        all pairs, with the rounding of distances charged, at a calibrated one.

    Raises
    ------
    MechanismError
        For parameters without meaning.
    """

    name = "TEM"
    needs_exact_lists = True

    def __init__(
        self,
        index: Index,
        epsilon: float,
        prior: str | PathLike[str] | Mapping[str, float] | NDArray[Any] = "zipf",
        gamma: float | None = None,
        beta: float = 1e-3,
        rate: str = "half",
    ) -> None:
        super().__init__(index, epsilon)
        if rate not in ("half", "calibrated", "best"):
            raise MechanismError(
                f"unknown rate {rate!r}; use 'half' (t = epsilon / 2), 'calibrated' or 'best'."
            )
        self.rate = rate
        self.rho_bound = self.epsilon
        self.levelled: tuple[dict[str, Any], ...] = ()
        if not index.exact:
            warnings.warn(
                f"TEM over approximate lists (recall {index.recall:.4f}) has no proved guarantee: a missed neighbour "
                "voids it. Build the index with backend='exact'.",
                UnsoundWarning,
                stacklevel=2,
            )
        self.prior = prior
        self.measure = BaseMeasure(index.vocabulary.prior_weights(prior))
        self.beta = positive("beta", beta)
        if self.beta >= 1:
            raise MechanismError(f"beta is a probability strictly between 0 and 1; got {beta}.")
        self._gamma = gamma
        if gamma is not None:
            wanted = positive("gamma", gamma, infinite=True)
        elif isinstance(prior, str) and prior == "uniform":
            wanted = truncation(beta, len(index), self.epsilon / 2)
        else:
            wanted = math.inf
        self.t = self._settle(wanted)
        self.gamma = min(wanted, LARGEST_EXPONENT / self.t)
        size, k = len(index), index.k
        # A word gets the next row of these tables when it is first met, so that only rows in use take memory, and those of
        # common words lie together.
        self._mode = np.zeros(size, dtype=np.uint8)
        self._place = np.zeros(size, dtype=np.int32)
        self._used = np.zeros(1, dtype=np.int64)
        self._table = np.empty((size, -(-(k + _HEAD) // 8) * 8), dtype=np.uint64)
        self._floats = self._table.view(np.float64)
        self._cumulative = self._table[:, _HEAD : _HEAD + k]
        self._edge, self._scale = self._floats[:, _EDGE], self._floats[:, _SCALE]
        self._probes = self.measure.quantiles(min(64, size))
        if index.metric.kind == INTERPRETED:
            self._mode[:] = _ROW
        self._rows: OrderedDict[int, tuple[NDArray[np.uint64], NDArray[np.float64]]] = OrderedDict()
        self._lock = threading.Lock()

    def settings(self) -> dict[str, Any]:
        """Keyword arguments that rebuild this mechanism on the same index."""
        return {
            "epsilon": self.epsilon,
            "prior": self.prior,
            "gamma": self._gamma,
            "beta": self.beta,
            "rate": self.rate,
        }

    def __repr__(self) -> str:
        prior = self.prior if isinstance(self.prior, str) else f"<{type(self.prior).__name__}>"
        return f"TEM(epsilon={self.epsilon:g}, prior={prior!r}, gamma={self.gamma:.4g}, t={self.t:.4g})"

    def binding(self) -> dict[str, Any]:
        """What a record about this mechanism is bound to; the prior by its exact parts."""
        bound = super().binding()
        bound["settings"]["prior"] = hashlib.sha256(self.measure.parts.tobytes()).hexdigest()
        return bound

    def _settle(self, gamma: float) -> float:
        """Fix the measure for a wanted truncation, and return the rate."""
        if self.rate == "half":
            return self.epsilon / 2
        if self.rate == "best":
            self._level(gamma)
        return self._calibrate(gamma)

    def _level(self, gamma: float) -> None:
        """Replace the prior by the best levelled measure: recorded for exactly this prior, or searched now."""
        self._refuse_unproved()
        binding = {"kind": "levelling", **self.binding()}
        record = self.index.find_record(binding)
        weights = None if record is None else numbers(record.get("weights"), len(self.index))
        if record is None or weights is None or not (weights > 0).all():
            levelled = level(
                self.index,
                self.measure.weights,
                self.epsilon,
                lambda rate: min(gamma, LARGEST_EXPONENT / rate),
            )
            record = {
                "start": levelled.start,
                "steps": levelled.steps,
                "evidence": list(levelled.evidence),
                "weights": levelled.weights.tolist(),
            }
            self.index.keep_record(binding, record)
            weights = levelled.weights
        self.levelled = tuple(record["evidence"])
        self.measure = BaseMeasure(weights)

    def _refuse_unproved(self) -> None:
        if not self.index.exact or self.index.metric.kind == INTERPRETED:
            raise MechanismError(
                f"rate={self.rate!r} needs exact lists and a metric of this library, since it spends what is proved and "
                "nothing else. Use rate='half'."
            )

    def _calibrate(self, gamma: float) -> float:
        """The largest rate that keeps the promise: recorded for exactly this law, or computed now."""
        self._refuse_unproved()
        index = self.index
        binding = {"kind": "calibration", **self.binding()}
        record = index.find_record(binding)
        if record is None or not self._settled(record.get("t"), record.get("rho_with_rounding")):
            rate, constant = largest_rate(
                index, self.measure.weights, self.epsilon, gamma, LARGEST_EXPONENT
            )
            record = {"t": rate, "rho_with_rounding": constant.value, "pair": list(constant.pair)}
            index.keep_record(binding, record)
        self.rho_bound = float(record["rho_with_rounding"])
        return float(record["t"])

    def _settled(self, t: Any, rho: Any) -> bool:
        """Whether a recorded rate and constant keep the promise, as everything that is computed does."""
        if not (
            isinstance(t, float)
            and isinstance(rho, float)
            and self.epsilon / 2 <= t <= self.epsilon
        ):
            return False
        # Half of epsilon is proved for every measure; only the rounding charged may put its constant above.
        return 0 < rho <= (self.epsilon if t > self.epsilon / 2 else math.inf)

    # The law

    def exponential_law(self) -> tuple[NDArray[np.float64], float, float]:
        """The base measure, the rate and the truncation."""
        return self.measure.weights, self.t, self.gamma

    def distances(self, word: int) -> NDArray[np.float64]:
        """Distances by which a word's law is drawn, shape (V,): true ones, with exact lists."""
        return drawn_distances(self.index, word)

    def log_prob(self, word: str | int) -> NDArray[np.float64]:
        """Natural logarithm of the output law of a word (or of ``UNKNOWN``), shape (V,)."""
        number = self.resolve(word)
        prior = np.log(self.measure.weights)
        if number == UNKNOWN:
            return prior
        score = prior - self.t * np.minimum(self.distances(number), self.gamma)
        peak = score.max()
        law: NDArray[np.float64] = score - (peak + math.log(np.exp(score - peak).sum()))
        return law

    # Draws

    def sample_documents(
        self,
        ids: NDArray[np.int32],
        offsets: NDArray[np.int64],
        streams: Sequence[RandomWords],
    ) -> NDArray[np.int32]:
        """Draw one output for every token; see :meth:`Mechanism.sample_documents`."""

        def sampler(
            pending: NDArray[np.int64],
            done: NDArray[np.int64],
            random: NDArray[np.uint64],
            starts: NDArray[np.int64],
            position: NDArray[np.int64],
            out: NDArray[np.int32],
        ) -> list[tuple[int, int]]:
            rows: list[tuple[int, int]] = _sample(  # type: ignore[call-arg]
                self.index.metric.kind,
                self.index.coordinates,
                self.index.representatives,
                self.index.neighbours.ids,
                self.index.neighbours.distances,
                self.measure.parts,
                *self.measure.tables(),
                *self.index.sketch,
                self._probes,
                self._mode,
                self._place,
                self._used,
                self._table,
                self._floats,
                self.t,
                self.gamma,
                ids,
                offsets,
                pending,
                done,
                random,
                starts,
                position,
                out,
            )
            return rows

        with self._lock:
            out, deferred = draw_documents(sampler, offsets, streams, _SPARE)
            for token, key in deferred:
                out[token] = self._draw_from_row(int(ids[token]), key)
        return out

    def _row(self, word: int) -> tuple[NDArray[np.uint64], NDArray[np.float64]]:
        """Cumulative whole parts of a word's full row, and the real number of parts of each output."""
        row = int(self.index.representatives[word])
        if row in self._rows:
            self._rows.move_to_end(row)
            return self._rows[row]
        weights = self.measure.weights * np.exp(
            -self.t * np.minimum(self.distances(word), self.gamma)
        )
        real = weights * (float(PARTS) / weights.sum())
        parts = integer_parts(np.where(real < float(_COARSE), np.ceil(real), real))
        self._rows[row] = np.cumsum(parts, dtype=np.uint64), real
        if len(self._rows) > 64:
            self._rows.popitem(last=False)
        return self._rows[row]

    def _draw_from_row(self, word: int, key: bytes) -> int:
        """Draw from a full row with a stream of the token's own."""
        cumulative, real = self._row(word)
        stream = Stream(key)
        while True:
            first, second, third = stream.words(3)
            found = int(np.searchsorted(cumulative, first >> np.uint64(2), side="right"))
            parts = int(cumulative[found]) - (int(cumulative[found - 1]) if found else 0)
            if parts >= int(_COARSE) or bernoulli(real[found] / parts, second, third):
                return found

    # The guarantee

    @property
    def worst_word_loss(self) -> float:
        """Largest loss between any two words, in nats (mechanisms.md TEM-12)."""
        diameter = self.index.diameter_bound
        if self.rate == "half":
            return self.epsilon * min(diameter, self.gamma)
        # A calibrated rate promises epsilon d, and beyond the truncation no more than twice its own exponent.
        return min(self.epsilon * diameter, 2 * self.t * self.gamma)

    @property
    def statement(self) -> PrivacyStatement:
        """The guarantee of one drawn word."""
        index = self.index
        prior = self.prior if isinstance(self.prior, str) else "given"
        reference = index.reference_distance
        notes = []
        if not index.exact:
            notes.append(
                f"The nearest lists are approximate (measured recall {index.recall:.4f}); a missed neighbour voids "
                "the guarantee"
            )
        assumptions = [
            "words, vectors, metric and prior are public and were fixed before any private text was seen",
            "the operating system's randomness is unpredictable and the run key stays secret",
            "whoever sees the output cannot observe timing or memory",
        ]
        if index.metric.kind == INTERPRETED:
            assumptions.append(f"{index.metric.name} satisfies the triangle inequality")
        return PrivacyStatement(
            mechanism=(
                f"TEM (epsilon {self.epsilon:g}, prior {prior}, gamma {self.gamma:.4g}, {self.rate} rate t {self.t:.4g})"
            ),
            adjacency="any two words of the vocabulary in one place of the text",
            epsilon=self.epsilon,
            delta=0.0,
            unit=f"per unit of {index.metric.name} distance",
            proved=index.exact,
            proof=(
                "1-Lipschitz score, exponential mechanism: TEM, Theorem 2; prior and truncation: mechanisms.md 3.1, 3.3"
                if self.rate == "half"
                else "the exact constant over all pairs of words, computed for this vocabulary: mechanisms.md 3.3"
            ),
            assumptions=tuple(assumptions),
            figures={
                "worst_word_loss": self.worst_word_loss,
                "local_dp_epsilon": self.worst_word_loss,
                "reference_distance": reference,
                "reference_loss": min(self.epsilon * reference, self.worst_word_loss),
                # 2 t tau for the exponent and as much for the normaliser; the rest bounds rounding to whole parts.
                "numerical_slack": 4 * self.t * index.tau + 1e-8,
            },
            notes=tuple(notes),
        )


def configure(
    epsilon: float,
    prior: str = "zipf",
    gamma: float | None = None,
    beta: float = 1e-3,
    rate: str = "half",
) -> Callable[[Index], TEM]:
    """Registered as ``textpriv.TEM.v1``: settings of a TEM that is made when its index is known."""

    def make(index: Index) -> TEM:
        return TEM(index, epsilon=epsilon, prior=prior, gamma=gamma, beta=beta, rate=rate)

    return make


@njit(cache=True, nogil=True)
def _prepare(
    kind: int,
    coordinates: NDArray[Any],
    word: int,
    ids: NDArray[np.int32],
    distances: NDArray[Any],
    parts: NDArray[np.uint64],
    probes: NDArray[np.int32],
    mode: NDArray[np.uint8],
    places: NDArray[np.int32],
    used: NDArray[np.int64],
    table: NDArray[np.uint64],
    floats: NDArray[np.float64],
    t: float,
    gamma: float,
) -> None:
    """Give a word its row of the tables: cumulative whole parts of its head, the rest of 2^62 being its tail envelope."""
    k = ids.shape[1]
    unit = 2.0**-62
    head = np.empty(k)
    total = 0.0
    outside = np.uint64(PARTS)
    for place in range(k):
        other = ids[word, place]
        outside -= parts[other]
        head[place] = parts[other] * unit * np.exp(-t * min(distances[word, place], gamma))
        total += head[place]
    # Rounded down, so that no word outside the list is nearer than the edge and no acceptance exceeds one.
    nearest = min(np.float64(distances[word, k - 1]) * (1.0 - 2.0**-23), gamma)
    tail = outside * unit * np.exp(-t * nearest)
    redraws = 1.0 + tail / (total + tail) / (outside * unit) if tail > 0.0 else 1.0
    if tail > 0.0 and (total + tail) / total * redraws > _PATIENCE:
        # That was an upper bound on the rounds; what the tail accepts decides, estimated on a fixed public sample so that
        # the choice is the same on every run.
        accepted, tried = 0.0, 0
        for probe in probes:
            if not listed(ids, word, probe):
                distance = apart(kind, coordinates, word, probe)
                accepted += np.exp(-t * max(min(distance, gamma) - nearest, 0.0))
                tried += 1
        share = accepted / tried if tried > 0 else 1.0
        if (total + tail) / (total + tail * share) * redraws > _PATIENCE:
            mode[word] = _ROW
            return
    row = used[0]
    used[0] += 1
    places[word] = row
    mode[word] = _ENVELOPE
    factor = float(PARTS) / (total + tail)
    floats[row, _SCALE] = factor
    floats[row, _EDGE] = nearest
    # Rounded up: whatever lies beyond is not in the list.
    floats[row, _REACH] = np.float64(distances[word, k - 1]) * (1.0 + 2.0**-22)
    largest, remaining = 0, np.uint64(PARTS)
    for place in range(k):
        real = head[place] * factor
        # Rounding up leaves room for the exact acceptance of coarse parts.
        whole = np.uint64(np.ceil(real)) if real < _COARSE else np.uint64(real)
        table[row, _HEAD + place] = whole
        remaining -= whole
        if whole > table[row, _HEAD + largest]:
            largest = place
    real_tail = tail * factor
    if real_tail < _COARSE:
        tail_parts = np.uint64(np.ceil(real_tail))
    else:
        tail_parts = np.uint64(real_tail)
    # The remainder, below 2^12 parts, goes where it is less than 2^-40 of what stands there. Unsigned wrap-around makes
    # a negative remainder subtract.
    if table[row, _HEAD + largest] >= tail_parts:
        table[row, _HEAD + largest] += remaining - tail_parts
    running = np.uint64(0)
    for place in range(k):
        running += table[row, _HEAD + place]
        table[row, _HEAD + place] = running
    table[row, _END] = running


@njit(cache=True, nogil=True)
def _sample(
    kind: int,
    coordinates: NDArray[Any],
    representatives: NDArray[np.int32],
    neighbours: NDArray[np.int32],
    distances: NDArray[Any],
    parts: NDArray[np.uint64],
    measure: NDArray[np.uint64],
    guide: NDArray[np.int32],
    shift: np.uint64,
    sketch: NDArray[np.int8],
    grain: NDArray[np.float64],
    probes: NDArray[np.int32],
    mode: NDArray[np.uint8],
    places: NDArray[np.int32],
    used: NDArray[np.int64],
    table: NDArray[np.uint64],
    floats: NDArray[np.float64],
    t: float,
    gamma: float,
    ids: NDArray[np.int32],
    offsets: NDArray[np.int64],
    pending: NDArray[np.int64],
    done: NDArray[np.int64],
    random: NDArray[np.uint64],
    starts: NDArray[np.int64],
    position: NDArray[np.int64],
    out: NDArray[np.int32],
) -> list[tuple[int, int]]:
    """Draw until a document is finished or its random words run out; a token that ran out starts over with the same.

    Returns the tokens to be drawn from full rows, each with the place of its four random words.
    """
    k = neighbours.shape[1]
    rows = [(np.int64(0), np.int64(0)) for _ in range(0)]
    unit = 2.0**-62
    for slot in range(pending.shape[0]):
        document = pending[slot]
        place = starts[slot]
        end = starts[slot + 1] - ROOM
        token = done[document]
        while token < offsets[document + 1]:
            begin = place
            if place > end:
                break
            if ids[token] < 0:
                out[token] = draw(random[place], measure, guide, shift)
                place += 1
                token += 1
                continue
            word = representatives[ids[token]]
            if mode[word] == _NEW:
                _prepare(
                    kind,
                    coordinates,
                    word,
                    neighbours,
                    distances,
                    parts,
                    probes,
                    mode,
                    places,
                    used,
                    table,
                    floats,
                    t,
                    gamma,
                )
            if mode[word] == _ROW:
                rows.append((np.int64(token), np.int64(place)))
                place += 4
                token += 1
                continue
            own = places[word]
            first, last = table[own, _HEAD], table[own, _END]
            edge, reach = floats[own, _EDGE], floats[own, _REACH]
            chosen = -1
            while chosen < 0 and place <= end:
                part = random[place] >> np.uint64(2)
                place += 1
                if part < first and first >= _COARSE:
                    # Most draws keep the word, which stands first in its own list: no need to look further into the row.
                    chosen = word
                    break
                if part < last:
                    low, high = 0, k - 1
                    while low < high:
                        middle = (low + high) >> 1
                        if table[own, _HEAD + middle] > part:
                            high = middle
                        else:
                            low = middle + 1
                    width = (
                        table[own, _HEAD + low] - table[own, _HEAD + low - 1] if low > 0 else first
                    )
                    candidate = neighbours[word, low]
                    if width < _COARSE:
                        weight = (
                            parts[candidate]
                            * unit
                            * np.exp(-t * min(distances[word, low], gamma))
                            * floats[own, _SCALE]
                        )
                        place += 2
                        if not bernoulli(weight / width, random[place - 2], random[place - 1]):
                            continue
                    chosen = candidate
                    break
                tail_parts = np.uint64(PARTS) - last
                if tail_parts < _COARSE:
                    outside = np.uint64(PARTS)
                    for listed_at in range(k):
                        outside -= parts[neighbours[word, listed_at]]
                    weight = outside * unit * np.exp(-t * edge) * floats[own, _SCALE]
                    place += 2
                    if not bernoulli(weight / tail_parts, random[place - 2], random[place - 1]):
                        continue
                while place <= end + 8:
                    candidate = draw(random[place], measure, guide, shift)
                    place += 1
                    # The coin fails if its first word, as a part of 2^64, is no less than the probability; smaller
                    # probabilities than these ask the second word.
                    part_of_one = np.float64(random[place]) * 2.0**-64
                    if (
                        sketch.shape[0] > 0
                        and part_of_one >= 2.0**-19
                        and surely_below(
                            sketch,
                            word,
                            candidate,
                            part_of_one,
                            t,
                            gamma,
                            edge,
                            reach,
                            grain,
                        )
                    ):
                        place += 2
                        break
                    distance = apart(kind, coordinates, word, candidate)
                    if distance > reach or not listed(neighbours, word, candidate):
                        # A word of the list redraws this draw only; sending it back to the choice between head and tail
                        # would give another law (mechanisms.md 3.4).
                        place += 2
                        if bernoulli(
                            np.exp(-t * (min(distance, gamma) - edge)),
                            random[place - 2],
                            random[place - 1],
                        ):
                            chosen = candidate
                        break
            if chosen < 0:
                place = begin
                break
            out[token] = chosen
            token += 1
        done[document] = token
        position[slot] = place
    return rows
