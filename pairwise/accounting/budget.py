"""The budget: a total that several fits share, in a file that several processes may charge.

What a charge costs is computed in ``accounting.accountant``.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sqlite3
import tempfile
import uuid
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dp_accounting import dp_event

from pairwise.accounting.accountant import _check_reading, epsilon_of
from pairwise.accounting.events import (
    Adjacency,
    ApproximateDpEvent,
    _event_from_plain,
    _freeze,
    _leaves,
    _merged,
    compose,
)
from pairwise.accounting.filters import _filtered_epsilon
from pairwise.accounting.gaussian import check_privacy_parameters
from pairwise.errors import BudgetClosedError, BudgetExceededError, InvalidParameterError
from pairwise.statement import PrivacyStatement

__all__ = ["Charge", "PrivacyBudget", "charge_to"]


@dataclass(frozen=True)
class Charge:
    """One accepted release: its label and its event."""

    label: str
    event: dp_event.DpEvent


_SCHEMA = """
CREATE TABLE budget (
    identity TEXT PRIMARY KEY, epsilon REAL NOT NULL, delta REAL NOT NULL,
    adjacency TEXT NOT NULL, unit TEXT NOT NULL, composition TEXT NOT NULL, closed INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE charge (number INTEGER PRIMARY KEY AUTOINCREMENT, label TEXT NOT NULL, event TEXT NOT NULL);
"""


_COMPOSITIONS = ("auto", "gaussian", "renyi", "basic")
_FILTERS = {
    "gaussian": "Smith and Thakurta 2022, a filter for Gaussian differential privacy; mechanisms.md 1.2",
    "renyi": "Feldman and Zrnic 2021 and Lécuyer 2021, a filter for Rényi differential privacy; mechanisms.md 1.3",
    "basic": "Rogers, Roth, Ullman and Vadhan 2016, a filter for (epsilon, delta)",
}


class PrivacyBudget:
    """A limit (ε, δ) on everything released about one data set, shared by all copies of one budget.

    Every private fit charges its event *before* any noise is drawn; the one that would pass the limit is refused with
    ``BudgetExceededError`` and draws nothing. What is charged next, and how much noise it has, may be chosen by the results
    of what was charged before: each way of composing is one for which that is proved.

    Parameters
    ----------
    epsilon : float
        The limit, > 0.
    delta : float, default=1e-5
        In [0, 1); 0 admits pure mechanisms only.
    adjacency : Adjacency or str, default=Adjacency.REPLACE_ONE
        Guarantees under another adjacency cannot be added to this one and are refused.
    unit : str, default="one record"
        Whose change is protected; a charge for another unit is refused.
    composition : {"auto", "gaussian", "renyi", "basic"}, default="auto"
        By which filter charges are added up, see the notes. ``"auto"``: by the first charge, which no result can have led
        to: ``"gaussian"`` if it is all Gaussian, ``"basic"`` if a δ of its own is in it, else ``"renyi"``.
    path : str or Path, optional
        Where to keep the account. A file that exists is continued, provided that its limits are the same. Without a
        path it lives in a temporary folder until the process that created it ends or the ``with`` block is left.

    Notes
    -----
    The state is one SQLite file named by the budget, not by the object: copies made by ``sklearn.base.clone``,
    ``copy.deepcopy`` and ``pickle``, in this or any other process of the machine (``GridSearchCV`` with ``n_jobs=2``),
    are the same budget. Check and entry are one exclusive transaction, so two fits cannot both take the last of it.

    Charges are for fits on the same people: keep one budget per data set. A fit on a part of it (a fold) is charged in
    full. The filters, with the theorems that let events and their noise be chosen by earlier results:

    * ``"gaussian"``: Σ(Δ/σ)² against the μ² of (ε, δ), exact (Smith and Thakurta 2022; Koskela, Tobaben and Honkela 2023).
      Takes Gaussian releases, and pure ones as the Gaussian that dominates them.
    * ``"renyi"``: Σ D_α against what (ε, δ) leaves at one order α, fixed by (ε, δ) alone (Feldman and Zrnic 2021; Lécuyer
      2021). Takes Gaussian, zCDP and pure releases, selections, and samples, the last at their Rényi cost, or unsampled
      where none is known. For Gaussian and zCDP releases nothing is lost against adding ρ.
    * ``"basic"``: Σεᵢ and Σδᵢ (Rogers, Roth, Ullman and Vadhan 2016). Takes pure and (ε, δ) releases.
    * The sum of pure epsilons is used wherever it is smaller.

    Products of privacy loss distributions are used for a *single* charge only, whose parts are fixed in advance: stopping
    when such a product would pass the limit is no filter, and can exceed δ. A kind that the filter cannot take is refused
    with ``UnsupportedEventError``.

    Examples
    --------
    >>> from pairwise.accounting.budget import PrivacyBudget
    >>> from pairwise.accounting.events import gaussian_event
    >>> with PrivacyBudget(epsilon=1.0, delta=1e-5) as budget:
    ...     budget.charge(gaussian_event(ratio=10.0), label="first")
    ...     round(budget.spent(), 3)
    0.341
    """

    def __init__(
        self,
        epsilon: float,
        delta: float = 1e-5,
        adjacency: Adjacency | str = Adjacency.REPLACE_ONE,
        unit: str = "one record",
        path: str | os.PathLike[str] | None = None,
        composition: str = "auto",
    ) -> None:
        check_privacy_parameters(epsilon, delta, allow_pure=True)
        if composition not in _COMPOSITIONS:
            raise InvalidParameterError(
                f"composition must be one of {', '.join(_COMPOSITIONS)}; found {composition!r}."
            )
        if not isinstance(unit, str):
            raise InvalidParameterError(f"unit must be a text; found {type(unit).__name__}.")
        if not isinstance(path, str | os.PathLike | None):
            raise InvalidParameterError(
                f"path must be a path or None; found {type(path).__name__}."
            )
        self.composition = composition
        self.epsilon = float(epsilon)
        self.delta = float(delta)
        self.adjacency = Adjacency(adjacency)
        self.unit = unit
        self._final: tuple[Charge, ...] | None = None
        if path is None:
            folder = tempfile.mkdtemp(prefix="pairwise-budget-")
            self._path = str(Path(folder) / "budget.sqlite")
            # Runs once: at the end of the with block, or when the process that created the folder ends.
            self._remove: Any = weakref.finalize(_KEEPER, _remove_folder, folder, os.getpid())
        else:
            self._path = str(Path(path).absolute())
            self._remove = None
        self.identity = self._open_store()

    def __setattr__(self, name: str, value: Any) -> None:
        # Other copies, and the file, have the limits that it was made with.
        limits = ("epsilon", "delta", "adjacency", "unit", "composition", "identity")
        if name in limits and name in vars(self):
            raise InvalidParameterError(
                f"{name} of a budget is fixed when it is made. Make another budget."
            )
        super().__setattr__(name, value)

    # -- store

    def _open_store(self) -> str:
        try:
            connection = sqlite3.connect(self._path, timeout=600, isolation_level=None)
        except sqlite3.OperationalError:
            raise InvalidParameterError(
                "the file at path cannot be opened or made. Choose a file in a folder that exists."
            ) from None
        try:
            connection.execute("BEGIN EXCLUSIVE")
            exists = connection.execute(
                "SELECT count(*) FROM sqlite_master WHERE name = 'budget'"
            ).fetchone()[0]
            identity = uuid.uuid4().hex
            if exists:
                row = connection.execute(
                    "SELECT identity, epsilon, delta, adjacency, unit, composition, closed FROM budget"
                ).fetchone()
                recorded = tuple(row[1:6])
                wanted = (
                    self.epsilon,
                    self.delta,
                    self.adjacency.value,
                    self.unit,
                    self.composition,
                )
                if recorded != wanted:
                    raise InvalidParameterError(
                        f"the file at path holds a budget of (epsilon, delta, adjacency, unit, composition) = {recorded}; "
                        f"asked for {wanted}. Open it with its own limits, or choose another path."
                    )
                if row[6]:
                    raise BudgetClosedError(
                        "the budget at path is closed. Start a new one elsewhere."
                    )
                identity = row[0]
            else:
                for line in _SCHEMA.strip().split(";"):
                    if line.strip():
                        connection.execute(line)
                connection.execute(
                    "INSERT INTO budget VALUES (?, ?, ?, ?, ?, ?, 0)",
                    (
                        identity,
                        self.epsilon,
                        self.delta,
                        self.adjacency.value,
                        self.unit,
                        self.composition,
                    ),
                )
            connection.execute("COMMIT")
            return str(identity)
        except sqlite3.DatabaseError as error:
            raise InvalidParameterError(
                "the file at path is not a budget of this package. Choose another path."
            ) from error
        finally:
            connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Open the store exclusively; undo everything on an error."""
        try:
            # mode=rw: a store that has gone must not be silently replaced by an empty one.
            connection = sqlite3.connect(
                Path(self._path).as_uri() + "?mode=rw", uri=True, timeout=600, isolation_level=None
            )
        except sqlite3.OperationalError as error:
            raise BudgetClosedError(
                "the budget is closed or its store is gone, so nothing can be charged to it. Keep the with block open "
                "around all fits, or give the budget a path that stays."
            ) from error
        try:
            connection.execute("BEGIN IMMEDIATE")
            row = connection.execute("SELECT identity, closed FROM budget").fetchone()
            if row is None or row[0] != self.identity or row[1]:
                raise BudgetClosedError("the budget is closed, so nothing can be charged to it.")
            yield connection
            connection.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            raise BudgetClosedError("the budget's store cannot be read or written.") from error
        finally:
            connection.close()

    @staticmethod
    def _read(connection: sqlite3.Connection) -> tuple[Charge, ...]:
        rows = connection.execute("SELECT label, event FROM charge ORDER BY number").fetchall()
        return tuple(Charge(label, _event_from_plain(json.loads(event))) for label, event in rows)

    # -- use

    def charge(
        self,
        event: dp_event.DpEvent,
        label: str = "",
        *,
        adjacency: Adjacency | str | None = None,
        unit: str | None = None,
    ) -> None:
        """Enter a release, or refuse it. Call this before drawing any noise.

        Parameters
        ----------
        event : DpEvent
            The release, written as the head of this module says.
        label : str
            For people; must not hold private text.
        adjacency : Adjacency or str, optional
            What the event is for, checked against the budget's.
        unit : str, optional
            Whose change the event covers, checked against the budget's.

        Raises
        ------
        BudgetExceededError
            If all charges with this one would cost more than the limit; nothing is entered.
        BudgetClosedError
            If the budget was closed or its store is gone.
        InvalidParameterError
            If the adjacency or the unit is another one.
        """
        if adjacency is not None and Adjacency(adjacency) is not self.adjacency:
            raise InvalidParameterError(
                f"the budget is for {self.adjacency}; found a release for {Adjacency(adjacency)}. "
                "Keep a budget of its own for that adjacency."
            )
        if unit is not None and unit != self.unit:
            raise InvalidParameterError(
                f"the budget protects {self.unit!r}; found a release for {unit!r}. "
                "Keep a budget of its own for that unit."
            )
        encoded = _freeze(event)
        if self._final is not None:
            raise BudgetClosedError("the budget is closed, so nothing can be charged to it.")
        with self._transaction() as connection:
            before = self._read(connection)
            cost = self._cost([*(c.event for c in before), _event_from_plain(json.loads(encoded))])
            # The relative allowance covers rounding in the accountants' searches, nothing else.
            if not cost <= self.epsilon * (1 + 1e-9):
                raise BudgetExceededError(
                    f"the release {label or type(event).__name__!r} was refused: with it the total would be epsilon "
                    f"{cost:.6g} at delta {self.delta:g}; the budget allows {self.epsilon:g}. "
                    f"{len(before)} releases are charged. Nothing was drawn. Lower its epsilon or stop here."
                )
            connection.execute(
                "INSERT INTO charge (label, event) VALUES (?, ?)", (str(label), encoded)
            )

    def _cost(self, events: Sequence[dp_event.DpEvent]) -> float:
        # What no result can have led to, the first charge, costs what it costs. If it does not fit the filter as well,
        # nothing is accepted after it, since every later charge only adds.
        if len(events) < 2:
            return epsilon_of(compose(events), self.delta, self.adjacency)
        leaves = _merged(leaf for event in events for leaf in _leaves(event))
        for leaf, _ in leaves:
            if isinstance(leaf, dp_event.NonPrivateDpEvent):
                return math.inf
            _check_reading(leaf, self.adjacency)
        limit = (self.epsilon, self.delta)
        return _filtered_epsilon(leaves, limit, self.adjacency, self._filter(events[0]))

    def _filter(self, first: dp_event.DpEvent) -> str:
        """Return the filter in use, which the first charge decides where the user did not."""
        if self.composition != "auto":
            return self.composition
        kinds = [leaf for leaf, _ in _leaves(first)]
        if all(isinstance(leaf, dp_event.GaussianDpEvent) for leaf in kinds):
            return "gaussian"
        if any(isinstance(leaf, ApproximateDpEvent) and leaf.delta > 0 for leaf in kinds):
            return "basic"
        return "renyi"

    @property
    def charges(self) -> tuple[Charge, ...]:
        """All accepted releases, in order, by whatever process they were made."""
        if self._final is not None:
            return self._final
        with self._transaction() as connection:
            return self._read(connection)

    def spent(self) -> float:
        """Return the epsilon that all charges take of the limit, at the budget's δ.

        The account, not a guarantee: where results led to further charges, what is guaranteed is the limit.
        """
        return self._cost([charge.event for charge in self.charges])

    @property
    def statement(self) -> PrivacyStatement:
        """What all charged releases guarantee together, however each was chosen: the limit."""
        events = [charge.event for charge in self.charges]
        fixed = epsilon_of(compose(events), self.delta, self.adjacency)
        return PrivacyStatement(
            mechanism=f"composition of {len(events)} charged releases",
            adjacency=self.adjacency.value,
            epsilon=self.epsilon,
            delta=self.delta,
            unit=self.unit,
            proved=True,
            proof=_FILTERS[self._filter(events[0] if events else dp_event.NoOpDpEvent())],
            notes=(
                f"{self._cost(events):.6g} of the limit is charged; had all releases been fixed before the first result was "
                f"seen, they would be ({fixed:.6g}, {self.delta:g})-DP",
            ),
            assumptions=(
                "every release about these records was charged here",
                "each release meets the event it was charged with, by randomness that stays secret (no seed)",
            ),
        )

    def close(self) -> None:
        """Refuse all further charges through this object, whose past charges stay readable.

        A budget without a path ends for every copy in every process and its store is removed; one with a path can be opened
        again.
        """
        if self._final is not None:
            return
        with self._transaction() as connection:
            self._final = self._read(connection)
            if self._remove is not None:
                connection.execute("UPDATE budget SET closed = 1")
        if self._remove is not None:
            self._remove()

    def __enter__(self) -> PrivacyBudget:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # -- copies are the same budget

    def __copy__(self) -> PrivacyBudget:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> PrivacyBudget:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        state = (
            self.epsilon,
            self.delta,
            self.adjacency.value,
            self.unit,
            self._path,
            self.identity,
            self.composition,
        )
        return _reattach, state

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PrivacyBudget) and other.identity == self.identity

    def __hash__(self) -> int:
        return hash(self.identity)

    def __repr__(self) -> str:
        return (
            f"PrivacyBudget(epsilon={self.epsilon:g}, delta={self.delta:g}, adjacency={self.adjacency.value!r}, "
            f"unit={self.unit!r})"
        )


