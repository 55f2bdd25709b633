"""Which epsilon gives a wanted plausible deniability: from odds at a distance, or from what happens to a word.

Everything is computed from public tables and the output law, so choosing costs no privacy and needs no draws. The
figures of one given mechanism are in ``textpriv.evaluation.deniability``; what an epsilon guarantees is in its statement.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from textpriv.arguments import whole
from textpriv.bounds import at_most
from textpriv.errors import MechanismError
from textpriv.evaluation.best_attacker import BestAttacker, PublicText, largest_epsilon
from textpriv.evaluation.deniability import WordSample
from textpriv.guarantees.figure_kernels import TINY, different_outputs, keep_probabilities
from textpriv.index.index import Index
from textpriv.index.neighbours import product_threads
from textpriv.index.tree import Tree
from textpriv.mechanisms.base import ALGORITHM, EPSILONS, Mechanism, checksum, positive
from textpriv.mechanisms.tem import TEM
from textpriv.mechanisms.tree_tem import TreeTEM
from textpriv.metrics import ANGULAR, EUCLIDEAN, is_builtin
from textpriv.statement import UnsoundWarning
from textpriv.vocabulary.vocabulary import Prior

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Choice", "choose_epsilon", "eps_from_odds", "epsilon_for"]

_FEW_WORDS = 4096  # of so small a vocabulary all words are looked at
# Multiplications over the words that are looked at of a larger one: about two seconds.
_WORK = 2.5e9
_LAW = 64  # multiplications as which the law of a word counts for each output, besides its distance
_SAMPLES = 512, 4096  # words that are looked at, at least and at most
_CELLS = 1 << 22  # distances that a thread holds at a time
_COLUMNS = 4096  # columns of a product
_PILOT = 1 << 21  # distances that the first search holds
_GRID = 5  # epsilons of one pass over the words
_WIDTH = 0.06  # how far they reach to both sides of a first estimate, as a part of it


def eps_from_odds(odds: float, d_ref: float) -> float:
    """The epsilon at which two words at distance ``d_ref`` are told apart by odds of at most ``odds`` to 1.

    Parameters
    ----------
    odds : float
        Above 1.
    d_ref : float
        A distance of the index, such as ``index.reference_distance`` or ``index.reference_distance_90``.

    Returns
    -------
    float
        ``ln(odds) / d_ref``, per unit of distance (mechanisms.md TEM-12). What rounding may add to a loss, which a statement
        names, is not taken off; :func:`epsilon_for` does so.

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
        raise MechanismError(
            f"odds must be above 1: at 1 to 1 nothing can be told apart, and no word gets through; got {odds}."
        )
    return math.log(odds) / positive("the reference distance", d_ref)


@dataclass(frozen=True)
class Choice:
    """An epsilon, and how it was found.

    Attributes
    ----------
    epsilon : float
    target : str
        "keep", "distinct", "odds" or "recovery".
    wanted : float
        The value asked for.
    value : float
        The value at ``epsilon``.
    standard_error : float
        Of ``value``: 0 where every word was looked at.
    words : int
        How many words were looked at; 0 for odds and recovery, which look at all.
    """

    epsilon: float
    target: str
    wanted: float
    value: float
    standard_error: float
    words: int


class Wanted(TypedDict, total=False):
    """Keyword arguments of :func:`epsilon_for`, which says what they mean."""

    keep: float | None
    distinct: float | None
    odds: float | None
    recovery: float | None
    of: str
    context: Iterable[str] | PublicText | None
    distance: float | None
    draws: int
    prior: str | PathLike[str] | Mapping[str, float] | NDArray[Any]
    word_prior: Prior
    mechanism: str
    gamma: float | None
    beta: float
    sample: int | None


