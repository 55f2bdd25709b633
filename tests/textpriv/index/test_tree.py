"""Trees: their distance against brute force, how they are found in vectors and files, and folders that are damaged."""

from __future__ import annotations

import json
import pickle
import sys

import numpy as np
import pytest
import small_trees as trees
from scipy.cluster.hierarchy import cophenet, linkage
from scipy.spatial.distance import pdist, squareform

from textpriv.errors import IndexFolderError, TextprivError
from textpriv.files import sha256_file
from textpriv.index import Index, Tree
from textpriv.index import folder as storage
from textpriv.index.clustering import METHODS
from textpriv.vocabulary import Vocabulary


def distances(tree: Tree) -> np.ndarray:
    """By the definition: the largest height between two leaves."""
    table = np.concatenate([[0.0], tree.heights])
    size = len(tree)
    found = np.zeros((size, size))
    for first in range(size):
        for second in range(first + 1, size):
            apart = table[tree.gaps[first:second]].max()
            words = tree.order[[first, second]]
            found[words[0], words[1]] = found[words[1], words[0]] = apart
    return found


def points(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(size, 5)).astype(np.float32)


def vocabulary(vectors: np.ndarray) -> Vocabulary:
    return Vocabulary([f"w{i}" for i in range(len(vectors))], vectors)


# The distance


@pytest.mark.parametrize("name", trees.HARD)
def test_distances_are_the_largest_heights_between_leaves_and_an_ultrametric(name):
    tree = trees.HARD[name]()
    everything = np.arange(len(tree))
    wanted = distances(tree) if len(tree) <= 90 else tree.distances_of(everything)
    assert np.array_equal(tree.distances_of(everything), wanted)
    vectors = tree.vocabulary.vectors
    assert np.array_equal(tree.metric.pairwise(vectors, vectors), wanted)
    assert np.array_equal(tree.distances_between(0, everything), wanted[0])
    assert tree.diameter_bound == wanted.max()
    for middle in range(0, len(tree), 7):
        assert (wanted <= np.maximum(wanted[:, middle, None], wanted[None, middle])).all()
    # Words at distance 0 have one law, and no others have.
    assert np.array_equal(
        tree.representatives[:, None] == tree.representatives[None], wanted == 0.0
    )


@pytest.mark.parametrize("name", trees.HARD)
def test_nodes_are_intervals_whose_parents_are_the_next_wider_groups(name):
    tree = trees.HARD[name]()
    nodes = tree.nodes
    assert nodes.parent[-1] == -1
    assert (nodes.start[-1], nodes.end[-1]) == (0, len(tree))
    for node, up in enumerate(nodes.parent[:-1].tolist()):
        assert up > node
        assert nodes.level[up] > nodes.level[node]
        assert nodes.start[up] <= nodes.start[node]
        assert nodes.end[node] <= nodes.end[up]
    for node in range(len(nodes.level)):
        inside = tree.gaps[nodes.start[node] : nodes.end[node] - 1]
        assert inside.max(initial=0) == nodes.level[node]
        around = tree.gaps[max(nodes.start[node] - 1, 0) : nodes.end[node]]
        if nodes.parent[node] >= 0:
            assert around.max() > nodes.level[node]


def test_a_group_holds_the_words_within_a_height():
    tree = trees.tree([1, 3, 2, 1])
    wanted = distances(tree)
    for word in range(5):
        for level, height in enumerate(tree.heights, start=1):
            assert (
                tree.group(word, level).tolist() == np.flatnonzero(wanted[word] <= height).tolist()
            )


def test_typical_distances_are_those_of_the_tree():
    tree = trees.random_tree(300, 20, 5, together=0.1)
    wanted = distances(tree)
    own = np.flatnonzero(tree.representatives == np.arange(len(tree)))
    near = np.sort(wanted[np.ix_(own, own)], axis=1)
    mass = np.bincount(
        np.searchsorted(own, tree.representatives), weights=tree.vocabulary.prior_weights("zipf")
    )
    for rank in (1, 10, 100):
        for share, value in zip((0.5, 0.9), tree.typical[rank], strict=True):
            assert mass[near[:, rank] <= value].sum() >= share - 1e-9
            assert mass[near[:, rank] < value].sum() < share + 1e-9


