"""Evidence for the laws: what each keeps of the words, and the accuracy of a linear model trained on private reviews.

``accuracy``: a bag-of-words logistic regression learns from 12,500 privatized IMDB training reviews and is tested on the
clean test half. Every law keeps the same formal promise, and is certified to. Run

    python recipes/laws.py accuracy --data-dir DATA --index IDX --out laws

where DATA holds ``imdb/train.jsonl.gz`` and ``imdb/test.jsonl.gz`` and IDX is an index of public vectors. It prints two
tables, of accuracies and of certificates, writes them as Markdown and all figures as JSON, and skips what an earlier run
has already measured.

``utility``: every law on a small vocabulary, with its certificate and exact figures for words drawn from the public prior:
the probability that a word stays, the expected distance, and the shares of all and of content words that the best attacker
of lone words gets back. Run

    python recipes/laws.py utility VECTORS --limit 1500 --epsilon 3
"""

from __future__ import annotations

import gzip
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

import textpriv
from textpriv.evaluation.recovery import COMMON, word_recovery
from textpriv.mechanisms.base import Mechanism
from textpriv.mechanisms.calibration.pair_sweep import together
from textpriv.randomness import KeyedStreams

app = typer.Typer(add_completion=False)


def _tem(prior: str, rate: str, index: textpriv.Index, epsilon: float) -> Mechanism:
    return textpriv.TEM(index, epsilon, prior=prior, rate=rate)


