"""Figure 1 of TEM on IMDB: accuracy after learning from private reviews, and what a membership attack learns from the model.

    python recipes/imdb.py --data-dir DATA --out imdb
    python recipes/imdb.py --data-dir DATA --quick

The setting is that of TEM (Carvalho, Vasiloudis, Feyisetan, section 5, Appendix C). TR1 is half of the training reviews and
is made private; TE1 is half of the test reviews and stays clear. The model is a mean of word vectors and a linear layer, 20
epochs of Adam, batches of 64. The attack learns from a shadow model of the other half of the test reviews, and asks for each
training review whether it was in TR1. Each trial draws new halves. DATA contains ``imdb`` and ``embeddings``; the table goes
to OUT.md and OUT.csv.
"""

from __future__ import annotations

import csv
import gzip
import json
import warnings
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import roc_auc_score
from sklearn.neural_network import MLPClassifier

import textpriv
from textpriv.evaluation.comparison import Documents
from textpriv.mechanisms import make_mechanism
from textpriv.mechanisms.base import Mechanism

VECTORS = "embeddings/imdb-unsup-sg-40k.300d.bin.gz"
EPOCHS, BATCH = 20, 64
MEASURES = ("accuracy", "membership AUC")


def read(data_dir: Path, split: str, words: textpriv.Vocabulary, most: int | None) -> Documents:
    """The reviews of a split."""
    with gzip.open(data_dir / f"imdb/{split}.jsonl.gz", "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in islice(lines, most)]
    labels = [record["label"] for record in records]
    return Documents.read([record["text"] for record in records], labels, words)


def taken(whole: Documents, rows: NDArray[np.int64]) -> Documents:
    """Some documents, in the order given."""
    lengths = np.diff(whole.offsets)[rows]
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    at = np.repeat(whole.offsets[rows] - ends[:-1], lengths) + np.arange(ends[-1])
    return Documents(whole.ids[at], ends, whole.labels[rows])


def halves(whole: Documents, seed: int) -> tuple[Documents, Documents]:
    """Two halves drawn by a seed."""
    mixed = np.random.default_rng(seed).permutation(len(whole.labels))
    return tuple(taken(whole, np.sort(part)) for part in np.array_split(mixed, 2))  # type: ignore[return-value]


def means(
    documents: Documents, table: NDArray[np.float32], ids: NDArray[np.int32] | None = None
) -> NDArray[np.float32]:
    """Mean vectors of documents, a word said n times weighing root n."""
    counts = documents.counts(len(table), ids).sqrt()
    totals = np.maximum(np.asarray(counts.sum(axis=1)), 1)
    return np.asarray(counts @ table / totals, dtype=np.float32)


def trained(
    layers: tuple[int, ...], inputs: NDArray[np.float32], answers: NDArray[Any], seed: int
) -> MLPClassifier:
    """A network of ReLU layers, by Adam and cross-entropy; without layers it is linear."""
    model = MLPClassifier(
        layers,
        alpha=0.0,
        batch_size=BATCH,
        max_iter=EPOCHS,
        learning_rate_init=1e-3 if layers else 2e-3,  # its one logit is the difference of two
        n_iter_no_change=EPOCHS,
        random_state=seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # 20 epochs are the setting
        return model.fit(inputs, answers)


def whitened(vocabulary: textpriv.Vocabulary) -> NDArray[np.float32]:
    """The vectors, centred, with the identity as covariance under Zipf's law, so that Adam learns all directions alike."""
    vectors = vocabulary.vectors.astype(np.float64)
    prior = vocabulary.prior_weights("zipf")
    centred = vectors - prior @ vectors
    variances, directions = np.linalg.eigh((centred * prior[:, None]).T @ centred)
    lengths = np.maximum(variances, 1e-10 * variances.max()) ** -0.5
    return (centred @ (directions * lengths) @ directions.T).astype(np.float32)


class Trial:
    """Four halves of the reviews and the attack's shadow model."""

    def __init__(
        self, train: Documents, test: Documents, table: NDArray[np.float32], seed: int
    ) -> None:
        self.table, self.seed = table, seed
        self.tr1, self.tr2 = halves(train, 2 * seed)
        self.te1, self.te2 = halves(test, 2 * seed + 1)
        shadow = self.classifier(self.te2, None)
        known = [shadow.predict_proba(means(part, table)) for part in (self.te2, self.te1)]
        member = np.repeat([1, 0], [len(part) for part in known])
        self.attack = trained((64, 64), np.concatenate(known), member, seed)

    def classifier(self, part: Documents, ids: NDArray[np.int32] | None) -> MLPClassifier:
        """The model of Appendix C, from these ids in place of a part's own."""
        return trained((), means(part, self.table, ids), part.labels, self.seed)

    def measure(self, mechanism: Mechanism | None) -> dict[str, float]:
        """All measures of a mechanism, or of clear text."""
        ids = self.tr1.ids
        if mechanism is not None:
            ids = mechanism.sample(ids, np.random.default_rng(self.seed))
        model, table = self.classifier(self.tr1, ids), self.table
        right = model.predict(means(self.te1, table))
        outputs = [model.predict_proba(means(part, table)) for part in (self.tr1, self.tr2)]
        scores = self.attack.predict_proba(np.concatenate(outputs))[:, 1]
        member = np.repeat([1, 0], [len(part) for part in outputs])
        return {
            "accuracy": float((right == self.te1.labels).mean()),
            "membership AUC": float(roc_auc_score(member, scores)),
        }


def main(
    data_dir: Annotated[Path | None, typer.Option()] = None,
    out: Annotated[Path, typer.Option()] = Path("imdb"),
    epsilons: Annotated[str, typer.Option()] = "2,3,4",
    trials: Annotated[int, typer.Option()] = 5,
    limit: Annotated[int | None, typer.Option(help="Words of the vocabulary at most.")] = None,
    reviews: Annotated[int | None, typer.Option(help="Reviews of each split at most.")] = None,
    mechanism: Annotated[list[str] | None, typer.Option(help="Another one, by its name.")] = None,
    quick: Annotated[bool, typer.Option("--quick")] = False,
) -> None:
    """Measure, and write the table. --data-dir holds ``imdb`` and ``embeddings``; --quick looks at 2,000 reviews."""
    if data_dir is None:
        raise typer.BadParameter(
            f"name a folder with imdb/train.jsonl.gz, imdb/test.jsonl.gz (lines with text and label) and {VECTORS}, "
            "word2vec vectors of unlabelled reviews: --data-dir DATA"
        )
    if quick:
        trials, limit, reviews = min(trials, 2), limit or 5000, reviews or 2000
    vocabulary = textpriv.Vocabulary.load(data_dir / VECTORS, limit=limit)
    index, table = textpriv.Index.build(vocabulary, "euclidean"), whitened(vocabulary)
    train, test = (read(data_dir, split, vocabulary, reviews) for split in ("train", "test"))
    rows: dict[str, Mechanism | None] = {"unprivatized": None}
    for epsilon in map(float, epsilons.split(",")):
        published = textpriv.TEM(index, epsilon, prior="uniform")
        rows[f"TEM as published, epsilon {epsilon:g}"] = published
        rows[f"TEM, Zipf prior, epsilon {epsilon:g}"] = textpriv.TEM(index, epsilon)
        for name in mechanism or ():
            rows[f"{name}, epsilon {epsilon:g}"] = make_mechanism(index, name, epsilon=epsilon)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in rows}
    for seed in range(trials):
        trial = Trial(train, test, table, seed)
        for name, mechanism in rows.items():
            found[name].append(trial.measure(mechanism))
    lines = ["| | accuracy, % | membership AUC |", "|---|---|---|"]
    written = []
    for name, measured in found.items():
        right, auc = (np.array([each[key] for each in measured]) for key in MEASURES)
        shown = [
            f"{100 * right.mean():.1f}±{100 * right.std():.1f}",
            f"{auc.mean():.3f}±{auc.std():.3f}",
        ]
        lines.append(f"| {name} | {' | '.join(shown)} |")
        written += [
            (name, seed, key, value)
            for seed, each in enumerate(measured)
            for key, value in each.items()
        ]
    text = "\n".join(lines) + f"\n\nMean and standard deviation of {trials} trials.\n"
    out.with_suffix(".md").write_text(text, encoding="utf-8")
    with open(out.with_suffix(".csv"), "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(
            [("mechanism", "trial", "measure", "value"), *written]
        )
    print(text)


if __name__ == "__main__":
    typer.run(main)
