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
from textpriv.mechanisms.levelling import level
from textpriv.mechanisms.measure import PARTS, BaseMeasure, bernoulli, draw, integer_parts
from textpriv.mechanisms.mechanism import UNKNOWN, Mechanism, positive
from textpriv.metrics import INTERPRETED, row_distance
from textpriv.randomness import RandomWords, Stream
from textpriv.statement import PrivacyStatement, UnsoundWarning

__all__ = ["TEM", "configure", "drawn_distances", "truncation"]

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
_ROOM = 16  # random words that a round may use at most, short of a redraw


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


def drawn_distances(index: Index, word: int) -> NDArray[np.float64]:
    """Distances by which draws over an index's lists are made, shape (V,): true ones, with exact lists."""
    found: NDArray[np.float64] = index.distances_of(np.array([word]))[0]
    if not index.exact:
        # A word that an approximate list has missed is drawn as if it stood at the list's edge; the law that is
        # stated must be the law that is drawn.
        row = int(index.representatives[word])
        unlisted = np.ones(len(found), dtype=np.bool_)
        unlisted[index.neighbours.ids[row]] = False
        edge = float(index.neighbours.distances[row, -1])
        np.maximum(found, edge, out=found, where=unlisted)
    return found


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
        # Untouched pages of these tables take no memory: a word's row is filled when the word is first met.
        self._mode = np.zeros(size, dtype=np.uint8)
        self._cumulative = np.empty((size, k), dtype=np.uint64)
        self._scale = np.empty(size)
        self._edge = np.empty(size)
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
        if record is None:
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
        self.levelled = tuple(record["evidence"])
        self.measure = BaseMeasure(np.array(record["weights"]))

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
        if record is None or not self.epsilon / 2 <= record["t"] <= self.epsilon:
            rate, constant = largest_rate(
                index, self.measure.weights, self.epsilon, gamma, LARGEST_EXPONENT
            )
            record = {"t": rate, "rho_with_rounding": constant.value, "pair": list(constant.pair)}
            index.keep_record(binding, record)
        self.rho_bound = float(record["rho_with_rounding"])
        return float(record["t"])

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

    def explain(self, word: str | int, n: int = 10) -> list[tuple[str, float, float]]:
        """The ``n`` most likely outputs of a word: (word, probability, distance), likeliest first."""
        number = self.resolve(word)
        law = self.log_prob(number)
        distance = np.full(len(law), math.nan) if number == UNKNOWN else self.distances(number)
        top = np.argsort(-law, kind="stable")[:n]
        words = self.index.vocabulary.words
        return [(words[i], float(np.exp(law[i])), float(distance[i])) for i in top]

    # Draws

    def sample_documents(
        self,
        ids: NDArray[np.int32],
        offsets: NDArray[np.int64],
        streams: Sequence[RandomWords],
    ) -> NDArray[np.int32]:
        """Draw one output for every token; see :meth:`Mechanism.sample_documents`."""
        out = np.empty(len(ids), dtype=np.int32)
        done = offsets[:-1].copy()
        pending = np.arange(len(offsets) - 1)
        carried: dict[int, NDArray[np.uint64]] = {}
        deferred: list[tuple[int, bytes]] = []
        generous = 12
        with self._lock:
            while len(pending):
                random, starts = _fill(pending, done, offsets, streams, carried, generous)
                position = starts[:-1].copy()
                rows = _sample(  # type: ignore[call-arg]
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
                    self._cumulative,
                    self._scale,
                    self._edge,
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
                for token, place in rows:
                    deferred.append((int(token), random[place : place + 4].tobytes()))
                left = done[pending] < offsets[pending + 1]
                carried = {
                    int(document): random[position[slot] : starts[slot + 1]]
                    for slot, document in enumerate(pending)
                    if left[slot]
                }
                pending = pending[left]
                generous *= 2
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


def _fill(
    pending: NDArray[np.int64],
    done: NDArray[np.int64],
    offsets: NDArray[np.int64],
    streams: Sequence[RandomWords],
    carried: dict[int, NDArray[np.uint64]],
    generous: int,
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Random words for every unfinished document: what it had left, then the next of its stream."""
    if len(pending) == 1:
        # One document at a time is how a tokenizer is called, and array arithmetic on one number is slow.
        document = int(pending[0])
        rest = carried.get(document)
        held = 0 if rest is None else len(rest)
        more = generous * int(offsets[document + 1] - done[document]) + 2 * _ROOM
        random = np.empty(held + more, dtype=np.uint64)
        if rest is not None:
            random[:held] = rest
        streams[document].fill(random[held:])
        return random, np.array([0, held + more], dtype=np.int64)
    fresh = generous * (offsets[pending + 1] - done[pending]) + 2 * _ROOM
    kept = [carried.get(int(document)) for document in pending] if carried else None
    lengths = fresh + np.array([len(k) if k is not None else 0 for k in kept]) if kept else fresh
    starts = np.zeros(len(pending) + 1, dtype=np.int64)
    np.cumsum(lengths, out=starts[1:])
    random = np.empty(starts[-1], dtype=np.uint64)
    for slot, document in enumerate(pending.tolist()):
        begin = int(starts[slot])
        rest = kept[slot] if kept else None
        if rest is not None:
            random[begin : begin + len(rest)] = rest
            begin += len(rest)
        streams[document].fill(random[begin : int(starts[slot + 1])])
    return random, starts


@njit(cache=True, nogil=True)
def _listed(row: NDArray[np.int32], word: int) -> bool:
    found = 0
    for other in row:
        found += other == word
    return found > 0


@njit(cache=True, nogil=True)
def _surely_rejected(
    x: NDArray[np.float32],
    y: NDArray[np.float32],
    random: np.uint64,
    t: float,
    gamma: float,
    edge: float,
    reach: float,
    margin: float,
) -> bool:
    """Whether a lower bound on the distance already settles that a tail draw is rejected.

    The acceptance ``U < exp(-t (d - edge))`` fails beyond the distance ``edge - ln(U) / t``. Most tail draws are that far,
    and reading a whole row to find out is what they would cost. A bound that does not settle it, or a word that might
    be in the list, goes the exact way with the same random words, so the draws are the same with and without this.
    """
    uniform = np.float64(random) * 2.0**-64
    if uniform < 2.0**-19:
        return False
    limit = max(edge - np.log(uniform) / t, reach)
    if limit >= gamma:
        return False
    total = 0.0
    for j in range(x.shape[0]):
        difference = np.float64(x[j]) - np.float64(y[j])
        total += difference * difference
    return total > (limit + margin) ** 2


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
    cumulative: NDArray[np.uint64],
    scale: NDArray[np.float64],
    edge: NDArray[np.float64],
    t: float,
    gamma: float,
) -> None:
    """Fill the tables of a word: cumulative whole parts of its head, the rest of 2^62 being its tail envelope."""
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
    edge[word] = min(np.float64(distances[word, k - 1]) * (1.0 - 2.0**-23), gamma)
    tail = outside * unit * np.exp(-t * edge[word])
    redraws = 1.0 + tail / (total + tail) / (outside * unit) if tail > 0.0 else 1.0
    if tail > 0.0 and (total + tail) / total * redraws > _PATIENCE:
        # That was an upper bound on the rounds; what the tail accepts decides, estimated on a fixed public sample so that
        # the choice is the same on every run.
        accepted, tried = 0.0, 0
        for probe in probes:
            if not _listed(ids[word], probe):
                distance = row_distance(kind, coordinates[word], coordinates[probe])
                accepted += np.exp(-t * max(min(distance, gamma) - edge[word], 0.0))
                tried += 1
        share = accepted / tried if tried > 0 else 1.0
        if (total + tail) / (total + tail * share) * redraws > _PATIENCE:
            mode[word] = _ROW
            return
    factor = float(PARTS) / (total + tail)
    scale[word] = factor
    largest, remaining = 0, np.uint64(PARTS)
    for place in range(k):
        real = head[place] * factor
        # Rounding up leaves room for the exact acceptance of coarse parts.
        whole = np.uint64(np.ceil(real)) if real < _COARSE else np.uint64(real)
        cumulative[word, place] = whole
        remaining -= whole
        if whole > cumulative[word, largest]:
            largest = place
    real_tail = tail * factor
    if real_tail < _COARSE:
        tail_parts = np.uint64(np.ceil(real_tail))
    else:
        tail_parts = np.uint64(real_tail)
    # The remainder, below 2^12 parts, goes where it is less than 2^-40 of what stands there. Unsigned wrap-around makes
    # a negative remainder subtract.
    if cumulative[word, largest] >= tail_parts:
        cumulative[word, largest] += remaining - tail_parts
    running = np.uint64(0)
    for place in range(k):
        running += cumulative[word, place]
        cumulative[word, place] = running
    mode[word] = _ENVELOPE


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
    sketch: NDArray[np.float32],
    margin: float,
    probes: NDArray[np.int32],
    mode: NDArray[np.uint8],
    cumulative: NDArray[np.uint64],
    scale: NDArray[np.float64],
    edge: NDArray[np.float64],
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
        end = starts[slot + 1] - _ROOM
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
                    cumulative,
                    scale,
                    edge,
                    t,
                    gamma,
                )
            if mode[word] == _ROW:
                rows.append((np.int64(token), np.int64(place)))
                place += 4
                token += 1
                continue
            row = cumulative[word]
            chosen = -1
            while chosen < 0 and place <= end:
                part = random[place] >> np.uint64(2)
                place += 1
                if part < row[k - 1]:
                    low, high = 0, k - 1
                    while low < high:
                        middle = (low + high) >> 1
                        if row[middle] > part:
                            high = middle
                        else:
                            low = middle + 1
                    width = row[low] - row[low - 1] if low > 0 else row[0]
                    candidate = neighbours[word, low]
                    if width < _COARSE:
                        weight = (
                            parts[candidate]
                            * unit
                            * np.exp(-t * min(distances[word, low], gamma))
                            * scale[word]
                        )
                        place += 2
                        if not bernoulli(weight / width, random[place - 2], random[place - 1]):
                            continue
                    chosen = candidate
                    break
                tail_parts = np.uint64(PARTS) - row[k - 1]
                if tail_parts < _COARSE:
                    outside = np.uint64(PARTS)
                    for other in neighbours[word]:
                        outside -= parts[other]
                    weight = outside * unit * np.exp(-t * edge[word]) * scale[word]
                    place += 2
                    if not bernoulli(weight / tail_parts, random[place - 2], random[place - 1]):
                        continue
                reach = np.float64(distances[word, k - 1]) * (1.0 + 2.0**-22)
                while place <= end + 8:
                    candidate = draw(random[place], measure, guide, shift)
                    place += 1
                    if sketch.shape[0] > 0 and _surely_rejected(
                        sketch[word],
                        sketch[candidate],
                        random[place],
                        t,
                        gamma,
                        edge[word],
                        reach,
                        margin,
                    ):
                        place += 2
                        break
                    distance = row_distance(kind, coordinates[word], coordinates[candidate])
                    if distance > reach or not _listed(neighbours[word], candidate):
                        # A word of the list redraws this draw only; sending it back to the choice between head and tail
                        # would give another law (mechanisms.md 3.4).
                        place += 2
                        if bernoulli(
                            np.exp(-t * (min(distance, gamma) - edge[word])),
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
