"""Evidence for the laws: what each keeps of the words, and the accuracy of a linear model trained on private reviews.

``accuracy``: a bag-of-words logistic regression learns from 12,500 privatized IMDB training reviews and is tested on the
clean test half. Every law keeps the same formal promise; they differ in prior and rate alone. Run

    python recipes/laws.py accuracy --data-dir DATA --index IDX --out laws

where DATA holds ``imdb/train.jsonl.gz`` and ``imdb/test.jsonl.gz`` and IDX is an index of public vectors. It prints the
table, writes it as CSV and Markdown, and skips what an earlier run has already measured.

``utility``: every law on a small vocabulary, with its certificate and two exact figures: the probability that a word stays,
and the expected distance, for words drawn from the public prior. Run

    python recipes/laws.py utility VECTORS --limit 1500 --epsilon 3
"""

from __future__ import annotations

import csv
import gzip
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

import textpriv
from textpriv.mechanisms.mechanism import Mechanism
from textpriv.randomness import KeyedStreams

app = typer.Typer(add_completion=False)

LAWS: dict[str, dict[str, str]] = {
    "TEM as published": {"prior": "uniform", "rate": "half"},
    "uniform, calibrated": {"prior": "uniform", "rate": "calibrated"},
    "zipf, half": {"prior": "zipf", "rate": "half"},
    "zipf, calibrated": {"prior": "zipf", "rate": "calibrated"},
    "zipf, best": {"prior": "zipf", "rate": "best"},
}


def _tem(settings: dict[str, str], index: textpriv.Index, epsilon: float) -> Mechanism:
    return textpriv.TEM(index, epsilon, **settings)


ALL_LAWS: dict[str, Callable[[textpriv.Index, float], Mechanism]] = {
    **{name: partial(_tem, settings) for name, settings in LAWS.items()},
    "zipf, smoothed": lambda index, epsilon: textpriv.SmoothedTEM(index, epsilon),
    "balanced": lambda index, epsilon: textpriv.BalancedTEM(index, epsilon),
    "permute and flip": lambda index, epsilon: textpriv.PermuteAndFlip(index, epsilon),
}


class Reviews:
    """Reviews as word ids, one document after the other."""

    def __init__(self, path: Path, privatizer: textpriv.Privatizer, limit: int | None) -> None:
        codes, labels = [], []
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for place, line in enumerate(lines):
                if place == limit:
                    break
                record = json.loads(line)
                read = privatizer.read(record["text"]).codes
                codes.append(read[read >= -1])
                labels.append(record["label"])
        self.ids = np.concatenate(codes)
        self.offsets = np.concatenate([[0], np.cumsum([len(c) for c in codes])]).astype(np.int64)
        self.labels = np.array(labels)

    def counts(self, ids: NDArray[np.int32], words: int) -> csr_matrix:
        """Return the documents' word counts as log(1 + count), shape (documents, words); unknown words are left out."""
        rows = np.repeat(np.arange(len(self.labels)), np.diff(self.offsets))
        known = ids >= 0
        found = csr_matrix(
            (np.ones(known.sum(), dtype=np.float32), (rows[known], ids[known])),
            shape=(len(self.labels), words),
        )
        found.sum_duplicates()
        found.data = np.log1p(found.data)
        return found


