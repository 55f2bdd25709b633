"""Private retrieval end to end: a client asks a server process for the neighbours of an image.

scikit-learn's 1,797 digits, split for every seed into a public half, a server's part and 300 queries. Every method
answers the same queries; a result is relevant when it shows the same digit. The table names what each method guarantees,
and to whom.

    python recipes/retrieval.py --out retrieval

prints the table and writes ``retrieval.csv`` and ``.md``. Seeds make it repeatable; a client that is to be protected
gives none.
"""

from __future__ import annotations

import csv
import math
import multiprocessing
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from pairwise import PrivacyBudget, PrivateMetricLearner, SubsetQuery
from pairwise.accounting.gaussian import release_mu
from pairwise.errors import BudgetExceededError
from pairwise.noise.randomness import Randomness
from pairwise.noise.release import plan_gaussian
from pairwise.retrieval.service import Catalogue, RetrievalClient, RetrievalServer
from pairwise.retrieval.subset import nearest

app = typer.Typer(add_completion=False)

Array = NDArray[np.float64]
Cell = tuple[str, float, float]  # method, epsilon (nan for a reference), Recall@8

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
DELTA = 1e-5
CELLS, MOST, EACH = 64, 8, 4  # codebook, cells asked for at most, records for each

# What is guaranteed to who asks, and to the records that were learned from.
METHODS = {
    "raw features": ("none", "none"),
    "8 random cells, no query sent": ("(0, 0)", "none"),
    "SubsetQuery": ("(epsilon, 0)", "none"),
    "random projection + noise": ("(epsilon, 1e-5)", "none"),
    "PrivateMetricLearner": ("none", "(epsilon, 1e-5)"),
}


def split(seed: int, queries: int = 300) -> list[tuple[Array, NDArray[np.int64]]]:
    """Return public half, server's part and queries, each image without its mean and of norm 1."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    X = X - X.mean(axis=1, keepdims=True)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    order = np.random.default_rng(seed).permutation(len(X))
    parts = (order[:898], order[898 : len(X) - 300], order[len(X) - 300 :][:queries])
    return [(X[part], y[part]) for part in parts]


def codebook_of(public: Array) -> Array:
    """Return k-means centres of public features."""
    from sklearn.cluster import KMeans

    return KMeans(CELLS, n_init=1, random_state=0).fit(public).cluster_centers_


def projected(queries: Array, P: Array, epsilon: float, seed: int) -> Array:
    """Return each query by a public random projection with Gaussian noise: (epsilon, delta) for the whole feature.

    Kenthapadi, Korolova, Mironov and Mishra 2012; any feature of norm 1 may be replaced by any other, so the sensitivity
    is twice the largest singular value.
    """
    plan = plan_gaussian(2.0 * float(np.linalg.norm(P, 2)), release_mu(epsilon, DELTA), len(P))
    randomness = Randomness(seed)
    return np.stack([plan.release(P @ x, randomness) for x in queries])


def cells_of(seed: int, queries: int) -> Iterator[Cell]:
    """Yield all measurements of one split."""
    (public, public_y), (server, server_y), (asked, asked_y) = split(seed, queries)

    def recall(found: NDArray[np.int64]) -> float:
        relevant = (found >= 0) & (server_y[found] == asked_y[:, None])
        return float(relevant.any(axis=1).mean())

    yield "raw features", math.nan, recall(nearest(asked, server, 8))
    codebook = codebook_of(public)
    near = nearest(codebook, server, EACH)

    def by_cells(query: SubsetQuery, chosen: Any) -> float:
        found = np.full((len(asked), 8), -1)
        for place, x in enumerate(asked):
            candidates = np.unique(near[chosen(x)])
            best = candidates[query.rerank(x, server[candidates], 8)]
            found[place, : len(best)] = best
        return recall(found)

    uniform = np.random.default_rng(seed)
    query = SubsetQuery(codebook, epsilon=1.0, random_state=seed)
    score = by_cells(query, lambda x: uniform.choice(CELLS, MOST, replace=False))
    yield "8 random cells, no query sent", math.nan, score
    P = np.random.default_rng(seed).normal(size=(8, server.shape[1])) / math.sqrt(8)
    for epsilon in EPSILONS:
        query = SubsetQuery(codebook, epsilon=epsilon, most=MOST, random_state=seed)
        yield "SubsetQuery", epsilon, by_cells(query, query.ask)
        noisy = projected(asked, P, epsilon, seed)
        yield "random projection + noise", epsilon, recall(nearest(noisy, server @ P.T, 8))
        known = np.concatenate((public, server)), np.concatenate((public_y, server_y))
        metric = PrivateMetricLearner(epsilon, DELTA, 9, classes=range(10), random_state=seed).fit(
            *known
        )
        found = nearest(metric.transform(asked), metric.transform(server), 8)
        yield "PrivateMetricLearner", epsilon, recall(found)


def _serve(records: Array, codebook: Array, pipe: Any) -> None:
    with RetrievalServer(Catalogue(records, codebook)) as server:
        pipe.send(server.address)
        server.serve_forever()


@contextmanager
def server_process(records: Array, codebook: Array) -> Iterator[tuple[str, int]]:
    """Run a server in a process of its own, and end it afterwards."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(records, codebook, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(60):
            print("the server process did not start within a minute", file=sys.stderr)
            raise typer.Exit(1)
        yield ours.recv()
    finally:
        process.terminate()
        process.join()