@pytest.mark.parametrize(
    ("order", "gaps", "heights"),
    [
        ([0, 1, 1], [1, 1], [1.0]),
        ([0, 1, 3], [1, 1], [1.0]),
        ([0, 1, 2], [1, 2], [1.0]),
        ([0, 1, 2], [1, 1], [1.0, 2.0]),
        ([0, 1, 2], [1, 2], [2.0, 1.0]),
        ([0, 1, 2], [1, 2], [0.0, 1.0]),
        ([0, 1, 2], [1], [1.0]),
    ],
)
def test_what_is_no_tree_is_refused(order, gaps, heights):
    with pytest.raises(TextprivError, match=r"order|gaps|heights"):
        Tree(trees.words(3), order, gaps, heights)


# Found in vectors


@pytest.mark.parametrize("method", METHODS)
def test_clusterings_are_those_of_scipy_but_for_single_precision_and_64_heights(method):
    vectors = points(60)
    tree = Tree.build(vocabulary(vectors), method, metric="euclidean")
    wanted = cophenet(
        linkage(pdist(vectors.astype(float)), "ward" if method == "kmeans" else method)
    )
    found = squareform(tree.distances_of(np.arange(60)))
    np.testing.assert_allclose(found, wanted, rtol=2e-3)
    assert (found <= wanted * (1 + 1e-6)).all()


def test_bisecting_cuts_large_groups_and_gives_a_tree_over_all_words(monkeypatch):
    monkeypatch.setattr("textpriv.index.clustering._LEAF", 16)
    centres = 40.0 * points(8, 1)
    vectors = np.repeat(centres, 50, axis=0) + points(400, 2)
    tree = Tree.build(
        vocabulary(vectors), "kmeans", metric="euclidean", heights="levels", groups={"kind": 8}
    )
    groups = [tree.group(word, 1).tolist() for word in range(0, 400, 50)]
    assert groups == [[*range(start, start + 50)] for start in range(0, 400, 50)]


def test_of_more_than_64_heights_each_is_rounded_down_by_less_than_a_step():
    vectors = points(500)
    tree = Tree.build(vocabulary(vectors), "ward", metric="euclidean")
    wanted = cophenet(linkage(pdist(vectors.astype(float)), "ward"))
    found = squareform(tree.distances_of(np.arange(500)))
    assert len(tree.heights) <= 64
    assert (found <= wanted * (1 + 1e-5)).all()
    low = np.quantile(np.unique(wanted), 0.05)
    assert (found[wanted > low] > wanted[wanted > low] / 1.2).all()


def test_heights_by_rank_are_logarithms_of_the_mean_group():
    vectors = points(40)
    tree = Tree.build(vocabulary(vectors), "ward", metric="euclidean", heights="rank")
    steps = np.sort(np.unique(cophenet(linkage(pdist(vectors.astype(float)), "ward"))))
    wanted = np.log(40 / (40 - np.arange(1, 40))) / np.log(40)
    assert len(steps) == 39
    np.testing.assert_allclose(tree.heights, wanted, atol=1e-12)


def test_levels_hold_at_most_the_groups_asked_for_and_end_with_all_words():
    tree = Tree.build(
        vocabulary(points(300)), heights="levels", groups={"kind": 20, "synonyms": 90}
    )
    assert tree.names == ("synonyms", "kind", "any")
    assert tree.heights.tolist() == [1.0, 2.0, 3.0]
    for level, most in ((1, 90), (2, 20), (3, 1)):
        groups = {tuple(tree.group(word, level)) for word in range(300)}
        assert len(groups) == most
    again = Tree.build(vocabulary(points(300))).cut({"kind": 20, "synonyms": 90})
    assert len({tuple(again.group(word, 2)) for word in range(300)}) <= 20


def test_words_of_one_vector_are_at_distance_0_and_others_never():
    vectors = points(50)
    vectors[30:40] = vectors[0]
    tree = Tree.build(vocabulary(vectors), metric="euclidean")
    assert tree.representatives[30:40].tolist() == [0] * 10
    assert len(np.unique(tree.representatives)) == 40
    alone = Tree.build(vocabulary(np.ones((4, 2), dtype=np.float32)))
    assert alone.diameter_bound == 0.0
    assert len(alone.heights) == 0


