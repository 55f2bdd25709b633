"""Trees against nearest lists: accuracy on reviews where the best attacker recovers as many words from either.

An epsilon over a tree and one over vectors are in different units, so laws are compared where the Bayes-optimal attacker,
who knows the law and how often public text has each word, recovers the same share of words: of content words (the
commonest 250 left out), and of all. Which tree, heights and prior, and which prior and metric of TEM, is chosen first, on
other text: intents of Banking77, and reviews of IMDB's training half that nothing is shown on. Then a bag-of-words logistic
regression learns from private reviews and is tested on clean ones. Run

    python recipes/trees.py --data-dir DATA --out trees

where DATA holds ``imdb/train.jsonl.gz``, ``imdb/test.jsonl.gz``, ``yelp/reviews.jsonl.gz``,
``banking77/train.jsonl.gz``, ``banking77/test.jsonl.gz`` and, under ``embeddings``, the vectors
``imdb-unsup-sg-40k.300d.bin.gz`` and their counts; without ``--data-dir`` they are fetched (``text_sets``). It writes
OUT.json as it goes, continues from it, and writes OUT.md.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from text_sets import COUNTS, VECTORS, fetched_texts

import textpriv
from textpriv.evaluation.law import Law
from textpriv.evaluation.recovery import content_prior
from textpriv.evaluation.utility import count_matrix, log_counts
from textpriv.mechanisms.base import Mechanism
from textpriv.randomness import KeyedStreams

app = typer.Typer(add_completion=False)

COMMON = 250  # words that are no content words
PUBLISHED = "TEM as published"
_POWERS = {0.25: "fourth roots of heights", 0.5: "roots of heights", 1.0: "heights"}
_PRIORS = {
    None: "full prior",
    0.0: "uniform prior",
    0.25: "counts^1/4",
    0.5: "counts^1/2",
    1.0: "counts",
}
_BOOTSTRAPS = 2000
_SIDES = (2.5, 97.5)  # of an interval, in per cent

Make = Callable[[float], Mechanism]


class Target(NamedTuple):
    """What share of which words the best attacker recovers."""

    of: str  # "content words" or "all words"
    share: float

    @property
    def title(self) -> str:
        """As tables have it."""
        return f"{self.share:g} of {self.of}"


class Laws:
    """The laws that are compared, each a function of epsilon, over one vocabulary."""

    def __init__(self, vocabulary: textpriv.Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.counts = vocabulary.prior_weights("counts")
        self.common = min(COMMON, len(vocabulary) // 4)

    @cache  # noqa: B019 - one object lives as long as the run
    def index(self, metric: str) -> textpriv.Index:
        """An index in all dimensions."""
        return textpriv.Index.build(self.vocabulary, metric=metric, hnsw=False)

    @cache  # noqa: B019
    def tree(self, method: str, power: float = 1.0) -> textpriv.Tree:
        """A tree by clustering unit vectors, its heights raised to a power."""
        if power != 1.0:
            made = self.tree(method)
            return made.reheighted(made.heights**power, made.names)
        if method == "three levels":
            groups = {"synonyms": 1500, "kind": 200}
            return textpriv.Tree.build(self.vocabulary, "ward", heights="levels", groups=groups)
        return textpriv.Tree.build(self.vocabulary, method)

    @cache  # noqa: B019
    def searched(self, metric: str, epsilon: float) -> NDArray[np.float64]:
        """The measure that ``rate="best"`` finds from the Zipf prior at an epsilon amid those that are compared."""
        return textpriv.TEM(self.index(metric), epsilon, rate="best").measure.weights

    def over_tree(self, method: str, power: float, share: float | None) -> Make:
        """A law over a tree; its prior is the counts to some power, or for None the full measure."""
        # At equal recovery the rate drops out, so no rate is searched for.
        if share is None:
            return lambda e: textpriv.TreeTEM(self.tree(method, power), e)
        prior = self.counts**share
        return lambda e: textpriv.TreeTEM(self.tree(method, power), e, prior=prior, rate="half")

    def trees(self) -> dict[str, Make]:
        """Trees, heights and priors to choose from."""
        given = [
            *(("ward", power, share) for power in _POWERS for share in (0.0, 0.25, 0.5, 1.0)),
            *(("ward", power, None) for power in (0.5, 1.0)),
            *(("average", 0.5, share) for share in (0.25, 0.5, 1.0)),
            *(("average", 1.0, share) for share in (0.5, 1.0)),
            *(("three levels", 0.5, share) for share in (0.25, 0.5, 1.0)),
            *(("three levels", 0.25, share) for share in (0.5, 1.0)),
            ("kmeans", 0.5, 0.25),
        ]
        return {
            f"tree: {method}, {_POWERS[power]}, {_PRIORS[share]}": self.over_tree(
                method, power, share
            )
            for method, power, share in given
        }

    def tems(self) -> dict[str, Make]:
        """TEM as published, and other priors, metrics and rates of it."""

        def tem(metric: str, **settings: Any) -> Make:
            return lambda e: textpriv.TEM(self.index(metric), e, **settings)

        def best(metric: str, epsilon: float) -> Make:
            return lambda e: textpriv.TEM(
                self.index(metric), e, prior=self.searched(metric, epsilon)
            )

        root = np.sqrt(self.counts)
        return {
            PUBLISHED: tem("euclidean", prior="uniform"),
            "TEM: euclidean, counts^1/2": tem("euclidean", prior=root),
            "TEM: euclidean, zipf": tem("euclidean"),
            "TEM: euclidean, zipf, best": best("euclidean", 3.5),
            "TEM: unit vectors, uniform": tem("unit_euclidean", prior="uniform"),
            "TEM: unit vectors, counts^1/4": tem("unit_euclidean", prior=self.counts**0.25),
            "TEM: unit vectors, counts^1/2": tem("unit_euclidean", prior=root),
            "TEM: unit vectors, zipf": tem("unit_euclidean"),
            "TEM: unit vectors, zipf, best": best("unit_euclidean", 11.0),
        }

    def recovered(self, mechanism: Mechanism, of: str) -> float:
        """Success of the best attacker on content words, who is told that they are, or on all words."""
        law = Law(mechanism, "counts")
        prior = content_prior(law.prior, self.common) if of == "content words" else law.prior
        return float(law.likeliest(prior)[1].sum())

    def found_epsilon(self, make: Make, target: Target) -> float:
        """The epsilon at which the attacker recovers a share of words, to about one per cent of epsilon."""
        from scipy.optimize import brentq

        def beyond(log_epsilon: float) -> float:
            found = self.recovered(make(math.exp(log_epsilon)), target.of)
            found = min(max(found, 1e-6), 1 - 1e-6)
            # In log-odds, which are nearly straight in the logarithm of epsilon.
            return math.log(found / (1 - found)) - math.log(target.share / (1 - target.share))

        return math.exp(brentq(beyond, math.log(0.2), math.log(80.0), xtol=0.01, rtol=1e-6))


class Documents:
    """Documents as word ids, and the class of each."""

    def __init__(self, codes: Sequence[NDArray[np.int32]], labels: Sequence[int]) -> None:
        self.ids = np.concatenate(codes)
        self.offsets = np.concatenate([[0], np.cumsum([len(c) for c in codes])]).astype(np.int64)
        self.labels = np.array(labels)

    def counts(self, ids: NDArray[np.int32], words: int) -> csr_matrix:
        """Word counts as log(1 + count), shape (documents, words); unknown words are left out."""
        return log_counts(count_matrix(ids, self.offsets, words))


class Task(NamedTuple):
    """What a classifier learns from in private form, and what it is tested on as it is."""

    train: Documents
    test: Documents
    cost: float  # the C of the logistic regression

    def right(self, train: csr_matrix, words: int) -> NDArray[np.bool_]:
        """Which test documents a logistic regression classifies as they are."""
        from sklearn.linear_model import LogisticRegression
        from sklearn.multiclass import OneVsRestClassifier

        model = LogisticRegression(
            C=self.cost, solver="liblinear", dual=True, max_iter=100, tol=0.01, random_state=0
        )
        several = OneVsRestClassifier(model) if self.train.labels.max() > 1 else model
        several.fit(train, self.train.labels)
        found = several.predict(self.test.counts(self.test.ids, words))
        right: NDArray[np.bool_] = found == self.test.labels
        return right

    def clear(self, words: int) -> float:
        """Accuracy without privacy."""
        return float(self.right(self.train.counts(self.train.ids, words), words).mean())

    def drawn(self, mechanism: Mechanism, seeds: int) -> NDArray[np.bool_]:
        """Which test documents are classified as they are after each of some draws, shape (seeds, documents)."""
        found = []
        for seed in range(seeds):
            streams = KeyedStreams(seed=seed)
            each = [streams.stream(i) for i in range(len(self.train.labels))]
            ids = mechanism.sample_documents(self.train.ids, self.train.offsets, each)
            words = len(mechanism.index)
            found.append(self.right(self.train.counts(ids, words), words))
        return np.stack(found)


def read(path: Path, reader: textpriv.Privatizer, begin: int, end: int) -> Documents:
    """Some lines of a file; of stars, four and five are positive."""
    codes, labels = [], []
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            if begin <= number < end:
                record = json.loads(line)
                found = reader.read(record["text"]).codes
                codes.append(found[found >= -1])
                labels.append(int(record["label"] if "label" in record else record["stars"] >= 4))
    return Documents(codes, labels)


def tasks(
    data: Path, reader: textpriv.Privatizer, reviews: int
) -> tuple[dict[str, Task], dict[str, Task]]:
    """What laws are chosen on, and what they are shown on; no document is in both."""
    imdb, yelp, bank = data / "imdb", data / "yelp" / "reviews.jsonl.gz", data / "banking77"
    half, many = reviews // 2, 10**9
    choice = {
        "Banking77": Task(
            read(bank / "train.jsonl.gz", reader, 0, many),
            read(bank / "test.jsonl.gz", reader, 0, many),
            1.0,
        ),
        "other IMDB reviews": Task(
            read(imdb / "train.jsonl.gz", reader, reviews, reviews + half),
            read(imdb / "train.jsonl.gz", reader, reviews + half, 2 * reviews + half),
            0.1,
        ),
    }
    shown = {
        "imdb": Task(
            read(imdb / "train.jsonl.gz", reader, 0, reviews),
            read(imdb / "test.jsonl.gz", reader, 0, 10_000),
            0.1,
        ),
        "yelp": Task(
            read(yelp, reader, 0, min(reviews, 4000)), read(yelp, reader, 4000, 5000), 0.1
        ),
    }
    return choice, shown


class Results:
    """What was measured, in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.content: dict[str, Any] = {"clear": {}, "choice": {}, "cells": {}}
        if path.exists():
            self.content = json.loads(path.read_text(encoding="utf-8"))

    def cell(self, *keys: str, make: Callable[[], Any]) -> Any:
        """An entry, measured where it is not there yet."""
        place = self.content
        for key in keys[:-1]:
            place = place.setdefault(key, {})
        if keys[-1] not in place:
            place[keys[-1]] = make()
            self.path.write_text(json.dumps(self.content, indent=1), encoding="utf-8")
            print(*keys, str(place[keys[-1]])[:120], file=sys.stderr, flush=True)
        return place[keys[-1]]


