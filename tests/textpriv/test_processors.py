"""One key, one text: the same index and the same released text on every processor.

An old processor is emulated in a process of its own: numba compiles for one without fused operations or wide vectors, and
the libraries of linear algebra and of elementary functions are told not to use them.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
OLD = {
    "NUMBA_CPU_NAME": "generic",
    "NUMBA_CPU_FEATURES": "",
    "OPENBLAS_CORETYPE": "Prescott",
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-AVX,-AVX512F",
}
SPACES = ("euclidean", "recommended", "unit", "manhattan")
SIZE, DIMENSION, DOCUMENTS = 400, 21, 60


def vectorized() -> list[str]:
    """Return what NumPy chooses at run time and this processor has."""
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

    return [name for name in __cpu_dispatch__ if __cpu_features__.get(name)]


def run_on(settings: dict[str, str]) -> dict[str, dict[str, str]]:
    """Return checksums of what a process with these settings builds and draws."""
    done = subprocess.run(
        [sys.executable, __file__],
        env={**os.environ, **settings, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(
    platform.machine().lower() not in ("x86_64", "amd64") or not vectorized(),
    reason="emulates an older x86-64 processor on one that has what it lacks",
)
def test_an_old_and_a_new_processor_release_the_same_text():
    new = everything()
    old = run_on({**OLD, "NPY_DISABLE_CPU_FEATURES": " ".join(vectorized())})
    assert old["index"] == new["index"]
    assert old["text"] == new["text"]
    assert old["language model"] == new["language model"]
    assert (len(new["index"]), len(new["text"])) == (4, 4)
    # Else equal bytes would show nothing.
    assert all(old["rounding"][name] != new["rounding"][name] for name in new["rounding"])


# What each process does


def vocabulary():
    from textpriv import Vocabulary

    rng = np.random.default_rng(17)
    centres = 2 * rng.normal(size=(40, DIMENSION))
    vectors = centres[rng.integers(40, size=SIZE)] + rng.normal(size=(SIZE, DIMENSION))
    # Equal words, near ones, and one far from all.
    vectors[5], vectors[6] = vectors[300], vectors[301] * (1 + 1e-6)
    vectors[SIZE - 1] *= 9
    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    words = [syllables[i % 60] + syllables[i // 60 * 7 % 60] + "n" for i in range(SIZE)]
    return Vocabulary(words, vectors.astype(np.float32))


def reviews(words: list[str]) -> list[str]:
    """Return texts of 20 to 60 words, frequent ones more often, with punctuation, numbers and unknown words."""
    rng = np.random.default_rng(18)
    weights = 1 / (np.arange(len(words)) + 2.7)
    texts = []
    for _ in range(DOCUMENTS):
        chosen = rng.choice(len(words), size=rng.integers(20, 60), p=weights / weights.sum())
        tokens = [words[i] for i in chosen]
        tokens[3], tokens[9], tokens[15] = "Zyzzyva", "1987", "!"
        texts.append(" ".join(tokens).capitalize() + ".")
    return texts


def mechanisms(index):
    from textpriv import TEM, ContextualTEM, Madlib, Tree, TreeTEM
    from textpriv.language import NGrams

    reach, words = index.reference_distance, index.vocabulary
    yield "TEM", TEM(index, 12 / reach)
    yield "Madlib", Madlib(index, 40 / reach, search="exact")
    yield (
        "ContextualTEM",
        ContextualTEM(index, 12 / reach, NGrams.count(reviews(words.words), words)),
    )
    yield "TreeTEM", TreeTEM(Tree.build(words, groups={"kind": 20}), 2.0)


def checksum(*parts: object) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(part.tobytes() if isinstance(part, np.ndarray) else str(part).encode())
    return found.hexdigest()


def everything() -> dict[str, dict[str, str]]:
    from textpriv import Index, Privatizer, Vocabulary
    from textpriv.language.general_english import general_english

    words = vocabulary()
    built = [Index.build(words, space, k=60) for space in SPACES]
    names = [f"document {number}" for number in range(DOCUMENTS)]
    texts = reviews(words.words)
    released = {}
    for name, mechanism in mechanisms(built[0]):
        privatizer = Privatizer(mechanism, run_key=bytes(range(32)))
        released[name] = checksum(*privatizer.pipe(texts, keys=names))
    model = general_english(Vocabulary.builtin("en").words)
    rows = np.random.default_rng(0).normal(size=(64, 300))
    return {
        "index": {
            index.space: checksum(
                index.points, index.neighbour_ids, index.neighbour_steps, index.fingerprint
            )
            for index in built
        },
        "text": released,
        "language model": checksum(*model.arrays, *model.words_only(other=False).arrays),
        "rounding": {
            "products": checksum(rows @ rows.T),
            "exponentials": checksum(np.exp(rows)),
        },
    }


if __name__ == "__main__":
    print(json.dumps(everything()))