def test_the_share_of_neighbours_outside_a_group_is_that_of_brute_force():
    vectors = points(80)
    tree = Tree.build(vocabulary(vectors), metric="euclidean")
    apart = squareform(pdist(vectors.astype(float)))
    np.fill_diagonal(apart, np.inf)
    near = np.argsort(apart, axis=1)[:, :10]
    met = np.take_along_axis(tree.distances_of(np.arange(80)), near, axis=1)
    looked, shares = tree.separated
    assert looked == 80
    np.testing.assert_allclose(shares, [(met > height).mean() for height in tree.heights])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"method": "best"}, "unknown method"),
        ({"heights": "inches"}, "unknown heights"),
        ({"heights": "levels"}, "groups"),
        ({"groups": {"kind": 2}}, "groups"),
        ({"heights": "levels", "groups": {"kind": 0}}, "whole number"),
        ({"heights": "levels", "groups": {"kind": 3, "sort": 3}}, "different numbers"),
        ({"metric": "manhattan"}, "Euclidean space"),
        ({"method": "single", "dimensions": 2}, "single linkage"),
    ],
)
def test_settings_without_meaning_are_refused(settings, said):
    with pytest.raises(TextprivError, match=said):
        Tree.build(vocabulary(points(12)), **settings)


def test_methods_that_compare_all_pairs_are_refused_for_large_vocabularies(monkeypatch):
    monkeypatch.setattr("textpriv.index.clustering._PAIRS", 10)
    with pytest.raises(TextprivError, match="method='kmeans'"):
        Tree.build(vocabulary(points(12)), "average")
    assert "kmeans" in Tree.build(vocabulary(points(12))).source


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


def test_a_file_of_words_and_groups_is_the_tree_that_it_says(tmp_path):
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
def test_a_file_that_says_no_tree_is_refused_in_a_sentence(tmp_path, content, said):
    (tmp_path / "tree.tsv").write_text(content, encoding="utf-8")
    with pytest.raises(TextprivError, match=said):
        Tree.from_file(tmp_path / "tree.tsv")


def test_without_wordnet_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "nltk", None)
    with pytest.raises(TextprivError, match="pip install nltk"):
        Tree.from_wordnet(trees.words(3))


def test_wordnet_words_lie_under_the_hypernyms_of_their_first_sense(monkeypatch):
    class Sense:
        def __init__(self, *path):
            self.path = path

        def name(self):
            return self.path[-1]

        def hypernym_paths(self):
            return [[Sense(*self.path[: at + 1]) for at in range(len(self.path))], [self]]

    class Wordnet:
        def ensure_loaded(self):
            pass

        def synsets(self, word, pos=None):
            if word == "run":
                return [] if pos else [Sense("move", "run.1")]
            return [Sense("entity", "animal", f"{word}.1")] if word in ("dog", "cat") else []

    module = type(sys)("nltk.corpus")
    module.wordnet = Wordnet()
    monkeypatch.setitem(sys.modules, "nltk", type(sys)("nltk"))
    monkeypatch.setitem(sys.modules, "nltk.corpus", module)
    tree = Tree.from_wordnet(Vocabulary(["dog", "qqq", "cat", "run"], np.zeros((4, 1))))
    apart = tree.distances_of(np.arange(4))
    assert apart[0, 2] < apart[0, 3] == apart[0, 1] == apart[1, 3]


# Folders


def saved(folder) -> Tree:
    tree = Tree.build(
        Vocabulary([f"w{i}" for i in range(60)], points(60), np.arange(1.0, 61.0)),
        heights="levels",
        groups={"kind": 6, "synonyms": 20},
    )
    tree.save(folder)
    return tree


def test_a_tree_comes_out_of_a_pickle_as_it_was(tmp_path):
    tree = saved(tmp_path / "tree")
    taller = tree.reheighted([1.0, 1.0, 7.0], tree.names)
    for each in (tree, Index.load(tmp_path / "tree"), taller):
        again = pickle.loads(pickle.dumps(each))
        assert again.fingerprint == each.fingerprint
        assert again.names == each.names
    assert len(taller.heights) == 2
    assert taller.fingerprint != tree.fingerprint


def _array(name, change):
    def damage(folder, meta):
        array = np.load(folder / name)
        changed = change(array)
        np.save(folder / name, array if changed is None else changed)

    return damage


def _meta(**values):
    return lambda folder, meta: meta.update(values)


