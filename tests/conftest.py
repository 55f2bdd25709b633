"""What several test files share: small public vocabularies, random streams and examples with fixed keys, a statistical test.

Every statistical test here compares a p-value with ``LEVEL = 1e-9`` under a fixed key. Some 350 of them run, so that with
fresh keys a correct program would fail one of them in a whole run with probability below 4e-7.
"""

from __future__ import annotations

import fcntl
import gc
import hashlib
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from scipy import stats

ROOT = Path(__file__).resolve().parents[1]
gc.disable()  # until the tests are collected: next to nothing that is imported until then is garbage


def _compiled() -> Path:
    """Where compiled functions are kept: a folder for each state of the files that hold them.

    Numba would look at the date of a function's own file alone, and go on with callers of an older one.
    """
    state = hashlib.sha256()
    for package in ("textpriv", "pairwise"):
        for path in sorted((ROOT / package).rglob("*.py")):
            content = path.read_bytes()
            if b"numba" in content:
                state.update(str(path.relative_to(ROOT)).encode() + b"\0" + content)
    return ROOT / ".pytest_cache" / "compiled" / state.hexdigest()[:16]


# Before the first import of what is compiled; processes that tests start find it too.
os.environ.setdefault("NUMBA_CACHE_DIR", str(_compiled()))
os.environ.setdefault("TEXTPRIV_CACHE_DIR", str(_compiled() / "indexes"))

from textpriv.index import Index  # noqa: E402
from textpriv.randomness import KeyedStreams, Stream  # noqa: E402
from textpriv.vocabulary import Vocabulary  # noqa: E402

LEVEL = 1e-9


# Every run tries the same examples: whoever changes nothing sees nothing fail. ``--hypothesis-profile=default`` looks for
# others, with a new seed each time.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


# The thread that watches bars of progress would stay for good, and beside a thread no pool of workers is copied: each
# worker of every later test would begin from nothing.
with suppress(ImportError):
    import tqdm

    tqdm.tqdm.monitor_interval = 0


@contextmanager
def _locked(path: Path, kind: int) -> Iterator[None]:
    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, kind)
        yield
    finally:
        # Said, and not left to the closing: a copy of this process that a test left behind would hold the lock.
        fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


def pytest_configure(config: pytest.Config) -> None:
    """Prepare for several processes that run tests: one thread each for linear algebra."""
    if config.getoption("numprocesses", None):
        for library in ("OMP", "OPENBLAS", "MKL"):
            os.environ.setdefault(f"{library}_NUM_THREADS", "1")
        # xdist would hand out files by their number of tests, and end with one process at the slowest.
        config.option.loadscopereorder = False


