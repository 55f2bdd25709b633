"""Budgets: what is accepted and refused, by whichever copy and process."""

from __future__ import annotations

import copy
import math
import pickle
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import pytest
from dp_accounting import dp_event
from sklearn.base import clone

from pairwise import PrivacyBudget, PrivateAUCClassifier
from pairwise.accounting.accountant import epsilon_of
from pairwise.accounting.events import compose, gaussian_event, pure_event
from pairwise.accounting.gaussian import zcdp_rho
from pairwise.errors import (
    BudgetClosedError,
    BudgetExceededError,
    InvalidParameterError,
    UnsupportedEventError,
)
from pairwise.noise.release import PlannedRelease
from textpriv.ledger import store


def test_charges_add_up_until_the_limit_and_the_refused_draw_nothing():
    rho = zcdp_rho(1.0, 1e-5)
    with PrivacyBudget(1.0) as budget:
        budget.charge(dp_event.ZCDpEvent(0.6 * rho), "one")
        budget.charge(dp_event.ZCDpEvent(0.4 * rho), "two")
        with pytest.raises(BudgetExceededError, match="'three'"):
            budget.charge(dp_event.ZCDpEvent(0.001 * rho), "three")
        assert [charge.label for charge in budget.charges] == ["one", "two"]
        assert budget.spent() == pytest.approx(1.0, rel=1e-6)


def test_refused_fit_leaves_the_model_as_it_was():
    X = np.random.default_rng(0).normal(size=(60, 2)) / 3
    y = (X[:, 0] > 0).astype(int)
    with PrivacyBudget(1.0) as budget:
        model = PrivateAUCClassifier(0.9, 1e-5, classes=[0, 1], budget=budget).fit(X, y)
        before = dict(vars(model))
        with pytest.raises(BudgetExceededError):
            model.fit(X, y)
        assert vars(model) == before


def test_refused_fit_draws_nothing(monkeypatch):
    X = np.random.default_rng(0).normal(size=(60, 2)) / 3
    model = PrivateAUCClassifier(1.0, 1e-5, classes=[0, 1])

    def release(*_):
        raise AssertionError("noise was drawn")

    monkeypatch.setattr(PlannedRelease, "release", release)
    with PrivacyBudget(0.5) as budget, pytest.raises(BudgetExceededError):
        model.set_params(budget=budget).fit(X, (X[:, 0] > 0).astype(int))


def test_filter_is_never_below_the_cost_of_fixed_releases():
    rng = np.random.default_rng(0)
    for _ in range(20):
        events = [gaussian_event(float(z)) for z in rng.uniform(3, 30, size=5)]
        with PrivacyBudget(20.0) as budget:
            for event in events:
                budget.charge(event)
            assert budget.spent() >= epsilon_of(compose(events), 1e-5) * (1 - 1e-9)


def test_second_charge_costs_what_the_filter_says_and_not_the_composition():
    # The table of docs/algorithms/budget.md.
    with PrivacyBudget(3.0, 1e-4) as budget:
        spent = []
        for _ in range(4):
            budget.charge(gaussian_event(4.53))
            spent.append(round(budget.spent(), 2))
    assert spent == [0.67, 1.57, 1.72, 1.86]


def test_pure_budget_takes_pure_releases_only():
    with PrivacyBudget(1.0, 0.0) as budget:
        budget.charge(pure_event(0.7))
        with pytest.raises(BudgetExceededError):
            budget.charge(gaussian_event(100.0))
        budget.charge(pure_event(0.3))
        assert budget.spent() == pytest.approx(1.0)


def test_release_without_noise_is_refused():
    with PrivacyBudget(100.0) as budget, pytest.raises(BudgetExceededError):
        budget.charge(gaussian_event(0.0))


@pytest.mark.parametrize("terms", [{"adjacency": "zero-out"}, {"unit": "any 2 pairs"}])
def test_other_relations_and_units_are_refused(terms):
    with PrivacyBudget(1.0) as budget, pytest.raises(InvalidParameterError):
        budget.charge(gaussian_event(100.0), **terms)


def test_unknown_kind_is_refused_and_not_entered():
    with PrivacyBudget(9.0) as budget:
        budget.charge(gaussian_event(10.0))
        with pytest.raises(UnsupportedEventError):
            budget.charge(dp_event.LaplaceDpEvent(1.0))
        assert len(budget.charges) == 1


