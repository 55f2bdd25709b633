"""Trees against nearest lists: accuracy on reviews where the best attacker recovers as many words from either.

An epsilon over a tree and one over vectors are in different units, so laws are compared where the Bayes-optimal attacker,
who knows the law and how often public text has each word, recovers the same share of words: of content words (the
commonest 250 left out), and of all. A bag-of-words logistic regression then learns from private reviews and is tested on
clean ones. Run

    python recipes/trees.py --data-dir DATA --out trees

where DATA holds ``imdb/train.jsonl.gz``, ``imdb/test.jsonl.gz``, ``yelp/reviews.jsonl.gz`` and, under ``embeddings``, the
vectors ``imdb-unsup-sg-40k.300d.bin.gz`` and their counts. It writes OUT.json as it goes, and OUT.md.
"""

from __future__ import annotations

import gzip
import json
import math
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

import textpriv
from textpriv.evaluation.law import Law
from textpriv.mechanisms.base import Mechanism
from textpriv.randomness import KeyedStreams

app = typer.Typer(add_completion=False)

VECTORS = "embeddings/imdb-unsup-sg-40k.300d.bin.gz"
COUNTS = "embeddings/imdb-unsup-sg-40k.counts.txt.gz"
COMMON = 250  # words that are no content words
_BLOCK = 1500  # rows of a law at a time