def _reattach(
    epsilon: float,
    delta: float,
    adjacency: str,
    unit: str,
    path: str,
    identity: str,
    composition: str,
) -> PrivacyBudget:
    """Return another handle on an existing budget, in whatever process this is; never a new one."""
    budget = PrivacyBudget.__new__(PrivacyBudget)
    budget.epsilon, budget.delta, budget.unit = epsilon, delta, unit
    budget.adjacency = Adjacency(adjacency)
    budget._path, budget.identity, budget.composition = path, identity, composition
    budget._remove, budget._final = None, None
    return budget


def charge_to(
    budget: Any, event: dp_event.DpEvent, *, label: str, adjacency: Adjacency | str, unit: str
) -> None:
    """Charge a release before it is drawn to what keeps its account, a ``PrivacyBudget`` or its like; None keeps none.

    Raises
    ------
    InvalidParameterError
        For what has no method ``charge``, and as ``PrivacyBudget.charge`` does.
    """
    if budget is None:
        return
    if isinstance(budget, type) or not callable(getattr(budget, "charge", None)):
        raise InvalidParameterError(
            f"budget must be a PrivacyBudget or None; found {type(budget).__name__}. Pass PrivacyBudget(epsilon)."
        )
    budget.charge(event, label=label, adjacency=adjacency, unit=unit)


class _Keeper:
    """Lives as long as the process, so that temporary stores do too, even when the first handle is gone."""


_KEEPER = _Keeper()


def _remove_folder(folder: str, pid: int) -> None:
    if os.getpid() == pid:  # a forked child that ends must not take its parent's store along
        shutil.rmtree(folder, ignore_errors=True)
