"""The recipe of attacks prints every attack with its interval, and knows what a ceiling is."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def recipe():
    spec = importlib.util.spec_from_file_location("attacks", ROOT / "recipes" / "attacks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_attack_has_a_row(recipe, index_of, clustered_points):
    index = index_of(clustered_points(20, 10, 6, 1.5), k=32)
    rng = np.random.default_rng(0)
    lengths = rng.integers(8, 20, 40)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ids = rng.integers(0, 200, offsets[-1]).astype(np.int32)
    rows = recipe.attack(index, (ids, offsets), (ids, offsets), 4.0, "half", 0)
    names = [row.split("|")[1].strip() for row in rows]
    assert len(rows) == len(set(names)) == 9
    assert all(row.count("|") == recipe.HEAD.count("|") for row in rows)
    # The one attack that the guarantee bounds stands below its ceiling.
    inversion = rows[0].split("|")
    assert float(inversion[3].split()[0]) <= float(inversion[4])


@pytest.mark.real_data
def test_inversion_stays_below_the_bound_on_real_vectors(real_data):
    # 99.9 % interval of 50,000 draws under a fixed key.
    import textpriv
    from textpriv.evaluation.inversion import invert, simulate
    from textpriv.randomness import KeyedStreams

    vectors = real_data / "embeddings" / "imdb-unsup-sg-40k.300d.bin.gz"
    index = textpriv.Index.build(textpriv.Vocabulary.load(vectors, limit=2000), hnsw=False)
    for epsilon in (2.0, 4.0):
        mechanism = textpriv.TEM(index, epsilon, rate="calibrated")
        found = invert(mechanism)
        assert found.blind <= found.success <= found.bound <= 1
        stream = KeyedStreams(seed=1).stream(f"{epsilon}")
        shown = simulate(mechanism, found, stream, draws=50_000, confidence=0.999).success
        assert shown.low <= found.success <= shown.high