def test_copies_are_one_budget():
    with PrivacyBudget(1.0) as budget:
        copies = [clone(budget, safe=False), copy.copy(budget), copy.deepcopy(budget)]
        copies.append(pickle.loads(pickle.dumps(budget)))
        for each in copies:
            each.charge(gaussian_event(30.0))
            assert each == budget
        assert len(budget.charges) == len(copies)


def test_another_process_charges_the_same_budget(tmp_path):
    with PrivacyBudget(1.0) as budget:
        (tmp_path / "budget.pickle").write_bytes(pickle.dumps(budget))
        code = (
            "import pickle, sys; from pairwise.accounting.events import gaussian_event; "
            "pickle.load(open(sys.argv[1], 'rb')).charge(gaussian_event(20.0), 'elsewhere')"
        )
        call = [sys.executable, "-c", code, str(tmp_path / "budget.pickle")]
        subprocess.run(call, check=True)
        assert [charge.label for charge in budget.charges] == ["elsewhere"]


def test_two_threads_cannot_both_take_the_last_of_it():
    rho = zcdp_rho(1.0, 1e-5)
    with PrivacyBudget(1.0) as budget:

        def take(_):
            try:
                budget.charge(dp_event.ZCDpEvent(0.3 * rho))
            except BudgetExceededError:
                return 0
            return 1

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(take, range(8))) == 3


def test_file_is_continued_with_its_own_limits_only(tmp_path):
    path = tmp_path / "account.sqlite"
    with PrivacyBudget(1.0, path=path) as budget:
        budget.charge(gaussian_event(20.0), "first")
    with PrivacyBudget(1.0, path=path) as again:
        assert [charge.label for charge in again.charges] == ["first"]
    with pytest.raises(InvalidParameterError, match="own limits"):
        PrivacyBudget(2.0, path=path)
    (tmp_path / "other").write_text("no account")
    with pytest.raises(InvalidParameterError):
        PrivacyBudget(1.0, path=tmp_path / "other")


def test_closed_or_lost_budget_refuses(tmp_path):
    budget = PrivacyBudget(1.0)
    twin = pickle.loads(pickle.dumps(budget))
    budget.charge(gaussian_event(20.0))
    budget.close()
    for each in (budget, twin):
        with pytest.raises(BudgetClosedError):
            each.charge(gaussian_event(20.0))
    assert len(budget.charges) == 1
    path = tmp_path / "account.sqlite"
    lost = PrivacyBudget(1.0, path=path)
    path.unlink()
    with pytest.raises(BudgetClosedError):
        lost.charge(gaussian_event(20.0))
    assert not path.exists()


def test_store_of_another_budget_at_the_path_is_refused(tmp_path):
    path = tmp_path / "account.sqlite"
    budget = PrivacyBudget(1.0, path=path)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE budget SET identity = 'other'")
    connection.commit()
    connection.close()
    with pytest.raises(BudgetClosedError):
        budget.charge(gaussian_event(20.0))


def test_locked_store_is_named_as_locked_and_nothing_is_charged(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "_PATIENCE", 0.01)
    path = tmp_path / "account.sqlite"
    budget = PrivacyBudget(1.0, path=path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        for use in (
            lambda: budget.charge(gaussian_event(20.0)),
            lambda: PrivacyBudget(1.0, path=path),
        ):
            with pytest.raises(BudgetClosedError, match=r"locked\. Try again when"):
                use()
    assert budget.charges == ()


def test_limits_are_fixed():
    with PrivacyBudget(1.0) as budget, pytest.raises(InvalidParameterError):
        budget.epsilon = 5.0


def test_statement_is_the_limit_whatever_was_charged():
    with PrivacyBudget(2.0) as budget:
        budget.charge(gaussian_event(10.0))
        budget.charge(gaussian_event(10.0))
        statement = budget.statement
    assert (statement.epsilon, statement.delta, statement.proved) == (2.0, 1e-5, True)
    assert "every release about these records was charged here" in statement.assumptions
    assert math.isfinite(budget.spent())


@pytest.mark.parametrize("wrong", [3, "budget", PrivacyBudget])
def test_what_is_no_budget_is_refused_before_the_fit(wrong):
    X = np.random.default_rng(0).normal(size=(30, 2))
    model = PrivateAUCClassifier(1.0, classes=[0, 1], budget=wrong)
    with pytest.raises(InvalidParameterError, match="budget must be"):
        model.fit(X, np.arange(30) % 2)
