"""Index folders from elsewhere: damaged in any of many ways, with right checksums, they are refused in one sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import damage
import numpy as np
import pytest

from textpriv.index import checking, storage


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory) -> dict[str, str]:
    """What became of each damaged copy; a process of its own opens each, so that one that dies is seen."""
    done = subprocess.run(
        [sys.executable, damage.__file__, str(tmp_path_factory.mktemp("damage"))],
        # The folder of tests beside the script is called textpriv too; a package on the path comes before it.
        env={**os.environ, "PYTHONPATH": str(Path(damage.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(line) for line in done.stdout.splitlines())


def test_there_are_at_least_76_damages():
    assert len(damage.DAMAGES) >= 76


@pytest.mark.parametrize("name", damage.DAMAGES)
def test_a_damaged_index_folder_is_refused_in_a_sentence_or_equal(outcomes, name):
    told = outcomes[name]
    if name in damage.HARMLESS:
        assert told == "equal"
        return
    assert told.startswith("refused: ")
    assert "\n" not in told
    assert len(told) < 400
    # The sentence says what to do.
    assert "build the index again" in told.lower() or "Make one with" in told


def _tables(size: int, k: int) -> storage.Tables:
    ids = (np.arange(size)[:, None] + np.arange(k)).astype(np.int32) % size
    distances = np.tile(np.arange(k, dtype=np.float32), (size, 1))
    vectors = np.zeros((size, 3), dtype=np.float32)
    own = np.arange(size, dtype=np.int32)
    words = [f"w{i}" for i in range(size)]
    return storage.Tables(
        words, vectors, None, ids, distances, vectors, own, storage.QuantizedRows.none(), None
    )


@pytest.mark.parametrize("row", [0, 1, 254, 255, 256, 509, 510, 799, 800])
@pytest.mark.parametrize("place", [1, 2, 7])
def test_one_bad_value_in_any_row_and_column_is_seen(row, place):
    """Rows beside the borders of what one thread checks, and of the marks by which repeated words are seen."""
    for name, value in [
        ("ids", -1),
        ("ids", 801),
        ("ids", row),
        ("distances", np.nan),
        ("distances", np.inf),
        ("distances", -1.0),
        ("distances", place - 1.5),
    ]:
        tables = _tables(801, 8)
        checking.check_values(Path("x"), tables, 0)
        getattr(tables, name)[row, place] = value
        with pytest.raises(storage.IndexFolderError, match=f"the list of word {row} "):
            checking.check_values(Path("x"), tables, 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_seen_in_any_row_and_the_largest_ones_are_not_mistaken(
    dtype, value
):
    most = np.finfo(dtype).max
    for row in (0, checking._ROWS - 1, checking._ROWS, 5000):
        vectors = np.full((5001, 2), most, dtype=dtype)
        vectors[::2] = -most
        with checking.ThreadPoolExecutor(2) as pool:
            assert checking._is_finite(vectors, pool)
            vectors[row, 1] = value
            assert not checking._is_finite(vectors, pool)
