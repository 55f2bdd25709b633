"""Trees: their distance against brute force, how they are found in vectors and files, and damaged folders."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import small_trees as trees
from damage import break_copy, in_array, in_listing
from scipy.cluster.hierarchy import cophenet, linkage
from scipy.spatial.distance import pdist, squareform

from textpriv import Index, Tree, Vocabulary
from textpriv.errors import IndexFolderError, TextprivError
from textpriv.index import hierarchies


def distances(tree: Tree) -> np.ndarray:
    """By the definition: the largest height between two leaves."""
    table = np.concatenate([[0.0], tree.heights])
    found = np.zeros((len(tree), len(tree)))
    for first in range(len(tree)):
        for second in range(first + 1, len(tree)):
            words = tree.order[[first, second]]
            found[words[0], words[1]] = table[tree.gaps[first:second]].max()
    return found + found.T


def points(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(size, 5))


def vocabulary(vectors: np.ndarray) -> Vocabulary:
    return Vocabulary([f"w{i}" for i in range(len(vectors))], vectors)


def group(tree: Tree, word: int, level: int) -> np.ndarray:
    return np.sort(tree.order[tree.levels_of(word) <= level])


@pytest.mark.parametrize("name", trees.HARD)
def test_distances_are_the_largest_heights_between_leaves(name):
    tree = trees.HARD[name]()
    wanted = distances(tree)
    assert np.array_equal(tree.distances_of(np.arange(len(tree))), wanted)
    assert tree.distance(0, "w1") == wanted[0, 1]
    assert tree.diameter_bound == wanted.max()
    for middle in range(0, len(tree), 7):
        assert (wanted <= np.maximum(wanted[:, middle, None], wanted[None, middle])).all()
    for level, height in enumerate(tree.heights.tolist(), start=1):
        assert group(tree, 1, level).tolist() == np.flatnonzero(wanted[1] <= height).tolist()


@pytest.mark.parametrize("name", trees.HARD)
def test_nodes_are_intervals_below_the_next_wider_groups(name):
    tree = trees.HARD[name]()
    nodes = tree.nodes
    assert nodes.parent[-1] == -1
    assert (nodes.start[-1], nodes.end[-1]) == (0, len(tree))
    for node, up in enumerate(nodes.parent[:-1].tolist()):
        assert up > node
        assert nodes.level[up] > nodes.level[node]
        assert nodes.start[up] <= nodes.start[node] < nodes.end[node] <= nodes.end[up]
        inside = tree.gaps[nodes.start[node] : nodes.end[node] - 1]
        assert inside.max(initial=0) == nodes.level[node]
        around = tree.gaps[max(nodes.start[node] - 1, 0) : nodes.end[node]]
        assert around.max() > nodes.level[node]


def test_typical_distances_are_those_of_the_tree():
    tree = trees.random_tree(300, 20, 5, together=0.1)
    atom = tree.nodes.atom[tree.places]
    own = np.unique(atom, return_index=True)[1]
    near = np.sort(distances(tree)[np.ix_(own, own)], axis=1)
    mass = np.bincount(atom, weights=tree.vocabulary.prior_weights("zipf"))
    for rank in (1, 10, 100):
        for share, value in zip((0.5, 0.9), tree.typical[rank], strict=True):
            assert mass[near[:, rank] <= value].sum() >= share - 1e-9
            assert mass[near[:, rank] < value].sum() < share + 1e-9


@pytest.mark.parametrize(
    ("order", "gaps", "heights"),
    [
        ([0, 1, 1], [1, 1], [1.0]),
        ([0, 1, 2], [1, 2], [1.0]),
        ([0, 1, 2], [1, 1], [1.0, 2.0]),
        ([0, 1, 2], [1, 2], [2.0, 1.0]),
        ([0, 1, 2], [1, 2], [0.0, 1.0]),
        ([0, 1, 2], [1, 2], [1.0, np.inf]),
        ([0, 1, 2], [1], [1.0]),
    ],
)
def test_what_is_no_tree_is_refused(order, gaps, heights):
    with pytest.raises(TextprivError, match=r"order|gaps|heights"):
        Tree(trees.words(3), order, gaps, heights)


# Found in vectors


def test_clustering_is_that_of_scipy_rounded_down():
    vectors = 2 * np.rint(150 * points(300))  # which are grid points as they are
    tree = Tree.build(vocabulary(vectors), space="euclidean")
    wanted = cophenet(linkage(pdist(vectors), "average"))
    found = squareform(tree.distances_of(np.arange(300)))
    assert len(tree.heights) <= 64
    assert (found <= wanted * (1 + 1e-12)).all()
    high = wanted > np.quantile(wanted, 0.05)
    assert (found[high] > wanted[high] / 1.2).all()


def test_large_vocabularies_are_split_and_stay_whole(monkeypatch):
    monkeypatch.setattr(hierarchies, "_WHOLE", 100)
    monkeypatch.setattr(hierarchies, "_GROUP", 50)
    vectors = np.repeat(40.0 * points(8, 1), 50, axis=0) + points(400, 2)
    tree = Tree.build(vocabulary(vectors), space="euclidean", groups={"kind": 8})
    groups = [group(tree, word, 1).tolist() for word in range(0, 400, 50)]
    assert groups == [[*range(start, start + 50)] for start in range(0, 400, 50)]
    same = Tree.build(vocabulary(np.ones((400, 2))), space="euclidean")
    assert same.diameter_bound == 0.0


def test_levels_have_at_most_the_groups_asked_for():
    tree = Tree.build(vocabulary(points(300)), groups={"kind": 20, "synonyms": 90})
    assert tree.names == ("synonyms", "kind", "any")
    assert tree.heights.tolist() == [1.0, 2.0, 3.0]
    for level, most in ((1, 90), (2, 20), (3, 1)):
        assert len({tuple(group(tree, word, level)) for word in range(300)}) == most


def test_only_equal_vectors_are_at_distance_0():
    vectors = points(50)
    vectors[30:40] = vectors[0]
    tree = Tree.build(vocabulary(vectors), space="euclidean")
    found = tree.distances_of(np.arange(50)) == 0
    assert np.array_equal(found, (vectors[:, None] == vectors[None]).all(axis=2))


def test_share_of_neighbours_outside_a_group_is_brute_force():
    vectors = points(80)
    tree = Tree.build(vocabulary(vectors), space="euclidean")
    apart = squareform(pdist(vectors))
    np.fill_diagonal(apart, np.inf)
    near = np.argsort(apart, axis=1)[:, :10]
    met = np.take_along_axis(tree.distances_of(np.arange(80)), near, axis=1)
    looked, shares = tree.separated
    assert looked == 80
    np.testing.assert_allclose(shares, [(met > height).mean() for height in tree.heights])


def test_equal_heights_become_one_level():
    tree = Tree.build(vocabulary(points(60)), groups={"kind": 6, "synonyms": 20})
    taller = tree.reheighted([1.0, 1.0, 7.0], tree.names)
    assert taller.heights.tolist() == [1.0, 7.0]
    assert taller.names == ("kind", "any")
    assert taller.fingerprint != tree.fingerprint
    assert np.array_equal(group(taller, 3, 1), group(tree, 3, 2))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"groups": {"kind": 0}}, "another whole number"),
        ({"groups": {"kind": 3, "sort": 3}}, "another whole number"),
    ],
)
def test_settings_without_meaning_are_refused(settings, said):
    with pytest.raises(TextprivError, match=said):
        Tree.build(vocabulary(points(12)), **settings)


# Written by somebody

ICD = """word\tchapter/block/category
j45\trespiratory/lower airways/asthma
j46\trespiratory/lower airways/asthma
j44\trespiratory/lower airways/obstruction
j00\trespiratory/infections
i10\tcirculatory/pressure/essential
i11\tcirculatory/pressure/heart
z99\t
"""


def test_file_of_words_and_groups_is_the_tree_it_says(tmp_path):
    (tmp_path / "icd.tsv").write_text(ICD, encoding="utf-8")
    tree = Tree.from_file(tmp_path / "icd.tsv")
    assert tree.vocabulary.words == ["j45", "j46", "j44", "j00", "i10", "i11", "z99"]
    assert tree.names == ("category", "block", "chapter", "any")
    apart = tree.distances_of(np.arange(7))
    wanted = {(0, 1): 1, (0, 2): 2, (0, 3): 3, (4, 5): 2, (0, 4): 4, (0, 6): 4, (3, 6): 4}
    for (first, second), height in wanted.items():
        assert apart[first, second] == apart[second, first] == height


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a\tx\nb y\n", "line 2"),
        ("a\tx\na\ty\n", "twice"),
        ("a\tx//y\n", "line 1"),
        ("", "no words"),
        ("word\tdepth\na\tx/y\n", "longest path has 2"),
        ("a\t" + "/".join(map(str, range(70))), "at most 63"),
    ],
)
def test_file_that_says_no_tree_is_refused(tmp_path, content, said):
    (tmp_path / "tree.tsv").write_text(content, encoding="utf-8")
    with pytest.raises(TextprivError, match=said):
        Tree.from_file(tmp_path / "tree.tsv")


# Folders


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trees") / "sound"
    words = Vocabulary([f"w{i}" for i in range(60)], points(60), np.arange(1.0, 61.0))
    Tree.build(words, groups={"kind": 6, "synonyms": 20}).save(folder)
    return folder


def test_saved_and_pickled_trees_come_back_as_they_were(sound):
    loaded = Index.load(sound)
    by_value = loaded.reheighted(loaded.heights, loaded.names)
    for again in (Tree.load(sound), *map(pickle.loads, map(pickle.dumps, (loaded, by_value)))):
        for name in ("fingerprint", "names", "source", "separated"):
            assert getattr(again, name) == getattr(loaded, name)
        assert np.array_equal(again.vocabulary.prior, np.arange(1.0, 61.0))


DAMAGES = {
    "a word twice": in_array("order.npy", lambda a: a.__setitem__(3, a[4])),
    "a word below 0": in_array("order.npy", lambda a: a.__setitem__(3, -1)),
    "a word beyond": in_array("order.npy", lambda a: a.__setitem__(3, 60)),
    "a word less": in_array("order.npy", lambda a: a[:-1]),
    "a gap beyond the heights": in_array("gaps.npy", lambda a: a.__setitem__(3, 9)),
    "gaps moved": in_array("gaps.npy", lambda a: np.concatenate([a[1:], a[:1] * 0])),
    "no largest gap": in_array("gaps.npy", lambda a: np.minimum(a, 2)),
    "heights that fall": in_listing(heights=[1.0, 3.0, 2.0]),
    "a height of 0": in_listing(heights=[0.0, 1.0, 2.0]),
    "no heights": in_listing(heights=None),
    "an infinite height": in_listing(heights=[1.0, 2.0, 10**400]),
    "other heights": in_listing(heights=[1.0, 2.0, 4.0]),
    "too few names": in_listing(names=["a"]),
    "a name twice": in_listing(names=["a", "a", "b"]),
    "too few shares": in_listing(separated=[60, [0.0]]),
    "a share that is no number": in_listing(separated=[60, ["x", 0.0, 0.0]]),
    "another kind": in_listing(kind="index"),
    "no files": in_listing(files={}),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_tree_with_right_checksums_is_refused(name, sound, tmp_path):
    break_copy(sound, tmp_path / "tree", DAMAGES[name])
    with pytest.raises(IndexFolderError, match="build the index again") as error:
        Index.load(tmp_path / "tree")
    assert "\n" not in str(error.value)
