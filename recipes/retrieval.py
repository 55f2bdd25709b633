"""Private retrieval end to end: a client asks a server process for the neighbours of an image and of a private text.

*Digits.* scikit-learn's 1,797 images, split for every seed into a public half, a server's part and 300 queries. Every
method answers the same queries; a result is relevant when it shows the same digit. The table names what each method
really guarantees, and to whom.

*Text.* Mean embeddings of IMDB reviews; relevant are the records that an unprotected query would rank first. Two
queries are compared at the same traffic: a random subset of cells (``pairwise.SubsetQuery``), and the cells nearest
to the mean of the review's words after ``textpriv.TEM`` has replaced each of them. Without DATA, news articles that
ship with gensim.

    python recipes/retrieval.py --data-dir DATA --out retrieval

prints the tables and writes ``retrieval.csv``, ``.md``, ``.png`` and ``.svg``. Seeds make it repeatable; a client that is
to be protected gives none.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from pairwise import SMLQ, PrivacyBudget, PrivateLDA, PrivateMail, SubsetQuery
from pairwise.algorithms.published.mail import PublishedMail
from pairwise.errors import BudgetExceededError
from pairwise.estimators.projection import PrivatePCA, PrivateRandomProjection
from pairwise.noise.randomness import Randomness
from pairwise.retrieval.evaluation import align, nearest, recall_at_k
from pairwise.retrieval.service import Catalogue, RetrievalClient, RetrievalServer

app = typer.Typer(add_completion=False)

Array = NDArray[np.float64]

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
WORD_EPSILONS = (1.0, 2.0, 3.0, 4.0, 6.0)  # per unit of distance: another scale altogether
DELTA = 1e-5
CELLS, MOST, EACH = 64, 8, 4  # codebook, cells asked for at most, records for each
TEXT_CELLS, TEXT_MOST = 128, 8
DATA_FILES = (
    "embeddings/imdb-unsup-sg-40k.300d.bin.gz",
    "imdb/test.jsonl.gz",
    "imdb/train.jsonl.gz",
)


@dataclass(frozen=True)
class Method:
    """How a method is called, drawn and described.

    ``query`` and ``training`` say what is guaranteed to who asks and to the records that were learned from, with
    ``{e}`` for epsilon; "none" where nothing is.
    """

    name: str
    query: str
    training: str
    colour: str = ""
    line: str = "-"
    marker: str = ""
    seeds: int = 1 << 30


# Okabe and Ito's colours. Solid lines protect the query, dashed ones only the records learned from, dotted ones nobody.
DIGITS = {
    "subset": Method("SubsetQuery", "({e}, 0)", "none", "#0072B2", "-", "o"),
    "projection": Method("random projection + noise", "({e}, 1e-5)", "none", "#D55E00", "-", "s"),
    "mail": Method("PrivateMail, repaired", "({e}, 1e-5)", "({e}, 1e-5)", "#009E73", "-", "^"),
    "lda": Method("PrivateLDA embedding", "none", "({e}, 1e-5)", "#CC79A7", "--", "D"),
    "pca_private": Method("private PCA", "none", "({e}, 0)", "#56B4E9", "--", "v"),
    "published": Method("PrivateMail, published", "none", "none", "#000000", ":", "x"),
    "published_noise": Method("published, features discarded", "none", "none"),
}
REFERENCES = {
    "exact": Method("raw features", "none", "none", "#555555", (0, (1, 1))),
    "uniform": Method("8 random cells, no query sent", "(0, 0)", "none", "#0072B2", (0, (6, 3))),
    "pca": Method("PCA", "none", "none"),
    "tsne": Method("t-SNE", "none", "none", seeds=3),
    "smlq": Method("SMLQ without noise", "none", "none"),
    "lda_exact": Method("LDA", "none", "none"),
}
TEXTS = {
    "subset": Method("SubsetQuery", "({e}, 0) for the review", "none", "#0072B2", "-", "o"),
    "tem": Method("TEM on every word", "{e} d(w, w') for each word", "none", "#E69F00", "-", "P"),
}


@dataclass(frozen=True)
class Row:
    """One measurement: a method at an epsilon (nan for a reference) and one seed."""

    part: str
    method: str
    epsilon: float
    seed: int
    recall1: float
    recall8: float
    records: float  # sent by the server for each query, on average


# --------------------------------------------------------------------------------------------------------------------
# Digits


def digits() -> tuple[Array, NDArray[np.int64]]:
    """Return the images, each with its own mean taken off and scaled to norm 1, and their classes."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    X = X - X.mean(axis=1, keepdims=True)
    return X / np.linalg.norm(X, axis=1, keepdims=True), y


