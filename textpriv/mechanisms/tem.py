"""TEM, the truncated exponential mechanism on words, with any public prior.

Source: Carvalho, Vasiloudis, Feyisetan, "TEM: High Utility Metric Differential Privacy on Text", Algorithm 2 and Theorems
2 and 3. The output law of a word w is ``P_w(y) = nu(y) exp(-t min(d(w, y), gamma)) / Z(w)`` with a public prior nu (uniform
as published) and rate t = epsilon / 2. It is drawn exactly, without computing Z, by the envelope sampler (mechanisms.md
3.4): the word's nearest list holds the head of the law, and a rejection step on the prior draws the rest. That step has an
envelope for each band of the vocabulary, by a bound on how near its words can be: one round returns any word, listed or in
whichever band, with a probability in proportion to its weight, so the law does not depend on the bands.
"""

from __future__ import annotations

import math
import os
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from mmap import mmap
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from textpriv.arithmetic import exp, exps, fixed_sum, log
from textpriv.errors import MechanismError
from textpriv.index import Index
from textpriv.mechanisms.constant import largest_rate
from textpriv.mechanisms.draws import (
    ROOM,
    draw_documents,
    drawn_distances,
    fetch,
    listed,
)
from textpriv.mechanisms.levelling import level
from textpriv.mechanisms.measure import (
    PARTS,
    BaseMeasure,
    Ranges,
    bernoulli,
    draw,
    find,
    integer_parts,
    numbers,
    quantiles,
    upper_half,
)
from textpriv.mechanisms.mechanism import UNKNOWN, Mechanism, checksum, positive
from textpriv.metrics import INTERPRETED, row_distance
from textpriv.neighbourhoods import NO_WORD, Bands
from textpriv.randomness import RandomWords, Stream
from textpriv.sketch import Sketch, all_squares, leading_squares, moves, settled, surely_beyond
from textpriv.statement import PrivacyStatement, UnsoundWarning

__all__ = ["TEM", "configure", "truncation"]

# A truncated distance of this many nats is the most that keeps every probability representable to a known relative error
# (mechanisms.md 2.4): "no truncation" means this.
LARGEST_EXPONENT = 30.0