def packed(right: NDArray[np.bool_]) -> dict[str, Any]:
    """A matrix of yes and no as text."""
    bits = base64.b64encode(np.packbits(right)).decode()
    return {"shape": right.shape, "bits": bits, "accuracy": float(right.mean())}


def unpacked(entry: dict[str, Any]) -> NDArray[np.bool_]:
    """The matrix again."""
    rows, columns = entry["shape"]
    bits = np.frombuffer(base64.b64decode(entry["bits"]), dtype=np.uint8)
    flat: NDArray[np.bool_] = np.unpackbits(bits, count=rows * columns).astype(np.bool_)
    return flat.reshape(rows, columns)


def interval(first: NDArray[np.bool_], second: NDArray[np.bool_]) -> tuple[float, float, float]:
    """How far the first is ahead in accuracy, and a 95 % interval: draws and test documents are taken anew together."""
    rng = np.random.default_rng(0)
    seeds, documents = first.shape
    ahead = first.astype(np.float32) - second.astype(np.float32)
    found = np.empty(_BOOTSTRAPS)
    for at in range(_BOOTSTRAPS):
        # Draws of the two laws are independent, so seeds are taken apart; documents are the same for both.
        times = rng.multinomial(documents, np.full(documents, 1 / documents)) / documents
        own = first[rng.integers(seeds, size=seeds)].mean(axis=0)
        other = second[rng.integers(seeds, size=seeds)].mean(axis=0)
        found[at] = (own - other) @ times
    low, high = np.percentile(found, _SIDES)
    return float(ahead.mean()), float(low), float(high)


