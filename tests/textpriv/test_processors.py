"""One key, one text: the same bytes and fingerprints on every processor, from building the index to the released text.

Processors are emulated in processes of their own: code is compiled for a processor without fused operations or wide vectors,
and the libraries of linear algebra and of elementary functions are told not to use them. Compiled code is kept beside the
sources for each processor, so that only the first run on a machine takes the time to compile it.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]

# What the compiler, the linear algebra and the C library are told. To compile takes longest: once is for a processor
# without what the widest operations need, and the third takes what is compiled for this one.
PROCESSORS = {
    "generic": {
        "NUMBA_CPU_NAME": "generic",
        "NUMBA_CPU_FEATURES": "",
        "OPENBLAS_CORETYPE": "Prescott",
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-AVX,-AVX512F",
    },
    "nehalem": {
        "NUMBA_CPU_NAME": "generic",
        "NUMBA_CPU_FEATURES": "",
        "OPENBLAS_CORETYPE": "Nehalem",
    },
    "haswell": {"OPENBLAS_CORETYPE": "Haswell"},
}
ABREAST = [["generic", "nehalem"], ["this one", "haswell"]]


def vectorized() -> list[str]:
    """What NumPy chooses at run time and this processor has."""
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

    return [name for name in __cpu_dispatch__ if __cpu_features__.get(name)]


def run_on(name: str) -> dict[str, dict[str, str]]:
    """What a process on that processor builds, settles and draws, by checksums."""
    environment = {
        **os.environ,
        **PROCESSORS.get(name, {}),
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "tests" / "without_torch"), str(ROOT)]),
    }
    if name == "generic":
        environment["NPY_DISABLE_CPU_FEATURES"] = " ".join(vectorized())
    done = subprocess.run(
        [sys.executable, __file__], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, dict[str, str]]]:
    def one_by_one(names):
        return {name: run_on(name) for name in names}

    with ThreadPoolExecutor(len(ABREAST)) as pool:
        return {name: run for runs in pool.map(one_by_one, ABREAST) for name, run in runs.items()}


emulated = pytest.mark.skipif(
    platform.machine().lower() not in ("x86_64", "amd64") or not vectorized(),
    reason="emulates older x86-64 processors on one that has what they lack",
)


@emulated
@pytest.mark.parametrize("name", sorted(PROCESSORS))
def test_all_laws_build_settle_and_draw_the_same_on_every_processor(found, name):
    here, there = found["this one"], found[name]
    assert set(here["laws"]) == set(there["laws"])
    assert len(here["laws"]) > 12
    assert there["index"] == here["index"]
    assert there["laws"] == here["laws"]


@emulated
def test_the_emulated_processors_do_round_otherwise(found):
    # Else equal bytes would show nothing.
    assert len({found[name]["rounding"]["products"] for name in found}) > 1
    assert len({found[name]["rounding"]["exponentials"] for name in found}) > 1
    assert len({found[name]["rounding"]["eigenvectors"] for name in found}) > 1


# ----------------------------------------------------------------------------------------------
# What each process does
# ----------------------------------------------------------------------------------------------

SIZE, DIMENSION, DOCUMENTS = 400, 21, 300


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
    """Texts of 20 to 60 words, frequent ones more often, with punctuation, numbers and unknown words."""
    rng = np.random.default_rng(18)
    law = 1 / (np.arange(len(words)) + 2.7)
    texts = []
    for _ in range(DOCUMENTS):
        chosen = rng.choice(len(words), size=rng.integers(20, 60), p=law / law.sum())
        tokens = [words[i] for i in chosen]
        tokens[3], tokens[9], tokens[15] = "Zyzzyva", "1987", "!"
        texts.append(" ".join(tokens).capitalize() + ".")
    return texts


def matrices():
    """Of all dimensions, and of fewer: products of whole numbers, so that no sum of them is rounded."""
    factor = np.random.default_rng(19).integers(-3, 4, size=(DIMENSION, DIMENSION))
    return factor @ factor.T / 64, factor[:, :13] @ factor[:, :13].T / 64


def laws(index, angular, manhattan, mahalanobis):
    from textpriv import TEM, Madlib

    for prior in ("zipf", "uniform"):
        yield f"TEM {prior}", TEM(index, 2.0, prior)
    yield "Madlib", Madlib(index, 6.0, search="exact")
    yield "Madlib of eight directions", Madlib(index, 6.0, search="exact", projection=8)
    yield "TEM angular", TEM(angular, 9.0)
    yield "TEM manhattan", TEM(manhattan, 0.6)
    yield "TEM mahalanobis", TEM(mahalanobis, 2.0)
    yield "Madlib mahalanobis", Madlib(mahalanobis, 6.0, search="exact")


def checksum(*parts: object) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(
            np.ascontiguousarray(part).tobytes()
            if isinstance(part, np.ndarray)
            else str(part).encode()
        )
    return found.hexdigest()


def everything() -> dict[str, dict[str, str]]:
    from textpriv.metrics import Mahalanobis

    from textpriv import Index, Privatizer
    from textpriv.ledger import settings_fingerprint

    words = vocabulary()
    metrics = ["euclidean", "angular", "manhattan", *map(Mahalanobis, matrices())]
    built = [Index.build(words, metric, k=60, hnsw=False) for metric in metrics]
    names = [f"document {number}" for number in range(DOCUMENTS)]
    found, batch = {}, None
    for name, mechanism in laws(*built):
        privatizer = Privatizer(mechanism, run_key=bytes(range(32)))
        if batch is None:  # all have the same words and policy, so they read the same tokens
            batch = privatizer.read_batch(reviews(words.words))
        released = privatizer.release_batch(batch, names)
        fingerprint = settings_fingerprint(mechanism, privatizer.policy)
        found[name] = checksum("\0".join(map(str, released))) + " " + fingerprint.hex()
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(64, 300))
    return {
        "index": {
            f"{number} {index.metric.name}": checksum(
                index.coordinates,
                index.neighbours.ids,
                index.neighbours.distances,
                index.representatives,
                index.bands.digest(),
                index.tau,
            )
            for number, index in enumerate(built)
        },
        "laws": found,
        "rounding": {
            "products": checksum(rows @ rows.T),
            "eigenvectors": checksum(*np.linalg.eigh(matrices()[0])),
            "exponentials": checksum(np.exp(rows)),
        },
    }


if __name__ == "__main__":
    print(json.dumps(everything()))
