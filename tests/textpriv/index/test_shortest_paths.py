"""The metric of a graph: a true one, the shortest paths of another library, and laws that keep their promise."""

from __future__ import annotations

import json

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from textpriv import TEM, Index, Madlib, Vocabulary, certify
from textpriv.errors import IndexFolderError, MechanismError, MetricError, TextprivError
from textpriv.guarantees.audit import audit
from textpriv.index.shortest_paths import MOST_WORDS, edges_of, path_table
from textpriv.index.storage import META, checksum, meta_checksum
from textpriv.metrics import CallableMetric, Graph, Projection, get_metric

few_vectors = hnp.arrays(
    np.float32,
    st.tuples(st.integers(1, 12), st.just(2)),
    elements=st.integers(-4, 4),
)
graphs = st.builds(Graph, st.integers(1, 4), edges=st.sampled_from(["distance", "hops"]))


def joined(vectors, metric):
    """The graph by its definition: neighbours by sorting, then one edge after the other between groups."""
    base = metric.base.pairwise(vectors, vectors)
    size, graph = len(vectors), nx.Graph()
    graph.add_nodes_from(range(size))
    length = (lambda d: np.sign(d)) if metric.edges == "hops" else (lambda d: d)
    for word in range(size):
        order = sorted(set(range(size)) - {word}, key=lambda other: (base[word, other], other))
        for other in order[: metric.neighbours]:
            graph.add_edge(word, other, weight=length(base[word, other]))
    while not nx.is_connected(graph):
        groups = list(nx.connected_components(graph))
        for group in groups:
            if group == max(groups, key=lambda each: (len(each), -min(each))):
                continue
            near, first, second = min(
                (base[a, b], min(a, b), max(a, b)) for a in group for b in set(range(size)) - group
            )
            graph.add_edge(first, second, weight=length(near))
    return graph


@settings(max_examples=40)
@given(few_vectors, graphs)
def test_distances_are_the_shortest_paths_that_networkx_finds_up_to_the_rounding_of_lengths(
    vectors, metric
):
    edges = edges_of(vectors, metric)
    found = path_table(edges, np.arange(len(vectors)))[:, 1:]
    for word, lengths in nx.all_pairs_dijkstra_path_length(joined(vectors, metric)):
        expected = np.array([lengths[other] for other in range(len(vectors))])
        assert (found[word] >= expected * (1 - 1e-7)).all()
        np.testing.assert_allclose(found[word], expected, rtol=1e-5, atol=1e-5)


@settings(max_examples=60)
@given(few_vectors, graphs)
def test_the_axioms_hold_to_the_last_digit(vectors, metric):
    apart = path_table(edges_of(vectors, metric), np.arange(len(vectors)))[:, 1:].astype(float)
    assert (np.diag(apart) == 0).all()
    assert ((apart >= 0) & np.isfinite(apart)).all()
    assert (apart == apart.T).all()
    assert (apart[:, None, :] <= apart[:, :, None] + apart[None]).all()


def test_no_distance_is_below_that_of_the_vectors(index):
    base = get_metric("euclidean").pairwise(index.vocabulary.vectors, index.vocabulary.vectors)
    assert (index.coordinates[:, 1:] >= base * (1 - 1e-6)).all()
    assert index.coordinates[:, 1:].max() == index.diameter_bound


@pytest.fixture(scope="module")
def index():
    """120 words in two far groups, with duplicates."""
    vectors = np.random.default_rng(5).normal(size=(120, 4)).astype(np.float32)
    vectors[60:] += 20
    vectors[7] = vectors[3]
    return Index.build(Vocabulary([f"w{i}" for i in range(120)], vectors), graph=4, k=16)


def test_lists_and_bands_are_those_of_the_table(index):
    table = index.coordinates[:, 1:].astype(float)
    for word, apart in enumerate(table):
        order = sorted(range(120), key=lambda other: (other != word, apart[other], other))
        assert index.neighbours.ids[word].tolist() == order[:16]
        assert (index.neighbours.distances[word] == apart[order[:16]]).all()
        for band, nearest in enumerate(index.bands.nearest[word].tolist()):
            members = range(*index.bands.starts[band : band + 2])
            left = [apart[other] for other in members if other not in order[:16]]
            assert (nearest == 255) == (not left)
            assert not left or nearest * index.band_step <= min(left)


