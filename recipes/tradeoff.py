"""The trade-off at equal protection: what private text is still worth where an attacker gets back as many words.

Laws are set to the epsilon at which the better of two attackers gets back 5, 10 or 20 % of content words,
and compared by what a model learns from private documents. A law is chosen among many on reviews that nothing is shown on;
then it is shown, unchanged, on IMDB, Yelp and Banking77. Three steps, so that the long one needs no data and no tokenizer:

    python recipes/tradeoff.py prepare --data-dir DATA --folder prepared
    python recipes/tradeoff.py run --folder prepared --out results.json --jobs 2
    python recipes/tradeoff.py record --out results.json --docs docs/results

DATA holds ``imdb/train.jsonl.gz``, ``imdb/test.jsonl.gz``, ``yelp/reviews.jsonl.gz``, ``banking77/train.jsonl.gz``,
``banking77/test.jsonl.gz`` and, under ``embeddings``, ``imdb-unsup-sg-40k.300d.bin.gz`` and its counts; without
``--data-dir`` they are fetched (``text_sets``). A run that is stopped goes on where it was. Of IMDB's training half,
reviews 1 to 12,500 are private; laws are chosen on 12,501 to 18,500 (learn) and 18,501 to 24,000 (test); topic vectors
and a language model learn from 12,501 to 24,000, and the model attacks what laws make of the rest. Of Banking77's
training queries, mixed, one half is private and laws are chosen on the other.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import json
import multiprocessing
import os
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from text_sets import COUNTS, VECTORS, fetched_texts

import textpriv
from textpriv.errors import TextprivError
from textpriv.evaluation.best_attacker import BestAttacker, PublicText, largest_epsilon
from textpriv.evaluation.tradeoff import Documents, Make, Task, interval, similarity
from textpriv.evaluation.utility import whitened
from textpriv.language.ngrams import NGrams
from textpriv.vocabulary.topics import common_apart, topic_vectors

WORDS = 6000
ORDER = 2  # words in the n-grams of the attacker who reads in context
# Where IMDB's training half is parted: private reviews, what laws are chosen on (learn, test; both also what vectors and
# models learn from, without labels), and what the attacker who reads in context is tried on.
PARTS = (0.5, 0.74, 0.96)
COMMON = 250  # words that are no content words
SHARES = (0.05, 0.1, 0.2)
SEEDS = 5
PUBLISHED = "TEM as published"
RESULTS = ("clear", "choice", "intents", "shown")
CHOICE = ("choice, reviews", "choice, intents")
SHOWN = ("imdb", "yelp stars", "yelp topic", "banking77", "imdb, mean vectors")
TOPICS = 64  # dimensions of vectors by shared documents
SHARED = 5  # documents that two words must share to count as related
TREE_DIMENSIONS = 50
_CONTEXT = 40  # reviews that are read in context

# ----------------------------------------------------------------------------------------------
# Data
# ----------------------------------------------------------------------------------------------


def prepare(data: Path, folder: Path, words: int) -> None:
    """Write vocabulary, texts as word ids and labels as two files that numpy reads."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = textpriv.Vocabulary.load(data / VECTORS, limit=words, prior=data / COUNTS)
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
    np.savez_compressed(folder / "texts.npz", **arrays)  # type: ignore[arg-type]
    ends = np.concatenate([[0], np.cumsum(arrays["imdb_train_lengths"], dtype=np.int64)])
    whole = Documents(arrays["imdb_train_ids"], ends, arrays["imdb_train_labels"])
    begin, _, end = parts(len(whole.labels))
    public = whole.between(begin, end)
    np.savez_compressed(
        folder / "vocabulary.npz",
        words=np.array(vocabulary.words),
        vectors=vocabulary.vectors.astype(np.float16),
        counts=vocabulary.prior_weights("counts"),
        topics=topic_vectors(public.ids, public.offsets, words, TOPICS, shared=SHARED).astype(
            np.float16
        ),
    )


def parts(reviews: int) -> list[int]:
    """Where the reviews are parted."""
    return [round(share * reviews) for share in PARTS]


