"""A privacy budget: a total that several fits share, in a file that several processes may charge.

How charges add up is ``accountant.filtered_epsilon``.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import uuid
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pairwise.accounting.accountant import epsilon_of, filtered_epsilon
from pairwise.accounting.events import (
    Adjacency,
    compose,
    dp_event,
    event_of_text,
    refuse_other_terms,
    text_of_event,
)
from pairwise.accounting.parameters import check_privacy_parameters
from pairwise.errors import BudgetClosedError, BudgetExceededError, InvalidParameterError
from pairwise.statement import DataSetStatement
from textpriv.ledger.store import transaction


@dataclass(frozen=True)
class ChargedRelease:
    """One accepted release: its label and its event."""

    label: str
    event: dp_event.DpEvent


_TABLES = (
    "CREATE TABLE budget (identity TEXT, epsilon REAL, delta REAL, adjacency TEXT, unit TEXT, closed INTEGER)",
    "CREATE TABLE charge (number INTEGER PRIMARY KEY AUTOINCREMENT, label TEXT, event TEXT)",
)


class PrivacyBudget:
    """A limit (ε, δ) on everything released about one data set, shared by all copies of one budget.

    Every private fit charges its event *before* any noise is drawn. The one that would pass the limit is refused with
    ``BudgetExceededError`` and draws nothing. Results may decide what is charged next and how much noise it has.

    Parameters
    ----------
    epsilon : float
        The limit, > 0.
    delta : float, default=1e-5
        In [0, 1); 0 admits pure mechanisms only.
    adjacency : Adjacency or str, default="replace-one"
        Releases under another adjacency are refused.
    unit : str, default="one record"
        Whose change is protected; a charge for another unit is refused.
    path : str or Path, optional
        Where to keep the account. A file that exists is continued if its limits are the same. Without a path it is in a
        temporary folder, until the process that created it ends or the ``with`` block is left.

    Notes
    -----
    The state is one SQLite file. Copies made by ``sklearn.base.clone``, ``copy.deepcopy`` and ``pickle``, in any process of
    the machine, are the same budget. Check and entry are one exclusive transaction, so two fits cannot both take the last
    of it.

    Keep one budget per data set. A fit on a part of it (a fold) is charged in full. Charges are added by a Rényi filter:
    ΣD_α against what (ε, δ) leaves at one order α, fixed by (ε, δ) alone (Feldman and Zrnic 2021; Lécuyer 2021). The sum of
    pure epsilons is used where it is smaller. A first charge alone costs what it costs, since no result led to it.

    Examples
    --------
    >>> from pairwise import PrivacyBudget
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
    ) -> None:
        check_privacy_parameters(epsilon, delta, allow_pure=True)
        self.epsilon = float(epsilon)
        self.delta = float(delta)
        self.adjacency = Adjacency(adjacency)
        self.unit = str(unit)
        self._final: tuple[ChargedRelease, ...] | None = None
        self._remove: Any = None
        if path is None:
            folder = tempfile.mkdtemp(prefix="pairwise-budget-")
            path = Path(folder) / "budget.sqlite"
            # Runs once: at the end of the with block, or with the function, when the process that created the folder ends.
            self._remove = weakref.finalize(_remove_folder, _remove_folder, folder, os.getpid())
        self._path = str(Path(path).absolute())
        self.identity = self._open_store()

    def __setattr__(self, name: str, value: Any) -> None:
        # Other copies, and the file, have the limits that it was made with.
        fixed = ("epsilon", "delta", "adjacency", "unit", "identity")
        if name in fixed and name in vars(self):
            raise InvalidParameterError(
                f"{name} of a budget is fixed when it is made. Make another budget."
            )
        super().__setattr__(name, value)

    # -- store

    def _open_store(self) -> str:
        """Create the account, or continue the one at the path; return its identity."""
        limits = (self.epsilon, self.delta, self.adjacency.value, self.unit)
        try:
            with transaction(Path(self._path), "BEGIN EXCLUSIVE", mode="rwc") as connection:
                known = "SELECT count(*) FROM sqlite_master WHERE name = 'budget'"
                if not connection.execute(known).fetchone()[0]:
                    for line in _TABLES:
                        connection.execute(line)
                    row = (uuid.uuid4().hex, *limits)
                    connection.execute("INSERT INTO budget VALUES (?, ?, ?, ?, ?, 0)", row)
                identity, *recorded, closed = connection.execute("SELECT * FROM budget").fetchone()
        except sqlite3.DatabaseError as error:
            _refuse_locked(error)
            raise InvalidParameterError(
                "the file at path cannot be opened or made, or is not a budget of this package. Choose another path, in a "
                "folder that exists."
            ) from error
        if tuple(recorded) != limits:
            raise InvalidParameterError(
                f"the file at path holds a budget of (epsilon, delta, adjacency, unit) = {tuple(recorded)}; asked for "
                f"{limits}. Open it with its own limits, or choose another path."
            )
        if closed:
            raise BudgetClosedError("the budget at path is closed. Start a new one elsewhere.")
        return str(identity)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Open the store exclusively; undo everything on an error."""
        try:
            with transaction(Path(self._path)) as connection:
                row = connection.execute("SELECT identity, closed FROM budget").fetchone()
                if row is None or row[0] != self.identity or row[1]:
                    raise BudgetClosedError("the budget is closed. Start a new one.")
                yield connection
        except sqlite3.DatabaseError as error:
            _refuse_locked(error)
            raise BudgetClosedError(
                "the budget is closed or its store is gone or damaged, so nothing can be charged to it. Keep the with block "
                "open around all fits, or give the budget a path that stays."
            ) from error

    @staticmethod
    def _read(connection: sqlite3.Connection) -> tuple[ChargedRelease, ...]:
        rows = connection.execute("SELECT label, event FROM charge ORDER BY number").fetchall()
        return tuple(ChargedRelease(label, event_of_text(event)) for label, event in rows)

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
            The release, written as the head of ``accounting.events`` says.
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
            If the budget was closed, or its store is gone or locked.
        InvalidParameterError
            If the adjacency or the unit is another one.
        """
        refuse_other_terms("the budget", (self.adjacency, self.unit), adjacency, unit)
        text = text_of_event(event)
        if self._final is not None:
            raise BudgetClosedError("the budget is closed, so nothing can be charged to it.")
        with self._transaction() as connection:
            before = self._read(connection)
            cost = self._cost([*(c.event for c in before), event_of_text(text)])
            # The relative allowance covers rounding in the accountants' searches, nothing else.
            if not cost <= self.epsilon * (1 + 1e-9):
                raise BudgetExceededError(
                    f"the release {label or type(event).__name__!r} was refused: with it the total would be epsilon "
                    f"{cost:.6g} at delta {self.delta:g}; the budget allows {self.epsilon:g}. "
                    f"{len(before)} releases are charged. Nothing was drawn. Lower its epsilon or stop here."
                )
            row = (str(label), text)
            connection.execute("INSERT INTO charge (label, event) VALUES (?, ?)", row)

    def _cost(self, events: list[dp_event.DpEvent]) -> float:
        # If a first charge does not fit the filter as well, nothing is accepted after it, since later ones only add.
        if len(events) < 2:
            return epsilon_of(compose(events), self.delta)
        return filtered_epsilon(compose(events), self.epsilon, self.delta)

    @property
    def charges(self) -> tuple[ChargedRelease, ...]:
        """All accepted releases, in order, by whatever process they were made."""
        if self._final is not None:
            return self._final
        with self._transaction() as connection:
            return self._read(connection)

    def spent(self) -> float:
        """Return the epsilon that all charges take of the limit, at the budget's δ.

        The account, not a guarantee: where results led to further charges, what is guaranteed is the limit.
        It depends on the limit, which fixes the order, and may exceed the sum of the epsilons under a large limit: see
        "What ``spent()`` means" in docs/algorithms/budget.md.
        """
        return self._cost([charge.event for charge in self.charges])

    @property
    def statement(self) -> DataSetStatement:
        """What all charged releases guarantee together, however each was chosen: the limit."""
        events = [charge.event for charge in self.charges]
        fixed = epsilon_of(compose(events), self.delta)
        return DataSetStatement(
            mechanism=f"composition of {len(events)} charged releases",
            adjacency=self.adjacency.value,
            epsilon=self.epsilon,
            delta=self.delta,
            unit=self.unit,
            proved=True,
            proof="Feldman and Zrnic 2021 and Lécuyer 2021, a filter for Rényi differential privacy",
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
        state = {name: value for name, value in vars(self).items() if name[0] != "_"}
        return _reattach, ({**state, "_path": self._path, "_remove": None, "_final": None},)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PrivacyBudget) and other.identity == self.identity

    def __hash__(self) -> int:
        return hash(self.identity)

    def __repr__(self) -> str:
        return (
            f"PrivacyBudget(epsilon={self.epsilon:g}, delta={self.delta:g}, adjacency={self.adjacency.value!r}, "
            f"unit={self.unit!r})"
        )


def _reattach(state: dict[str, Any]) -> PrivacyBudget:
    """Return another handle on an existing budget, in whatever process this is; never a new one."""
    budget = PrivacyBudget.__new__(PrivacyBudget)
    vars(budget).update(state)
    return budget


def charge_to(
    budget: Any, event: dp_event.DpEvent, *, label: str, adjacency: Adjacency | str, unit: str
) -> None:
    """Charge a release before it is drawn to a ``PrivacyBudget`` or its like; None keeps no account."""
    if budget is None:
        return
    if isinstance(budget, type) or not callable(getattr(budget, "charge", None)):
        raise InvalidParameterError(
            f"budget must be a PrivacyBudget or None; found {type(budget).__name__}. Pass PrivacyBudget(epsilon)."
        )
    budget.charge(event, label=label, adjacency=adjacency, unit=unit)


def _refuse_locked(error: sqlite3.DatabaseError) -> None:
    if "locked" in str(error):
        raise BudgetClosedError("the budget is locked. Try again when the other fit has ended.")


def _remove_folder(folder: str, pid: int) -> None:
    if os.getpid() == pid:  # a forked child that ends must not take its parent's store along
        shutil.rmtree(folder, ignore_errors=True)