_NEW, _ENVELOPE, _ROW = np.uint8(0), np.uint8(1), np.uint8(2)
# A word whose expected number of rounds exceeds this is drawn from its full row instead: a row costs about as much as some
# thousands of them.
_PATIENCE = 4096.0
# Parts below this are accepted against their exact real weight, so that rounding to whole parts never changes a
# probability by more than 2^-32 of itself.
_COARSE = np.uint64(1 << 32)
_ROUNDING = 1e-12  # far more than sums and products of some weights are rounded by
# Tokens of a document whose rounds are drawn together, so that the rows they look at arrive together.
_TOGETHER = 256
# Tokens from where a word's row of the tables is asked for to where it is drawn, and from where its units are; these only if
# no more than such a part of its draws stays in its list.
_AHEAD, _NEXT, _SELDOM = 8, 4, np.uint64(PARTS // 2)
_SPARE = 8  # random words a token read ahead
_UNITS = 65535  # into which the envelope of the bands is divided, with at least one for each that has words to draw
# A word's row of the table begins with what every draw asks for, so that it comes in one cache line: the end of the head,
# the edge, the reach, the scale and the unit as floats, and then the cumulative parts of the head.
_END, _EDGE, _REACH, _SCALE, _UNIT, _HEAD = range(6)


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
    return float(log(odds)) / rate


class _Words(NamedTuple):
    """What a compiled sampler needs of an index: the kind of its metric, and arrays under their names there."""

    kind: int
    coordinates: NDArray[Any]
    representatives: NDArray[np.int32]
    neighbours: NDArray[np.int32]
    distances: NDArray[Any]


class _Prior(NamedTuple):
    """What it needs of the measure, as :class:`BaseMeasure` holds it."""

    parts: NDArray[np.uint64]
    cumulative: NDArray[np.uint64]
    guide: NDArray[np.int32]
    shift: np.uint64


class _Tables(NamedTuple):
    """What is prepared for words, each of which gets the next row when it is first met.

    So only rows in use take memory, and those of common words lie together.

    Attributes
    ----------
    mode : ndarray of uint8, shape (V,)
        How a word is drawn: not prepared yet, by its row and the envelope, or from its full law.
    places : ndarray of int32, shape (V,)
        The row of a word.
    used : ndarray of int64, shape (1,)
        How many rows are in use.
    table, floats : ndarray of uint64, and the same memory as float64, shape (V, w)
        What a draw asks for first, in one cache line (``_END`` to ``_UNIT``), and the cumulative parts of the head.
    units : ndarray of uint16, shape (V, B)
        Where each band ends among the units of the envelope.
    """

    mode: NDArray[np.uint8]
    places: NDArray[np.int32]
    used: NDArray[np.int64]
    table: NDArray[np.uint64]
    floats: NDArray[np.float64]
    units: NDArray[np.uint16]

    @classmethod
    def empty(cls, size: int, k: int, bands: int) -> _Tables:
        """Return tables in which no word is prepared."""
        table = np.empty((size, -(-(k + _HEAD) // 8) * 8), dtype=np.uint64)
        return cls(
            np.full(size, _NEW),
            np.zeros(size, dtype=np.int32),
            np.zeros(1, dtype=np.int64),
            table,
            table.view(np.float64),
            np.empty((size, bands), dtype=np.uint16),
        )

    def shared(self) -> _Tables:
        """Return the same where copies of this process find what this one fills in later."""
        filled = int(self.used[0])

        def copied(own: NDArray[Any], rows: int) -> NDArray[Any]:
            shared = np.frombuffer(mmap(-1, max(1, own.nbytes)), own.dtype, own.size)
            shared = shared.reshape(own.shape)
            shared[:rows] = own[:rows]
            return shared

        table = copied(self.table, filled)
        return _Tables(
            copied(self.mode, len(self.mode)),
            copied(self.places, len(self.places)),
            copied(self.used, 1),
            table,
            table.view(np.float64),
            copied(self.units, filled),
        )


class _Held(NamedTuple):
    """All that the compiled functions read, and what they fill in."""

    words: _Words
    prior: _Prior
    ranges: Ranges
    sketch: Sketch
    tables: _Tables
    t: float
    gamma: float


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
    reads_bands = True

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
        self._ranges = self.measure.ranges(index.bands.starts)
        self._words = _Words(
            index.metric.kind,
            index.coordinates,
            index.representatives,
            index.neighbours.ids,
            index.neighbours.distances,
        )
        self._prior = _Prior(self.measure.parts, *self.measure.tables())
        self._empty_tables()
        self._probes = quantiles(self.measure.cumulative, min(64, len(index)))
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
        bound["settings"]["prior"] = checksum(self.measure.parts)
        return bound

    def drawn_from(self) -> dict[str, Any]:
        """What the sampler reads besides: the measure, which may be levelled, the rate and the truncation."""
        measure = checksum(self.measure.parts)
        return {**super().drawn_from(), "prior": measure, "law": [self.t, self.gamma]}

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
        if record is None or not (
            self._settled(record.get("t"), record.get("rho_with_rounding"))
            and self._confirmed(
                record.get("pair"),
                record["rho_with_rounding"],
                record["t"],
                gamma,
                self.measure.weights,
            )
        ):
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

    def _confirmed(
        self,
        pair: Any,
        rho: float,
        rate: float,
        gamma: float,
        weights: NDArray[np.float64],
        kappa: NDArray[np.float64] | None = None,
    ) -> bool:
        """Whether a recorded constant is what its pair loses by the law, so that no record is believed unseen.

        It shows that rate, constant and law belong together, not that no other pair is worse: that takes a certificate.
        With a background ``kappa`` (V,) that is 0 for some word the constant is an upper bound, else it is attained.
        """
        size = len(self.index)
        if not isinstance(pair, list) or len(pair) != 2 or pair[0] == pair[1]:
            return size == 1  # no pair to compare
        if not all(type(word) is int and 0 <= word < size for word in pair):
            return False
        words = np.array(pair)
        scores = -rate * np.minimum(
            self.index.distances_of(words), min(gamma, LARGEST_EXPONENT / rate)
        )
        if kappa is not None and kappa.any():
            with np.errstate(divide="ignore"):
                scores = np.logaddexp(scores, np.log(kappa[words])[:, None])
        first, second = scores - np.log(np.exp(scores) @ weights)[:, None]
        loss = float(np.abs(first - second).max())
        stated = rho * self.index.distance(*pair)
        attained = kappa is None or bool((kappa > 0).all()) or not kappa.any()
        return loss <= (1 + 1e-9) * stated + 1e-9 and not (
            attained and loss < (1 - 1e-6) * stated - 1e-9
        )

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

    def _empty_tables(self) -> None:
        self._tables = _Tables.empty(len(self.index), self.index.k, len(self._ranges.weights))
        if self.index.metric.kind == INTERPRETED:
            self._tables.mode[:] = _ROW
        self._writer: int | None = None  # the process that fills them, where others read them

    def share_memory(self) -> None:
        """Keep the rows of words where copies of this process find what this one fills in later."""
        with self._lock:
            self._tables = self._tables.shared()
            self._writer = os.getpid()

    def stop_sharing(self) -> None:
        """Begin with empty tables of its own."""
        with self._lock:
            if self._writer is not None:
                self._empty_tables()

    def prepare(self, ids: NDArray[np.int32]) -> None:
        """Fill in the rows of words that have none yet.

        Raises
        ------
        MechanismError
            In a copy of the process that shares them: two that fill the same tables would draw from torn rows.
        """
        with self._lock:
            self._filled(ids)

    def _filled(self, ids: NDArray[np.int32]) -> tuple[Any, ...]:
        """Fill in the rows that these words lack; return what compiled functions read (see :func:`_named`)."""
        named = self._words, self._prior, self._ranges, self.index.sketch, self._tables
        held = *map(tuple, named), self.t, self.gamma
        if self._writer in (None, os.getpid()):
            _fill(held, tuple(self.index.bands), self._probes, ids)
        elif (self._tables.mode[self.index.representatives[ids[ids >= 0]]] == _NEW).any():
            raise MechanismError(
                "words are to be drawn in a copied process that were not prepared in the first: call prepare there."
            )
        return held

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
            rows: list[tuple[int, int]] = _sample(
                held,
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
            held = self._filled(ids)
        # Other threads may draw and fill in more rows meanwhile: what stands in a row never changes.
        out, deferred = draw_documents(sampler, offsets, streams, _SPARE)
        with self._lock:
            for token, key in deferred:
                out[token] = self._draw_from_row(int(ids[token]), key)
        return out

    def _row(self, word: int) -> tuple[NDArray[np.uint64], NDArray[np.float64]]:
        """Cumulative whole parts of a word's full row, and the real number of parts of each output."""
        row = int(self.index.representatives[word])
        if row in self._rows:
            self._rows.move_to_end(row)
            return self._rows[row]
        weights = self.measure.weights * exps(
            -self.t * np.minimum(self.distances(word), self.gamma)
        )
        real = weights * (float(PARTS) / fixed_sum(weights))
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
    def unknown_word_loss(self) -> float:
        """Largest loss between an unknown word and any word of the vocabulary, in nats (mechanisms.md TEM-6)."""
        return self.t * min(self.index.diameter_bound, self.gamma)

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
        prior = self.prior if isinstance(self.prior, str) else "given"
        return self._stated(
            f"TEM (epsilon {self.epsilon:g}, prior {prior}, gamma {self.gamma:.4g}, {self.rate} rate t {self.t:.4g})",
            "1-Lipschitz score, exponential mechanism: TEM, Theorem 2; prior and truncation: mechanisms.md 3.1, 3.3"
            if self.rate == "half"
            else "the exact constant over all pairs of words, computed for this vocabulary: mechanisms.md 3.3",
            "words, vectors, metric and prior",
            self.worst_word_loss,
            self.unknown_word_loss,
            # mechanisms.md TEM-11: at most 9 t tau, distances beyond gamma being all alike; the rest bounds rounding to
            # whole parts and that of the constant over all pairs.
            numerical_slack=9 * self.t * self.index.rounding.at(self.gamma) + 1e-8,
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
def _named(held: tuple[Any, ...]) -> _Held:
    """What is held, under its names. Plain tuples are given: named ones take longer to recognise than some draws."""
    words, prior, ranges, sketch, tables, t, gamma = held
    return _Held(
        _Words(*words), _Prior(*prior), Ranges(*ranges), Sketch(*sketch), _Tables(*tables), t, gamma
    )


@njit(cache=True, nogil=True)
def _prepare(held: _Held, known: Bands, probes: NDArray[np.int32], word: int) -> None:
    """Give a word its row of the tables.

    They hold the cumulative whole parts of its head; what is left of 2^62 is the envelope of the bands, and the units into
    which that is divided, of which each band has at least as many as the words in it can weigh.
    """
    words, prior, ranges, _, tables, t, gamma = held
    ids, distances = words.neighbours, words.distances
    nearest, weights, parts = known.nearest, ranges.weights, prior.parts
    table, floats, units = tables.table, tables.floats, tables.units
    k, bands = ids.shape[1], nearest.shape[1]
    unit = 2.0**-62
    head, expected = np.empty(k), np.empty(bands)
    total, most = 0.0, 0.0
    for place in range(k):
        exponent = t * min(np.float64(distances[word, place]), gamma)
        head[place] = parts[ids[word, place]] * unit * exp(-exponent)
        total += head[place]
    # Rounded down, so that no word outside the list is nearer than the edge and no acceptance exceeds one.
    edge = min(np.float64(distances[word, k - 1]) * (1.0 - 2.0**-23), gamma)
    for band in range(bands):
        expected[band] = 0.0
        if nearest[word, band] != NO_WORD:
            exponent = t * min(max(nearest[word, band] * known.step, edge), gamma)
            expected[band] = weights[band] * exp(-exponent)
        most += expected[band]
    quantum = most * (1.0 + _ROUNDING) / (_UNITS - bands)
    running = 0
    per_unit = (1.0 + _ROUNDING) / quantum if quantum > 0.0 else 0.0
    for band in range(bands):
        running += np.int64(np.ceil(expected[band] * per_unit))
        expected[band] = running
    most = running * quantum
    everything = total + most
    if everything / total > _PATIENCE:
        # That was an upper bound on the rounds; what is accepted decides, as estimated on a fixed public sample so that the
        # choice is the same on every run.
        certain = 0.0
        for probe in probes:
            if not listed(ids, word, probe):
                distance = max(
                    row_distance(words.kind, words.coordinates, word, words.coordinates, probe),
                    edge,
                )
                certain += exp(-t * min(distance, gamma))
        certain = total + certain / probes.shape[0]
        if everything / certain > _PATIENCE:
            tables.mode[word] = _ROW
            return
    row = tables.used[0]
    tables.used[0] += 1
    tables.places[word] = row
    tables.mode[word] = _ENVELOPE
    for band in range(bands):
        units[row, band] = np.uint16(expected[band])
    factor = float(PARTS) / everything
    floats[row, _SCALE] = factor
    floats[row, _UNIT] = quantum
    floats[row, _EDGE] = edge
    # Rounded up: whatever lies beyond is not in the list.
    floats[row, _REACH] = np.float64(distances[word, k - 1]) * (1.0 + 2.0**-22)
    largest, remaining = 0, np.uint64(PARTS)
    for place in range(k):
        whole = _whole(head[place] * factor)
        table[row, _HEAD + place] = whole
        remaining -= whole
        if whole > table[row, _HEAD + largest]:
            largest = place
    # What is over or missing, below 2^12 parts, goes where it is less than 2^-40 of what stands there. Unsigned wrap-around
    # makes a negative number subtract.
    outside = _whole(most * factor)
    if table[row, _HEAD + largest] >= outside:
        table[row, _HEAD + largest] += remaining - outside
    running_parts = np.uint64(0)
    for place in range(k):
        running_parts += table[row, _HEAD + place]
        table[row, _HEAD + place] = running_parts
    table[row, _END] = running_parts


@njit(cache=True, nogil=True)
def _fill(
    held: tuple[Any, ...],
    bands: tuple[Any, ...],
    probes: NDArray[np.int32],
    ids: NDArray[np.int32],
) -> None:
    """Give each word that has none its row of the tables."""
    named, known = _named(held), Bands(*bands)
    for token in range(ids.shape[0]):
        if ids[token] >= 0:
            word = named.words.representatives[ids[token]]
            if named.tables.mode[word] == _NEW:
                _prepare(named, known, probes, word)


@njit(cache=True, nogil=True)
def _whole(real: float) -> np.uint64:
    """Whole parts: of a small weight rounded up, which leaves room for the exact acceptance of coarse parts."""
    return np.uint64(np.ceil(real)) if real < _COARSE else np.uint64(real)


# A round of many tokens at a time: first what each draws, whereby the rows that it needs are sent for, then the looks at
# them, so that one wait serves all. Whether a token is done, its output tells: it is -1 until then.


@njit(cache=True, nogil=True)
def _choose(
    held: _Held,
    ids: NDArray[np.int32],
    active: NDArray[np.int64],
    number: int,
    random: NDArray[np.uint64],
    place: int,
    end: int,
    waiting: NDArray[np.int64],
    out: NDArray[np.int32],
) -> tuple[int, int]:
    """One round of each active token up to the word that it looks at, if its list has not decided.

    Returns the place of the next random word, or -1 where they ran out, and how many tokens wait for a look: of each
    ``waiting`` holds the token, the word looked at, its band and the place of the coin.
    """
    words, prior, ranges, sketch, tables, t, gamma = held
    representatives, neighbours = words.representatives, words.neighbours
    parts, rows, uneven = prior.parts, sketch.rows, ranges.uneven
    places, table, units = tables.places, tables.table, tables.units
    k, bands = neighbours.shape[1], uneven.shape[0]
    unit = 2.0**-62
    count = 0
    for step in range(number):
        if place > end:
            return -1, step
        token = active[step]
        if step + _AHEAD < number:
            fetch(table, places[representatives[ids[active[step + _AHEAD]]]], 0)  # type: ignore[call-arg]
        if step + _NEXT < number:
            # Its row is there by now, and tells whether a draw is likely to leave the list.
            row = places[representatives[ids[active[step + _NEXT]]]]
            if table[row, _END] < _SELDOM:
                for line in range((2 * bands + 63) >> 6):
                    fetch(units, row, line)  # type: ignore[call-arg]
        word = representatives[ids[token]]
        own = places[word]
        first, last = table[own, _HEAD], table[own, _END]
        part = random[place] >> np.uint64(2)
        place += 1
        if part < first and first >= _COARSE:
            # Most draws keep the word, which stands first in its own list: no need to look further into the row.
            out[token] = word
            continue
        if part < last:
            low, high = 0, k - 1
            while low < high:
                middle = (low + high) >> 1
                if table[own, _HEAD + middle] > part:
                    high = middle
                else:
                    low = middle + 1
            width = table[own, _HEAD + low] - table[own, _HEAD + low - 1] if low > 0 else first
            candidate = neighbours[word, low]
            if width < _COARSE:
                weight = (
                    parts[candidate]
                    * unit
                    * exp(-t * min(np.float64(words.distances[word, low]), gamma))
                    * tables.floats[own, _SCALE]
                )
                place += 2
                if not bernoulli(weight / width, random[place - 2], random[place - 1]):
                    continue
            out[token] = candidate
            continue
        total_units = np.uint64(units[own, bands - 1])
        outside = np.uint64(PARTS) - last
        if outside < _COARSE:
            weight = total_units * tables.floats[own, _UNIT] * tables.floats[own, _SCALE]
            place += 2
            if not bernoulli(weight / outside, random[place - 2], random[place - 1]):
                continue
        which = np.uint16(((random[place] >> np.uint64(16)) * total_units) >> np.uint64(48))
        place += 1
        # The band to which a unit belongs is the number of those that end before it.
        band = np.int32(0)
        for other in range(bands):
            band = np.int32(band + (units[own, other] <= which))
        choice = ranges.choices[band]
        while random[place] * choice < uneven[band] and place < end + 8:
            place += 1
        if place >= end + 8:
            return -1, step
        part = upper_half(random[place], choice)  # type: ignore[call-arg]
        if ranges.firsts[band] >= 0:
            candidate = ranges.firsts[band] + np.int64(part)
        else:
            candidate = np.int64(
                find(ranges.begins[band] + part, prior.cumulative, prior.guide, prior.shift)
            )
        fetch(parts, candidate, 0)
        for line in range(rows.shape[1] >> 6):
            fetch(rows, candidate, line)
            fetch(rows, word, line)
        waiting[count, 0] = token
        waiting[count, 1] = candidate
        waiting[count, 2] = band
        waiting[count, 3] = place + 1
        count += 1
        place += 3
    return place, count


@njit(cache=True, nogil=True)
def _look(
    held: _Held,
    ids: NDArray[np.int32],
    random: NDArray[np.uint64],
    waiting: NDArray[np.int64],
    count: int,
    out: NDArray[np.int32],
) -> None:
    """The end of that round: whether the word looked at is accepted."""
    words, prior, ranges, sketch, tables, t, gamma = held
    kind, coordinates, representatives = words.kind, words.coordinates, words.representatives
    rows, leading, grain = sketch.rows, sketch.leading, sketch.grain
    floats, units = tables.floats, tables.units
    for step in range(count):
        token, candidate, band, place = waiting[step]
        word = representatives[ids[token]]
        own = tables.places[word]
        edge = floats[own, _EDGE]
        weight = ranges.weights[band]
        if ranges.firsts[band] >= 0:
            weight = prior.parts[candidate] * 2.0**-62 * ranges.choices[band]
        share = units[own, band] - (units[own, band - 1] if band > 0 else 0)
        envelope = share * floats[own, _UNIT]
        # The coin fails if its first word, as a part of 2^64, is no less than the probability; smaller probabilities than
        # these ask the second word.
        part_of_one = np.float64(random[place]) * 2.0**-64
        # Accepted is what is nearer than this. Most words are far beyond, which a look at the short forms tells. What they
        # do not settle goes the exact way with the same coin, so that the draw is the same.
        limit = -np.log(part_of_one * envelope / weight) / t
        known, near = 0, 0.0
        if rows.shape[0] > 0 and part_of_one >= 2.0**-19 and edge < limit < gamma:
            squares = leading_squares(rows, leading, word, candidate)
            if surely_beyond(squares, limit, grain[0], grain[1]):
                known = -1
            else:
                near = np.sqrt(
                    all_squares(rows, leading, word, candidate, squares, grain[0], grain[2])
                )
                moved = moves(rows, word, candidate)
                known = settled(near, moved, limit, t, grain[3], grain[4], grain[5])
        if known == 0:
            distance = max(row_distance(kind, coordinates, word, coordinates, candidate), edge)
            weight *= exp(-t * min(distance, gamma))
            if bernoulli(weight / envelope, random[place], random[place + 1]):
                known = 1
        # A word of the list is drawn with the head alone; here it fails like any other, and the round is over.
        if known > 0 and (
            near - grain[3] > floats[own, _REACH] or not listed(words.neighbours, word, candidate)
        ):
            out[token] = candidate


@njit(cache=True, nogil=True)
def _sample(
    held: tuple[Any, ...],
    ids: NDArray[np.int32],
    offsets: NDArray[np.int64],
    pending: NDArray[np.int64],
    done: NDArray[np.int64],
    random: NDArray[np.uint64],
    starts: NDArray[np.int64],
    position: NDArray[np.int64],
    out: NDArray[np.int32],
) -> list[tuple[int, int]]:
    """Draw until a document is finished or its random words run out; a round that ran out starts over with the same.

    Returns the tokens to be drawn from full rows, each with the place of its four random words.
    """
    named = _named(held)
    words, prior, tables = named.words, named.prior, named.tables
    rows = [(np.int64(0), np.int64(0)) for _ in range(0)]
    active, waiting = np.empty(_TOGETHER, np.int64), np.empty((_TOGETHER, 4), np.int64)
    for slot in range(pending.shape[0]):
        document = pending[slot]
        place = starts[slot]
        end = starts[slot + 1] - ROOM
        first, stop = offsets[document], offsets[document + 1]
        # Which tokens stand in one group does not depend on where random words ran out.
        first += (done[document] - first) // _TOGETHER * _TOGETHER
        while first < stop:
            group = min(first + _TOGETHER, stop)
            number = 0
            for token in range(first, group):
                if out[token] >= 0:
                    continue
                if ids[token] >= 0 and tables.mode[words.representatives[ids[token]]] != _ROW:
                    active[number] = token
                    number += 1
                elif place > end:
                    break
                elif ids[token] < 0:
                    out[token] = draw(random[place], prior.cumulative, prior.guide, prior.shift)
                    place += 1
                else:
                    rows.append((np.int64(token), np.int64(place)))
                    out[token] = 0
                    place += 4
            while number > 0:
                then, count = _choose(
                    named,
                    ids,
                    active,
                    number,
                    random,
                    place,
                    end,
                    waiting,
                    out,
                )
                if then < 0:
                    for step in range(count):
                        out[active[step]] = -1
                    break
                place = then
                _look(
                    named,
                    ids,
                    random,
                    waiting,
                    count,
                    out,
                )
                left = 0
                for step in range(number):
                    active[left] = active[step]
                    left += out[active[step]] < 0
                number = left
            while first < group and out[first] >= 0:
                first += 1
            if first < group:
                break
        done[document] = first
        position[slot] = place
    return rows