class Data:
    """What was prepared, read once for each process."""

    def __init__(self, folder: Path) -> None:
        with np.load(folder / "vocabulary.npz", allow_pickle=False) as stored:
            self.vocabulary = textpriv.Vocabulary(
                stored["words"].tolist(),
                stored["vectors"].astype(np.float32),
                prior=stored["counts"],
            )
            self.topics = stored["topics"].astype(np.float32)
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
        private, learn, end = parts(len(train.labels))
        if name == "choice, reviews":
            return Task(train.between(private, learn), train.between(learn, end), self.words)
        if name == "imdb":
            return Task(train.between(0, private), test, self.words)
        if name == "imdb, mean vectors":
            table = whitened(self.vocabulary)
            return Task(train.between(0, private), test, self.words, 1.0, table)
        if name in ("banking77", "choice, intents"):
            queries = self.documents("bank_train")  # sorted by intent, so they are mixed first
            mixed = np.random.default_rng(0).permutation(len(queries.labels))
            half, most = len(mixed) // 2, len(mixed) * 5 // 6
            if name == "banking77":
                return Task(
                    queries.take(mixed[:half]), self.documents("bank_test"), self.words, 1.0
                )
            return Task(queries.take(mixed[half:most]), queries.take(mixed[most:]), self.words, 1.0)
        yelp = self.documents("yelp", "topics" if name == "yelp topic" else "labels")
        count = len(yelp.labels)
        return Task(
            yelp.between(0, count * 4 // 5), yelp.between(count * 4 // 5, count), self.words
        )

    @cache  # noqa: B019
    def attacker(self) -> BestAttacker:
        """Exact Bayes, or one who reads in context where he does better."""
        train = self.documents("imdb_train")
        begin, _, end = parts(len(train.labels))
        read = train.between(begin, end)
        attacked = train.between(end, min(end + _CONTEXT, len(train.labels)))
        model = NGrams.train(read.ids, read.offsets, self.words, order=ORDER)
        text = PublicText(model, attacked.ids, attacked.offsets)
        return BestAttacker(self.counts, "content", text, min(COMMON, self.words // 4))

    @cache  # noqa: B019
    def table(self) -> NDArray[np.float32]:
        """Vectors about their mean word, by which documents are called similar."""
        vectors = self.vocabulary.vectors
        return (vectors - self.counts @ vectors).astype(np.float32)


# ----------------------------------------------------------------------------------------------
# Laws
# ----------------------------------------------------------------------------------------------


SPACES = ("vectors", "unit vectors", "topic vectors", "unit and topic vectors")

# Space, dimensions after a projection (None: all), common words apart, powers of the counts that are the prior.
TRIED = (
    ("vectors", None, False, (1.0, 1.5)),
    ("vectors", 16, False, (1.0,)),
    ("unit vectors", None, False, (0.5, 1.0)),
    ("unit vectors", 64, False, (1.0,)),
    ("unit vectors", 16, False, (0.5, 1.0)),
    ("unit vectors", 16, True, (0.0, 1.0)),
    ("topic vectors", 64, False, (1.0,)),
    ("topic vectors", 16, False, (1.0,)),
    ("topic vectors", 8, False, (0.5, 1.0)),
    ("unit and topic vectors", 16, False, (0.5, 1.0)),
    ("topic vectors", 32, True, (0.0,)),
    ("topic vectors", 16, True, (0.0, 0.5)),
    ("topic vectors", 8, True, (0.0, 0.5)),
    ("unit and topic vectors", 32, True, (0.0,)),
    ("unit and topic vectors", 16, True, (0.0, 0.5)),
)
# Space and dimensions after a projection, in which each word is joined to its nearest; the prior is the counts.
GRAPHS = (("vectors", None), ("unit vectors", 16), ("topic vectors", 16))
NEIGHBOURS = 8
# Space, linkage, common words apart, powers of the counts.
TREES = (
    ("unit vectors", "average", False, (1.0,)),
    ("topic vectors", "average", True, (0.0,)),
)


class Laws:
    """All laws that are tried, by name; each a function of epsilon. All tables are public.

    Parameters
    ----------
    vocabulary : Vocabulary
        With counts.
    topics : ndarray, shape (V, n)
        Vectors of length one by the public documents that words share.
    """

    def __init__(self, vocabulary: textpriv.Vocabulary, topics: NDArray[Any]) -> None:
        self.vocabulary, self.topics = vocabulary, topics.astype(np.float64)
        self.counts = vocabulary.prior_weights("counts")
        self.common = min(COMMON, len(vocabulary) // 4)

    @cache  # noqa: B019
    def index(self, space: str, size: int | None, apart: bool) -> textpriv.Index:
        """Euclidean distances in a space, projected on some dimensions or not, common words apart or not."""
        if apart:
            return textpriv.Index.build(self._of(self._apart(space, size)), hnsw=False)
        metric = "euclidean" if space == "vectors" else "unit_euclidean"
        words = self.vocabulary if space in SPACES[:2] else self._of(self._rows(space))
        return textpriv.Index.build(words, metric, projection=size, hnsw=False)

    def _rows(self, space: str) -> NDArray[np.float64]:
        unit = self.vocabulary.vectors / np.linalg.norm(self.vocabulary.vectors, axis=1)[:, None]
        return {
            "vectors": self.vocabulary.vectors,
            "unit vectors": unit,
            "topic vectors": self.topics,
            "unit and topic vectors": np.c_[unit, self.topics],
        }[space].astype(np.float64)

    def _apart(self, space: str, size: int | None) -> NDArray[np.float64]:
        """Content words by themselves, common ones far from them and from each other: a metric that is declared."""
        rows = self.index(space, size, apart=False).coordinates
        return common_apart(rows, self.counts, self.common)

    def _of(self, rows: NDArray[Any]) -> textpriv.Vocabulary:
        return textpriv.Vocabulary(
            self.vocabulary.words, np.ascontiguousarray(rows), prior=self.counts
        )

    @cache  # noqa: B019
    def graph(self, space: str, size: int | None) -> textpriv.Index:
        """Shortest paths over the nearest neighbours in a space."""
        near = self.index(space, size, apart=False).coordinates
        return textpriv.Index.build(self._of(near), graph=NEIGHBOURS, hnsw=False)

    @cache  # noqa: B019
    def clipped(self) -> textpriv.Index:
        """Distances after norms were clipped at their median."""
        radius = float(np.median(np.linalg.norm(self.vocabulary.vectors, axis=1)))
        return textpriv.Index.build(self.vocabulary, radius=radius, hnsw=False)

    @cache  # noqa: B019
    def tree(self, space: str, method: str, power: float, apart: bool) -> textpriv.Tree:
        """A tree by clustering, its heights raised to a power."""
        if power != 1.0:
            made = self.tree(space, method, 1.0, apart)
            return made.reheighted(made.heights**power, made.names)
        rows = self.index(space, TREE_DIMENSIONS, apart).coordinates.astype(np.float32)
        return textpriv.Tree.build(self._of(rows), method, metric="euclidean")

    def _tem(self, index: Callable[[], textpriv.Index], power: float) -> Make:
        return lambda e: textpriv.TEM(index(), e, prior=self.counts**power)

    def _tree(self, space: str, method: str, height: float, power: float, apart: bool) -> Make:
        return lambda e: textpriv.TreeTEM(
            self.tree(space, method, height, apart), e, prior=self.counts**power
        )

    def all(self) -> dict[str, Make]:
        """Laws by name. At equal recovery the rate drops out, so none is searched for."""
        made: dict[str, Make] = {
            PUBLISHED: lambda e: textpriv.TEM(
                self.index("vectors", None, apart=False), e, prior="uniform"
            ),
            "vectors, norms clipped, counts^1.5": self._tem(self.clipped, 1.5),
        }
        for space, size, apart, powers in TRIED:
            for power in powers:
                end = f"{', common words apart' * apart}, counts^{power:g}"
                made[f"{space}, {size or 'all'} dimensions{end}"] = self._tem(
                    partial(self.index, space, size, apart), power
                )
        for space, size in GRAPHS:
            name = (
                f"graph of {NEIGHBOURS} neighbours, {space}, {size or 'all'} dimensions, counts^1"
            )
            made[name] = self._tem(partial(self.graph, space, size), 1.0)
        for space, method, apart, powers in TREES:
            for power in powers:
                end = f"{', common words apart' * apart}, {method} linkage, counts^{power:g}"
                made[f"tree of {space}{end}"] = self._tree(space, method, 1.0, power, apart)
        return made


# ----------------------------------------------------------------------------------------------
# Cells
# ----------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def data_and_laws(folder: str) -> tuple[Data, Laws, dict[str, Make]]:
    """What was prepared, and the laws over it."""
    data = Data(Path(folder))
    laws = Laws(data.vocabulary, data.topics)
    return data, laws, laws.all()


def _drawn(mechanism: Any, documents: Documents, seed: int) -> NDArray[np.int32]:
    # Numpy's generator: what is measured is no secret.
    drawn: NDArray[np.int32] = mechanism.sample(documents.ids, np.random.default_rng(seed))
    return drawn


def success(attacker: BestAttacker, mechanism: Any) -> list[float]:
    """What is got back: content words one by one, all words, and content words in context."""
    everything = BestAttacker(attacker.prior, "all")
    read = attacker.in_context(mechanism)[0]
    return [attacker.alone(mechanism), everything.alone(mechanism), read]


def at_shares(
    make: Make, attacker: BestAttacker, measured: Callable[[Any], dict[str, Any]]
) -> dict[str, Any]:
    """A law at each recovery: epsilon, what attackers get back, and what else is measured there."""
    found: dict[str, Any] = {}
    start = 3.0
    for share in SHARES:
        try:
            start = largest_epsilon(make, share, attacker, start).epsilon
        except TextprivError as error:
            found[f"{share:g}"] = {"refused": str(error)}
            continue
        mechanism = make(start)
        got = {"epsilon": start, "success": success(attacker, mechanism)}
        found[f"{share:g}"] = got | measured(mechanism)
    return found


def choice_cell(folder: str, name: str) -> dict[str, Any]:
    """A law at each recovery, and what is learned on the reviews of the choice."""
    data, _, laws = data_and_laws(folder)
    task = data.task("choice, reviews")

    def accuracy(mechanism: Any) -> dict[str, float]:
        drawn = (_drawn(mechanism, task.train, seed) for seed in range(3))
        return {"accuracy": float(np.mean([task.right(ids).mean() for ids in drawn]))}

    return at_shares(laws[name], data.attacker(), accuracy)


def intents_cell(folder: str, name: str, epsilons: dict[str, float]) -> dict[str, float]:
    """What is learned of intents on the queries of the choice, at each recovery."""
    data, _, laws = data_and_laws(folder)
    task, found = data.task("choice, intents"), {}
    for share, epsilon in epsilons.items():
        mechanism = laws[name](epsilon)
        drawn = (_drawn(mechanism, task.train, seed) for seed in range(3))
        found[share] = float(np.mean([task.right(ids).mean() for ids in drawn]))
    return found


def shown_cell(folder: str, name: str, epsilon: float, seed: int) -> dict[str, Any]:
    """One draw of a law on every task, and how similar texts are."""
    data, _, laws = data_and_laws(folder)
    return drawn_cell(data, laws[name](epsilon), seed, SHOWN)


def drawn_cell(data: Data, mechanism: Any, seed: int, tasks: tuple[str, ...]) -> dict[str, Any]:
    """One draw on tasks, IMDB among them: which test documents are classified as they are, and how similar texts are."""
    found: dict[str, Any] = {}
    drawn: dict[int, NDArray[np.int32]] = {}
    for each in tasks:
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
    task = data_and_laws(folder)[0].task(name)
    return [float(task.right(task.train.ids).mean()), task.guessing]


def packed(right: NDArray[np.bool_]) -> dict[str, Any]:
    """Yes and no as text."""
    bits = base64.b64encode(np.packbits(right).tobytes()).decode()
    return {"size": len(right), "bits": bits}


def unpacked(entry: dict[str, Any]) -> NDArray[np.bool_]:
    """Yes and no again."""
    bits = np.frombuffer(base64.b64decode(entry["bits"]), dtype=np.uint8)
    flat: NDArray[np.bool_] = np.unpackbits(bits, count=entry["size"]).astype(np.bool_)
    return flat


class Results:
    """What was measured, in a file that is written whole after each cell."""

    def __init__(self, path: Path, kinds: tuple[str, ...] = RESULTS) -> None:
        self.path = path
        self.content: dict[str, dict[str, Any]] = {kind: {} for kind in kinds}
        if path.exists():
            self.content = json.loads(path.read_text(encoding="utf-8"))

    def fill(self, part: str, cells: dict[str, tuple[Any, ...]], pool: ProcessPoolExecutor) -> None:
        """Measure what is not there yet: cells by key, each a function and its arguments."""
        todo = {key: call for key, call in cells.items() if key not in self.content[part]}
        futures = {pool.submit(*call): key for key, call in todo.items()}
        started = time.perf_counter()
        for done, future in enumerate(as_completed(futures), start=1):
            self.content[part][futures[future]] = future.result()
            self.write()
            spent = time.perf_counter() - started
            print(f"{part}: {done} of {len(todo)}, {spent:.0f} s: {futures[future]}", flush=True)

    def write(self) -> None:
        """Write everything, whole."""
        staging = self.path.with_suffix(".partial")
        staging.write_text(json.dumps(self.content), encoding="utf-8")
        os.replace(staging, self.path)

    def kept(self, name: str) -> float:
        """What a law keeps of what clear texts give above guessing, the mean of reviews and intents of the choice."""
        accuracies = {
            CHOICE[0]: [cell.get("accuracy") for cell in self.content["choice"][name].values()],
            CHOICE[1]: list(self.content["intents"][name].values()),
        }
        kept = []
        for task, values in accuracies.items():
            clear, guessing = self.content["clear"][task]
            kept += [0.0 if v is None else (v - guessing) / (clear - guessing) for v in values]
        return float(np.mean(kept))

    def ranked(self) -> list[str]:
        """Laws, the one that is recommended first."""
        return sorted(self.content["intents"], key=lambda name: -self.kept(name))

    def rows(self) -> list[str]:
        """The laws that are shown: the first of the choice, the best of each kind, and TEM as published."""
        ranked = self.ranked()
        kinds = (
            "topic vectors, ",
            "topic vectors, 8 dimensions, counts",
            "unit vectors, ",
            "vectors, ",
            "graph",
            "tree",
        )
        best = [next((name for name in ranked if name.startswith(kind)), None) for kind in kinds]
        rows = [ranked[0], PUBLISHED, *best]
        return list(dict.fromkeys(name for name in rows if name is not None))


def run(folder: Path, out: Path, jobs: int, only: str | None, seeds: int = SEEDS) -> None:
    """Measure everything that is missing."""
    results, place = Results(out), str(folder)
    data, _, laws = data_and_laws(place)
    names, tasks = list(laws), (*CHOICE, *SHOWN)
    data.attacker()
    for name in tasks:  # before processes part, which then share them
        data.task(name).tested  # noqa: B018
    if only is not None:
        names = [name for name in names if re.search(only, name) or name == PUBLISHED]
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        results.fill("clear", {name: (clear_cell, place, name) for name in tasks}, pool)
        results.fill("choice", {name: (choice_cell, place, name) for name in names}, pool)
        epsilons = {
            name: {share: c["epsilon"] for share, c in cells.items() if "epsilon" in c}
            for name, cells in results.content["choice"].items()
        }
        intents = {name: (intents_cell, place, name, epsilons[name]) for name in names}
        results.fill("intents", intents, pool)
        shown = {
            f"{name} | {share} | {seed}": (shown_cell, place, name, cell["epsilon"], seed)
            for seed in range(seeds)  # first, so that a run that is stopped has some of everything
            for name in results.rows()
            for share, cell in results.content["choice"][name].items()
            if "epsilon" in cell
        }
        results.fill("shown", shown, pool)


# ----------------------------------------------------------------------------------------------
# Tables and figures
# ----------------------------------------------------------------------------------------------


@cache
def _interval(results: Results, name: str, task: str, share: str) -> tuple[float, float, float]:
    """Accuracy of a law and its interval, computed once for tables and figures."""
    return interval(dict(curve(results, name, task))[share])


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
    lines = ["## Accuracy", "", f"The law that was chosen: **{first}**.", ""]
    for task in SHOWN:
        clear, guessing = content["clear"][task]
        against = dict(curve(results, PUBLISHED, task))
        lines += [f"### {task}", "", f"![{task}]({figure_name(task)})", ""]
        lines += [f"Clear {clear:.3f}, naming the commonest class {guessing:.3f}.", ""]
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
                mean, low, high = _interval(results, name, task, share)
                ahead = ""
                if name == first and share in against:
                    gain, least, most = interval(cells[share], against[share])
                    ahead = f"; ahead by {gain:+.3f} ({least:+.3f} to {most:+.3f})"
                told.append(f"{mean:.3f} ({low:.3f} to {high:.3f}){ahead}")
            lines.append(f"| {name} | {' | '.join(told)} |")
        lines.append("")
    lines += [
        "## What the attackers get back",
        "",
        "Epsilon is in units of the law's own metric. Similarity is the mean cosine between mean word vectors of a review",
        "and of its private form.",
        "",
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
        "## What was tried",
        "",
        "All laws, by the share of what clear texts give above guessing that they keep on the texts of the choice: the mean",
        "of the three recoveries, and of reviews and intents; and their accuracies there, on reviews and on intents.",
        "",
    ]
    lines += ["| law | kept | 5% | 10% | 20% |", "|---" * 5 + "|"]
    for name in ranked:
        cells = content["choice"][name]
        told = [
            f"{cells[share]['accuracy']:.3f}, {content['intents'][name][share]:.3f}"
            if "accuracy" in cells[share]
            else "-"
            for share in shares
        ]
        lines.append(f"| {name} | {results.kept(name):.3f} | {' | '.join(told)} |")
    return "\n".join(lines) + "\n"


def write_tables(page: Path, recipe: str, text: str) -> None:
    """Put tables under the line that says who writes them, and leave what stands above it."""
    line = f"<!-- What stands below is written by recipes/{recipe} record. -->"
    page.parent.mkdir(parents=True, exist_ok=True)
    before = page.read_text(encoding="utf-8").split(line)[0] if page.exists() else ""
    page.write_text(f"{before}{line}\n\n{text}", encoding="utf-8")


def figure_name(task: str) -> str:
    """The file of a task's figure."""
    return f"tradeoff-{task.replace(', ', '-').replace(' ', '-')}.svg"


def figures(results: Results, folder: Path) -> None:
    """One figure a task: accuracy against the share of content words that the better attacker gets back."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "textpriv"
    from matplotlib import pyplot

    for task in SHOWN:
        figure, axes = pyplot.subplots(figsize=(6.4, 5.2), layout="constrained")
        for name in results.rows():
            points = [
                (float(s), *_interval(results, name, task, s))
                for s, _ in curve(results, name, task)
            ]
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
            xlabel="content words that the better of two attackers gets back",
            ylabel="accuracy",
            title=task,
        )
        axes.set_xticks(SHARES, [f"{share:.0%}" for share in SHARES])
        figure.legend(loc="outside lower center", fontsize=8, frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
        figure.savefig(folder / figure_name(task), metadata={"Date": None})
        pyplot.close(figure)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("step", choices=["prepare", "run", "record"])
    parser.add_argument("--data-dir", type=Path, help="Left out: FOLDER/fetched, from the network.")
    parser.add_argument("--folder", type=Path, default=Path("prepared"))
    parser.add_argument("--out", type=Path, default=Path("tradeoff.json"))
    parser.add_argument("--docs", type=Path, default=Path("tradeoff"))
    parser.add_argument("--words", type=int, default=WORDS)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--only", help="Try only laws whose names match this expression.")
    given = parser.parse_args()
    if given.step == "prepare":
        data = given.data_dir or fetched_texts(given.folder / "fetched")
        prepare(data, given.folder, given.words)
    elif given.step == "run":
        run(given.folder, given.out, given.jobs, given.only, given.seeds)
    else:
        results = Results(given.out)
        write_tables(given.docs / "tradeoff.md", "tradeoff.py", tables(results))
        figures(results, given.docs)


if __name__ == "__main__":
    main()