def accuracy(
    train: csr_matrix, labels: NDArray[np.int64], test: csr_matrix, truth: NDArray[np.int64]
) -> float:
    """Return the test accuracy of a logistic regression."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(
        C=0.1, solver="liblinear", dual=True, max_iter=100, tol=0.01, random_state=0
    )
    return float(model.fit(train, labels).score(test, truth))


@app.command("utility")
def utility(
    vectors: Annotated[
        Path, typer.Argument(help="A file of public word vectors, commonest words first.")
    ],
    limit: Annotated[int, typer.Option(help="Words to take.")] = 1500,
    epsilon: Annotated[float, typer.Option(help="The promise, per unit of distance.")] = 3.0,
) -> None:
    """Compare all laws on a small vocabulary, exactly."""
    tables = textpriv.Index.build(textpriv.Vocabulary.load(vectors, limit=limit), hnsw=False)
    prior = tables.vocabulary.prior_weights("zipf")
    apart = tables.distances_of(np.arange(len(tables)))
    print("| law | constant | certificate | words kept | mean distance |\n|---|---|---|---|---|")
    for name, make in ALL_LAWS.items():
        mechanism = make(tables, epsilon)
        certificate = textpriv.certify(mechanism)
        law = np.exp(np.array([mechanism.log_prob(word) for word in range(len(tables))]))
        keep = float(prior @ np.diag(law))
        distance = float(prior @ (law * apart).sum(axis=1))
        kind = "exact" if certificate.exact else "upper bound"
        verdict = "holds" if certificate.holds else "DOES NOT HOLD"
        print(
            f"| {name} | {certificate.rho:.4f} | {verdict}, {kind} | {keep:.4f} | {distance:.4f} |",
            flush=True,
        )


@app.command("accuracy")
def main(
    data_dir: Annotated[
        Path, typer.Option(help="Folder with imdb/train.jsonl.gz and imdb/test.jsonl.gz.")
    ],
    index: Annotated[Path, typer.Option(help="Index folder of public vectors (textpriv index).")],
    out: Annotated[Path, typer.Option(help="Where to write OUT.csv and OUT.md.")] = Path("laws"),
    epsilons: Annotated[str, typer.Option(help="Comma-separated.")] = "2,3,4,6,8",
    seeds: Annotated[int, typer.Option(help="Independent runs of each cell.")] = 3,
) -> None:
    """Measure every law and print the table."""
    tables = textpriv.Index.load(index)
    reader = textpriv.Privatizer(textpriv.TEM(tables, epsilon=1.0))
    train = Reviews(data_dir / "imdb" / "train.jsonl.gz", reader, 12_500)
    test = Reviews(data_dir / "imdb" / "test.jsonl.gz", reader, None)
    clean = test.counts(test.ids, len(tables))
    record = out.with_suffix(".csv")
    done: dict[tuple[str, float, int], float] = {}
    rates: dict[tuple[str, float], tuple[float, float, float]] = {}
    if record.exists():
        with open(record, newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                cell = (row["law"], float(row["epsilon"]))
                done[(*cell, int(row["seed"]))] = float(row["accuracy"])
                rates[cell] = (float(row["t"]), float(row["constant"]), float(row["keep"]))
    raw = accuracy(train.counts(train.ids, len(tables)), train.labels, clean, test.labels)
    print(f"unprivatized: {raw:.4f}", file=sys.stderr)
    prior = tables.vocabulary.prior_weights("zipf")
    for epsilon in (float(part) for part in epsilons.split(",")):
        for name, settings in LAWS.items():
            if all((name, epsilon, seed) in done for seed in range(seeds)):
                continue
            started = time.perf_counter()
            mechanism = textpriv.TEM(tables, epsilon=epsilon, **settings)
            # Exact on every hundredth word, weighted by the public prior.
            sample = np.arange(0, len(tables), 100)
            stay = np.array([np.exp(mechanism.log_prob(int(word))[word]) for word in sample])
            keep = float((prior[sample] * stay).sum() / prior[sample].sum())
            rates[name, epsilon] = (mechanism.t, mechanism.rho_bound, keep)
            for seed in range(seeds):
                streams = KeyedStreams(seed=seed)
                ids = mechanism.sample_documents(
                    train.ids, train.offsets, [streams.stream(i) for i in range(len(train.labels))]
                )
                done[name, epsilon, seed] = accuracy(
                    train.counts(ids, len(tables)), train.labels, clean, test.labels
                )
            write(record, done, rates)
            mean = np.mean([done[name, epsilon, seed] for seed in range(seeds)])
            print(
                f"epsilon {epsilon:g}  {name:22s} {mean:.4f}  t/epsilon {mechanism.t / epsilon:.4f}  "
                f"{time.perf_counter() - started:.0f} s",
                file=sys.stderr,
            )
    table = markdown(done, rates, raw)
    out.with_suffix(".md").write_text(table, encoding="utf-8")
    print(table)


def write(
    path: Path,
    done: dict[tuple[str, float, int], float],
    rates: dict[tuple[str, float], tuple[float, float, float]],
) -> None:
    """Write every measurement, so that a run that is stopped goes on where it was."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["law", "epsilon", "seed", "accuracy", "t", "constant", "keep"])
        for (name, epsilon, seed), value in sorted(
            done.items(), key=lambda item: item[0][1:] + item[0][:1]
        ):
            rows.writerow(
                [
                    name,
                    f"{epsilon:g}",
                    seed,
                    f"{value:.5f}",
                    *(f"{x:.8g}" for x in rates[name, epsilon]),
                ]
            )


def markdown(
    done: dict[tuple[str, float, int], float],
    rates: dict[tuple[str, float], tuple[float, float, float]],
    raw: float,
) -> str:
    """Return the table: accuracy (mean and half range over the seeds) and rate of each law at each epsilon."""
    epsilons = sorted({epsilon for _, epsilon, _ in done})
    lines = [
        "| law | " + " | ".join(f"epsilon {epsilon:g}" for epsilon in epsilons) + " |",
        "|---" * (len(epsilons) + 1) + "|",
    ]
    for name in LAWS:
        cells = []
        for epsilon in epsilons:
            values = [value for (law, e, _), value in done.items() if law == name and e == epsilon]
            if not values:
                cells.append("-")
                continue
            t, rho, _ = rates[name, epsilon]
            spread = (max(values) - min(values)) / 2
            cells.append(
                f"{np.mean(values):.3f} ± {spread:.3f} (t = {t / epsilon:.3f} epsilon, constant {rho:.3f})"
            )
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines.append(f"\nUnprivatized: {raw:.3f}.\n")
    return "\n".join(lines)


if __name__ == "__main__":
    app()