def epsilon_for(index: Index, **wanted: Unpack[Wanted]) -> float:
    """The epsilon that reaches a wanted plausible deniability.

    Exactly one of ``keep``, ``distinct``, ``odds`` and ``recovery`` says what is wanted. The first two are means over words,
    each counted by a public word prior, of the figures of Feyisetan et al. 2020 (:mod:`textpriv.evaluation.deniability`).

    Parameters
    ----------
    index : Index
    keep : float, optional
        Mean N_w: the probability that a word is replaced by itself, in (0, 1).
    distinct : float, optional
        Mean S_w: the expected number of different outputs in ``draws`` draws of one word. As epsilon grows it falls in
        the end, but with an uneven prior it may rise first; the largest epsilon that gives the wanted number is returned.
    odds : float, optional
        The worst odds, to 1, at which two words at ``distance`` can be told apart by one released word, rounding included.
    recovery : float, optional
        The largest share of running words that the best attacker of lone words may guess, in (0, 1): the largest epsilon
        at which that holds, exactly, to a thousandth. Over a :class:`textpriv.Tree` of TreeTEM, else of TEM.
    of : {"content", "all"}
        With ``recovery``: which words. Content words are all but the 250 commonest, and the attacker is told.
    context : iterable of str, or PublicText, optional
        With ``recovery``: public texts in which an attacker is tried, too, who reads words in context by an n-gram
        model; the better one counts (:mod:`textpriv.evaluation.best_attacker`), and a better
        model may guess more. To about a fiftieth. Never the private texts themselves.
    distance : float, optional
        With ``odds``; default ``index.reference_distance``, within which half of all running words have their 10th
        nearest word with another vector. For nine tenths of them pass ``index.reference_distance_90``.
    draws : int
        With ``distinct``. Default: 1000.
    prior, gamma, beta
        Settings of the mechanism, as for :class:`textpriv.TEM`.
    word_prior : see :meth:`Vocabulary.prior_weights`
        How often each word is met.
    mechanism : {"tem", "madlib"}
        Madlib has no closed law, so only ``odds`` can be asked of it.
    sample : int, optional
        How many words to look at. Default: all of them up to 4,096, beyond that a fixed public sample
        (:meth:`WordSample.of`) of as many as take about two seconds, 512 to 4,096. Every word counts with ``len(index)``.

    Returns
    -------
    float
        Over all words the wanted mean is met to a relative error below 1e-5. Over a sample it is met in the sample;
        :func:`choose_epsilon` also gives the standard error. What was found is recorded with the index, and not searched
        again.

    Raises
    ------
    MechanismError
        If the target has no meaning, or no epsilon reaches it; the message gives the range within reach.

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
    keep: float | None = None,
    distinct: float | None = None,
    odds: float | None = None,
    recovery: float | None = None,
    of: str = "content",
    context: Iterable[str] | PublicText | None = None,
    distance: float | None = None,
    draws: int = 1000,
    prior: str | PathLike[str] | Mapping[str, float] | NDArray[Any] = "zipf",
    word_prior: Prior = "zipf",
    mechanism: str = "tem",
    gamma: float | None = None,
    beta: float = 1e-3,
    sample: int | None = None,
) -> Choice:
    """Find the epsilon of :func:`epsilon_for`, and say how well it is known.

    Parameters
    ----------
    index, keep, distinct, odds, recovery, of, context, distance, draws, prior, word_prior, mechanism, gamma, beta, sample
        As for :func:`epsilon_for`.

    Raises
    ------
    MechanismError
        As for :func:`epsilon_for`.
    """
    if not isinstance(index, Index):
        raise MechanismError(
            f"epsilon_for needs a textpriv.Index first; got {type(index).__name__}. Build one with Index.build(vocab)."
        )
    named = {"keep": keep, "distinct": distinct, "odds": odds, "recovery": recovery}
    _check_wanted(named, mechanism)
    if odds is not None:
        reference = index.reference_distance if distance is None else distance
        epsilon = _with_room(index, eps_from_odds(odds, reference), reference)
        return Choice(epsilon, "odds", float(odds), float(odds), 0.0, 0)
    if distance is not None:
        raise MechanismError("distance= belongs to odds=; leave it out.")
    if context is not None and recovery is None:
        raise MechanismError("context= belongs to recovery=; leave it out.")
    if mechanism == "madlib":
        raise MechanismError(
            "Madlib has no closed output law, so an epsilon for it can only be chosen by odds=."
        )
    if not index.exact:
        raise MechanismError(
            "an index with approximate lists gives another law for every search; only odds= can be asked of it. Build the "
            "index with backend='exact'."
        )
    weights = index.vocabulary.prior_weights(word_prior)
    search: _Search | _ByRecovery
    if recovery is not None:
        if isinstance(index, Tree) and gamma is not None:
            raise MechanismError("a law over a tree has no gamma; leave it out.")
        if context is None or isinstance(context, PublicText):
            text = context
        else:
            text = PublicText.read(context, index)
        search = _ByRecovery(index, recovery, BestAttacker(weights, of, text))
    else:
        name, wanted, draws = _target(index, keep, distinct, draws)
        search = _Search(index, name, wanted, draws, weights, _sample_size(index, sample))
    if not (isinstance(prior, str) and prior in ("full", "zipf", "uniform", "counts")):
        prior = index.vocabulary.prior_weights(prior)  # a file is read once, not for every epsilon
    return _solved(search, prior, gamma, beta)


def _with_room(index: Index, epsilon: float, distance: float) -> float:
    """An epsilon that leaves room, at a distance, for what rounding may add at any rate; statements charge it."""
    least, most = EPSILONS
    if not 2 * least <= epsilon <= most / 2:
        raise MechanismError(
            f"no epsilon that a law can have gives such odds at distance {distance:.4g}; two words of this index lie at "
            f"most {at_most(index.diameter_bound, 3)} apart. Choose a distance of that order."
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnsoundWarning)
        # At its half rate, twice the epsilon draws by the largest rate that there is.
        tree = isinstance(index, Tree)
        law = TreeTEM(index, epsilon) if tree else TEM(index, epsilon=2 * epsilon)
    room = epsilon - law.statement.figures["numerical_slack"] / distance
    if room <= 0:
        raise MechanismError(
            f"rounding alone may tell two words at distance {distance:.4g} apart by such odds. Ask for larger ones."
        )
    return room


def _solved(
    search: _Search | _ByRecovery,
    prior: Any,
    gamma: float | None,
    beta: float,
) -> Choice:
    """What was recorded of a search, or what it finds now."""
    index = search.index
    named = prior if isinstance(prior, str) else ""
    binding = search.binding(
        {
            "prior": named if named == "full" else checksum(index.vocabulary.prior_weights(prior)),
            "uniform": named == "uniform",
            "gamma": gamma,
            "beta": beta,
        }
    )
    recorded = index.find_record(binding) if is_builtin(index.metric) else None
    found = _recorded(recorded, search.name, search.wanted)
    if found is not None:
        return found

    def tem(epsilon: float) -> TEM:
        return TEM(index, epsilon=epsilon, prior=prior, gamma=gamma, beta=beta)

    if isinstance(search, _ByRecovery) and isinstance(index, Tree):
        found = search.solve(lambda epsilon: TreeTEM(index, epsilon, prior=prior))
    else:
        found = search.solve(tem)
    if is_builtin(index.metric):
        index.keep_record(binding, asdict(found))
    return found


def _check_wanted(given: Mapping[str, float | None], mechanism: str) -> None:
    """Refuse anything but one target, and names that there are not."""
    named = [name for name, value in given.items() if value is not None]
    if len(named) != 1:
        raise MechanismError(
            f"say what is wanted by exactly one of {', '.join(f'{name}=' for name in given)}; got "
            f"{' and '.join(named) or 'none'}."
        )
    if mechanism not in ("tem", "madlib"):
        raise MechanismError(f"unknown mechanism {mechanism!r}; use 'tem' or 'madlib'.")


def _sample_size(index: Index, sample: int | None) -> int:
    """How many words to look at."""
    if sample is not None:
        if isinstance(sample, bool) or not isinstance(sample, int | np.integer) or sample < 2:
            raise MechanismError(f"sample is a number of words from 2 up; got {sample!r}.")
        return int(sample)
    if len(index) <= _FEW_WORDS:
        return len(index)
    affordable = _WORK / len(index) / (index.coordinates.shape[1] + _LAW)
    return int(min(max(affordable, _SAMPLES[0]), _SAMPLES[1]))


def _recorded(record: Mapping[str, Any] | None, target: str, wanted: float) -> Choice | None:
    """A choice that was recorded for exactly what is asked; None where it is none."""
    if record is None:
        return None
    try:
        choice = Choice(**record)
        positive("epsilon", choice.epsilon)
    except (MechanismError, TypeError):
        return None
    return choice if (choice.target, choice.wanted) == (target, wanted) else None


def _target(
    index: Index, keep: float | None, distinct: float | None, draws: int
) -> tuple[str, float, int]:
    """Return which figure is wanted, its value, and the draws that it is about (0 for one that needs none)."""
    if keep is not None:
        wanted = positive("keep", keep)
        if wanted >= 1:
            raise MechanismError(f"keep is a probability strictly between 0 and 1; got {keep}.")
        return "keep", wanted, 0
    wanted = positive("distinct", distinct)
    draws = whole("draws", draws, 2, MechanismError)
    if not 1 < wanted < min(draws, len(index)):
        raise MechanismError(
            f"distinct must lie above 1 and below {min(draws, len(index))}, the lesser of draws and the number of "
            f"words; got {distinct}."
        )
    return "distinct", wanted, int(draws)


def _binding(index: Index, target: list[Any], words: str, law: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "kind": "chosen epsilon",
        "version": 1,
        "algorithm": ALGORITHM,
        "vocabulary": index.fingerprint,
        "metric": index.metric.settings(),
        "target": target,
        "words": words,
        **law,
    }


class _Search:
    """The mean figure of a set of words as a function of the settings of a TEM."""

    def __init__(
        self,
        index: Index,
        name: str,
        wanted: float,
        draws: int,
        weights: NDArray[np.float64],
        sample: int | None,
    ) -> None:
        self.index = index
        self.name = name
        self.wanted = wanted
        self.draws = draws
        self.words = WordSample.of(weights, sample)
        few = min(256, max(32, _PILOT // len(index)))
        self.pilot = self.words if len(self.words.ids) <= few else WordSample.of(weights, few)
        # Keeping a word grows with epsilon, the number of different outputs falls.
        self.sign = 1.0 if name == "keep" else -1.0
        self._pilot_distances: NDArray[np.float64] | None = None
        self._centre = index.coordinates.mean(axis=0, dtype=np.float64)

    def binding(self, law: Mapping[str, Any]) -> dict[str, Any]:
        """What a record of the choice is bound to: all that it is computed from."""
        words = checksum(self.words.ids) + checksum(self.words.shares)
        return _binding(self.index, [self.name, self.wanted, self.draws], words, law)

    def solve(self, make: Callable[[float], TEM]) -> Choice:
        """Find the largest epsilon at which the mean crosses the wanted value, for t = epsilon / 2."""
        from scipy.optimize import brentq

        def excess(epsilon: float) -> float:
            return self.sign * (self._pilot_mean(make(epsilon)) - self.wanted)

        low, high = self._bracket(excess)
        # A first estimate is no better than its few words.
        precision = 1e-10 if self.pilot is self.words else 1e-3
        epsilon = float(brentq(excess, low, high, rtol=precision, xtol=1e-300))
        if self.pilot is self.words:
            return self._choice(epsilon, *self._figures([make(epsilon)]))
        return self._refine(make, epsilon)

    def _bracket(self, excess: Callable[[float], float]) -> tuple[float, float]:
        """Epsilons that enclose the last crossing, a factor of at most 2 apart."""
        reference = self.index.reference_distance
        start = 1.0 / reference if reference > 0 else 1.0
        seen = []

        def met(epsilon: float) -> bool:
            value = excess(epsilon)
            seen.append(self.wanted + self.sign * value)
            return value >= 0

        # The number of different outputs may rise before it falls: come down from where it has fallen.
        high = start if self.name == "keep" else start * 2.0**8
        while not met(high) and high < start * 2.0**30:
            high *= 2.0
        low = high / 2.0
        while met(low) and low > start * 2.0**-30:
            low, high = low / 2.0, low
        too_little = high >= start * 2.0**30
        if too_little or low <= start * 2.0**-30:
            above = too_little == (self.sign < 0)
            end = f"least {min(seen):.4g}" if above else f"most {max(seen):.4g}"
            raise MechanismError(
                f"no epsilon gives a mean {self.name} of {self.wanted:g}: with these settings it is at {end} or so. "
                f"Choose a {'larger' if above else 'smaller'} value, or another prior or gamma."
            )
        return low, high

    def _refine(self, make: Callable[[float], TEM], epsilon: float) -> Choice:
        """Look at all the words on a grid of epsilons around a first estimate, and interpolate."""
        centre, width = epsilon, _WIDTH
        for _ in range(12):
            grid = np.linspace(centre * (1 - width), centre * (1 + width), _GRID)
            values, errors = self._figures([make(float(each)) for each in grid])
            excess = self.sign * (values - self.wanted)
            inside = np.flatnonzero((excess[:-1] <= 0) & (excess[1:] >= 0))
            if len(inside):
                epsilon, over = _root(grid, excess, int(inside[-1]))
                value = np.array([self.wanted + self.sign * over])
                return self._choice(epsilon, value, errors[inside[-1] : inside[-1] + 1])
            centre = float(grid[-1] if excess[-1] < 0 else grid[0])
            width *= 2
        raise MechanismError(
            f"no epsilon near {epsilon:.4g} gives a mean {self.name} of {self.wanted:g} over all words; choose a value "
            "farther from the ends of what the settings allow."
        )

    def _choice(
        self, epsilon: float, values: NDArray[np.float64], errors: NDArray[np.float64]
    ) -> Choice:
        return Choice(
            epsilon,
            self.name,
            float(self.wanted),
            float(values[0]),
            float(errors[0]),
            len(self.words.ids),
        )

    def mean(self, mechanism: TEM) -> float:
        """The mean figure of one mechanism."""
        return float(self._figures([mechanism])[0][0])

    def _pilot_mean(self, mechanism: TEM) -> float:
        ids = self.pilot.ids
        if self._pilot_distances is None:
            self._pilot_distances = self._distances(ids)
        return float(self.pilot.mean(self._block(ids, self._pilot_distances, [mechanism]))[0])

    def _figures(self, mechanisms: list[TEM]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Means and standard errors, one for each mechanism; their rates lie evenly spaced."""
        ids = self.words.ids
        rows = max(16, min(256, _CELLS // len(self.index)))
        blocks = [ids[start : start + rows] for start in range(0, len(ids), rows)]

        def work(block: NDArray[np.int32]) -> NDArray[np.float64]:
            return self._block(block, self._distances(block), mechanisms)

        with product_threads() as pool:
            values = np.concatenate(list(pool.map(work, blocks)))
        return self.words.mean(values), self.words.standard_error(values)

    def _block(
        self, ids: NDArray[np.int32], distances: NDArray[np.float64], mechanisms: list[TEM]
    ) -> NDArray[np.float64]:
        """The figure of each word (rows) under each mechanism (columns)."""
        laws = [mechanism.exponential_law() for mechanism in mechanisms]
        weights = laws[0][0]
        rates = np.array([rate for _, rate, _ in laws])
        floors = np.exp(-rates * np.array([gamma for _, _, gamma in laws]))
        out = np.empty((len(ids), len(rates)))
        # exp(-t min(d, gamma)) = max(exp(-t d), exp(-t gamma)), and over evenly spaced rates exp(-t d) is a geometric
        # sequence: two exponentials give all of them.
        first = np.exp(np.multiply(distances, -rates[0]))
        step = (rates[-1] - rates[0]) / (len(rates) - 1) if len(rates) > 1 else 0.0
        ratio = np.exp(np.multiply(distances, -step)) if len(rates) > 1 else first
        np.maximum(first, TINY, out=first)
        if self.draws:
            different_outputs(first, ratio, weights, floors, self.draws, out)
        else:
            keep_probabilities(first, ratio, weights, ids, floors, out)
        return out

    def _distances(self, ids: NDArray[np.int32]) -> NDArray[np.float64]:
        """Distances from the input rows of some words to all words, shape (m, V)."""
        index = self.index
        rows = index.representatives[ids]
        kind = index.metric.kind
        if kind not in (EUCLIDEAN, ANGULAR) or len(index) <= 4 * index.coordinates.shape[1]:
            return index.distances_of(ids.astype(np.int64))
        out = self._products(rows, kind)
        out[np.arange(len(rows)), rows] = 0.0
        return out

    def _products(self, rows: NDArray[np.int32], kind: int) -> NDArray[np.float64]:
        """Euclidean distances or angles by float64 products, right to about 1e-7 for the nearest and 1e-12 for others."""
        coordinates = self.index.coordinates
        queries = coordinates[rows] - self._centre
        squares = np.einsum("ij,ij->i", queries, queries)
        out = np.empty((len(rows), len(coordinates)))
        for left in range(0, len(coordinates), _COLUMNS):
            columns = coordinates[left : left + _COLUMNS] - self._centre
            block = out[:, left : left + _COLUMNS]
            np.dot(queries, -2.0 * columns.T, out=(product := np.empty(block.shape)))
            product += squares[:, None]
            product += np.einsum("ij,ij->i", columns, columns)
            np.maximum(product, 0.0, out=product)
            np.sqrt(product, out=block)
        if kind == ANGULAR:
            np.arcsin(np.minimum(0.5 * out, 1.0), out=out)
            out *= 2.0
        return out


def _root(
    grid: NDArray[np.float64], values: NDArray[np.float64], position: int
) -> tuple[float, float]:
    """Where the polynomial through all points crosses zero upwards after ``grid[position]``, and its value there."""
    from scipy.interpolate import BarycentricInterpolator
    from scipy.optimize import brentq

    curve = BarycentricInterpolator(grid, values)

    def value(x: float) -> float:
        return float(curve(x))

    left, right = float(grid[position]), float(grid[position + 1])
    # At a point that is hit exactly the polynomial may miss zero by rounding.
    root = left if values[position] == 0 else right
    if value(left) < 0 < value(right):
        root = float(brentq(value, left, right, rtol=1e-12))
    return root, value(root)


class _ByRecovery:
    """What the attacker gets back as a function of the settings of a law; as :class:`_Search`."""

    name = "recovery"

    def __init__(self, index: Index, wanted: float, attacker: BestAttacker) -> None:
        self.index, self.wanted, self.attacker = index, positive("recovery", wanted), attacker

    def binding(self, law: Mapping[str, Any]) -> dict[str, Any]:
        """What a record of the choice is bound to."""
        text, target = self.attacker.text, [self.name, self.wanted, self.attacker.of]
        known = {"text": text and text.digests, **law}
        return _binding(self.index, target, checksum(self.attacker.prior), known)

    def solve(self, make: Callable[[float], Mechanism]) -> Choice:
        """Find the largest epsilon at which no more than the wanted share is got back."""
        start = 4 / (self.index.reference_distance or 4.0)
        found = largest_epsilon(make, self.wanted, self.attacker, start)
        return Choice(found.epsilon, self.name, self.wanted, found.share, found.error, 0)