def over_http(epsilon: float, queries: int) -> tuple[float, float]:
    """Return Recall@8 and milliseconds a query of image queries to a server process."""
    (public, _), (server, server_y), (asked, asked_y) = split(0, queries)
    with server_process(server, codebook_of(public)) as address:
        codebook = RetrievalClient(*address).codebook()
        query = SubsetQuery(codebook, epsilon=epsilon, most=MOST, random_state=0)
        client = RetrievalClient(*address, query)
        found = []
        started = time.perf_counter()
        for x, label in zip(asked, asked_y, strict=True):
            ids, _ = client.search(x, k=8, count=EACH)
            found.append(bool((server_y[ids] == label).any()))
        took = time.perf_counter() - started
    return float(np.mean(found)), 1000 * took / len(asked)


def refused_after(epsilon: float, limit: float) -> int:
    """Return how many queries at ``epsilon`` one client may ask before a budget of ``limit`` refuses."""
    with PrivacyBudget(limit, 0.0, unit="all queries of one client") as budget:
        query = SubsetQuery(np.eye(8), epsilon=epsilon, budget=budget)
        for asked in range(1000):
            try:
                query.release(0)
            except BudgetExceededError:
                return asked
    return 1000


@app.command()
def main(
    out: Annotated[Path, typer.Option(help="Files to write, without their endings.")] = Path(
        "retrieval"
    ),
    seeds: Annotated[int, typer.Option(min=1, help="Splits.")] = 5,
    queries: Annotated[int, typer.Option(min=1, max=300, help="Queries a split.")] = 300,
) -> None:
    """Print recall against epsilon for every method, with what each guarantees."""
    scores: dict[tuple[str, float], list[float]] = defaultdict(list)
    for seed in range(seeds):
        for method, epsilon, score in cells_of(seed, queries):
            scores[method, 0.0 if math.isnan(epsilon) else epsilon].append(score)
    lines = [
        "| method | the query's guarantee | the records' guarantee | no epsilon | "
        + " | ".join(f"epsilon {e:g}" for e in EPSILONS)
        + " |",
        "|---" * (len(EPSILONS) + 4) + "|",
    ]
    for method, guarantees in METHODS.items():
        row = [
            f"{np.mean(scores[method, e]):.3f}" if (method, e) in scores else ""
            for e in (0.0, *EPSILONS)
        ]
        lines.append("| " + " | ".join([method, *guarantees, *row]) + " |")
    recall, took = over_http(4.0, queries)
    lines += [
        "",
        f"Over HTTP at epsilon 4: Recall@8 {recall:.3f}, {took:.1f} ms a query.",
        f"A budget of 12 allows {refused_after(4.0, 12.0)} queries at epsilon 4.",
    ]
    text = "\n".join([f"### Recall@8 on digits ({seeds} splits)", "", *lines, ""])
    print(text)
    out.with_suffix(".md").write_text(text, encoding="utf-8")
    with out.with_suffix(".csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["method", "epsilon", "recall_at_8", "splits"])
        for (method, epsilon), values in scores.items():
            writer.writerow([method, epsilon or "", f"{np.mean(values):.5f}", len(values)])


if __name__ == "__main__":
    app()