def test_every_form_in_which_an_index_is_asked_for_distances_gives_the_same(index):
    words = np.arange(120)
    table = index.distances_of(words)
    assert (table[7] == table[3]).all()
    assert index.representatives[7] == 3
    assert all((index.distances_between(word, words) == table[word]).all() for word in (0, 3, 119))
    assert index.distance(1, 80) == table[1, 80] == table[80, 1]


def test_a_table_that_is_not_that_of_the_vectors_is_refuted(index):
    other = Index.build(index.vocabulary, graph=5, k=16)
    parts = vars(index).copy()
    index_with_other_lists = Index.__new__(Index)
    index_with_other_lists.__dict__.update(parts, neighbours=other.neighbours)
    index_with_other_lists.__dict__.pop("bands", None)
    certificate = certify(TEM(index_with_other_lists, 1.0), reuse=False)
    assert not certificate.holds


def test_attacks_on_draws_over_graphs_find_no_more_than_is_stated():
    def over_graph(epsilon):
        def make(index):
            # What has approximate lists stays as it is: they must be called unproved.
            made = Index.build(index.vocabulary, k=index.k, graph=3) if index.exact else index
            return TEM(made, epsilon)

        return make

    assert audit(over_graph, epsilon=1.0).passed


def test_a_saved_graph_opens_as_it_was(index, tmp_path):
    index.save(tmp_path / "graph.idx")
    loaded = Index.load(tmp_path / "graph.idx")
    assert loaded.metric == index.metric
    assert (loaded.coordinates == index.coordinates).all()
    law = TEM(loaded, 1.0)
    assert (law.log_prob(5) == TEM(index, 1.0).log_prob(5)).all()
    with pytest.raises(IndexFolderError, match="not 'euclidean'"):
        Index.load(tmp_path / "graph.idx", metric="euclidean")


@pytest.mark.parametrize(
    ("place", "value"), [((2, 0), 5.0), ((2, 9), -1.0), ((slice(None), 9), 77.0)]
)
def test_a_damaged_table_is_refused(index, tmp_path, place, value):
    folder = tmp_path / "graph.idx"
    index.save(folder)
    table = np.load(folder / "coordinates.npy")
    table[place] = value
    np.save(folder / "coordinates.npy", table)
    meta = json.loads((folder / META).read_text())
    meta["files"]["coordinates.npy"]["sha256"] = checksum(folder / "coordinates.npy")
    meta["checksum"] = meta_checksum(meta)
    (folder / META).write_text(json.dumps(meta))
    with pytest.raises(IndexFolderError):
        Index.load(folder)


def test_neighbours_may_be_found_after_a_projection():
    vectors = np.random.default_rng(6).normal(size=(40, 6))
    made = Index.build(Vocabulary([f"w{i}" for i in range(40)], vectors), projection=2, graph=3)
    assert isinstance(made.metric.base, Projection)
    assert get_metric(json.loads(json.dumps(made.metric.settings()))) == made.metric
    assert "shortest path over each word's 3 nearest" in TEM(made, 1.0).statement.paragraph()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Graph(0), "from 1 up"),
        (lambda: Graph(True), "from 1 up"),
        (lambda: Graph(2, edges="cosine"), "'hops'"),
        (lambda: Graph(2, base=Graph(2)), "neighbours are found under"),
        (lambda: get_metric({"name": "graph", "base": {"name": "graph"}}), "found under"),
        (lambda: Graph(2, base=CallableMetric(np.subtract, "mine")), "found under"),
        (lambda: Graph(2, base="cosine"), "not a metric"),
        (lambda: Graph(2).pairwise(np.eye(2), np.eye(2)), "belongs to all words"),
    ],
)
def test_what_makes_no_metric_of_a_graph_is_refused(make, says):
    with pytest.raises(MetricError, match=says):
        make()


def test_what_a_graph_does_not_support_is_refused_with_the_remedy(index):
    with pytest.raises(MechanismError, match="uclidean"):
        Madlib(index, 1.0)
    with pytest.raises(TextprivError, match="needs backend='exact'"):
        Index.build(index.vocabulary, graph=4, backend="hnsw")
    with pytest.raises(MetricError, match="tree"):
        edges_of(np.broadcast_to(np.float32(0), (MOST_WORDS + 1, 2)), Graph(1))