def split(seed: int, queries: int = 300) -> list[tuple[Array, NDArray[np.int64]]]:
    """Return public half, server's part and queries, disjoint."""
    X, y = digits()
    order = np.random.default_rng(seed).permutation(len(X))
    parts = (order[:898], order[898 : len(X) - 300], order[len(X) - 300 :][:queries])
    return [(X[part], y[part]) for part in parts]


def codebook_of(public: Array, cells: int) -> Array:
    """Return k-means centres of public features."""
    from sklearn.cluster import KMeans

    return KMeans(cells, n_init=1, random_state=0).fit(public).cluster_centers_


def digits_seed(seed: int, epsilons: tuple[float, ...], queries: int) -> list[Row]:
    """Return all measurements of one split."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        return _digits_seed(seed, epsilons, queries)


def _digits_seed(seed: int, epsilons: tuple[float, ...], queries: int) -> list[Row]:
    from sklearn.decomposition import PCA
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.manifold import TSNE

    (public, public_y), (server, server_y), (asked, asked_y) = split(seed, queries)
    known, known_y = np.concatenate((public, server)), np.concatenate((public_y, server_y))
    anchors = slice(0, 300)
    rows: list[Row] = []

    def add(
        method: str, found: NDArray[np.int64], epsilon: float = math.nan, records: float = 8
    ) -> None:
        relevant = (found >= 0) & (server_y[found] == asked_y[:, None])
        rows.append(
            Row(
                "digits",
                method,
                epsilon,
                seed,
                recall_at_k(relevant, 1),
                recall_at_k(relevant, 8),
                records,
            )
        )

    add("exact", nearest(asked, server, 8))
    pca = PCA(8).fit(public)
    add("pca", nearest(pca.transform(asked), pca.transform(server), 8))
    lda = LinearDiscriminantAnalysis().fit(known, known_y)
    add("lda_exact", nearest(lda.transform(asked), lda.transform(server), 8))
    if seed < REFERENCES["tsne"].seeds:
        together = TSNE(2, random_state=seed, max_iter=500).fit_transform(
            np.concatenate((asked, server))
        )
        add("tsne", nearest(together[: len(asked)], together[len(asked) :], 8))

    # PrivateMail: both sides embed their records with 300 public anchors, on which they are aligned (Algorithm 1).
    client = np.concatenate((asked, public[anchors]))
    client_y = np.concatenate((asked_y, public_y[anchors]))
    ours = np.concatenate((server, public[anchors]))
    ours_y = np.concatenate((server_y, public_y[anchors]))
    settings = {"algorithm": SMLQ(alpha=0.6, bandwidth=6.0), "classes": range(10)}
    theirs = PrivateMail(epsilon=math.inf, random_state=seed, **settings).fit_transform(
        ours, ours_y
    )

    def by_mail(embedding: Array) -> NDArray[np.int64]:
        moved = align(embedding[len(asked) :], theirs[len(server) :]).apply(embedding[: len(asked)])
        return nearest(moved, theirs[: len(server)], 8)

    plain = PrivateMail(epsilon=math.inf, random_state=seed + 1000, **settings)
    add("smlq", by_mail(plain.fit_transform(client, client_y)))

    codebook = codebook_of(public, CELLS)
    near = nearest(codebook, server, EACH)

    def by_cells(query: SubsetQuery, cells_of: Callable[[Array], NDArray[np.int64]]) -> Any:
        found = np.full((len(asked), 8), -1)
        records = 0
        for place, x in enumerate(asked):
            candidates = np.unique(near[cells_of(x)])
            best = candidates[query.rerank(x, server[candidates], 8)]
            found[place, : len(best)] = best
            records += len(candidates)
        return found, records / len(asked)

    uniform = np.random.default_rng(seed)
    query = SubsetQuery(codebook, epsilon=1.0, random_state=seed)
    found, records = by_cells(query, lambda x: uniform.choice(CELLS, MOST, replace=False))
    add("uniform", found, records=records)

    for epsilon in epsilons:
        query = SubsetQuery(codebook, epsilon=epsilon, most=MOST, random_state=seed)
        found, records = by_cells(query, query.ask)
        add("subset", found, epsilon, records)
        projection = PrivateRandomProjection(
            8, epsilon, DELTA, projection_state=seed, random_state=seed
        ).fit(public)
        add(
            "projection", nearest(projection.release(asked), projection.project(server), 8), epsilon
        )
        model = PrivateLDA(epsilon=epsilon, delta=DELTA, classes=range(10), random_state=seed).fit(
            known, known_y
        )
        add("lda", nearest(model.transform(asked), model.transform(server), 8), epsilon)
        axes = PrivatePCA(8, epsilon, random_state=seed).fit(known)
        add("pca_private", nearest(axes.transform(asked), axes.transform(server), 8), epsilon)
        mail = PrivateMail(epsilon=epsilon, delta=DELTA, random_state=seed, **settings)
        add("mail", by_mail(mail.fit_transform(client, client_y)), epsilon)
        printed = PublishedMail(epsilon=epsilon, n_classes=10, delta=DELTA)
        for name, discard in (("published", False), ("published_noise", True)):
            found = printed.search(
                asked,
                asked_y,
                public[anchors],
                public_y[anchors],
                server,
                server_y,
                8,
                Randomness(seed),
                discard_features=discard,
            )
            add(name, found, epsilon)
    return rows


def lda_seed(seed: int, epsilons: tuple[float, ...]) -> list[tuple[float, float]]:
    """Return (epsilon, accuracy of 5 neighbours) in a private embedding, infinity for ordinary LDA, one 75/25 split."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    X, y = digits()
    order = np.random.default_rng(seed).permutation(len(X))
    train, test = order[:1347], order[1347:]

    def score(model: Any) -> float:
        votes = y[train][nearest(model.transform(X[test]), model.transform(X[train]), 5)]
        return float(np.mean([np.bincount(row).argmax() for row in votes] == y[test]))

    results = [(math.inf, score(LinearDiscriminantAnalysis().fit(X[train], y[train])))]
    for epsilon in epsilons:
        model = PrivateLDA(epsilon=epsilon, delta=DELTA, classes=range(10), random_state=seed)
        results.append((epsilon, score(model.fit(X[train], y[train]))))
    return results


