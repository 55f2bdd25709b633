"""The trade-off at equal protection: what private text is still worth where the best attacker gets back as many words.

Laws are set to the epsilon at which the best attacker gets back 5, 10 or 20 % of content words (``evaluation.tradeoff``),
and compared by what a model learns from private documents. A law is chosen among many on reviews that nothing is shown on;
then it is shown, unchanged, on IMDB, Yelp and Banking77. Three steps, so that the long one needs no data and no tokenizer:

    python recipes/tradeoff.py prepare --data-dir DATA --folder prepared
    python recipes/tradeoff.py run --folder prepared --out results.json --jobs 2
    python recipes/tradeoff.py record --out results.json --docs docs/results

DATA holds ``imdb/train.jsonl.gz``, ``imdb/test.jsonl.gz``, ``yelp/reviews.jsonl.gz``, ``banking77/train.jsonl.gz``,
``banking77/test.jsonl.gz`` and, under ``embeddings``, ``imdb-unsup-sg-40k.300d.bin.gz`` and its counts. A run that is
stopped goes on where it was. Of IMDB's training half, reviews 1 to 12,500 are private; laws are chosen on 12,501 to 18,500
(learn) and 18,501 to 24,000 (test); a language model learns from 12,501 to 24,000, and attacks what laws make of the rest.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import json
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import textpriv
from textpriv.errors import TextprivError
from textpriv.evaluation.bigrams import Bigrams
from textpriv.evaluation.tradeoff import (
    Attackers,
    Context,
    Documents,
    Make,
    Task,
    epsilon_at,
    interval,
    similarity,
)
from textpriv.evaluation.utility import whitened
from textpriv.metrics import CallableMetric

VECTORS = "embeddings/imdb-unsup-sg-40k.300d.bin.gz"
COUNTS = "embeddings/imdb-unsup-sg-40k.counts.txt.gz"
WORDS = 6000
COMMON = 250  # words that are no content words
SHARES = (0.05, 0.1, 0.2)
SEEDS = 5
PUBLISHED = "TEM as published"
SHOWN = ("imdb", "yelp stars", "yelp topic", "banking77", "imdb, mean vectors")
_TOP = 3  # laws of the choice that are shown besides the first
_CONTEXT = 60  # reviews that are read in context

# ----------------------------------------------------------------------------------------------
# Data
# ----------------------------------------------------------------------------------------------


def prepare(data: Path, folder: Path, words: int) -> None:
    """Write vocabulary, texts as word ids and labels as two files that numpy reads."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = textpriv.Vocabulary.load(data / VECTORS, limit=words, prior=data / COUNTS)
    np.savez_compressed(
        folder / "vocabulary.npz",
        words=np.array(vocabulary.words),
        vectors=vocabulary.vectors.astype(np.float16),
        counts=vocabulary.prior_weights("counts"),
    )
    # Any mechanism over the words reads texts alike.
    few = textpriv.Vocabulary(vocabulary.words, np.ascontiguousarray(vocabulary.vectors[:, :2]))
    reader = textpriv.Privatizer(textpriv.Madlib(textpriv.Index.build(few, k=2), 1.0))
    categories: dict[str, int] = {}
    arrays: dict[str, NDArray[Any]] = {}
    for name, path in {
        "imdb_train": "imdb/train.jsonl.gz",
        "imdb_test": "imdb/test.jsonl.gz",
        "yelp": "yelp/reviews.jsonl.gz",
        "bank_train": "banking77/train.jsonl.gz",
        "bank_test": "banking77/test.jsonl.gz",
    }.items():
        codes, labels, topics = [], [], []
        with gzip.open(data / path, "rt", encoding="utf-8") as lines:
            for line in lines:
                record = json.loads(line)
                found = reader.read(record["text"]).codes
                codes.append(found[found >= -1].astype(np.int16))
                labels.append(record["label"] if "label" in record else record["stars"] >= 4)
                topics.append(categories.setdefault(record.get("category", ""), len(categories)))
        arrays[f"{name}_ids"] = np.concatenate(codes)
        arrays[f"{name}_lengths"] = np.array([len(each) for each in codes], dtype=np.int32)
        arrays[f"{name}_labels"] = np.array(labels, dtype=np.int16)
        arrays[f"{name}_topics"] = np.array(topics, dtype=np.int16) - min(topics)
    np.savez_compressed(folder / "texts.npz", **arrays)


