"""What objects show of themselves: short, by what differs from the defaults, and no secret."""

from __future__ import annotations

import importlib
from importlib import metadata

import numpy as np
import pytest

import textpriv
from textpriv import errors
from textpriv.pipeline import PrivateTokenizer
from textpriv.settings import PrivatizerSettings


@pytest.fixture
def mechanism():
    vocabulary = textpriv.Vocabulary(list("abcd"), np.eye(4))
    return textpriv.TEM(textpriv.Index.build(vocabulary, "euclidean", k=2), epsilon=3.0)


def test_what_is_shown_is_short_and_names_what_was_chosen(mechanism):
    policy = textpriv.TokenPolicy(number="mask")
    privatizer = textpriv.Privatizer(mechanism, policy)
    assert repr(policy) == "TokenPolicy(number='mask')"
    assert eval(repr(policy), {"TokenPolicy": textpriv.TokenPolicy}) == policy
    assert repr(privatizer) == f"Privatizer({mechanism!r}, {policy!r})"
    settings = PrivatizerSettings(options={"epsilon": 3.4}, run_key=b"secret" * 5)
    assert "secret" not in repr(settings)
    assert repr(privatizer.release(privatizer.read("a b"))[0]) == "PrivateTokens(2 tokens)"
    for shown in (mechanism, mechanism.index, mechanism.statement, privatizer):
        assert len(repr(shown)) < 200


def test_a_form_shows_its_mechanism_once_it_is_opened(mechanism):
    spacy = pytest.importorskip("spacy")
    form = PrivateTokenizer(spacy.blank("en"), mechanism="tem", epsilon=3.0)
    assert repr(form) == "PrivateTokenizer(not opened, en)"
    form._index = mechanism.index
    form("a b")
    assert repr(form) == f"PrivateTokenizer({form.prepare()!r}, en)"


def test_an_extra_is_installed_by_its_packages(monkeypatch):
    listed = ["numpy>=1", 'ray[data]>=2.30; extra == "ray"', 'textpriv[ray]; extra == "test"']
    monkeypatch.setattr(errors, "requires", lambda name: listed)
    command = "pip install 'ray[data]>=2.30' (the extra 'ray')"
    assert errors.how_to_install("ray") == command
    assert "'ray[data]>=2.30' (" in errors.how_to_install("test")  # textpriv is on no index

    def unknown(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(errors, "requires", unknown)
    assert errors.how_to_install("ray").startswith("pip install '.[ray]' in a clone")


def test_a_statement_by_distance_shows_its_unit_and_no_delta(three_points):
    shown = repr(textpriv.TEM(three_points, 2.0).statement)
    assert "epsilon 2 per unit of Euclidean distance" in shown
    assert "delta" not in shown


@pytest.mark.parametrize("name", ["textpriv.evaluation"])
def test_dir_shows_what_a_package_offers_and_nothing_else(name):
    package = importlib.import_module(name)
    assert dir(package) == sorted(package.__all__)
