"""``SubsetQuery``: ask for neighbours of a feature by a random subset of public cells, with a pure local guarantee."""

from __future__ import annotations

import decimal
import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.neighbors import NearestNeighbors

from pairwise.accounting.budget import charge_to
from pairwise.accounting.events import Adjacency, pure_event
from pairwise.errors import InvalidParameterError, check_number, check_whole, finite_numbers
from pairwise.noise.randomness import Randomness
from pairwise.statement import DataSetStatement

Array = NDArray[np.float64]

QUERY_UNIT = "all queries of one client"

_BITS = 63
_LEAST_EPSILON = 1e-9
_INCLUSION = 0.9


def _check(n_cells: int, size: int, epsilon: float) -> None:
    check_number("epsilon", epsilon)
    if not epsilon >= _LEAST_EPSILON:
        raise InvalidParameterError(
            f"epsilon must be a number of at least {_LEAST_EPSILON:g}; found {epsilon!r}."
        )
    if not 1 <= size <= n_cells:
        raise InvalidParameterError(
            f"the subset size must be between 1 and the number of cells, {n_cells}; found {size!r}."
        )


def nearest(queries: ArrayLike, records: ArrayLike, k: int) -> NDArray[np.int64]:
    """Return the rows of ``records`` nearest to each query, nearest first, shape (q, min(k, n)); exact."""
    x = np.asarray(records, dtype=np.float64)
    search = NearestNeighbors(n_neighbors=min(k, len(x)), algorithm="brute").fit(x)
    return np.asarray(search.kneighbors(np.asarray(queries, np.float64), return_distance=False))


def subset_size(n_cells: int, epsilon: float, most: int | None = None) -> int:
    """Return the smallest ω that includes the own cell with probability at least 0.9, cut to ``most``.

    One half would give the ω = C/(e^ε + 1) that serves best to *count* cells from many answers; a single query that is
    re-ranked by its client only loses by leaving its own cell out, and pays for a larger ω in traffic.
    """
    _check(n_cells, 1, epsilon)
    exact = _INCLUSION * n_cells / ((1.0 - _INCLUSION) * math.exp(min(epsilon, 700.0)) + _INCLUSION)
    size = min(n_cells, max(1, math.ceil(exact * (1.0 - 1e-12))))
    return size if most is None else max(1, min(size, int(most)))


def inclusion_threshold(n_cells: int, size: int, epsilon: float) -> int:
    """Return T, so that the own cell is included with probability T/2^63 exactly; 2^63 for ω = C.

    T is ωe^ε/(ωe^ε + C - ω) · 2^63 rounded down from 60 digits, so the log-ratio of what is drawn, ln(T(C-ω)) -
    ln((2^63-T)ω), is never above ε and below it by less than the integers resolve. For ε beyond 40 the threshold
    stops one short of certainty.
    """
    _check(n_cells, size, epsilon)
    whole = 1 << _BITS
    if size == n_cells:
        return whole
    with decimal.localcontext() as context:
        context.prec = 60
        # Less than ε is safe, and e^-700 is far below what the integers resolve.
        small = Fraction((-decimal.Decimal(min(float(epsilon), 700.0))).exp())
    # e^-ε rounded up, by more than the 60 digits can be wrong, makes the probability round down.
    small *= 1 + Fraction(1, 10**55)
    threshold = math.floor(size / (size + (n_cells - size) * small) * whole)
    return min(threshold, whole - 1)