DAMAGES = {
    "order: a word twice": _array("order.npy", lambda a: a.__setitem__(3, a[4])),
    "order: below 0": _array("order.npy", lambda a: a.__setitem__(3, -1)),
    "order: beyond": _array("order.npy", lambda a: a.__setitem__(3, 60)),
    "order: short": _array("order.npy", lambda a: a[:-1]),
    "order: of another type": _array("order.npy", lambda a: a.astype(np.int64)),
    "order: no array": lambda folder, meta: (folder / "order.npy").write_bytes(b"x" * 40),
    "order: missing": lambda folder, meta: (folder / "order.npy").unlink(),
    "gaps: beyond the heights": _array("gaps.npy", lambda a: a.__setitem__(3, 9)),
    "gaps: an end": _array("gaps.npy", lambda a: a.__setitem__(-1, 1)),
    "gaps: moved": _array("gaps.npy", lambda a: np.concatenate([a[1:], a[:1] * 0])),
    "gaps: no largest": _array("gaps.npy", lambda a: np.minimum(a, 2)),
    "gaps: long": _array("gaps.npy", lambda a: np.append(a, a[:1])),
    "prior: zero": _array("prior.npy", lambda a: a.__setitem__(3, 0.0)),
    "prior: not finite": _array("prior.npy", lambda a: a.__setitem__(3, np.nan)),
    "words: fewer": lambda folder, meta: (folder / "words.json").write_text('["a"]'),
    "words: others": lambda folder, meta: (folder / "words.json").write_text(
        json.dumps([f"v{i}" for i in range(60)])
    ),
    "words: twice": lambda folder, meta: (folder / "words.json").write_text(
        json.dumps(["w0", *(f"w{i}" for i in range(59))])
    ),
    "words: no JSON": lambda folder, meta: (folder / "words.json").write_text("["),
    "listing: no words": _meta(words=0),
    "listing: heights that fall": _meta(heights=[1.0, 3.0, 2.0]),
    "listing: a height of 0": _meta(heights=[0.0, 1.0, 2.0]),
    "listing: no heights": _meta(heights=None),
    "listing: too many heights": _meta(heights=list(range(1, 66))),
    "listing: infinite height": _meta(heights=[1.0, 2.0, 10**400]),
    "listing: other heights": _meta(heights=[1.0, 2.0, 4.0]),
    "listing: too few names": _meta(names=["a"]),
    "listing: a name twice": _meta(names=["a", "a", "b"]),
    "listing: names that are none": _meta(names=[1, 2, 3]),
    "listing: shares": _meta(separated={"looked_at": 3, "shares": [2.0, 0.0, 0.0]}),
    "listing: no shares": _meta(separated=None),
    "listing: source": _meta(source=3),
    "listing: fingerprint": _meta(fingerprint="0" * 64),
    "listing: no fingerprint": _meta(fingerprint=3),
    "listing: no format": _meta(format="2"),
    "listing: another kind": _meta(kind="bush"),
    "listing: files": _meta(files={}),
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trees") / "sound"
    saved(folder)
    return folder


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_tree_with_right_checksums_is_refused_in_a_sentence(name, sound, tmp_path):
    import shutil

    folder = tmp_path / "tree"
    shutil.copytree(sound, folder)
    meta = json.loads((folder / "index.json").read_text())
    DAMAGES[name](folder, meta)
    for file, entry in meta["files"].items():
        if (folder / file).is_file():
            entry["bytes"] = (folder / file).stat().st_size
            entry["sha256"] = sha256_file(folder / file)
    meta["checksum"] = storage.meta_checksum(meta)
    (folder / "index.json").write_text(json.dumps(meta))
    with pytest.raises(IndexFolderError) as error:
        Index.load(folder)
    assert "build the index again" in str(error.value).lower()
    assert "\n" not in str(error.value)


def test_a_byte_that_was_altered_is_seen(sound, tmp_path):
    import shutil

    for name in ("gaps.npy", "order.npy", "prior.npy", "words.json", "index.json"):
        folder = tmp_path / name
        shutil.copytree(sound, folder)
        content = bytearray((folder / name).read_bytes())
        content[-9] ^= 1
        (folder / name).write_bytes(content)
        with pytest.raises(IndexFolderError):
            Index.load(folder)