# Files that take longest, in which order they begin.
_LONGEST = (
    "textpriv/guarantees/test_audit.py",
    "textpriv/test_processors.py",
    "textpriv/engines/test_spark.py",
    "textpriv/engines/test_ray.py",
    "recipes/test_recipes.py",
    "test_docs.py",
    "textpriv/corpus/test_crashes.py",
    "textpriv/test_pipeline.py",
    "recipes/test_retrieval.py",
    "test_static_types.py",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a run take the tests marked ``slow``, too."""
    parser.addoption("--slow", action="store_true", help="also run the tests that take long")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave slow tests out unless they are asked for, and begin with the files that take longest."""
    if not config.getoption("slow") and not any("::" in named for named in config.args):
        slow = [item for item in items if item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in set(slow)]
    turns = {Path(__file__).parent / name: turn for turn, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: turns.get(item.path, len(turns)))


def pytest_collection_finish() -> None:
    """Let the garbage collector pass by what is there before the first test: thousands of tests, numba."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Run a test marked ``alone`` beside no other, in however many processes the tests run: it measures time."""
    here = Path(__file__)
    kind = fcntl.LOCK_SH if item.get_closest_marker("alone") is None else fcntl.LOCK_EX
    with ExitStack() as held:
        # Whoever waits has the turn, and nobody else begins before it: one that is to run alone could wait for ever.
        with _locked(here.parent, fcntl.LOCK_EX):
            held.enter_context(_locked(here, kind))
        return (yield)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Folder of the real vectors and reviews; the test is skipped where it is absent."""
    given = os.environ.get("TEXTPRIV_DATA")
    folder = Path(given) if given else Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(
            "no real data: set TEXTPRIV_DATA to the folder that holds embeddings/ and imdb/"
        )
    return folder


@pytest.fixture(scope="session")
def level() -> float:
    """False-alarm rate of one statistical test."""
    return LEVEL


@pytest.fixture(scope="session")
def stream() -> Callable[..., Stream]:
    """``stream(*names)``: the random stream of a name, the same in every run."""
    keys = KeyedStreams(seed=20)
    return lambda *names: keys.stream("/".join(map(str, names)))


@pytest.fixture(scope="session")
def vocabulary_of() -> Callable[..., Vocabulary]:
    """``vocabulary_of(vectors, prior=None)``: words w0, w1, ... on the rows."""

    def make(vectors, prior=None, dtype=np.float64) -> Vocabulary:
        table = np.array(vectors, dtype=dtype)
        if table.ndim == 1:
            table = table[:, None]
        return Vocabulary([f"w{i}" for i in range(len(table))], table, prior)

    return make


@pytest.fixture(scope="session")
def index_of(vocabulary_of) -> Callable[..., Index]:
    """``index_of(vectors, ...)``: an index over words w0, w1, ... on the rows."""

    def make(vectors, dtype=np.float64, space="euclidean", **options) -> Index:
        return Index.build(vocabulary_of(vectors, dtype=dtype), space, **options)

    return make


@pytest.fixture(scope="session")
def three_points(index_of) -> Index:
    """The points 0, 1 and 3 on a line."""
    return index_of([0.0, 1.0, 3.0])


@pytest.fixture(scope="session")
def demo_vocabulary() -> Vocabulary:
    """The 2,000 commonest words that come with the package."""
    every = Vocabulary.builtin("en")
    return Vocabulary(every.words[:2000], every.vectors[:2000])


@pytest.fixture(scope="session")
def demo_index(demo_vocabulary, tmp_path_factory) -> Path:
    """The folder of a small index of these English words; no test writes into it."""
    folder = tmp_path_factory.mktemp("demo") / "demo.idx"
    Index.build(demo_vocabulary, "unit", k=64).save(folder)
    return folder


@pytest.fixture(scope="session")
def tied_points() -> Callable[[int], np.ndarray]:
    """``tied_points(size)``: an integer grid, full of ties, in shuffled order, a fiftieth of it exact duplicates."""

    def make(size: int) -> np.ndarray:
        rng = np.random.default_rng(size)
        distinct = size - max(2, size // 50)
        side = int(np.ceil(np.sqrt(distinct)))
        grid = np.array([(i // side, i % side) for i in range(distinct)], dtype=np.float64)
        again = grid[rng.choice(distinct, size - distinct, replace=False)]
        return rng.permutation(np.concatenate([grid, again]))

    return make


@pytest.fixture(scope="session")
def clustered_points() -> Callable[..., np.ndarray]:
    """``clustered_points(clusters, each, dimension, spread)``: normal clusters of deviation 0.3 about normal centres."""

    def make(clusters: int, each: int, dimension: int, spread: float) -> np.ndarray:
        rng = np.random.default_rng(7)
        centres = rng.normal(size=(clusters, dimension)) * spread
        return np.repeat(centres, each, axis=0) + 0.3 * rng.normal(
            size=(clusters * each, dimension)
        )

    return make


@pytest.fixture(scope="session")
def goodness() -> Callable[..., float]:
    """``goodness(counts, probabilities)``: p-value of Pearson's test; outcomes expected under 8 times are pooled."""

    def test(counts, probabilities) -> float:
        counts = np.asarray(counts, dtype=np.float64)
        expected = np.asarray(probabilities, dtype=np.float64) * counts.sum()
        order = np.argsort(expected, kind="stable")
        counts, expected = counts[order], expected[order]
        # From the rarest on, outcomes join a group until it is expected often enough for the limit law.
        starts, held = [0], 0.0
        for place, value in enumerate(expected):
            if held >= 8.0:
                starts.append(place)
                held = 0.0
            held += value
        if held < 8.0 and len(starts) > 1:
            starts.pop()
        observed, wanted = np.add.reduceat(counts, starts), np.add.reduceat(expected, starts)
        if len(wanted) < 2:
            return 1.0
        return float(stats.chi2.sf(((observed - wanted) ** 2 / wanted).sum(), len(wanted) - 1))

    return test