def chosen(
    laws: Laws,
    makers: dict[str, Make],
    targets: list[Target],
    choice: dict[str, Task],
    results: Results,
) -> str:
    """The law that keeps most of what clear text gives above guessing, on the mean of targets and tasks."""
    scores = {}
    for name, make in makers.items():
        kept = []
        for target in targets:

            def measured(make: Make = make, target: Target = target) -> dict[str, float]:
                mechanism = make(laws.found_epsilon(make, target))
                return {
                    task: float(each.drawn(mechanism, 1).mean()) for task, each in choice.items()
                }

            found = results.cell("choice", name, target.title, make=measured)
            for task, each in choice.items():
                guess = float(np.bincount(each.test.labels).max() / len(each.test.labels))
                kept.append((found[task] - guess) / (results.content["clear"][task] - guess))
        scores[name] = float(np.mean(kept))
    results.content.setdefault("scores", {}).setdefault(targets[0].of, {}).update(scores)
    return max(scores, key=lambda name: scores[name])


def tables(results: Results, targets: list[Target]) -> str:
    """What was chosen from, and one table for each target: accuracies, and how far the tree is ahead."""
    clear, scores = results.content["clear"], results.content["scores"]
    kinds = list(dict.fromkeys(each.of for each in targets))
    lines = [
        f"| law | {' | '.join(f'at equal recovery of {of}' for of in kinds)} |",
        "|---" * (len(kinds) + 1) + "|",
    ]
    for name in sorted(scores[kinds[0]], key=lambda each: -scores[kinds[0]][each]):
        lines.append(f"| {name} | {' | '.join(f'{scores[of][name]:.3f}' for of in kinds)} |")
    lines += ["", f"Clear: IMDB {clear['imdb']:.3f}, Yelp {clear['yelp']:.3f}."]
    for target in targets:
        cells = results.content["cells"][target.title]
        tree = next(name for name in cells if name.startswith("tree"))
        lines += [
            "",
            f"At {target.title}:",
            "",
            "| law | epsilon | content / all | IMDB | Yelp | the tree is ahead on IMDB | on Yelp |",
            "|---|---|---|---|---|---|---|",
        ]
        for name, cell in cells.items():
            ahead = ["", ""]
            if name != tree:
                both = [
                    interval(unpacked(cells[tree][each]), unpacked(cell[each]))
                    for each in ("imdb", "yelp")
                ]
                ahead = [f"{mean:+.3f} ({low:+.3f} to {high:+.3f})" for mean, low, high in both]
            accuracies = [f"{cell[each]['accuracy']:.3f}" for each in ("imdb", "yelp")]
            content, everything = cell["recovered"]
            lines.append(
                f"| {name} | {cell['epsilon']:.3g} | {content:.3f} / {everything:.3f} | "
                f"{' | '.join([*accuracies, *ahead])} |"
            )
    return "\n".join(lines) + "\n"


