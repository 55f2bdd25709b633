"""The privacy statement says what is true, in words and in JSON."""

import dataclasses
import json
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from pairwise.accounting.events import Adjacency
from pairwise.accounting.gaussian import gaussian_mu
from pairwise.errors import (
    BudgetExceededError,
    InvalidPairsError,
    InvalidParameterError,
    PairwiseError,
)
from pairwise.statement import PrivacyStatement, UnsoundWarning


def statement(**changes):
    fields = {
        "mechanism": "noisy pairwise gradient descent",
        "adjacency": Adjacency.REPLACE_ONE,
        "epsilon": 1.0,
        "delta": 1e-5,
        "unit": "one record",
        "proved": True,
        "proof": "mechanisms.md 7.1",
    }
    return PrivacyStatement(**{**fields, **changes})


def test_json_carries_every_field():
    made = statement(assumptions=("records are clipped",), notes=("seeded",))
    back = json.loads(made.to_json())
    assert set(back) == {field.name for field in dataclasses.fields(PrivacyStatement)}
    assert back["adjacency"] == "replace-one"
    assert back["assumptions"] == ["records are clipped"]
    assert json.loads(statement(epsilon=math.inf).to_json())["epsilon"] == "inf"
    assert json.loads(statement(epsilon=None).to_json())["epsilon"] is None


def test_the_paragraph_states_epsilon_delta_unit_and_exposures():
    text = statement(not_protected=("the number of records",)).paragraph()
    assert "exp(1) = 2.72" in text
    assert "1e-05" in text
    assert "one record (replace-one)" in text
    assert "Not protected: the number of records." in text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epsilon": None, "proved": False}, "no guarantee"),
        ({"epsilon": math.inf}, "not private"),
        ({"proved": False}, "NOT PROVED"),
    ],
)
def test_the_paragraph_never_dresses_up_a_missing_guarantee(changes, words):
    assert words in str(statement(**changes))


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 4.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-9])
def test_the_paragraph_states_what_gaussian_noise_attains_and_not_odds_that_it_exceeds(
    epsilon, delta
):
    mu = gaussian_mu(epsilon, delta)
    # At outcomes x the loss is mu x - mu²/2, of which epsilon is exceeded from here on.
    cut = epsilon / mu + mu / 2
    here, there = norm.sf(cut - mu), norm.sf(cut)
    assert here == pytest.approx(math.exp(epsilon) * there + delta, rel=1e-6)
    # "Odds above exp(epsilon) except with probability delta" would be false by this factor.
    assert here > 2 * delta
    text = statement(epsilon=epsilon, delta=delta).paragraph()
    likely = "times as likely under the one as under the other"
    assert f"any set of outcomes is at most exp({epsilon:g}) = " in text
    assert f" {likely}, plus {delta:.3g}." in text
    assert "except" not in text


def test_a_pure_guarantee_adds_nothing():
    text = statement(delta=0.0).paragraph()
    assert "times as likely under the one as under the other. " in text
    assert "plus" not in text


def test_a_statement_cannot_be_changed_only_extended():
    made = statement(notes=("a",))
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.epsilon = 0.1
    longer = made.extended(notes=("a", "b"), proved=False)
    assert longer.notes == ("a", "b")
    assert not longer.proved
    assert made.notes == ("a",)


def test_all_errors_are_value_errors_of_one_family():
    for kind in (BudgetExceededError, InvalidPairsError, InvalidParameterError):
        assert issubclass(kind, PairwiseError)
        assert issubclass(kind, ValueError)
    assert issubclass(UnsoundWarning, UserWarning)


def test_the_package_names_load_on_first_use_without_torch():
    import subprocess
    import sys

    code = (
        "import sys, pairwise\n"
        "assert 'torch' not in sys.modules and 'dp_accounting' not in sys.modules\n"
        "assert pairwise.PrivacyBudget.__name__ == 'PrivacyBudget'\n"
        "assert pairwise.PairGraph.__name__ == 'PairGraph'\n"
        "assert 'torch' not in sys.modules and 'textpriv' not in sys.modules\n"
        "assert 'PrivacyBudget' in dir(pairwise)\n"
        "try:\n    pairwise.Nothing\nexcept AttributeError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Nothing" in done.stdout


@given(st.floats(1e-3, 6.9), st.floats(1e-12, 0.4))
def test_no_number_of_a_statement_is_printed_below_its_value(epsilon, delta):
    stated = statement(epsilon=epsilon, delta=delta).paragraph()
    factor = re.search(r"at most exp\(([^)]+)\) = (\S+) times", stated)
    added = re.search(r"plus ([\de.+-]+)\.(?: |$)", stated)
    # A printed decimal that reads back as the float is that float's own name.
    assert float(factor[1]) >= epsilon
    assert float(factor[2]) >= math.exp(epsilon)
    assert float(added[1]) >= delta
    assert float(factor[2]) <= math.exp(epsilon) * 1.011