LAWS: dict[str, Callable[[textpriv.Index, float], Mechanism]] = {
    "TEM as published": partial(_tem, "uniform", "half"),
    "uniform, calibrated": partial(_tem, "uniform", "calibrated"),
    "zipf, half": partial(_tem, "zipf", "half"),
    "zipf, calibrated": partial(_tem, "zipf", "calibrated"),
    "zipf, best": partial(_tem, "zipf", "best"),
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
    print(
        "| law | constant | certificate | words kept | mean distance | words got back | content words |\n"
        + "|---" * 7
        + "|"
    )
    for name, make in LAWS.items():
        mechanism = make(tables, epsilon)
        certificate = textpriv.certify(mechanism)
        law = np.exp(np.array([mechanism.log_prob(word) for word in range(len(tables))]))
        keep = float(prior @ np.diag(law))
        distance = float(prior @ (law * apart).sum(axis=1))
        back = word_recovery(mechanism, common=min(COMMON, len(tables) // 4))
        kind = "exact" if certificate.exact else "upper bound"
        verdict = "holds" if certificate.holds else "DOES NOT HOLD"
        print(
            f"| {name} | {certificate.rho:.4f} | {verdict}, {kind} | {keep:.4f} | {distance:.4f} | "
            f"{back.everything:.4f} | {back.content:.4f} |",
            flush=True,
        )


@app.command("accuracy")
def main(
    data_dir: Annotated[
        Path, typer.Option(help="Folder with imdb/train.jsonl.gz and imdb/test.jsonl.gz.")
    ],
    index: Annotated[Path, typer.Option(help="Index folder of public vectors (textpriv index).")],
    out: Annotated[Path, typer.Option(help="Where to write OUT.json and OUT.md.")] = Path("laws"),
    epsilons: Annotated[str, typer.Option(help="Comma-separated.")] = "2,3,4,6,8",
    seeds: Annotated[int, typer.Option(help="Independent runs of each cell.")] = 3,
    laws: Annotated[
        str, typer.Option(help="Semicolon-separated names of laws; all by default.")
    ] = ";".join(LAWS),
) -> None:
    """Measure every law and print the tables."""
    tables = textpriv.Index.load(index)
    reader = textpriv.Privatizer(textpriv.TEM(tables, epsilon=1.0))
    train = Reviews(data_dir / "imdb" / "train.jsonl.gz", reader, 12_500)
    test = Reviews(data_dir / "imdb" / "test.jsonl.gz", reader, None)
    clean = test.counts(test.ids, len(tables))
    results = Results(out.with_suffix(".json"))
    if results.raw is None:
        plain = train.counts(train.ids, len(tables))
        results.raw = accuracy(plain, train.labels, clean, test.labels)
        results.write()
    print(f"unprivatized: {results.raw:.4f}", file=sys.stderr)
    cells = [
        (name, float(epsilon), results.cell(name, float(epsilon)))
        for epsilon in epsilons.split(",")
        for name in laws.split(";")
    ]
    # What a law is settled by and certified with are passes over all pairs of words, which these computations share.
    todo = [
        cell for cell in cells if not cell[2]["certificate"] or len(cell[2]["accuracy"]) < seeds
    ]
    started = time.perf_counter()
    mechanisms = together(
        [partial(LAWS[name], tables, epsilon) for name, epsilon, _ in todo], memory=4e9
    )
    print(f"{len(todo)} laws settled in {time.perf_counter() - started:.0f} s", file=sys.stderr)
    for (name, epsilon, cell), mechanism in zip(todo, mechanisms, strict=True):
        cell["t"] = float(mechanism.t)  # type: ignore[attr-defined]
        if isinstance(mechanism, textpriv.BalancedTEM):
            cell["note"] = mechanism.kept
        if isinstance(mechanism, textpriv.TEM) and mechanism.rate != "half":
            # It was settled by its exact constant over all pairs.
            cell["certificate"] = told(mechanism.rho_bound, epsilon, exact=True)
        for seed in (seed for seed in range(seeds) if str(seed) not in cell["accuracy"]):
            streams = KeyedStreams(seed=seed)
            ids = mechanism.sample_documents(
                train.ids, train.offsets, [streams.stream(i) for i in range(len(train.labels))]
            )
            cell["accuracy"][str(seed)] = accuracy(
                train.counts(ids, len(tables)), train.labels, clean, test.labels
            )
            results.write()
        reached = np.mean([*cell["accuracy"].values()])
        share = cell["t"] / epsilon
        print(
            f"epsilon {epsilon:g}  {name:20s} {reached:.4f}  t/epsilon {share:.4f}", file=sys.stderr
        )
    started = time.perf_counter()
    left = [(c, m) for c, m in zip(todo, mechanisms, strict=True) if not c[2]["certificate"]]
    certificates = together([partial(textpriv.certify, m, reuse=True) for _, m in left])
    print(f"{len(left)} laws certified in {time.perf_counter() - started:.0f} s", file=sys.stderr)
    for ((_, epsilon, cell), _), found in zip(left, certificates, strict=True):
        cell["certificate"] = told(found.rho_with_rounding, epsilon, exact=found.exact)
        cell["certificate"]["holds"] &= found.holds
    results.write()
    table = results.markdown()
    out.with_suffix(".md").write_text(table, encoding="utf-8")
    print(table)


def told(constant: float, epsilon: float, *, exact: bool) -> dict[str, Any]:
    """Return what a table tells of a certificate: the constant with the rounding of distances charged."""
    return {"constant": constant, "exact": exact, "holds": constant <= epsilon}


class Results:
    """Every measurement, kept in a file so that a run that is stopped goes on where it was."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.raw: float | None = None
        self.cells: dict[str, dict[str, dict[str, Any]]] = {}
        if path.exists():
            content = json.loads(path.read_text(encoding="utf-8"))
            self.raw, self.cells = content["unprivatized"], content["laws"]

    def cell(self, law: str, epsilon: float) -> dict[str, Any]:
        """Return the figures of a law at an epsilon, to read and to fill."""
        new: dict[str, Any] = {"accuracy": {}, "certificate": None}
        return self.cells.setdefault(law, {}).setdefault(f"{epsilon:g}", new)

    def write(self) -> None:
        """Write everything."""
        content = {"unprivatized": self.raw, "laws": self.cells}
        self.path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    def markdown(self) -> str:
        """Return the tables: accuracy (mean and half range over the seeds), and what each law is certified to."""
        epsilons = sorted({epsilon for law in self.cells.values() for epsilon in law}, key=float)
        head = "| law | " + " | ".join(f"epsilon {epsilon}" for epsilon in epsilons) + " |\n"
        head += "|---" * (len(epsilons) + 1) + "|\n"
        reached: list[str] = []
        certified: list[str] = []
        for name in (law for law in LAWS if law in self.cells):
            cells = [self.cells[name].get(epsilon) for epsilon in epsilons]
            for rows, tell in ((reached, _accuracy), (certified, _certificate)):
                told = [
                    "-" if cell is None else tell(cell, float(epsilon))
                    for cell, epsilon in zip(cells, epsilons, strict=True)
                ]
                rows.append(f"| {name} | " + " | ".join(told) + " |\n")
        return (
            f"{head}{''.join(reached)}\nUnprivatized: {self.raw:.3f}.\n\n{head}{''.join(certified)}"
        )


def _accuracy(cell: dict[str, Any], epsilon: float) -> str:
    values = [*cell["accuracy"].values()]
    if not values:
        return "-"
    spread = (max(values) - min(values)) / 2
    return f"{np.mean(values):.3f} ± {spread:.3f} ({cell['t'] / epsilon:.3f})"


def _certificate(cell: dict[str, Any], _: float) -> str:
    certificate = cell["certificate"]
    if certificate is None:
        return "-"
    verdict = "holds" if certificate["holds"] else "DOES NOT HOLD"
    bound = "" if certificate["exact"] else "at least "
    note = f", {cell['note']} kept" if "note" in cell else ""
    return f"{bound}{certificate['constant']:.4f}, {verdict}{note}"


if __name__ == "__main__":
    app()