@app.command()
def main(
    data_dir: Annotated[
        Path | None,
        typer.Option(
            help="Folder with embeddings, imdb, yelp and banking77. Left out: OUT-texts, from the network."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Where to write OUT.json and OUT.md.")] = Path("trees"),
    limit: Annotated[int, typer.Option(help="Words to take.")] = 6000,
    content: Annotated[str, typer.Option(help="Shares of content words recovered.")] = "0.1,0.2",
    everything: Annotated[str, typer.Option(help="Shares of all words recovered.")] = "0.2,0.3",
    seeds: Annotated[int, typer.Option(help="Independent runs of each cell.")] = 5,
    reviews: Annotated[int, typer.Option(help="Reviews to train on.")] = 4000,
    trees: Annotated[
        str, typer.Option(help="Semicolon-separated names of trees to choose from; all by default.")
    ] = "",
    tems: Annotated[
        str, typer.Option(help="Semicolon-separated names of laws of TEM to choose from.")
    ] = "",
) -> None:
    """Choose a tree and a law of TEM on public text, compare them on other text, and print the tables."""
    data_dir = data_dir or fetched_texts(out.with_name(f"{out.name}-texts"))
    vocabulary = textpriv.Vocabulary.load(data_dir / VECTORS, limit=limit, prior=data_dir / COUNTS)
    laws = Laws(vocabulary)
    reader = textpriv.Privatizer(textpriv.TreeTEM(laws.tree("ward"), 1.0))
    choice, shown = tasks(data_dir, reader, reviews)
    results = Results(out.with_suffix(".json"))
    for name, task in (choice | shown).items():
        results.cell("clear", name, make=lambda task=task: task.clear(limit))
    over_trees, lists = laws.trees(), laws.tems()
    if trees:
        over_trees = {name: over_trees[name] for name in trees.split(";")}
    if tems:
        lists = {name: lists[name] for name in tems.split(";")}
    targets = [
        Target(of, float(share))
        for of, given in (("content words", content), ("all words", everything))
        for share in given.split(",")
        if share
    ]
    for of in dict.fromkeys(each.of for each in targets):
        same = [each for each in targets if each.of == of]
        best = chosen(laws, lists, same, choice, results)
        tree = chosen(laws, over_trees, same, choice, results)
        rows = {PUBLISHED: laws.tems()[PUBLISHED], best: lists[best], tree: over_trees[tree]}
        for target in same:
            for name, make in rows.items():

                def measured(make: Make = make, target: Target = target) -> dict[str, Any]:
                    epsilon = laws.found_epsilon(make, target)
                    mechanism = make(epsilon)
                    both = [
                        laws.recovered(mechanism, each) for each in ("content words", "all words")
                    ]
                    found = {
                        task: packed(each.drawn(mechanism, seeds)) for task, each in shown.items()
                    }
                    return {"epsilon": epsilon, "recovered": both, **found}

                results.cell("cells", target.title, name, make=measured)
    text = tables(results, targets)
    out.with_suffix(".md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    app()
