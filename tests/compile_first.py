"""Use compiled functions on words of one precision, so that they are compiled and kept.

    python tests/compile_first.py float32

The test configuration runs this before several processes run tests, once for each state of the compiled files. Otherwise
each of these processes, and commands that they start, would compile the same functions at the same time.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

SIZE, DIMENSION = 400, 8


def vocabulary(precision: str):
    from textpriv import Vocabulary

    rng = np.random.default_rng(17)
    vectors = rng.normal(size=(SIZE, DIMENSION)).astype(precision)
    vectors[5] = vectors[300]
    letters = "abcdefghijklmnopqrst"
    words = [f"{letters[i // 20]}{letters[i % 20]}on" for i in range(SIZE)]
    return Vocabulary(words, vectors)


def mechanisms(index):
    from textpriv import TEM, Madlib, Tree, TreeTEM

    yield TEM(index, 2.0)
    yield Madlib(index, 6.0, search="exact")
    yield TreeTEM(Tree.build(index.vocabulary, metric="euclidean"), 2.0)
    yield TreeTEM(Tree.build(index.vocabulary, "single", metric="euclidean"), 2.0, prior="zipf")
    yield Madlib(index, 6.0, search="exact", projection=4)


def release(precision: str) -> None:
    """Build, save, open, certify, draw."""
    import textpriv
    from textpriv import Index, Privatizer

    words = vocabulary(precision)
    texts = [f"{' '.join(words.words[i : i + 30])}, {i} Zyzzyva!" for i in range(0, 300, 10)]
    with tempfile.TemporaryDirectory() as folder:
        index = Index.build(words, k=20, hnsw=False)
        index.save(Path(folder) / "words.idx")
        index = Index.load(Path(folder) / "words.idx")
        Index.build(words, "manhattan", k=20, hnsw=False)
        # The processes of both precisions go opposite ways: what is the same for both is compiled by the first to need it.
        order = -1 if precision == "float32" else 1
        for mechanism in list(mechanisms(index))[::order]:
            list(Privatizer(mechanism).pipe(texts))
        textpriv.certify(textpriv.TEM(index, 2.0))
        textpriv.epsilon_for(index, keep=0.5)


if __name__ == "__main__":
    release(sys.argv[1])
