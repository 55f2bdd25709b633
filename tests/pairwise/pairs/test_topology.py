"""Pair graphs: kappa' by one linear pass equals its definition, and pairs are chosen as promised."""

import itertools

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairwise.errors import InvalidPairsError
from pairwise.noise.randomness import Randomness
from pairwise.pairs.topology import (
    PairGraph,
    random_matching,
)


def star(m):
    return [(0, i) for i in range(1, m + 1)]


def cycle(n):
    return [(i, (i + 1) % n) for i in range(n)]


def complete(n):
    return list(itertools.combinations(range(n), 2))


def fan(m):
    """A hub joined to a path of m leaves."""
    return star(m) + [(i, i + 1) for i in range(1, m)]


def wheel(m):
    """A hub joined to a cycle of m spokes."""
    return star(m) + [(1 + i, 1 + (i + 1) % m) for i in range(m)]


@st.composite
def graphs(draw, largest=9):
    n = draw(st.integers(2, largest))
    chosen = draw(st.lists(st.sampled_from(complete(n)), min_size=1, max_size=18, unique=True))
    return n, chosen


def kappa_by_deletion(n, pairs):
    """Return De(s) − Co₊(s̄) for each node by deleting it and counting components; 0 for isolated nodes."""
    graph = nx.Graph(pairs)
    graph.add_nodes_from(range(n))
    before = nx.number_connected_components(graph)
    result = []
    for s in range(n):
        rest = graph.copy()
        rest.remove_node(s)
        gained = nx.number_connected_components(rest) - before
        result.append(graph.degree(s) - gained if graph.degree(s) else 0)
    return result


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        (star(7), 1),
        (cycle(3), 2),
        (cycle(9), 2),
        *((complete(n), n - 1) for n in range(2, 8)),
        *((fan(m), m) for m in range(2, 8)),
        (wheel(10), 10),
        ([(0, 1), (1, 2), (2, 3)], 1),
        ([], 0),
    ],
)
def test_kappa_of_known_graphs(pairs, expected):
    assert PairGraph(pairs).kappa_bound() == expected


@settings(max_examples=200, deadline=None)
@given(graphs())
def test_kappa_equals_node_deletion(graph):
    n, pairs = graph
    assert PairGraph(pairs, n).kappa_bound() == max(kappa_by_deletion(n, pairs))


@settings(max_examples=100, deadline=None)
@given(graphs(), st.data())
def test_one_more_pair_raises_kappa_by_at_most_one(graph, data):
    n, pairs = graph
    missing = sorted(set(complete(n)) - set(pairs))
    if not missing:
        return
    extra = data.draw(st.sampled_from(missing))
    before = PairGraph(pairs, n).kappa_bound()
    after = PairGraph([*pairs, extra], n).kappa_bound()
    assert after - before in (0, 1)


def test_closing_a_path_into_a_cycle_changes_kappa():
    assert PairGraph([(0, 1), (1, 2)]).kappa_bound() == 1
    assert PairGraph([(0, 1), (1, 2), (2, 0)]).kappa_bound() == 2


def test_kappa_of_a_long_cycle_needs_no_recursion():
    n = 100_000
    assert PairGraph(cycle(n)).kappa_bound() == 2
    assert PairGraph(cycle(n)[:-1]).kappa_bound() == 1


@pytest.mark.parametrize(
    ("pairs", "n_nodes", "words"),
    [
        ([(0, 1), (2, 2)], None, "1 self pairs"),
        ([(0, 1), (0, 1)], None, "1 repetitions"),
        ([(0, 1), (1, 0), (1, 0)], None, "2 repetitions"),
        ([(-1, 0)], None, r"0\.\.n_nodes - 1 = 0"),
        ([(0, 5)], 5, "n_nodes - 1 = 4"),
        ([(0, 1, 2)], None, r"shape \(m, 2\)"),
        ([0, 1], None, r"shape \(m, 2\)"),
        ([(0.5, 1.0)], None, "whole-number"),
        ([("a", "b")], None, "whole-number"),
    ],
)
def test_malformed_pairs_are_refused_with_a_remedy(pairs, n_nodes, words):
    with pytest.raises(InvalidPairsError, match=words):
        PairGraph(pairs, n_nodes)


def test_an_index_out_of_range_is_refused_without_naming_it():
    with pytest.raises(InvalidPairsError, match="indices must be in") as caught:
        PairGraph([(0, 2), (2, 4711)], n_nodes=10)
    assert "4710" not in str(caught.value)
    assert "4711" not in str(caught.value)


@pytest.mark.parametrize("n", [2, 7, 100])
def test_a_matching_uses_every_slot_at_most_once(n):
    pairs = random_matching(n, Randomness(1))
    assert pairs.shape == (n // 2, 2)
    assert len(np.unique(pairs)) == 2 * (n // 2)
    assert pairs.max() < n


def test_matchings_are_uniform():
    source = Randomness(2)
    counts = {}
    for _ in range(3000):
        key = frozenset(frozenset(pair) for pair in random_matching(4, source).tolist())
        counts[key] = counts.get(key, 0) + 1
    # Three matchings of four slots, 1000 each; a deviation of 140 is 5.4 standard errors, false alarm below 1e-6.
    assert len(counts) == 3
    assert all(abs(count - 1000) < 140 for count in counts.values())