# --------------------------------------------------------------------------------------------------------------------
# The server process


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


def over_http(epsilon: float, queries: int, seed: int = 0) -> tuple[float, float, float]:
    """Return Recall@1, Recall@8 and milliseconds a query of image queries to a server process."""
    (public, _), (server, server_y), (asked, asked_y) = split(seed, queries)
    with server_process(server, codebook_of(public, CELLS)) as address:
        codebook = RetrievalClient(*address).codebook()
        query = SubsetQuery(codebook, epsilon=epsilon, most=MOST, random_state=seed)
        client = RetrievalClient(*address, query)
        relevant = np.zeros((len(asked), 8), dtype=bool)
        started = time.perf_counter()
        for place, (x, label) in enumerate(zip(asked, asked_y, strict=True)):
            ids, _ = client.search(x, k=8, count=EACH)
            relevant[place, : len(ids)] = server_y[ids] == label
        took = time.perf_counter() - started
    return recall_at_k(relevant, 1), recall_at_k(relevant, 8), 1000 * took / len(asked)


def refused_after(epsilon: float, limit: float) -> int:
    """Return how many queries at ``epsilon`` one client may ask before a budget of ``limit`` refuses."""
    with PrivacyBudget(limit, 0.0, unit="all queries of one client") as budget:
        query = SubsetQuery(np.eye(8), epsilon=epsilon, budget=budget)
        for asked in range(1000):
            try:
                query.ask(np.ones(8))
            except BudgetExceededError:
                return asked
    return 1000