class SubsetQuery:
    """A private query over a public codebook: the nearest cell hidden in a random subset of ω cells.

    The client finds the cell v nearest to its feature and draws a subset S of ω of the C cells with P(S) proportional
    to e^ε where v is in S, and to 1 elsewhere. Any two features give any S with odds within e^ε: pure ε-local
    differential privacy of the whole feature, whatever the server holds or does. The server returns records for every
    cell of S; the client ranks them by its true feature, at home.

    Parameters
    ----------
    codebook : (C, d) array-like
        Public points, such as class prototypes or k-means centres of *public* features. Never of private ones.
    epsilon : float
        Cost of one query; k queries cost kε.
    size : int, optional
        ω. Default: ``subset_size(C, epsilon, most)``. 1 is k-ary randomised response; C asks for
        everything and reveals nothing.
    most : int, optional
        Cap on ω.
    budget : PrivacyBudget, optional
        Charged before each draw, for ``unit="all queries of one client"``.
    random_state : int, RandomState or None, default=None
        None draws from the operating system, the only private setting.

    Attributes
    ----------
    codebook : (C, d) float64 array
    epsilon : float
    size : int
        ω.
    inclusion : float
        The true inclusion probability.

    Raises
    ------
    InvalidParameterError
        For a codebook, epsilon or size out of range.

    References
    ----------
    The subset mechanism of Ye and Barg 2018 and Wang et al. 2016.

    Examples
    --------
    >>> import numpy as np
    >>> from pairwise import SubsetQuery
    >>> query = SubsetQuery(np.eye(6), epsilon=1.3, size=2)
    >>> len(query.ask(np.ones(6))), round(query.inclusion, 6), query.statement.epsilon
    (2, 0.647223, 1.3)
    """

    def __init__(
        self,
        codebook: ArrayLike,
        epsilon: float,
        size: int | None = None,
        *,
        most: int | None = None,
        budget: Any = None,
        random_state: Any = None,
    ) -> None:
        self.codebook = finite_numbers(codebook).copy()
        if self.codebook.ndim != 2 or len(self.codebook) == 0:
            raise InvalidParameterError(
                f"codebook must be a table of at least one cell; found shape {self.codebook.shape}."
            )
        self.codebook.flags.writeable = False
        cells = len(self.codebook)
        _check(cells, 1, epsilon)
        for name, value in (("size", size), ("most", most)):
            if value is not None:
                check_whole(name, value)
        self.epsilon = float(epsilon)
        usual = subset_size(cells, self.epsilon, most)
        self.size = usual if size is None else int(size)
        self._threshold = inclusion_threshold(cells, self.size, self.epsilon)
        self.inclusion = self._threshold / (1 << _BITS)
        self._cost = 0.0 if self.size == cells else self.epsilon
        self.budget = budget
        self._randomness = Randomness(random_state)

    def __setattr__(self, name: str, value: Any) -> None:
        # The odds were planned for these.
        if name in ("codebook", "epsilon", "size", "inclusion") and name in vars(self):
            raise InvalidParameterError(
                f"{name} of a query is fixed when it is made. Make another query."
            )
        super().__setattr__(name, value)

    # -- the mechanism

    def cell(self, x: ArrayLike) -> int:
        """Return the cell nearest to a feature, shape (d,). Private: never send it."""
        feature = finite_numbers(x)
        if feature.shape != self.codebook.shape[1:]:
            raise InvalidParameterError(
                f"a feature must have {self.codebook.shape[1]} values, as the codebook; found shape {feature.shape}."
            )
        return int(nearest(feature[None], self.codebook, 1)[0, 0])

    def ask(self, x: ArrayLike) -> NDArray[np.int64]:
        """Return the cells to ask the server for, in increasing order, shape (ω,); charges the budget first.

        Parameters
        ----------
        x : (d,) array-like
            The private feature.

        Raises
        ------
        BudgetExceededError
            If the budget does not allow another query; nothing is drawn.
        """
        return self.release(self.cell(x))

    def release(self, cell: int) -> NDArray[np.int64]:
        """Return a subset for a private cell, shape (ω,), in increasing order; charges the budget first."""
        cells = len(self.codebook)
        # Anything but a whole number would stand out among the others.
        if not (isinstance(cell, int | np.integer) and 0 <= cell < cells):
            raise InvalidParameterError(f"a cell must be a whole number in 0..{cells - 1}.")
        charge_to(
            self.budget,
            self.privacy_event,
            label="SubsetQuery",
            adjacency=Adjacency.REPLACE_ONE,
            unit=QUERY_UNIT,
        )
        word = int(self._randomness.words(1)[0]) >> (64 - _BITS)
        own = word < self._threshold
        # Positions among the other cells; those from the own cell on move up by one.
        others = self._randomness.permutation(cells - 1) if cells > 1 else np.empty(0, np.int64)
        chosen = others[: self.size - own]
        chosen = chosen + (chosen >= cell)
        return np.sort(np.append(chosen, cell) if own else chosen)

    # -- the client's own part

    def rerank(self, x: ArrayLike, candidates: ArrayLike, k: int) -> NDArray[np.int64]:
        """Return the positions of the k candidates nearest to the true feature, nearest first.

        Runs at the client: it sees the feature, and nothing of it is sent.

        Parameters
        ----------
        x : (d,) array-like
        candidates : (m, d) array-like
            Records that the server returned.
        k : int
            Cut to m.
        """
        table = np.asarray(candidates, dtype=np.float64)
        if len(table) == 0:
            return np.empty(0, dtype=np.int64)
        return nearest(finite_numbers(x)[None], table, k)[0]

    # -- what it promises

    @property
    def privacy_event(self) -> Any:
        """One query as a privacy event: (ε, 0), or (0, 0) where all cells are asked for."""
        return pure_event(self._cost)

    @property
    def statement(self) -> DataSetStatement:
        """What one query guarantees."""
        note = self._randomness.note
        return DataSetStatement(
            mechanism=f"subset of {self.size} of {len(self.codebook)} public cells",
            adjacency=Adjacency.REPLACE_ONE.value,
            epsilon=self._cost,
            delta=0.0,
            unit="the whole feature of one query",
            proved=self._randomness.secure,  # whoever guesses a seed knows the draw
            proof="subset mechanism of Ye and Barg 2018, drawn from integer odds rounded to the safe side",
            assumptions=(
                "the codebook is public and was not computed from this client's features",
                "whether and when a query is asked does not depend on its feature",
                "k queries of one client cost k times epsilon",
            ),
            not_protected=(
                "that a query was asked, when, from which address, and how long the client took",
                "what the client does with the answers (clicks, downloads)",
                "the number of cells asked for, and all settings",
            ),
            notes=(note,) if note else (),
            arithmetic="exact",
        )

    def __repr__(self) -> str:
        return (
            f"SubsetQuery({len(self.codebook)} cells, epsilon={self.epsilon:g}, size={self.size})"
        )