class Laws:
    """The laws that are compared, each a function of epsilon, over one vocabulary."""

    def __init__(self, vocabulary: textpriv.Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.root = np.sqrt(vocabulary.prior_weights("counts"))

    @cache  # noqa: B019 - one object lives as long as the run
    def index(self) -> textpriv.Index:
        """The index of published TEM: Euclidean, all dimensions."""
        return textpriv.Index.build(self.vocabulary, hnsw=False)

    @cache  # noqa: B019
    def tree(self, method: str, heights: str = "distance", power: float = 1.0) -> textpriv.Tree:
        """A tree by clustering unit vectors, its heights raised to a power."""
        made = textpriv.Tree.build(self.vocabulary, method, heights=heights)
        return made if power == 1.0 else made.reheighted(made.heights**power)

    @cache  # noqa: B019
    def levelled(self) -> textpriv.Tree:
        """Three levels only."""
        groups = {"synonyms": 1500, "kind": 200}
        return textpriv.Tree.build(self.vocabulary, "ward", heights="levels", groups=groups)

    def all(self) -> dict[str, Callable[[float], Mechanism]]:
        """Names and makers."""
        tem, over = textpriv.TEM, textpriv.TreeTEM
        return {
            "TEM as published": lambda e: tem(self.index(), e, prior="uniform"),
            "TEM, zipf": lambda e: tem(self.index(), e),
            "tree (ward), full": lambda e: over(self.tree("ward"), e),
            "tree (ward), uniform": lambda e: over(self.tree("ward"), e, prior="uniform"),
            "tree (ward), root of counts": lambda e: over(self.tree("ward"), e, prior=self.root),
            "tree (ward), zipf": lambda e: over(self.tree("ward"), e, prior="zipf"),
            "tree (ward, squared), root of counts": lambda e: over(
                self.tree("ward", power=2.0), e, prior=self.root
            ),
            "tree (ward, squared), full": lambda e: over(self.tree("ward", power=2.0), e),
            "tree (ward, squared), uniform": lambda e: over(
                self.tree("ward", power=2.0), e, prior="uniform"
            ),
            "tree (ward, rank), root of counts": lambda e: over(
                self.tree("ward", "rank"), e, prior=self.root
            ),
            "tree (average), root of counts": lambda e: over(
                self.tree("average"), e, prior=self.root
            ),
            "tree (kmeans), root of counts": lambda e: over(
                self.tree("kmeans"), e, prior=self.root
            ),
            "tree (three levels), root of counts": lambda e: over(
                self.levelled(), e, prior=self.root
            ),
            # Last, since its prior is searched for anew at every epsilon.
            "TEM, zipf, best": lambda e: tem(self.index(), e, rate="best"),
        }


def recovered(mechanism: Mechanism) -> tuple[float, float]:
    """Success of the best attacker on content words, who is told that they are, and on all words."""
    law = Law(mechanism, "counts")
    size, best, of_content = len(law), np.zeros(len(law)), np.zeros(len(law))
    common = min(COMMON, size // 4)
    for begin in range(0, size, _BLOCK):
        words = np.arange(begin, min(begin + _BLOCK, size))
        joint = law.rows(words) * law.prior[words, None].astype(np.float32)
        np.maximum(best, joint.max(axis=0), out=best)
        joint[words < common] = 0
        np.maximum(of_content, joint.max(axis=0), out=of_content)
    return float(of_content.sum() / law.prior[common:].sum()), float(best.sum())


def found_epsilon(make: Callable[[float], Mechanism], which: int, target: float) -> float:
    """The epsilon at which the attacker recovers a share of words, to about one per cent of epsilon."""
    from scipy.optimize import brentq

    def beyond(log_epsilon: float) -> float:
        found = min(max(recovered(make(math.exp(log_epsilon)))[which], 1e-6), 1 - 1e-6)
        # In log-odds, which are nearly straight in the logarithm of epsilon.
        return math.log(found / (1 - found)) - math.log(target / (1 - target))

    return math.exp(brentq(beyond, math.log(0.2), math.log(60.0), xtol=0.01, rtol=1e-6))


class Reviews:
    """Documents as word ids, and whether each is positive."""

    def __init__(self, codes: Sequence[NDArray[np.int32]], labels: Sequence[int]) -> None:
        self.ids = np.concatenate(codes)
        self.offsets = np.concatenate([[0], np.cumsum([len(c) for c in codes])]).astype(np.int64)
        self.labels = np.array(labels)

    def counts(self, ids: NDArray[np.int32], words: int) -> csr_matrix:
        """Word counts as log(1 + count), shape (documents, words); unknown words are left out."""
        rows = np.repeat(np.arange(len(self.labels)), np.diff(self.offsets))
        known = ids >= 0
        ones = np.ones(int(known.sum()), dtype=np.float32)
        shape = (len(self.labels), words)
        found = csr_matrix((ones, (rows[known], ids[known])), shape=shape)
        found.sum_duplicates()
        found.data = np.log1p(found.data)
        return found


def read_reviews(path: Path, reader: textpriv.Privatizer, begin: int, end: int) -> Reviews:
    """Some lines of a file of reviews; of stars, four and five are positive."""
    codes, labels = [], []
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            if begin <= number < end:
                record = json.loads(line)
                read = reader.read(record["text"]).codes
                codes.append(read[read >= -1])
                labels.append(int(record["label"] if "label" in record else record["stars"] >= 4))
    return Reviews(codes, labels)


def accuracy(
    train: csr_matrix, labels: NDArray[Any], test: csr_matrix, truth: NDArray[Any]
) -> float:
    """Test accuracy of a logistic regression."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(
        C=0.1, solver="liblinear", dual=True, max_iter=100, tol=0.01, random_state=0
    )
    return float(model.fit(train, labels).score(test, truth))


def table(results: dict[str, Any]) -> str:
    """One table for each target: epsilon, recovery of content words and of all, and accuracy on both sets."""
    lines = [
        f"Clear: IMDB {results['clear']['imdb']:.3f}, Yelp {results['clear']['yelp']:.3f}. After ± half the range."
    ]
    for target, cells in results["cells"].items():
        lines += [
            "",
            f"At {target}:",
            "",
            "| law | epsilon | content / all | IMDB | Yelp |",
            "|---|---|---|---|---|",
        ]
        for law, cell in cells.items():
            shown = []
            for name in ("imdb", "yelp"):
                values = cell[name]
                shown.append(f"{np.mean(values):.3f} ± {np.ptp(values) / 2:.3f}")
            content, everything = cell["recovered"]
            lines.append(
                f"| {law} | {cell['epsilon']:.3g} | {content:.3f} / {everything:.3f} | {' | '.join(shown)} |"
            )
    return "\n".join(lines) + "\n"


@app.command()
def main(
    data_dir: Annotated[Path, typer.Option(help="Folder with embeddings, imdb and yelp.")],
    out: Annotated[Path, typer.Option(help="Where to write OUT.json and OUT.md.")] = Path("trees"),
    limit: Annotated[int, typer.Option(help="Words to take.")] = 6000,
    content: Annotated[str, typer.Option(help="Shares of content words recovered.")] = "0.1,0.2",
    everything: Annotated[str, typer.Option(help="Shares of all words recovered.")] = "0.2,0.3",
    seeds: Annotated[int, typer.Option(help="Independent runs of each cell.")] = 3,
    reviews: Annotated[int, typer.Option(help="Reviews to train on.")] = 4000,
    laws: Annotated[
        str, typer.Option(help="Semicolon-separated names of laws; all by default.")
    ] = "",
) -> None:
    """Compare the laws and print the tables."""
    vocabulary = textpriv.Vocabulary.load(data_dir / VECTORS, limit=limit, prior=data_dir / COUNTS)
    made = Laws(vocabulary)
    reader = textpriv.Privatizer(textpriv.TreeTEM(made.levelled(), 1.0))
    imdb, yelp = data_dir / "imdb", data_dir / "yelp" / "reviews.jsonl.gz"
    sets = {
        "imdb": (
            read_reviews(imdb / "train.jsonl.gz", reader, 0, reviews),
            read_reviews(imdb / "test.jsonl.gz", reader, 0, 10_000),
        ),
        "yelp": (
            read_reviews(yelp, reader, 0, min(reviews, 4000)),
            read_reviews(yelp, reader, 4000, 5000),
        ),
    }
    clean = {name: test.counts(test.ids, limit) for name, (_, test) in sets.items()}
    file = out.with_suffix(".json")
    results: dict[str, Any] = {"cells": {}}
    if file.exists():
        results = json.loads(file.read_text())
    if "clear" not in results:
        results["clear"] = {
            name: accuracy(train.counts(train.ids, limit), train.labels, clean[name], test.labels)
            for name, (train, test) in sets.items()
        }
    targets = [
        (f"{share} of content words", 0, float(share)) for share in content.split(",") if share
    ]
    targets += [
        (f"{share} of all words", 1, float(share)) for share in everything.split(",") if share
    ]
    for title, which, share in targets:
        cells = results["cells"].setdefault(title, {})
        for name, make in made.all().items():
            if name in cells or (laws and name not in laws.split(";")):
                continue
            epsilon = found_epsilon(make, which, share)
            mechanism = make(epsilon)
            cell: dict[str, Any] = {"epsilon": epsilon, "recovered": recovered(mechanism)}
            for data, (train, test) in sets.items():
                cell[data] = []
                for seed in range(seeds):
                    streams = KeyedStreams(seed=seed)
                    each = [streams.stream(i) for i in range(len(train.labels))]
                    ids = mechanism.sample_documents(train.ids, train.offsets, each)
                    found = accuracy(
                        train.counts(ids, limit), train.labels, clean[data], test.labels
                    )
                    cell[data].append(found)
            cells[name] = cell
            file.write_text(json.dumps(results, indent=1))
            print(title, name, cell, file=sys.stderr, flush=True)
    shown = table(results)
    out.with_suffix(".md").write_text(shown, encoding="utf-8")
    print(shown)


if __name__ == "__main__":
    app()