# --------------------------------------------------------------------------------------------------------------------
# Text


@dataclass(frozen=True)
class Texts:
    """Documents as word ids, one after the other."""

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1


def read_texts(privatizer: Any, texts: Iterator[str], count: int) -> Texts:
    """Return the word ids of the first documents; tokens that the policy keeps are left out."""
    codes = []
    for text in texts:
        if len(codes) == count:
            break
        read = privatizer.read(text).codes
        codes.append(read[read >= -1])
    offsets = np.concatenate(([0], np.cumsum([len(c) for c in codes]))).astype(np.int64)
    return Texts(np.concatenate(codes), offsets)


def reviews(path: Path) -> Iterator[str]:
    """Yield the texts of a packed JSONL file."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)["text"]


def articles(name: str) -> Iterator[str]:
    """Yield public news articles that ship with gensim."""
    from gensim.test.utils import datapath

    # One of them has a pound sign in Latin-1, in which the others, plain ASCII, can be read, too.
    with open(datapath(name), encoding="latin-1") as lines:
        yield from lines


def means(texts: Texts, ids: NDArray[np.int32], vectors: Array) -> Array:
    """Return the mean vector of each document's known words, shape (documents, d)."""
    rows = np.repeat(np.arange(len(texts)), np.diff(texts.offsets))
    known = ids >= 0
    from scipy.sparse import csr_matrix

    counts = csr_matrix(
        (np.ones(int(known.sum())), (rows[known], ids[known])), shape=(len(texts), len(vectors))
    )
    totals = np.maximum(np.asarray(counts.sum(axis=1)).ravel(), 1.0)
    return (counts @ vectors) / totals[:, None]