class Data:
    """What was prepared, read once for each process."""

    def __init__(self, folder: Path) -> None:
        with np.load(folder / "vocabulary.npz", allow_pickle=False) as stored:
            self.vocabulary = textpriv.Vocabulary(
                stored["words"].tolist(),
                stored["vectors"].astype(np.float32),
                prior=stored["counts"],
            )
        with np.load(folder / "texts.npz", allow_pickle=False) as stored:
            self.texts = dict(stored)
        self.words = len(self.vocabulary)
        self.counts = self.vocabulary.prior_weights("counts")

    @cache  # noqa: B019 - one object lives as long as the process
    def documents(self, name: str, labels: str = "labels") -> Documents:
        """A set by the name of its file."""
        ends = np.cumsum(self.texts[f"{name}_lengths"], dtype=np.int64)
        return Documents(
            self.texts[f"{name}_ids"].astype(np.int32),
            np.concatenate([[0], ends]).astype(np.int64),
            self.texts[f"{name}_{labels}"].astype(np.int64),
        )

    @cache  # noqa: B019
    def task(self, name: str) -> Task:
        """What a model learns, by name."""
        train, test = self.documents("imdb_train"), self.documents("imdb_test")
        if name == "choice":
            return Task(train.between(12_500, 18_500), train.between(18_500, 24_000), self.words)
        if name == "imdb":
            return Task(train.between(0, 12_500), test, self.words)
        if name == "imdb, mean vectors":
            table = whitened(self.vocabulary)
            return Task(train.between(0, 12_500), test, self.words, 1.0, table)
        if name == "banking77":
            return Task(self.documents("bank_train"), self.documents("bank_test"), self.words, 1.0)
        yelp = self.documents("yelp", "topics" if name == "yelp topic" else "labels")
        return Task(yelp.between(0, 4000), yelp.between(4000, 5000), self.words)

    @cache  # noqa: B019
    def attackers(self) -> Attackers:
        """The best attackers: exact Bayes, and one who reads in context."""
        train = self.documents("imdb_train")
        read, attacked = train.between(12_500, 24_000), train.between(24_000, 24_000 + _CONTEXT)
        model = Bigrams.train(read.ids, read.offsets, self.words)
        return Attackers(self.counts, min(COMMON, self.words // 4), Context(model, attacked))

    @cache  # noqa: B019
    def table(self) -> NDArray[np.float32]:
        """Vectors about their mean word, by which documents are called similar."""
        vectors = self.vocabulary.vectors
        return (vectors - self.counts @ vectors).astype(np.float32)


# ----------------------------------------------------------------------------------------------
# Laws
# ----------------------------------------------------------------------------------------------


class Laws:
    """All laws that are tried, by name; each a function of epsilon."""

    def __init__(self, vocabulary: textpriv.Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.counts = vocabulary.prior_weights("counts")
        order = np.argsort(-self.counts, kind="stable")
        self.common = np.zeros(len(vocabulary), dtype=bool)
        self.common[order[: min(COMMON, len(vocabulary) // 4)]] = True

    @cache  # noqa: B019
    def index(self, metric: str, projection: int | None = None) -> textpriv.Index:
        """Euclidean distances, as they are or projected."""
        return textpriv.Index.build(self.vocabulary, metric, projection=projection, hnsw=False)

    @cache  # noqa: B019
    def clipped(self, metric: str, quantile: float) -> textpriv.Index:
        """Distances after norms were clipped at one of their quantiles."""
        radius = float(np.quantile(np.linalg.norm(self.vocabulary.vectors, axis=1), quantile))
        return textpriv.Index.build(self.vocabulary, metric, radius=radius, hnsw=False)

    @cache  # noqa: B019
    def apart(self, projection: int | None, stretch: float = 4.0) -> textpriv.Index:
        """Content words by themselves, common ones far from them and from each other: a metric that is declared."""
        rows = self.index("unit_euclidean", projection).coordinates.astype(np.float64)
        rows /= np.sqrt((rows**2).sum(axis=1).mean())
        rows = np.c_[rows, np.zeros(len(rows))]
        rows[self.common] *= stretch
        rows[self.common, -1] = 3 * stretch
        return textpriv.Index.build(self._of(rows), hnsw=False)

    @cache  # noqa: B019
    def graph(self, neighbours: int) -> textpriv.Index:
        """Shortest paths over the nearest unit vectors, where that graph hangs together: a metric, too."""
        from scipy.sparse import coo_matrix
        from scipy.sparse.csgraph import dijkstra

        lists = self.index("unit_euclidean").neighbours
        size = len(self.vocabulary)
        ends = np.repeat(np.arange(size), neighbours), lists.ids[:, 1 : neighbours + 1].ravel()
        lengths = np.maximum(lists.distances[:, 1 : neighbours + 1].ravel(), 1e-6)
        # Words that no path reaches are at the diameter of the sphere or the longest path, which is larger.
        found = dijkstra(coo_matrix((lengths, ends), shape=(size, size)).tocsr(), directed=False)
        found[np.isinf(found)] = max(2.0, found[np.isfinite(found)].max())
        metric = CallableMetric(
            lambda a, b: found[np.ix_(a[:, 0].astype(int), b[:, 0].astype(int))], "graph"
        )
        rows = np.arange(size, dtype=np.float64)[:, None]
        return textpriv.Index.build(self._of(rows), metric, hnsw=False)

    def _of(self, rows: NDArray[np.float64]) -> textpriv.Vocabulary:
        return textpriv.Vocabulary(
            self.vocabulary.words, np.ascontiguousarray(rows), prior=self.counts
        )

    @cache  # noqa: B019
    def tree(self, method: str, power: float, apart: bool) -> textpriv.Tree:
        """A tree by clustering unit vectors, its heights raised to a power."""
        if power != 1.0:
            made = self.tree(method, 1.0, apart)
            return made.reheighted(made.heights**power, made.names)
        if apart:
            words = textpriv.Vocabulary(
                self.vocabulary.words,
                self.apart(None).coordinates.astype(np.float32),
                prior=self.counts,
            )
            return textpriv.Tree.build(words, method, metric="euclidean")
        return textpriv.Tree.build(self.vocabulary, method)

    def _tem(self, index: Callable[[], textpriv.Index], power: float) -> Make:
        return lambda e: textpriv.TEM(index(), e, prior=self.counts**power)

    def _tree(self, method: str, power: float, share: float, apart: bool) -> Make:
        prior = self.counts**share
        return lambda e: textpriv.TreeTEM(
            self.tree(method, power, apart), e, prior=prior, rate="half"
        )

    def all(self) -> dict[str, Make]:
        """Laws by name. At equal recovery the rate drops out, so none is searched for."""
        found: dict[str, Make] = {
            PUBLISHED: lambda e: textpriv.TEM(self.index("euclidean"), e, prior="uniform"),
            "smoothed, unit vectors": lambda e: textpriv.SmoothedTEM(
                self.index("unit_euclidean"), e
            ),
        }
        titles = {"euclidean": "vectors", "unit_euclidean": "unit vectors"}
        for metric, title in titles.items():
            for size in (None, 64, 32, 16, 8):
                for power in (0.0, 0.5, 1.0, 1.5):
                    name = f"{title}, {size or 'all'} dimensions, counts^{power:g}"
                    found[name] = self._tem(lambda m=metric, s=size: self.index(m, s), power)
        for power in (0.0, 1.0):
            found[f"vectors clipped at the median norm, counts^{power:g}"] = self._tem(
                lambda: self.clipped("euclidean", 0.5), power
            )
        for size in (None, 64, 32, 16, 8, 4):
            for power in (0.0, 0.25, 0.5, 1.0):
                found[f"common words apart, {size or 'all'} dimensions, counts^{power:g}"] = (
                    self._tem(lambda s=size: self.apart(s), power)
                )
        for power in (0.5, 1.0):
            found[f"graph of 8 neighbours, counts^{power:g}"] = self._tem(
                lambda: self.graph(8), power
            )
        for apart in (False, True):
            for method in ("ward", "average"):
                for height in (0.5, 1.0):
                    for share in (0.0, 0.5, 1.0):
                        kind = "tree, common words apart" if apart else "tree"
                        name = f"{kind}: {method}, heights^{height:g}, counts^{share:g}"
                        found[name] = self._tree(method, height, share, apart)
        return {
            name: make
            for name, make in found.items()
            if name != "vectors, all dimensions, counts^0"
        }


# ----------------------------------------------------------------------------------------------
# Cells
# ----------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _shared(folder: str) -> tuple[Data, Laws, dict[str, Make]]:
    data = Data(Path(folder))
    laws = Laws(data.vocabulary)
    return data, laws, laws.all()


def _drawn(mechanism: Any, documents: Documents, seed: int) -> NDArray[np.int32]:
    # Numpy's generator: what is measured is no secret.
    drawn: NDArray[np.int32] = mechanism.sample(documents.ids, np.random.default_rng(seed))
    return drawn


def choice_cell(folder: str, name: str) -> dict[str, Any]:
    """A law at each recovery: epsilon, what attackers get back, and what is learned on the reviews of the choice."""
    data, _, laws = _shared(folder)
    task, found = data.task("choice"), {}
    for share in SHARES:
        try:
            epsilon = epsilon_at(laws[name], share, data.attackers())
        except TextprivError as error:
            found[f"{share:g}"] = {"refused": str(error)}
            continue
        mechanism = laws[name](epsilon)
        accuracies = [
            float(task.right(_drawn(mechanism, task.train, seed)).mean()) for seed in (0, 1)
        ]
        found[f"{share:g}"] = {
            "epsilon": epsilon,
            "success": list(data.attackers().success(mechanism)),
            "accuracy": float(np.mean(accuracies)),
        }
    return found


def shown_cell(folder: str, name: str, epsilon: float, seed: int) -> dict[str, Any]:
    """One draw of a law on every task: which test documents are classified as they are, and how similar texts are."""
    data, _, laws = _shared(folder)
    mechanism = laws[name](epsilon)
    found: dict[str, Any] = {}
    drawn: dict[int, NDArray[np.int32]] = {}
    for each in SHOWN:
        task = data.task(each)
        key = len(task.train.ids)  # tasks of one text share its draw
        if key not in drawn:
            drawn[key] = _drawn(mechanism, task.train, seed)
        found[each] = packed(task.right(drawn[key]))
    train = data.task("imdb").train
    found["similarity"] = similarity(train, drawn[len(train.ids)], data.table())
    return found


def clear_cell(folder: str, name: str) -> list[float]:
    """Accuracy without privacy, and of naming the commonest class."""
    task = _shared(folder)[0].task(name)
    return [float(task.right(task.train.ids).mean()), task.guessing]


def packed(right: NDArray[np.bool_]) -> dict[str, Any]:
    """Yes and no as text."""
    bits = base64.b64encode(np.packbits(right)).decode()
    return {"size": len(right), "bits": bits}


def unpacked(entry: dict[str, Any]) -> NDArray[np.bool_]:
    """Yes and no again."""
    bits = np.frombuffer(base64.b64decode(entry["bits"]), dtype=np.uint8)
    flat: NDArray[np.bool_] = np.unpackbits(bits, count=entry["size"]).astype(np.bool_)
    return flat


class Results:
    """What was measured, in a file that is written whole after each cell."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.content: dict[str, dict[str, Any]] = {"clear": {}, "choice": {}, "shown": {}}
        if path.exists():
            self.content = json.loads(path.read_text(encoding="utf-8"))

    def fill(self, part: str, cells: dict[str, tuple[Any, ...]], pool: ProcessPoolExecutor) -> None:
        """Measure what is not there yet: cells by key, each a function and its arguments."""
        todo = {key: call for key, call in cells.items() if key not in self.content[part]}
        futures = {pool.submit(*call): key for key, call in todo.items()}
        started = time.perf_counter()
        for done, future in enumerate(as_completed(futures), start=1):
            self.content[part][futures[future]] = future.result()
            staging = self.path.with_suffix(".partial")
            staging.write_text(json.dumps(self.content), encoding="utf-8")
            os.replace(staging, self.path)
            spent = time.perf_counter() - started
            print(f"{part}: {done} of {len(todo)}, {spent:.0f} s: {futures[future]}", flush=True)

    def kept(self, name: str) -> float:
        """The share of what clear reviews give above guessing that a law keeps on the reviews of the choice."""
        clear, guessing = self.content["clear"]["choice"]
        cells = self.content["choice"][name].values()
        return float(
            np.mean(
                [(cell.get("accuracy", guessing) - guessing) / (clear - guessing) for cell in cells]
            )
        )

    def ranked(self) -> list[str]:
        """Laws, the one that is recommended first."""
        return sorted(self.content["choice"], key=lambda name: -self.kept(name))

    def rows(self) -> list[str]:
        """The laws that are shown: the first of the choice, the best of each kind, and TEM as published."""
        ranked = self.ranked()
        kinds = (
            "vectors, all",
            "unit vectors, all",
            "vectors, ",
            "unit vectors, ",
            "common words apart",
            "graph",
            "tree: ",
            "smoothed",
        )
        best = [next((name for name in ranked if name.startswith(kind)), None) for kind in kinds]
        rows = [*ranked[:_TOP], *best, PUBLISHED]
        return list(dict.fromkeys(name for name in rows if name is not None))


def run(folder: Path, out: Path, jobs: int, only: str | None) -> None:
    """Measure everything that is missing."""
    results, place = Results(out), str(folder)
    data, _, laws = _shared(place)
    names, tasks = list(laws), ("choice", *SHOWN)
    data.attackers()
    for name in tasks:  # before processes part, which then share them
        data.task(name).tested  # noqa: B018
    if only is not None:
        names = [name for name in names if only in name or name == PUBLISHED]
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        results.fill("clear", {name: (clear_cell, place, name) for name in tasks}, pool)
        results.fill("choice", {name: (choice_cell, place, name) for name in names}, pool)
        shown = {}
        for name in results.rows():
            for share, cell in results.content["choice"][name].items():
                for seed in range(SEEDS if "epsilon" in cell else 0):
                    shown[f"{name} | {share} | {seed}"] = (
                        shown_cell,
                        place,
                        name,
                        cell["epsilon"],
                        seed,
                    )
        results.fill("shown", shown, pool)


# ----------------------------------------------------------------------------------------------
# Tables and figures
# ----------------------------------------------------------------------------------------------


def curve(results: Results, name: str, task: str) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """At each recovery, which test documents are classified as they are, shape (seeds, documents)."""
    for share in map("{:g}".format, SHARES):
        cells = [
            cell[task]
            for key, cell in results.content["shown"].items()
            if key.startswith(f"{name} | {share} | ")
        ]
        if cells:
            yield share, np.stack([unpacked(cell) for cell in cells])


def tables(results: Results) -> str:
    """What was chosen from, and one table for each task."""
    ranked, content = results.ranked(), results.content
    first = ranked[0]
    shares = [f"{share:g}" for share in SHARES]
    lines = [f"Recommended: {first}.", ""]
    for task in SHOWN:
        clear, guessing = content["clear"][task]
        against = dict(curve(results, PUBLISHED, task))
        lines += [f"**{task}**, clear {clear:.3f}, the commonest class {guessing:.3f}:", ""]
        lines += [
            f"| law | {' | '.join(f'{float(share):.0%}' for share in shares)} |",
            "|---" * 4 + "|",
        ]
        for name in results.rows():
            cells = dict(curve(results, name, task))
            told = []
            for share in shares:
                if share not in cells:
                    told.append("-")
                    continue
                mean, low, high = interval(cells[share])
                ahead = ""
                if name == first and share in against:
                    gain, least, most = interval(cells[share], against[share])
                    ahead = f"; ahead by {gain:+.3f} ({least:+.3f} to {most:+.3f})"
                told.append(f"{mean:.3f} ({low:.3f} to {high:.3f}){ahead}")
            lines.append(f"| {name} | {' | '.join(told)} |")
        lines.append("")
    lines += ["What the attackers get back, and how similar texts stay:", ""]
    lines += [
        "| law | share | epsilon | content words, Bayes | in context | all words | similarity |",
        "|---" * 7 + "|",
    ]
    for name in results.rows():
        for share, cell in content["choice"][name].items():
            if "epsilon" not in cell:
                continue
            same = [
                each["similarity"]
                for key, each in content["shown"].items()
                if key.startswith(f"{name} | {share} | ")
            ]
            alone, everything, read = cell["success"]
            lines.append(
                f"| {name} | {float(share):.0%} | {cell['epsilon']:.3g} | {alone:.3f} | {read:.3f} | {everything:.3f} | "
                f"{np.mean(same):.3f} |"
            )
    lines += [
        "",
        "What was chosen from, by the share of what clear reviews give above guessing that is kept:",
        "",
    ]
    lines += ["| law | kept | 5% | 10% | 20% |", "|---" * 5 + "|"]
    for name in ranked:
        cells = content["choice"][name]
        told = [
            f"{cells[share]['accuracy']:.3f}" if "accuracy" in cells[share] else "-"
            for share in shares
        ]
        lines.append(f"| {name} | {results.kept(name):.3f} | {' | '.join(told)} |")
    return "\n".join(lines) + "\n"


def figures(results: Results, folder: Path) -> None:
    """One figure a task: accuracy against the share of content words that the best attacker gets back."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "textpriv"
    from matplotlib import pyplot

    for task in SHOWN:
        figure, axes = pyplot.subplots(figsize=(6.4, 4.0), layout="constrained")
        for name in results.rows():
            points = [(float(s), *interval(right)) for s, right in curve(results, name, task)]
            if not points:
                continue
            x, mean, low, high = np.array(points).T
            strong = name in (PUBLISHED, results.ranked()[0])
            axes.errorbar(
                x,
                mean,
                [mean - low, high - mean],
                label=name,
                marker="o",
                markersize=4,
                linewidth=2.2 if strong else 1.0,
                alpha=1.0 if strong else 0.6,
            )
        clear = results.content["clear"][task][0]
        axes.axhline(clear, color="0.5", linestyle=":", linewidth=1)
        axes.set(
            xlabel="content words that the best attacker gets back", ylabel="accuracy", title=task
        )
        axes.set_xticks(SHARES, [f"{share:.0%}" for share in SHARES])
        axes.legend(fontsize=7, frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
        name = task.replace(", ", "-").replace(" ", "-")
        figure.savefig(folder / f"tradeoff-{name}.svg", metadata={"Date": None})
        pyplot.close(figure)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("step", choices=["prepare", "run", "record"])
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--folder", type=Path, default=Path("prepared"))
    parser.add_argument("--out", type=Path, default=Path("tradeoff.json"))
    parser.add_argument("--docs", type=Path, default=Path("tradeoff"))
    parser.add_argument("--words", type=int, default=WORDS)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", help="Try only laws whose names hold this.")
    given = parser.parse_args()
    if given.step == "prepare":
        if given.data_dir is None:
            parser.error("prepare needs --data-dir")
        prepare(given.data_dir, given.folder, given.words)
    elif given.step == "run":
        run(given.folder, given.out, given.jobs, given.only)
    else:
        results = Results(given.out)
        given.docs.mkdir(parents=True, exist_ok=True)
        (given.docs / "tradeoff-tables.md").write_text(tables(results), encoding="utf-8")
        figures(results, given.docs)


if __name__ == "__main__":
    main()