def text_rows(
    data_dir: Path | None, queries: int, records: int, tick: Callable[[], None]
) -> tuple[list[Row], str]:
    """Return the measurements on text, all of them through a server process, and a line on the data."""
    import textpriv
    from textpriv.randomness import KeyedStreams

    if data_dir is None:
        every = textpriv.Vocabulary.builtin("en")
        vocabulary = textpriv.Vocabulary(every.words[:2_000], every.vectors[:2_000])
        sources = {"public": articles("lee_background.cor"), "asked": articles("lee.cor")}
        half = 150
        sizes = {"public": 2 * half, "asked": min(queries, 50)}
        note = "300 news articles and 50 queries that ship with gensim"
    else:
        vectors_at, public_at, asked_at = (data_dir / name for name in DATA_FILES)
        vocabulary = textpriv.Vocabulary.load(vectors_at, limit=10_000)
        sources = {"public": reviews(public_at), "asked": reviews(asked_at)}
        half = records
        sizes = {"public": 2 * half, "asked": queries}
        note = f"{half} IMDB test reviews searched, {queries} training reviews asked, 10,000 words"
    index = textpriv.Index.build(vocabulary, k=256, hnsw=False)
    reader = textpriv.Privatizer(textpriv.TEM(index, epsilon=1.0))
    held = read_texts(reader, sources["public"], sizes["public"])
    asked = read_texts(reader, sources["asked"], sizes["asked"])
    vectors = np.asarray(vocabulary.vectors, dtype=np.float64)

    everything = means(held, held.ids, vectors)
    centre = everything[:half].mean(axis=0)

    def features(table: Array) -> Array:
        table = table - centre
        return table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12)

    public, server = features(everything[:half]), features(everything[half:])
    clean = features(means(asked, asked.ids, vectors))
    target = nearest(clean, server.astype(np.float32), 8)
    cells, each = min(TEXT_CELLS, half // 4), min(16, max(1, half // 40))
    tick()

    rows = []
    with server_process(server, codebook_of(public, cells)) as address:
        codebook = RetrievalClient(*address).codebook()

        def measure(
            method: str, epsilon: float, cells_of: Callable[[int], NDArray[np.int64]]
        ) -> None:
            query = SubsetQuery(codebook, epsilon=1.0)
            client = RetrievalClient(*address)
            first, among, received = 0, 0, 0
            for place in range(len(asked)):
                ids, values = client.fetch(cells_of(place), each)
                # The client ranks by its own, unprotected feature, which it never sends.
                best = ids[query.rerank(clean[place], values, 8)]
                first += int(best[0] == target[place, 0])
                among += len(np.intersect1d(best, target[place]))
                received += len(ids)
            count = len(asked)
            rows.append(
                Row("text", method, epsilon, 0, first / count, among / 8 / count, received / count)
            )
            tick()

        uniform = np.random.default_rng(0)
        measure(
            "uniform",
            math.nan,
            lambda _: uniform.choice(cells, min(TEXT_MOST, cells), replace=False),
        )
        exact = nearest(clean, codebook, TEXT_MOST)
        measure("exact", math.nan, lambda place: exact[place])
        for epsilon in EPSILONS:
            query = SubsetQuery(codebook, epsilon, min(TEXT_MOST, cells), random_state=0)
            measure("subset", epsilon, lambda place, query=query: query.ask(clean[place]))
        for epsilon in WORD_EPSILONS:
            mechanism = textpriv.TEM(index, epsilon=epsilon)
            streams = KeyedStreams(seed=0)
            ids = mechanism.sample_documents(
                asked.ids, asked.offsets, [streams.stream(i) for i in range(len(asked))]
            )
            near = nearest(features(means(asked, ids, vectors)), codebook, TEXT_MOST)
            measure("tem", epsilon, lambda place, near=near: near[place])
    return rows, note


# --------------------------------------------------------------------------------------------------------------------
# Tables and figure


def summary(rows: list[Row], part: str, method: str, epsilon: float) -> tuple[Array, Array, int]:
    """Return mean and half width of a 95 % interval of (recall@1, recall@8, records), and the number of seeds."""
    same = [
        (row.recall1, row.recall8, row.records)
        for row in rows
        if row.part == part
        and row.method == method
        and (row.epsilon == epsilon or (math.isnan(row.epsilon) and math.isnan(epsilon)))
    ]
    table = np.array(same, dtype=np.float64).reshape(-1, 3)
    if not len(table):
        return np.full(3, np.nan), np.zeros(3), 0
    spread = table.std(axis=0, ddof=1) if len(table) > 1 else np.zeros(3)
    return table.mean(axis=0), 1.96 * spread / math.sqrt(len(table)), len(table)


def guarantee(text: str, epsilon: float | None = None) -> str:
    """Return what a method guarantees, at an epsilon or for any."""
    return text.replace("{e}", "epsilon" if epsilon is None else f"{epsilon:g}")


def digits_tables(rows: list[Row]) -> str:
    """Return the references, then every method at every epsilon, with what each guarantees."""
    lines = [
        "| not depending on epsilon | guarantee to the query | guarantee to the records learned from | "
        "Recall@1 | Recall@8 | records sent |",
        "|---|---|---|---|---|---|",
    ]
    widest = np.zeros(3)
    for key, method in REFERENCES.items():
        mean, half, _ = summary(rows, "digits", key, math.nan)
        widest = np.maximum(widest, half)
        lines.append(
            f"| {method.name} | {method.query} | {method.training} | {mean[0]:.3f} | {mean[1]:.3f} | {mean[2]:.0f} |"
        )
    heads = " | ".join(f"epsilon {epsilon:g}" for epsilon in EPSILONS)
    lines += [
        "\nRecall@1 / Recall@8:\n",
        f"| method | guarantee to the query | guarantee to the records learned from | {heads} |",
        "|---" * (3 + len(EPSILONS)) + "|",
    ]
    for key, method in DIGITS.items():
        cells = []
        for epsilon in EPSILONS:
            mean, half, _ = summary(rows, "digits", key, epsilon)
            widest = np.maximum(widest, half)
            cells.append(f"{mean[0]:.3f} / {mean[1]:.3f}")
        promises = f"{guarantee(method.query)} | {guarantee(method.training)}"
        lines.append(f"| {method.name} | {promises} | " + " | ".join(cells) + " |")
    sent = ", ".join(
        f"{summary(rows, 'digits', 'subset', epsilon)[0][2]:.0f}" for epsilon in EPSILONS
    )
    lines.append(
        f"\nHalf of a 95 % interval over splits: at most {widest[0]:.3f} for Recall@1, {widest[1]:.3f} for Recall@8. "
        f"Records sent for a SubsetQuery: {sent}; for all others 8."
    )
    return "\n".join(lines)


def text_table(rows: list[Row], queries: int) -> str:
    """Return the table of text: a line for each method and epsilon, with what it guarantees."""
    lines = [
        "| method | guarantee to the query | Recall@1 | Recall@8 | records sent |",
        "|---|---|---|---|---|",
    ]
    named = [
        ("exact", Method("8 nearest cells, unprotected", "none", "none"), (math.nan,)),
        ("uniform", REFERENCES["uniform"], (math.nan,)),
        ("subset", TEXTS["subset"], EPSILONS),
        ("tem", TEXTS["tem"], WORD_EPSILONS),
    ]
    for key, method, epsilons in named:
        for epsilon in epsilons:
            mean, _, _ = summary(rows, "text", key, epsilon)
            half = binomial(mean, queries)
            lines.append(
                f"| {method.name} | {guarantee(method.query, epsilon)} | {mean[0]:.3f} ± {half[0]:.3f} | "
                f"{mean[1]:.3f} ± {half[1]:.3f} | {mean[2]:.0f} |"
            )
    return "\n".join(lines)


def binomial(share: Array, queries: int) -> Array:
    """Return half of a 95 % interval of shares of so many queries (for means of shares a bound on it)."""
    return 1.96 * np.sqrt(np.maximum(share * (1 - share), 0.0) / queries)


def draw(rows: list[Row], queries: int, text_queries: int, out: Path) -> None:
    """Save the figure as PNG and SVG."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 10, "svg.fonttype": "none", "svg.hashsalt": "retrieval"})
    figure, axes = plt.subplots(2, 2, figsize=(8, 7.6), dpi=100)

    def curve(
        axis: Any,
        part: str,
        key: str,
        method: Method,
        epsilons: Any,
        which: int,
        shift: float = 1.0,
    ) -> None:
        points = [summary(rows, part, key, e) for e in epsilons]
        mean = np.array([p[0][which] for p in points])
        half = np.array([p[1][which] for p in points])
        if all(p[2] <= 1 for p in points):
            half = binomial(mean, queries if part == "digits" else text_queries)
        axis.errorbar(
            np.multiply(epsilons, shift),
            mean,
            half,
            color=method.colour,
            linestyle=method.line,
            marker=method.marker,
            markersize=5.5,
            linewidth=1.7,
            capsize=3,
            label=method.name,
        )

    def level(axis: Any, part: str, key: str, which: int, colour: str, name: str) -> None:
        value = summary(rows, part, key, math.nan)[0][which]
        line = ":" if key == "exact" else "-"
        axis.axhline(value, color=colour, linewidth=1.3, linestyle=line, label=name)

    def levels(axis: Any, part: str, which: int) -> None:
        level(axis, part, "exact", which, "#555555", "unprotected query")
        level(axis, part, "uniform", which, "#0072B2", "8 random cells, no query sent")

    for which, axis in enumerate(axes[0]):
        drawn = [(key, method) for key, method in DIGITS.items() if method.colour]
        for place, (key, method) in enumerate(drawn):
            # Side by side, so that no interval hides another.
            shift = 1.045 ** (place - (len(drawn) - 1) / 2)
            curve(axis, "digits", key, method, EPSILONS, which, shift)
        levels(axis, "digits", which)
        axis.set_title(f"Digits: Recall@{(1, 8)[which]}, same digit", fontsize=10.5)
        axis.set_xlabel("epsilon of one query or fit (nats)")
        ticks(axis, EPSILONS)
    for axis, key, epsilons, unit in (
        (axes[1][0], "subset", EPSILONS, "epsilon of the whole review (nats)"),
        (axes[1][1], "tem", WORD_EPSILONS, "epsilon of each word (nats per unit of distance)"),
    ):
        curve(axis, "text", key, TEXTS[key], epsilons, 0)
        levels(axis, "text", 0)
        axis.set_title(f"Text by {TEXTS[key].name}: Recall@1", fontsize=10.5)
        axis.set_xlabel(unit)
        ticks(axis, epsilons)
    for axis in axes[:, 0]:
        axis.set_ylabel("share of queries")
    handles, names = axes[0][0].get_legend_handles_labels()
    figure.legend(
        handles,
        names,
        loc="lower center",
        ncols=3,
        fontsize=9,
        frameon=False,
        title="solid: protects the query      dashed: only the records learned from      dotted: nobody",
        title_fontsize=9,
    )
    figure.tight_layout(rect=(0, 0.12, 1, 1), h_pad=1.6)
    for suffix in (".png", ".svg"):
        # Without a date, a figure of the same numbers is the same file.
        metadata = {"Date": None} if suffix == ".svg" else None
        figure.savefig(out.with_suffix(suffix), metadata=metadata)
    plt.close(figure)


def ticks(axis: Any, epsilons: tuple[float, ...]) -> None:
    """Give an axis its scale: epsilon on a logarithmic one, shares from 0 to 1."""
    from matplotlib.ticker import NullLocator

    axis.set_xscale("log", base=2)
    axis.set_xticks(epsilons, [f"{e:g}" for e in epsilons])
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_ylim(-0.02, 1.04)
    axis.set_xlim(epsilons[0] / 1.2, epsilons[-1] * 1.2)
    axis.grid(True, color="#dddddd", linewidth=0.6)
    axis.set_axisbelow(True)


def write_csv(path: Path, rows: list[Row]) -> None:
    """Write every measurement."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["part", "method", "epsilon", "seed", "recall1", "recall8", "records"])
        for row in rows:
            epsilon = "" if math.isnan(row.epsilon) else f"{row.epsilon:g}"
            table.writerow(
                [
                    row.part,
                    row.method,
                    epsilon,
                    row.seed,
                    f"{row.recall1:.5f}",
                    f"{row.recall8:.5f}",
                    f"{row.records:.1f}",
                ]
            )


@app.command()
def main(
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Folder with embeddings/ and imdb/; news articles without it."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Where to write OUT.csv, .md, .png and .svg.")] = Path(
        "retrieval"
    ),
    seeds: Annotated[int, typer.Option(help="Splits of the digits.", min=1)] = 20,
    queries: Annotated[int, typer.Option(help="Queries of each split.", min=8, max=300)] = 300,
    text_queries: Annotated[int, typer.Option(help="Reviews to ask about.", min=8)] = 400,
    text_records: Annotated[int, typer.Option(help="Reviews to search.", min=64)] = 4000,
) -> None:
    """Measure every method, print the tables and save the figure."""
    if data_dir is not None:
        missing = [name for name in DATA_FILES if not (data_dir / name).is_file()]
        if missing:
            raise typer.BadParameter(
                f"{data_dir} has no {missing[0]}. Give the folder that holds embeddings/ and imdb/, or leave it out."
            )
    if not out.absolute().parent.is_dir():
        raise typer.BadParameter(f"there is no folder {out.parent}. Make it first.")
    started = time.perf_counter()
    console = Console(stderr=True)
    rows: list[Row] = []
    accuracies: list[tuple[float, float]] = []
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("digits", total=seeds)
        lda = progress.add_task("private embedding", total=seeds)
        text = progress.add_task("text, over HTTP", total=3 + len(EPSILONS) + len(WORD_EPSILONS))
        with ProcessPoolExecutor(
            min(2, os.cpu_count() or 1, seeds), mp_context=multiprocessing.get_context("spawn")
        ) as pool:
            pending = [pool.submit(digits_seed, seed, EPSILONS, queries) for seed in range(seeds)]
            for future in as_completed(pending):
                rows += future.result()
                progress.advance(task)
            for result in pool.map(lda_seed, range(seeds), [EPSILONS] * seeds):
                accuracies += result
                progress.advance(lda)
        found, note = text_rows(
            data_dir, text_queries, text_records, lambda: progress.advance(text)
        )
        rows += found
    rows.sort(key=lambda row: (row.part, row.method, np.nan_to_num(row.epsilon), row.seed))
    text_asked = text_queries if data_dir is not None else min(text_queries, 50)
    recall1, recall8, milliseconds = over_http(4.0, queries)
    parts = [
        f"## Digits\n\nMean of {seeds} splits (t-SNE: of {min(seeds, REFERENCES['tsne'].seeds)}), {queries} queries each. "
        "A result is relevant when it shows the same digit. Guarantees are (epsilon, delta).\n",
        digits_tables(rows),
        "\nThe same through a server process over HTTP on loopback, split 0, SubsetQuery at epsilon 4: "
        f"Recall@1 {recall1:.3f}, Recall@8 {recall8:.3f}, {milliseconds:.1f} ms a query.",
        f"A client with a budget of 10 may ask {refused_after(4.0, 10.0)} queries at epsilon 4; the next one is refused.",
        "\n## Private embedding\n\nAccuracy of 5 nearest neighbours in the embedding, 1,347 digits learned from, "
        f"450 tested, replace-one, delta 1e-5, {seeds} splits; mean ± half of a 95 % interval, and the "
        "mean loss to ordinary LDA.\n",
        embedding_table(accuracies, seeds),
        f"\n## Text\n\n{note}; all over HTTP. Recall@k: share of the first k records of an unprotected query that are among "
        "the first k; ± half of a 95 % interval over queries, for Recall@8 a bound on it.\n",
        text_table(rows, text_asked),
        "\nDrawn with fixed seeds, for experiments: this run protects nobody.",
    ]
    report = "\n".join(parts) + "\n"
    print(report)
    write_csv(out.with_suffix(".csv"), rows)
    out.with_suffix(".md").write_text(report, encoding="utf-8")
    draw(rows, queries, text_asked, out)
    print(f"{time.perf_counter() - started:.0f} s", file=sys.stderr)


def embedding_table(accuracies: list[tuple[float, float]], seeds: int) -> str:
    """Return the table of neighbour accuracies in private embeddings."""
    by_epsilon: dict[float, list[float]] = {}
    for epsilon, value in accuracies:
        by_epsilon.setdefault(epsilon, []).append(value)
    exact = np.array(by_epsilon[math.inf])
    lines = ["| embedding | accuracy | loss |", "|---|---|---|"]
    for epsilon, values in sorted(by_epsilon.items()):
        found = np.array(values)
        half = 1.96 * found.std(ddof=1) / math.sqrt(seeds) if seeds > 1 else math.nan
        name = "LDA, unprotected" if math.isinf(epsilon) else f"PrivateLDA, epsilon {epsilon:g}"
        loss = round(float((exact - found).mean()), 3) + 0.0  # no minus before a zero
        lines.append(f"| {name} | {found.mean():.3f} ± {half:.3f} | {loss:.3f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    app()
