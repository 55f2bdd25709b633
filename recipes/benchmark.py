"""Speed, memory and growth of textpriv, side by side with other packages for private words, as ratios.

    python recipes/benchmark.py --data-dir DATA --output benchmark

DATA holds ``embeddings/imdb-unsup-sg-40k.300d.bin.gz`` and ``imdb/train.jsonl.gz``; ``--vectors FILE`` takes other public
vectors, and without either the built-in words and texts that ship with gensim serve. ``--quick`` takes a
minute instead of an hour, ``--no-peers`` leaves the other packages out. It prints its tables and writes OUTPUT.md,
OUTPUT.csv, OUTPUT.png and OUTPUT.svg.

Ratios of times taken in one run say the same on any machine; each is the median of several rounds, and what is compared
takes turns within a round. Vocabularies beyond the given vectors are extended: each further word is
``m + cos(a) (u - m) + sin(a) (v - m)`` for two random words u and v of the vocabulary, its mean m and an angle a uniform
between 22.5 and 67.5 degrees, which keeps mean and covariance. The other packages are installed from the package index
into environments of their own, below ``--cache``; nothing of them is part of textpriv. What runs there is
``recipes/peers.py``.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

import textpriv
from textpriv.index.neighbours import processors
from textpriv.mechanisms.base import Mechanism
from textpriv.randomness import Stream

PEERS = {
    "mldp-text": ("mldp-text==0.1.2",),
    "dp-diffractor": ("dp-diffractor==0.2.1",),
    # Its CusText fails under NumPy 2, which it would otherwise install.
    "pypantera": ("pypantera==1.0.2", "numpy<2", "pandas<3"),
}
PARTS = ("rates", "component", "growth", "vocabulary", "memory", "trees", "start", *PEERS)
ROOT = Path(__file__).resolve().parents[1]
# What is started from nothing, and again: arguments of a Python in which textpriv is installed and nothing else.
TEXT = "The patient was admitted with chest pain."
COMMAND = ("-c", "from textpriv.cli.app import main; main()")
STARTED = {
    "spaCy alone: a blank pipeline reads a text": (
        "-c",
        f"import spacy; spacy.blank('en')({TEXT!r})",
    ),
    "`textpriv.privatize(text, epsilon=3.4)`": (
        "-c",
        f"import textpriv; textpriv.privatize({TEXT!r}, epsilon=3.4)",
    ),
    "`textpriv privatize - - --epsilon 3.4`": (*COMMAND, "privatize", "-", "-", "--epsilon", "3.4"),
    "`textpriv demo`": (*COMMAND, "demo"),
}
TABLES = {"growth": ("tokens", "types", "dimension")}  # the tables of a part that has several
# On which all parts but the start are measured.
MATERIAL = ("material", "words and texts", "words")
FEW_WORDS = 12  # of a short text
ERROR = 1e-6  # probability with which any of one mechanism's intervals is wrong
FIGURE_WIDTH = 800  # pixels
BLUE, ORANGE, GREEN, GREY = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#777777",
)  # told apart by colour-blind readers

# What was read in the sources of those versions, beside what the audit finds.
CAUSES = {
    (
        "mldp-text",
        "TEM",
    ): "the words beyond gamma have a weight of V/L instead of their number V - L, for L words within it",
    (
        "mldp-text",
        "VickreyMechanism",
    ): "it looks at the word again after the noise, to leave it out",
    (
        "mldp-text",
        "TruncatedGumbel",
    ): "truncated noise and a random number of candidates leave words impossible; with no candidate it stops",
    (
        "pypantera",
        "TEM",
    ): "when the words beyond gamma win, an error is caught and the word itself released",
    (
        "pypantera",
        "CusText",
    ): "only the nearest k words are possible, and they differ from word to word",
    (
        "dp-diffractor",
        "geometric",
    ): "epsilon counts places in a list, in which neighbours may be far apart",
    (
        "dp-diffractor",
        "TEM",
    ): "epsilon counts places in a list, in which neighbours may be far apart",
}


@dataclass
class Material:
    """What everything is measured on.

    Attributes
    ----------
    vocabulary : Vocabulary
    texts : list of str
    epsilon, noise_epsilon : float
        For laws over lists, and for mechanisms that add noise to vectors.
    seed : int
    """

    vocabulary: textpriv.Vocabulary
    texts: list[str]
    epsilon: float
    noise_epsilon: float
    seed: int = 0

    @property
    def described(self) -> str:
        """What it is, in one line."""
        size, dimension = self.vocabulary.vectors.shape
        return (
            f"{size:,} words x {dimension}, epsilon {self.epsilon:g} (noise on vectors: {self.noise_epsilon:g}), "
            f"{len(self.texts):,} texts."
        )

    def running_words(self) -> NDArray[np.int32]:
        """Ids of the words of the texts that the vocabulary holds, in order."""
        index = textpriv.Index.build(self.vocabulary, k=1, hnsw=False)
        reader = textpriv.Privatizer(textpriv.TEM(index, epsilon=1.0))
        codes = np.concatenate([reader.read(text).codes for text in self.texts])
        return codes[codes >= 0].astype(np.int32)


@dataclass
class Results:
    """Rows of the CSV; all tables and the figure are made of them."""

    rows: list[tuple[str, str, str, float, str]] = field(default_factory=list)

    def add(self, table: str, name: str, measure: str, value: float, note: str = "") -> None:
        """Keep one number, or with a note one remark."""
        self.rows.append((table, name, measure, float(value), note))

    def get(self, table: str, name: str, measure: str) -> float:
        """Return one number; NaN where it was not measured."""
        for row in self.rows:
            if row[:3] == (table, name, measure):
                return row[3]
        return math.nan

    def notes(self, table: str, name: str, measure: str) -> list[str]:
        """Return all notes of a measure."""
        return [row[4] for row in self.rows if row[:3] == (table, name, measure) and row[4]]

    def names(self, table: str) -> list[str]:
        """Row names of a table, in order."""
        return list(dict.fromkeys(row[1] for row in self.rows if row[0] == table))

    def drop(self, tables: Sequence[str]) -> None:
        """Forget whole tables."""
        self.rows = [row for row in self.rows if row[0] not in tables]

    def write(self, path: Path) -> None:
        """Write the CSV."""
        with open(path, "w", newline="", encoding="utf-8") as file:
            lines = csv.writer(file, lineterminator="\n")
            lines.writerow(["table", "name", "measure", "value", "note"])
            lines.writerows([*row[:3], f"{row[3]:.6g}", row[4]] for row in self.rows)

    @classmethod
    def read(cls, path: Path) -> Results:
        """Read a CSV of an earlier run."""
        with open(path, newline="", encoding="utf-8") as file:
            return cls(
                [
                    (r["table"], r["name"], r["measure"], float(r["value"]), r["note"])
                    for r in csv.DictReader(file)
                ]
            )


# ----------------------------------------------------------------------------------------------
# What is measured
# ----------------------------------------------------------------------------------------------


def say(text: str) -> None:
    """Progress, on standard error."""
    print(text, file=sys.stderr, flush=True)


def seconds(work: Callable[[], object]) -> float:
    """Processor time of one call, which programs that share the machine disturb least."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def passed(work: Callable[[], object]) -> float:
    """Time that passes in one call."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def take_turns(works: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each work in each round; all take turns, after one call of each that is not counted."""
    for work in works.values():
        work()
    spent: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            spent[name].append(seconds(work))
    return spent


def product_time(vectors: NDArray[np.float32], rows: int = 1024) -> float:
    """Seconds of all inner products of a vocabulary, by the fastest float32 products on all processors.

    Measured on evenly spaced rows against all columns, and scaled to all rows.
    """
    size = len(vectors)
    queries = vectors[np.linspace(0, size - 1, min(rows, size)).astype(int)]
    parts = np.array_split(queries, 2 * processors())

    def run(part: NDArray[np.float32]) -> None:
        out = np.empty((len(part), 4096), dtype=np.float32)
        for left in range(0, size, 4096):
            columns = vectors[left : left + 4096]
            np.dot(part, columns.T, out=out[:, : len(columns)] if len(columns) == 4096 else None)

    with threadpool_limits(1, "blas"), ThreadPoolExecutor(processors()) as pool:
        list(pool.map(run, parts))
        return passed(lambda: list(pool.map(run, parts))) * size / len(queries)


def extended(vectors: NDArray[np.float32], size: int, seed: int = 0) -> NDArray[np.float32]:
    """The first rows, or all of them and synthetic ones; see the head of this file."""
    known = len(vectors)
    if size <= known:
        return np.ascontiguousarray(vectors[:size])
    rng = np.random.default_rng(seed)
    centre = vectors.mean(axis=0, dtype=np.float64).astype(np.float32)
    centred = vectors - centre
    out = np.empty((size, vectors.shape[1]), dtype=np.float32)
    out[:known] = vectors
    first, second = rng.integers(0, known, (2, size - known))
    angles = rng.uniform(math.pi / 8, 3 * math.pi / 8, size - known).astype(np.float32)[:, None]
    for start in range(0, size - known, 8192):
        part = slice(start, min(start + 8192, size - known))
        out[known + part.start : known + part.stop] = (
            centre
            + np.cos(angles[part]) * centred[first[part]]
            + np.sin(angles[part]) * centred[second[part]]
        )
    return out


def drawn_words(size: int, count: int, seed: int) -> NDArray[np.int32]:
    """Words of the Zipf-Mandelbrot law over a vocabulary in order of frequency."""
    weights = 1.0 / (np.arange(1, size + 1) + 2.7)
    rng = np.random.default_rng(seed)
    return rng.choice(size, size=count, p=weights / weights.sum()).astype(np.int32)


def words_per_second(mechanism: Mechanism, ids: NDArray[np.int32], rounds: int = 3) -> float:
    """Median rate of a mechanism on word ids, after one pass that fills its tables."""
    spent = take_turns({"": lambda: mechanism.sample(ids, Stream())}, rounds)
    return len(ids) / statistics.median(spent[""])


# ----------------------------------------------------------------------------------------------
# Side by side
# ----------------------------------------------------------------------------------------------


def tables_of(material: Material, cache: Path, graph: bool) -> textpriv.Index:
    """The index of the given vectors, with the graph of Madlib or without; one below the cache is not built again."""
    folder = cache / f"{'graph' if graph else 'lists'}-{material.vocabulary.fingerprint()[:12]}.idx"
    if not folder.exists():
        textpriv.Index.build(material.vocabulary, hnsw=graph).save(folder)
    return textpriv.Index.load(folder, verify=False)


def side_by_side(material: Material, index: textpriv.Index, results: Results, rounds: int) -> None:
    """Our mechanisms, blank spaCy tokenization, and the matrix-product limit, in tokens per second of one process."""
    import spacy

    say("side by side")
    tokenizer = spacy.blank("en").tokenizer
    tem = textpriv.TEM(index, epsilon=material.epsilon)
    madlib = textpriv.Madlib(index, epsilon=material.noise_epsilon)
    exact = textpriv.Madlib(index, epsilon=material.noise_epsilon, search="exact")
    privatizer = textpriv.Privatizer(tem)
    texts = material.texts
    ids = material.running_words()
    few = ids[: max(50, 2_000_000 // len(index))]
    tokens = sum(len(doc) for doc in tokenizer.pipe(texts))
    works: dict[str, tuple[int, Callable[[], object]]] = {
        "blank spaCy tokenization": (
            tokens,
            lambda: sum(len(doc) for doc in tokenizer.pipe(texts)),
        ),
        "textpriv TEM": (len(ids), lambda: tem.sample(ids, Stream())),
        "textpriv Madlib, approximate search": (
            len(few),
            lambda: madlib.sample(few, Stream()),
        ),
        "textpriv Madlib, exact search": (len(few), lambda: exact.sample(few, Stream())),
        "textpriv TEM, text to text": (tokens, lambda: sum(map(len, privatizer.pipe(texts)))),
    }
    spent = take_turns({name: work for name, (_, work) in works.items()}, rounds)
    reference = statistics.median(spent["blank spaCy tokenization"]) / tokens
    for name, (count, _) in works.items():
        results.add("rates", name, "words per second", count / statistics.median(spent[name]))
        ratios = [
            (base / tokens) / (own / count)
            for base, own in zip(spent["blank spaCy tokenization"], spent[name], strict=True)
        ]
        results.add("rates", name, "times spaCy", statistics.median(ratios))
    vectors = (index.points * index.unit).astype(np.float32)
    row = product_time(vectors) / len(index)
    name = "matrix-product limit: one full row for every word"
    results.add("rates", name, "words per second", 1 / row)
    results.add("rates", name, "times spaCy", reference / row)


def component(material: Material, index: textpriv.Index, results: Results, rounds: int) -> None:
    """The time of each private form of a pipeline over that of a blank pipeline, on the same texts in turns."""
    import spacy

    say("in a pipeline")
    config = {"index": str(index.path), "epsilon": material.epsilon}
    behind, blank = spacy.blank("en"), spacy.blank("en")
    behind.add_pipe("textpriv", config=config)
    strict = {"@tokenizers": "textpriv.PrivateTokenizer.v1", **config}
    instead = spacy.blank("en", config={"nlp": {"tokenizer": strict}})
    privatizer = textpriv.Privatizer(textpriv.TEM(index, epsilon=material.epsilon))
    beginnings = [" ".join(text.split()[:FEW_WORDS]) for text in material.texts]
    for name, texts in (("whole", material.texts), ("first words", beginnings)):
        works: dict[str, Callable[[], object]] = {
            "blank pipe": lambda texts=texts: sum(map(len, blank.pipe(texts))),
            "tokenizer, `nlp.pipe(texts)`": lambda texts=texts: sum(map(len, instead.pipe(texts))),
            "tokenizer, `nlp.pipe(nlp.tokenizer.pipe(texts))`": lambda texts=texts: sum(
                map(len, instead.pipe(instead.tokenizer.pipe(texts)))
            ),
            "component, `nlp.pipe(texts)`": lambda texts=texts: sum(map(len, behind.pipe(texts))),
            "text to text": lambda texts=texts: sum(map(len, privatizer.pipe(texts))),
            "blank call": lambda texts=texts: sum(len(blank(text)) for text in texts),
            "tokenizer, `nlp(text)`": lambda texts=texts: sum(len(instead(text)) for text in texts),
            "component, `nlp(text)`": lambda texts=texts: sum(len(behind(text)) for text in texts),
        }
        spent = take_turns(works, rounds)
        for label, bare in (
            ("tokenizer, `nlp.pipe(nlp.tokenizer.pipe(texts))`", "blank pipe"),
            ("tokenizer, `nlp.pipe(texts)`", "blank pipe"),
            ("tokenizer, `nlp(text)`", "blank call"),
            ("component, `nlp.pipe(texts)`", "blank pipe"),
            ("component, `nlp(text)`", "blank call"),
            ("text to text", "blank pipe"),
        ):
            ratios = [one / other for one, other in zip(spent[label], spent[bare], strict=True)]
            results.add("component", label, name, statistics.median(ratios))


def growth(material: Material, index: textpriv.Index, results: Results, quick: bool) -> None:
    """How the rate of TEM changes with the number of tokens, of distinct types, and of dimensions."""
    say("growth with tokens and types")
    rounds = 3 if quick else 5
    most = 100_000 if quick else 3_000_000
    ids = drawn_words(len(index), most, material.seed)
    tem = textpriv.TEM(index, epsilon=material.epsilon)
    tem.sample(ids, Stream())
    counts = [count for count in (1_000, 10_000, 100_000, 1_000_000, 3_000_000) if count <= most]
    for count in counts:
        rate = words_per_second(tem, ids[:count], rounds)
        results.add("tokens", f"{count:,}", "words per second", rate)
    rng = np.random.default_rng(material.seed)
    count = 50_000 if quick else 500_000
    for types in (10, 100, 1_000, 10_000, 40_000):
        if types > len(index):
            break
        chosen = np.sort(rng.choice(len(index), types, replace=False)).astype(np.int32)
        stream = chosen[rng.integers(0, types, count)]
        rates = []
        for _ in range(rounds):
            fresh = textpriv.TEM(index, epsilon=material.epsilon)
            rates.append(count / seconds(lambda: fresh.sample(stream, Stream())))  # noqa: B023
        results.add("types", f"{types:,}", "first", statistics.median(rates))
        results.add("types", f"{types:,}", "again", words_per_second(fresh, stream, rounds))
    say("growth with dimension")
    full = material.vocabulary.vectors
    size = min(len(full), 5_000 if quick else 20_000)
    count = 50_000 if quick else 500_000
    widest = full.shape[1]
    # Vectors narrower than all of these are measured as they are.
    for dimension in [d for d in (10, 25, 50, 100, 200, 300) if d <= widest] or [widest]:
        vectors = np.ascontiguousarray(full[:size, :dimension].astype(np.float32))
        words = material.vocabulary.words[:size]
        tables, ratio = build(words, vectors)
        mechanism = textpriv.TEM(tables, epsilon=material.epsilon)
        rate = words_per_second(mechanism, drawn_words(size, count, 1), rounds)
        results.add("dimension", str(dimension), "build / product", ratio)
        results.add("dimension", str(dimension), "words per second", rate)


def build(
    words: Sequence[str], vectors: NDArray[np.float32], k: int = 256
) -> tuple[textpriv.Index, float]:
    """An index, and the time it took over the time of all inner products, taken before and after it."""
    vocabulary = textpriv.Vocabulary(words, vectors)
    before = product_time(vectors)
    index: list[textpriv.Index] = []
    spent = passed(lambda: index.append(textpriv.Index.build(vocabulary, k=k, hnsw=False)))
    after = product_time(vectors)
    return index[0], 2 * spent / (before + after)


def drawing(index: textpriv.Index, ids: NDArray[np.int32], epsilon: float) -> Callable[[], object]:
    """One pass of a TEM over word ids."""
    mechanism = textpriv.TEM(index, epsilon=epsilon)
    return lambda: mechanism.sample(ids, Stream())


# ----------------------------------------------------------------------------------------------
# Vocabulary, memory, workers
# ----------------------------------------------------------------------------------------------


def vocabularies(
    material: Material, results: Results, sizes: Sequence[int], cache: Path, quick: bool
) -> None:
    """Build, load and draw from an index of each size. One below the cache is not built again."""
    known = len(material.vocabulary)
    drawn = 100_000 if quick else 300_000
    base: textpriv.Index | None = None
    for size in sizes:
        say(f"vocabulary of {size:,}")
        name = f"{size:,}"
        folder, ratio = sized(material, size, cache)
        results.add("vocabulary", name, "build / product", ratio)
        loads = [passed(lambda: textpriv.Index.load(folder)) for _ in range(3)]  # noqa: B023
        results.add("vocabulary", name, "load", statistics.median(loads), "s")
        index = textpriv.Index.load(folder, verify=False)
        if base is None and size >= known:
            base = index
        works = {name: drawing(index, drawn_words(size, drawn, 1), material.epsilon)}
        if base is not None and size > known:
            # The reference takes turns, so that both meet the same machine.
            works["base"] = drawing(base, drawn_words(known, drawn, 1), material.epsilon)
            works["same"] = drawing(index, drawn_words(known, drawn, 1), material.epsilon)
        spent = take_turns(works, 3 if quick else 5)
        own = statistics.median(spent[name])
        results.add("vocabulary", name, "words per second", drawn / own)
        if "base" in spent:
            ratios = [b / o for b, o in zip(spent["base"], spent[name], strict=True)]
            results.add("vocabulary", name, "rate / base", statistics.median(ratios))
            ratios = [b / o for b, o in zip(spent["base"], spent["same"], strict=True)]
            results.add("vocabulary", name, "rate / base, its words", statistics.median(ratios))
        elif size == known:
            results.add("vocabulary", name, "rate / base", 1.0)
            results.add("vocabulary", name, "rate / base, its words", 1.0)


def sized(material: Material, size: int, cache: Path) -> tuple[Path, float]:
    """The index of a vocabulary size, and what its build took over all products, from the cache or made now."""
    folder = cache / f"{size}-{material.vocabulary.fingerprint()[:12]}.idx"
    record = folder.with_suffix(".json")
    if not record.exists():
        known = len(material.vocabulary)
        vectors = material.vocabulary.vectors.astype(np.float32, copy=False)
        words = [*material.vocabulary.words, *(f"extended{i}" for i in range(size - known))]
        index, ratio = build(words[:size], extended(vectors, size))
        index.save(folder, overwrite=True)
        record.write_text(json.dumps(ratio), encoding="utf-8")
    return folder, float(json.loads(record.read_text("utf-8")))


def memory(material: Material, results: Results, sizes: Sequence[int], cache: Path) -> None:
    """Peak memory of the command with one, two and three workers."""
    text = cache / "texts.jsonl"
    with open(text, "w", encoding="utf-8") as out:
        for document in material.texts:
            out.write(json.dumps({"text": document}) + "\n")
    for size in sizes:
        say(f"memory at {size:,} words")
        folder, _ = sized(material, size, cache)
        for count, held in worker_memory(folder, text, material.epsilon, (1, 2, 3)):
            results.add("memory", f"{size:,}", f"{count} workers", held, "MB")


def trees(
    material: Material, results: Results, sizes: Sequence[int], cache: Path, drawn: int
) -> None:
    """Build, load, certify and draw from a tree of each size: seconds, MB and words a second."""
    known = len(material.vocabulary)
    for size in sizes:
        say(f"tree of {size:,}")
        name = f"{size:,}"
        folder = cache / f"{size}-{material.vocabulary.fingerprint()[:12]}.tree"
        words = [*material.vocabulary.words, *(f"extended{i}" for i in range(size - known))][:size]
        vectors = material.vocabulary.vectors.astype(np.float32, copy=False)
        # From here on the kernel counts the largest memory of this process anew.
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        vocabulary = textpriv.Vocabulary(words, extended(vectors, size))
        begun = time.process_time()
        clock = passed(lambda: textpriv.Tree.build(vocabulary).save(folder, overwrite=True))  # noqa: B023
        results.add("trees", name, "build, s", clock)
        results.add("trees", name, "of processor time, s", time.process_time() - begun)
        status = Path("/proc/self/status").read_text(encoding="ascii")
        largest = int(status.split("VmHWM:")[1].split()[0]) / 1024
        results.add("trees", name, "largest memory, MB", largest)
        loads = [passed(lambda: textpriv.Tree.load(folder)) for _ in range(3)]  # noqa: B023
        results.add("trees", name, "load, s", statistics.median(loads))
        tree = textpriv.Tree.load(folder, verify=False)
        textpriv.certify(textpriv.TreeTEM(tree, epsilon=3.0))  # what is compiled, is compiled
        mechanism = textpriv.TreeTEM(tree, epsilon=4.0)
        spent = seconds(lambda: textpriv.certify(mechanism))  # noqa: B023
        results.add("trees", name, "law and certificate, s", spent)
        for order, ids in (
            ("by frequency", drawn_words(size, drawn, 1)),
            ("evenly", np.random.default_rng(1).integers(0, size, drawn).astype(np.int32)),
        ):
            for epsilon in (0.5, 2.0, 8.0):
                mechanism = textpriv.TreeTEM(tree, epsilon=epsilon)
                label = f"words chosen {order}, epsilon {epsilon:g}"
                rate = words_per_second(mechanism, ids) / 1e6
                results.add("trees", name, f"{label}: millions a second", rate)
                share = float(np.mean(mechanism.sample(ids, Stream()) == ids))
                results.add("trees", name, f"{label}: share kept", share)


def worker_memory(
    index: Path, text: Path, epsilon: float, counts: Sequence[int]
) -> Iterator[tuple[int, float]]:
    """Largest resident memory of ``textpriv privatize`` with each number of workers, shared pages counted once: MB."""
    with tempfile.TemporaryDirectory() as folder:
        for count in counts:
            command = [
                sys.executable,
                "-c",
                "from textpriv.cli.app import main; main()",
                "privatize",
                str(text),
                str(Path(folder) / f"private{count}.jsonl"),
                "--index",
                str(index),
                "--epsilon",
                str(epsilon),
                "--workers",
                str(count),
            ]
            with open(Path(folder) / "log", "wb") as log:
                process = subprocess.Popen(  # noqa: S603
                    command, stdout=log, stderr=log, start_new_session=True, env=os.environ
                )
                try:
                    largest = 0.0
                    while process.poll() is None:
                        largest = max(largest, resident(process.pid))
                        time.sleep(0.05)
                finally:
                    if process.poll() is None:
                        os.killpg(process.pid, signal.SIGKILL)
                        process.wait()
            if process.returncode:
                say((Path(folder) / "log").read_text("utf-8", "replace")[-500:])
                return
            yield count, largest


def resident(root: int) -> float:
    """Resident memory of a process and all below it, a page shared by several counted once among them: MB."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path(f"/proc/{entry}/stat").read_text("utf-8", "replace")
                parents[int(entry)] = int(stat.rsplit(")", 1)[1].split()[1])
            except (OSError, ValueError, IndexError):
                continue
    total = 0
    for process in parents:
        above = process
        while above in parents and above != root:
            above = parents[above]
        if above != root:
            continue
        try:
            for line in Path(f"/proc/{process}/smaps_rollup").read_text("utf-8").splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
        except (OSError, ValueError):
            continue
    return total / 1024


# ----------------------------------------------------------------------------------------------
# Other packages
# ----------------------------------------------------------------------------------------------


def small_vocabulary() -> tuple[list[str], NDArray[np.float64]]:
    """24 words in the plane, for epsilon 2: a crowd, a row of near words, and a ring about the usual truncation."""
    rng = np.random.default_rng(3)
    turn = np.arange(8) * 2 * np.pi / 8
    crowd = 0.15 * rng.normal(size=(8, 2))
    row = np.stack([0.8 * np.arange(8), np.full(8, -4.0)], axis=1)
    ring = 10.05 * np.stack([np.cos(turn), np.sin(turn)], axis=1)
    points = np.concatenate([crowd, row, ring])
    return [f"w{i}" for i in range(len(points))], points


@dataclass(frozen=True)
class Loss:
    """The largest loss found, as a share of what is claimed for the pair of words: above 1 the claim is false."""

    low: float
    high: float
    pair: tuple[str, str]
    exact: bool

    @property
    def broken(self) -> bool:
        """Whether the claim is refuted."""
        return self.low > 1 + 1e-9

    def __str__(self) -> str:
        if math.isinf(self.low):
            return "infinite"
        if self.exact:
            return f"{self.low:.3g}"
        high = "∞" if math.isinf(self.high) else f"{self.high:.3g}"
        return f"{self.low:.3g} to {high}"


def loss_of_laws(
    laws: dict[str, dict[str, float]], apart: NDArray[np.float64], words: Sequence[str]
) -> Loss:
    """The exact loss, over all ordered pairs and outputs. ``apart`` holds the claimed losses."""
    outputs = sorted({out for law in laws.values() for out in law})
    table = np.array([[laws[word].get(out, 0.0) for out in outputs] for word in words])
    with np.errstate(divide="ignore"):
        logs = np.log(table)
    worst, pair = -math.inf, (words[0], words[1])
    for i, first in enumerate(words):
        for j, second in enumerate(words):
            if i != j:
                possible = table[i] > 0
                ratio = float((logs[i, possible] - logs[j, possible]).max() / apart[i, j])
                if ratio > worst:
                    worst, pair = ratio, (first, second)
    return Loss(worst, worst, pair, exact=True)


def loss_of_draws(
    draws: dict[str, dict[str, int]], apart: NDArray[np.float64], words: Sequence[str]
) -> Loss:
    """Interval for the most telling pair and event, all intervals together wrong with probability below ``ERROR``.

    Events are single outputs, and all outputs nearer to the first word than to the second by some margin.
    """
    from scipy.stats import beta

    place = {word: i for i, word in enumerate(words)}
    outputs = list(words) + sorted({o for d in draws.values() for o in d} - place.keys())
    table = np.array([[draws[word].get(out, 0) for out in outputs] for word in words])
    events_each = 2 * len(outputs)
    share = ERROR / (2 * len(words) * (len(words) - 1) * events_each)
    best = Loss(-math.inf, math.inf, (words[0], words[1]), exact=False)
    for i, first in enumerate(words):
        for j, second in enumerate(words):
            if i == j:
                continue
            lean = np.full(len(outputs), np.inf)
            lean[: len(words)] = apart[i] - apart[j]
            order = np.argsort(lean, kind="stable")
            hits = np.concatenate([table[i], np.cumsum(table[i][order])]).astype(float)
            other = np.concatenate([table[j], np.cumsum(table[j][order])]).astype(float)
            n, m = table[i].sum(), table[j].sum()
            with np.errstate(divide="ignore", invalid="ignore"):
                low_hit = np.where(hits > 0, beta.ppf(share, hits, n - hits + 1), 0.0)
                high_hit = np.where(hits < n, beta.ppf(1 - share, hits + 1, n - hits), 1.0)
                low_other = np.where(other > 0, beta.ppf(share, other, m - other + 1), 0.0)
                high_other = np.where(other < m, beta.ppf(1 - share, other + 1, m - other), 1.0)
                lows = np.log(low_hit / high_other) / apart[i, j]
                highs = np.log(high_hit / low_other) / apart[i, j]
            top = int(np.nanargmax(lows))
            if lows[top] > best.low:
                best = Loss(float(lows[top]), float(highs[top]), (first, second), exact=False)
    return best


def misread(row: dict[str, Any]) -> bool:
    """Whether draws contradict the law that was read (Pearson's test at a false-alarm rate of 1e-9 each)."""
    from scipy.stats import chisquare

    for word, tally in row["draws"].items():
        law = row["law"][word]
        if any(law.get(out, 0.0) == 0.0 for out in tally):
            return True
        total = sum(tally.values())
        common = [out for out in law if law[out] * total >= 8]
        seen = [tally.get(out, 0) for out in common]
        wanted = [law[out] * total for out in common]
        seen.append(total - sum(seen))
        wanted.append(max(total - sum(wanted), 1e-9))
        if wanted[-1] < 8 and len(wanted) > 2:
            seen[-2:] = [seen[-2] + seen[-1]]
            wanted[-2:] = [wanted[-2] + wanted[-1]]
        if (
            len(wanted) > 1
            and chisquare(seen, np.array(wanted) * total / sum(wanted)).pvalue < 1e-9
        ):
            return True
    return False


@dataclass
class PeerRow:
    """One mechanism of another package, or of ours, in the comparison."""

    package: str
    name: str
    rate: float = math.nan
    ratio: float = math.nan
    loss: Loss | None = None
    vector_loss: Loss | None = None
    notes: list[str] = field(default_factory=list)

    def keep(self, results: Results, part: str) -> None:
        """Write the row into the results."""
        name = f"{self.package}: {self.name}"
        results.add(part, name, "words per second", self.rate)
        results.add(part, name, "slower than textpriv TEM", self.ratio)
        for what, loss in (("loss", self.loss), ("vector loss", self.vector_loss)):
            if loss is not None:
                results.add(part, name, f"{what} at least", loss.low, " ".join(loss.pair))
                results.add(part, name, f"{what} at most", loss.high, "exact" * loss.exact)
        for note in self.notes:
            results.add(part, name, "remark", math.nan, note)

    @classmethod
    def kept(cls, results: Results, part: str, name: str) -> PeerRow:
        """Read a row that :meth:`keep` wrote."""

        def loss(what: str) -> Loss | None:
            low = results.get(part, name, f"{what} at least")
            if math.isnan(low):
                return None
            exact = bool(results.notes(part, name, f"{what} at most"))
            return Loss(low, results.get(part, name, f"{what} at most"), ("", ""), exact)

        package, mechanism = name.split(": ", 1)
        return cls(
            package,
            mechanism,
            results.get(part, name, "words per second"),
            results.get(part, name, "slower than textpriv TEM"),
            loss("loss"),
            loss("vector loss"),
            results.notes(part, name, "remark"),
        )


def start(results: Results, cache: Path, runs: int) -> None:
    """Processor time of one process from nothing, with every cache empty, and of the next one: medians over runs."""
    python = install("textpriv", cache, (str(ROOT),))
    if isinstance(python, str):
        raise typer.BadParameter(f"textpriv {python}")
    again = ["-m", "pip", "install", "-q", "--no-deps", "--force-reinstall", str(ROOT)]
    subprocess.run([str(python), *again], check=True, capture_output=True)  # noqa: S603
    for name, arguments in STARTED.items():
        say(f"start: {name}")
        spent: dict[str, list[float]] = {"cold": [], "warm": []}
        for _ in range(runs):
            with tempfile.TemporaryDirectory() as kept:
                for times in spent.values():
                    times.append(processor_time([str(python), *arguments], Path(kept)))
        for state, times in spent.items():
            results.add("start", name, state, statistics.median(times))


def processor_time(command: Sequence[str], kept: Path) -> float:
    """Seconds of processor time, user and system, of a command that keeps what it keeps below a folder."""
    caches = {
        name: str(kept / name)
        for name in ("NUMBA_CACHE_DIR", "TEXTPRIV_CACHE_DIR", "XDG_CACHE_HOME")
    }
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(  # noqa: S603
        command,
        check=True,
        capture_output=True,
        input=TEXT.encode(),
        env={**environment, **caches},
        cwd=kept,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def install(package: str, cache: Path, wanted: Sequence[str]) -> Path | str:
    """The Python of an environment that holds a package; made at the first use. The reason, where that fails."""
    folder = cache / f"env-{package}"
    python = folder / "bin" / "python"
    done = folder / "installed"
    if done.exists():
        return python
    say(f"installing {package}")
    try:
        subprocess.run(  # noqa: S603
            [sys.executable, "-m", "venv", "--clear", str(folder)], check=True, capture_output=True
        )
        subprocess.run(  # noqa: S603
            [str(python), "-m", "pip", "install", "-q", *wanted],
            check=True,
            capture_output=True,
            timeout=900,
        )
    except subprocess.CalledProcessError as error:
        lines = [line for line in error.stderr.decode("utf-8", "replace").splitlines() if line]
        named = [line for line in lines if line.startswith("ERROR")] or lines or ["no reason given"]
        return f"cannot be installed here: {named[-1][:200]}"
    except subprocess.TimeoutExpired:
        return "cannot be installed here: it took over 15 minutes"
    done.touch()
    return python


def ask(package: str, python: Path, job: dict[str, Any], limit: float) -> dict[str, Any] | str:
    """What a package does with a job; the reason, where it does nothing."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = folder / "nltk" / "corpora"
        # What the packages look for when they are imported, and would download: the words themselves are not used.
        (data / "wordnet").mkdir(parents=True)
        (data / "stopwords").mkdir()
        (data / "stopwords" / "english").write_text("the\nof\nand\n", encoding="utf-8")
        np.save(folder / "vectors.npy", job["vectors"])
        (folder / "job.json").write_text(
            json.dumps({**job, "vectors": str(folder / "vectors.npy")}), encoding="utf-8"
        )
        answer = folder / "answer.json"
        here = Path(__file__).with_name("peers.py")
        command = [str(python), str(here), package, str(folder / "job.json"), str(answer)]
        own = {
            "HOME": name,
            "NLTK_DATA": str(folder / "nltk"),
            "PATH": os.environ.get("PATH", ""),
            # One thread, as for textpriv.
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        process = subprocess.Popen(  # noqa: S603
            command,
            env=own,
            cwd=name,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        timer = threading.Timer(limit, lambda: os.killpg(process.pid, signal.SIGKILL))
        timer.start()
        try:
            _, errors = process.communicate()
        finally:
            timer.cancel()
        if not answer.exists():
            last = errors.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no answer"]
            return f"does not run here: {last[0][:200]}"
        found: dict[str, Any] = json.loads(answer.read_text("utf-8"))
        return found


def peers(
    package: str,
    material: Material,
    index: textpriv.Index,
    results: Results,
    cache: Path,
    quick: bool,
) -> None:
    """Every mechanism of a package, and ours, on the same words: rates, and the audit of laws on a small vocabulary."""
    words, points = small_vocabulary()
    epsilon = 2.0
    running = material.running_words()
    stream = running[: 60 if quick else 600]
    job = {
        "words": material.vocabulary.words,
        "vectors": material.vocabulary.vectors.astype(np.float32, copy=False),
        "stream": [material.vocabulary.words[i] for i in stream],
        "seconds": 1.0 if quick else 4.0,
        "epsilon": material.epsilon,
        "noise_epsilon": material.noise_epsilon,
        "small_words": words,
        "small_vectors": points.tolist(),
        "small_epsilon": epsilon,
        "small_position_epsilon": 1.0,
        "draws": 500 if quick else 6_000,
        "check_draws": 300 if quick else 2_000,
    }
    own = ours(material, index, stream, words, points, epsilon, job["draws"])
    results.drop(["textpriv"])
    for row in own:
        row.keep(results, "textpriv")
    claimed = epsilon * np.linalg.norm(points[:, None] - points[None], axis=2)
    python = install(package, cache, PEERS[package])
    answer = (
        python if isinstance(python, str) else ask(package, python, job, 300 if quick else 1_000)
    )
    if isinstance(answer, str):
        say(f"{package}: {answer}")
        PeerRow(package, "–", notes=[answer]).keep(results, package)
        return
    # Ours again, so that a machine that has slowed down meanwhile weighs on both.
    again = our_rate(textpriv.TEM(index, epsilon=material.epsilon), stream, 500_000)
    fast = math.sqrt(own[0].rate * again)
    for found in answer["rows"]:
        row = PeerRow(f"{package} {answer['version']}", found["name"])
        row.rate = found.get("rate", math.nan)
        row.ratio = fast / row.rate
        positions = found.get("positions")
        if found.get("draws"):
            distances = claimed
            if positions:
                place = np.array([positions.index(word) for word in words])
                distances = job["small_position_epsilon"] * np.abs(place[:, None] - place)
            row.loss = judged(found, distances, words)
            if positions:
                per_distance = claimed * job["small_position_epsilon"] / epsilon
                row.vector_loss = judged(found, per_distance, words)
        row.notes = remarks(package, found, row)
        row.keep(results, package)


def judged(found: dict[str, Any], distances: NDArray[np.float64], words: Sequence[str]) -> Loss:
    """The loss of a mechanism by its law, where that was read, or else by its draws."""
    if found.get("law"):
        return loss_of_laws(found["law"], distances, words)
    return loss_of_draws(found["draws"], distances, words)


def remarks(package: str, found: dict[str, Any], row: PeerRow) -> list[str]:
    """What was seen of a mechanism besides its rate."""
    notes = [
        f"{what.removesuffix('_error')}: {found[what]}" for what in found if what.endswith("_error")
    ]
    if found.get("law") and misread(found):
        notes.append("its draws do not follow the law that was read")
    cause = CAUSES.get((package, found["name"]))
    if cause:
        notes.append(cause)
    if found.get("unknown_kept", 0) > 0:
        notes.append("an unknown word leaves as it is")
    if found.get("repeats"):
        notes.append("the default seed makes every run draw alike, so that its draws can be undone")
    if "bare" in found["name"]:
        notes.append("an inner function called directly, without the worker process it needs")
    return notes


def our_rate(mechanism: Mechanism, stream: NDArray[np.int32], count: int) -> float:
    """Words per second on a stream repeated to so many words."""
    return words_per_second(mechanism, np.tile(stream, -(-count // len(stream)))[:count], 5)


def ours(
    material: Material,
    index: textpriv.Index,
    stream: NDArray[np.int32],
    words: list[str],
    points: NDArray[np.float64],
    epsilon: float,
    draws: int,
) -> list[PeerRow]:
    """Our own rows, by the same measure: TEM first, as the reference."""
    small = textpriv.Index.build(textpriv.Vocabulary(words, points))
    claimed = epsilon * np.linalg.norm(points[:, None] - points[None], axis=2)
    own: dict[str, tuple[Mechanism, Mechanism, int]] = {
        "TEM": (
            textpriv.TEM(index, epsilon=material.epsilon),
            textpriv.TEM(small, epsilon=epsilon),
            500_000,
        ),
        "Madlib": (
            textpriv.Madlib(index, epsilon=material.noise_epsilon),
            textpriv.Madlib(small, epsilon=epsilon),
            500,
        ),
    }
    rows = []
    for name, (fast, audited, count) in own.items():
        row = PeerRow("textpriv", name, rate=our_rate(fast, stream, count))
        row.ratio = (rows[0].rate if rows else row.rate) / row.rate
        if name == "TEM":
            laws = {
                word: dict(zip(words, np.exp(audited.log_prob(word)).tolist(), strict=True))
                for word in words
            }
            row.loss = loss_of_laws(laws, claimed, words)
        else:
            tallies = {}
            for place, word in enumerate(words):
                out = audited.sample(np.full(draws, place, dtype=np.int32), Stream())
                counts = np.bincount(out, minlength=len(words))
                tallies[word] = {words[i]: int(c) for i, c in enumerate(counts) if c}
            row.loss = loss_of_draws(tallies, claimed, words)
        rows.append(row)
    return rows


# ----------------------------------------------------------------------------------------------
# Tables and figure
# ----------------------------------------------------------------------------------------------


def factor(value: float) -> str:
    """A ratio for people: two digits, no exponent."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞"
    if value >= 100:
        digits = 2 - math.ceil(math.log10(value))
        return f"{round(value, digits):,.0f}"
    return f"{value:.2g}" if value < 1 else f"{value:.1f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def peer_rows(results: Results) -> list[PeerRow]:
    """Ours, then those of the other packages that were measured; none without any."""
    parts = [part for part in PEERS if results.names(part)]
    return [
        PeerRow.kept(results, part, name)
        for part in (["textpriv", *parts] if parts else [])
        for name in results.names(part)
    ]


def verdict(row: PeerRow) -> str:
    """The loss of a row; bold where the claim is refuted."""
    if row.loss is None:
        return "–"
    found = f"**{row.loss}**" if row.loss.broken else str(row.loss)
    return found if row.vector_loss is None else f"{found}; {row.vector_loss}"


def by_size(
    results: Results, kind: str, measures: Sequence[tuple[str, str | None]]
) -> list[list[str]]:
    """Rows of a table: each measure as it is, or over that of the named row."""
    return [
        [name]
        + [
            factor(
                results.get(kind, name, measure)
                / (1.0 if base is None else results.get(kind, base, measure))
            )
            for measure, base in measures
        ]
        for name in results.names(kind)
    ]


HEAD = """# Speed, memory and growth

Everything here is printed by one command and is a ratio of times taken in one run, so that it says the same on another
machine; only the time to load an index, the memory, the trees and the start are not.

```sh
python recipes/benchmark.py --data-dir ../shared/data --cache CACHE --output docs/results/benchmark
```

`--part NAME` measures a part again and keeps the others, `--quick` takes a minute, and without `--data-dir` the
built-in words and texts of gensim serve. All numbers are also in [{name}.csv]({name}.csv). Other programs may have used the
machine at the same time: what is compared takes turns, so that they weigh on both sides, and rates are by processor time
(by the time that passed for dp-diffractor, whose worker process has the work).

![Rates of all mechanisms, and growth with text, vocabulary and dimension]({name}.svg)
"""


def markdown(results: Results, name: str) -> str:
    """All tables for which there are numbers."""
    parts = [HEAD.format(name=name).strip(), *results.notes(*MATERIAL)]
    if results.names("rates"):
        parts += [
            "## Side by side\n\nTokens in a given time, against blank spaCy tokenization; one process.",
            table(["what", "times spaCy"], by_size(results, "rates", [("times spaCy", None)])),
        ]
    if results.names("component"):
        parts += [
            "## In a pipeline\n\nTime of a pipeline with the strict tokenizer, and of one with the component behind spaCy's "
            "own, over that of a blank pipeline of spaCy: for whole texts, and for their first "
            f"{FEW_WORDS} words alone. The strict tokenizer takes the place of spaCy's, and the component comes on top. "
            "Last, the time of `Privatizer.pipe(texts)` over the same. In `nlp.pipe(texts)` spaCy asks a tokenizer for one "
            "text at a time; the documents of `nlp.tokenizer.pipe(texts)`, which draws many at once, it takes as they are. "
            "One text alone finds little of what it needs in the processor's caches, and least where other programs use "
            "them: a busy machine weighs most on those lines.",
            table(
                ["call", "whole texts", "short texts"],
                [
                    [
                        name,
                        *(
                            f"{results.get('component', name, measure):.2f}"
                            for measure in ("whole", "first words")
                        ),
                    ]
                    for name in results.names("component")
                ],
            ),
        ]
    rows = peer_rows(results)
    if rows:
        parts += [
            "## Other packages\n\nMechanism alone, word for word, the same words and vectors. *Loss over claim* is the "
            "largest log-ratio of output probabilities found on 24 words in the plane, over the epsilon times distance "
            "that the mechanism promises for that pair: above 1 the promise is false. A single number is exact, from the "
            "law that was read; an interval comes from draws, and all intervals of one mechanism together are wrong with a "
            f"probability below {ERROR:g}. For a mechanism that counts places in a list the second number is taken "
            "per unit of vector distance.",
            table(
                ["package", "mechanism", "textpriv TEM is faster by", "loss over claim", "remarks"],
                [
                    [
                        row.package,
                        row.name,
                        factor(row.ratio),
                        verdict(row),
                        "; ".join(row.notes).replace("|", "/") or "–",
                    ]
                    for row in rows
                ],
            ),
        ]
    if results.names("tokens"):
        last, widest = results.names("tokens")[-1], results.names("dimension")[-1]
        few = results.get("types", results.names("types")[0], "again")
        rate = "words per second"
        parts += [
            "## Growth\n\nRate of TEM against that of the last line; tables already filled.",
            table(["tokens in one call", "rate"], by_size(results, "tokens", [(rate, last)])),
            "Rate of TEM by distinct words, against the first line; *first* fills the tables of each word as it is met.",
            table(
                ["distinct words", "first", "again"],
                [
                    [
                        name,
                        *(factor(results.get("types", name, m) / few) for m in ("first", "again")),
                    ]
                    for name in results.names("types")
                ],
            ),
            "By dimension: time of an index (exact lists of 256 words and all else but the graph of Madlib) over that of "
            "all inner products in float32 on all processors; rate against the last line.",
            table(
                ["dimension", "build / products", "rate"],
                by_size(results, "dimension", [("build / product", None), (rate, widest)]),
            ),
        ]
    if results.names("vocabulary"):
        parts += [
            "## Vocabulary\n\nThe time of an index over that of all inner products as above, the time to load it with "
            "every checksum compared, and the rate of TEM against that on the given vectors, on words of the Zipf law over "
            "each vocabulary, and on the same words of the given one.",
            table(
                ["words", "build / products", "load, s", "rate", "rate, same words"],
                by_size(
                    results,
                    "vocabulary",
                    [
                        (measure, None)
                        for measure in (
                            "build / product",
                            "load",
                            "rate / base",
                            "rate / base, its words",
                        )
                    ],
                ),
            ),
        ]
    if results.names("memory"):
        held = [f"{count} workers" for count in (1, 2, 3)]
        parts += [
            "## Memory\n\nPeak resident memory of `textpriv privatize`, shared pages counted once, MB.",
            table(
                ["words", "1 worker", "2 workers", "3 workers", "third worker"],
                [
                    [
                        name,
                        *(f"{results.get('memory', name, count):.0f}" for count in held),
                        f"{results.get('memory', name, held[2]) - results.get('memory', name, held[1]):.0f}",
                    ]
                    for name in results.names("memory")
                ],
            ),
        ]
    if results.names("trees"):
        measures = list(dict.fromkeys(row[2] for row in results.rows if row[0] == "trees"))
        parts += [
            "## Trees\n\nPrinted by `--part trees`: times, not ratios; words are drawn by one process. The method is the "
            "default, Ward's up to 50,000 words and bisecting k-means beyond. Loading compares every checksum.",
            table(
                ["words", *results.names("trees")],
                [
                    [
                        what,
                        *(f"{results.get('trees', n, what):,.4g}" for n in results.names("trees")),
                    ]
                    for what in measures
                ],
            ),
        ]
    if results.names("start"):
        parts += [
            "## Start\n\nPrinted by `--part start`: processor time of a process, user and system, in seconds, medians of "
            "five, in an environment that holds textpriv and what it asks for. *Cold* finds every cache empty, as in a "
            "fresh container; *warm* what the run before has kept. These are times and no ratios; the first line tells how "
            "fast the machine was.",
            table(
                ["what", "cold", "warm"],
                [
                    [
                        name,
                        *(f"{results.get('start', name, state):.2f}" for state in ("cold", "warm")),
                    ]
                    for name in results.names("start")
                ],
            ),
        ]
    return "\n\n".join(parts) + "\n"


def figure(results: Results, stem: Path) -> None:
    """Four panels as PNG and SVG."""
    rows = peer_rows(results)
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.patches import Patch

    plt.rcParams.update({"font.size": 9, "svg.hashsalt": "textpriv", "svg.fonttype": "none"})
    drawing, axes = plt.subplots(
        2,
        2,
        figsize=(FIGURE_WIDTH / 100, 7.6),
        dpi=100,
        layout="constrained",
        gridspec_kw={"height_ratios": [1.25, 1]},
    )
    bars: list[tuple[str, float, str]] = []
    spacy_rate = results.get("rates", "blank spaCy tokenization", "words per second")
    for name in results.names("rates"):
        colour = BLUE if name.startswith("textpriv") else GREY
        label = name.removeprefix("textpriv ").split(":")[0].replace("blank ", "")
        bars.append((label, results.get("rates", name, "times spaCy"), colour))
    for row in rows:
        if row.package != "textpriv" and row.rate > 0:
            package = row.package.split()[0]
            broken = row.loss is not None and row.loss.broken
            label = f"{package} {row.name}".replace(", bare function", " (bare)")
            bars.append((label, row.rate / spacy_rate, ORANGE if broken else GREEN))
    bars.sort(key=lambda bar: bar[1])
    left = axes[0, 0]
    left.barh([b[0] for b in bars], [b[1] for b in bars], color=[b[2] for b in bars])
    left.set_xscale("log")
    left.tick_params(axis="y", labelsize=7)
    left.set_xlabel("words in a given time (blank spaCy = 1)")
    shown = {bar[2] for bar in bars}
    legend = {
        BLUE: "textpriv",
        GREY: "no mechanism",
        GREEN: "other, claim not refuted",
        ORANGE: "other, claim refuted",
    }
    left.legend(
        handles=[Patch(color=c, label=text) for c, text in legend.items() if c in shown],
        fontsize=7,
        loc="lower right",
    )
    left.set_title("Rates, mechanism alone", fontsize=10)

    def curve(axis: Any, kind: str, measure: str, label: str, colour: str, mark: str) -> None:
        names = results.names(kind)
        if not names:
            return
        x = [float(name.replace(",", "")) for name in names]
        values = [results.get(kind, name, measure) for name in names]
        if measure in ("words per second", "first", "again"):
            values = [value / spacy_rate for value in values]
        axis.plot(x, values, mark, color=colour, label=label)
        if kind in ("vocabulary", "dimension"):
            axis.set_xticks(x, [f"{v / 1000:.3g}k" if v >= 1000 else f"{v:g}" for v in x])
            axis.minorticks_off()

    panels = [
        (axes[0, 1], "Growth with text", "tokens, or distinct words"),
        (axes[1, 0], "Growth with vocabulary", "words in the vocabulary"),
        (axes[1, 1], "Growth with dimension", "dimensions of a vector"),
    ]
    for axis, title, label in panels:
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_title(title, fontsize=10)
        axis.set_xlabel(label)
        axis.grid(visible=True, which="major", alpha=0.3)
    rate_label = "TEM rate (blank spaCy = 1)"
    curve(panels[0][0], "tokens", "words per second", "by tokens", BLUE, "o-")
    curve(panels[0][0], "types", "again", "by distinct words", ORANGE, "s--")
    curve(panels[0][0], "types", "first", "the same, first met", GREEN, "^:")
    panels[0][0].set_ylabel(rate_label)
    for axis, kind in ((panels[1][0], "vocabulary"), (panels[2][0], "dimension")):
        curve(axis, kind, "words per second", rate_label, BLUE, "o-")
        curve(axis, kind, "build / product", "build time (matrix product = 1)", ORANGE, "s--")
        axis.set_ylabel("ratio")
    for axis, _, _ in panels:
        if not axis.lines:
            axis.set_visible(False)
            continue
        axis.legend(fontsize=7)
        low, high = axis.get_ylim()
        axis.set_ylim(min(low, 0.5), max(high, 4 * low))
    drawing.savefig(stem.with_suffix(".png"))
    drawing.savefig(stem.with_suffix(".svg"), metadata={"Date": None})
    plt.close(drawing)


# ----------------------------------------------------------------------------------------------
# The command
# ----------------------------------------------------------------------------------------------


def gather(data_dir: Path | None, vectors: Path | None, quick: bool, epsilon: float) -> Material:
    """The vocabulary and the texts."""
    source = vectors
    if source is None and data_dir is not None:
        source = data_dir / "embeddings" / "imdb-unsup-sg-40k.300d.bin.gz"
    if source is None:
        vocabulary = textpriv.Vocabulary.builtin("en")
    else:
        vocabulary = textpriv.Vocabulary.load(str(source))
    if quick and len(vocabulary) > 5_000:
        vocabulary = textpriv.Vocabulary(vocabulary.words[:5_000], vocabulary.vectors[:5_000])
    texts: list[str] = []
    if data_dir is not None:
        with gzip.open(data_dir / "imdb" / "train.jsonl.gz", "rt", encoding="utf-8") as lines:
            for line in lines:
                texts.append(json.loads(line)["text"])
                if len(texts) == (200 if quick else 3_000):
                    break
    else:
        from gensim.test.utils import datapath

        with open(datapath("lee_background.cor"), encoding="utf-8") as articles:
            texts = [line for line in articles if line.strip()]
        texts = texts[:100] if quick else texts * 5
    # Noise on a vector of n dimensions has a mean length of n over epsilon.
    wide = epsilon * max(1.0, vocabulary.vectors.shape[1] / 30)
    return Material(vocabulary, texts, epsilon, wide)


@contextmanager
def private_cache(given: Path | None) -> Iterator[Path]:
    """The folder for environments and indexes: one that stays, or one that is removed at the end."""
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        yield given.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="benchmark") as folder:
        yield Path(folder)


def main(
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Folder with embeddings/ and imdb/; left out: built-in words."),
    ] = None,
    vectors: Annotated[Path | None, typer.Option(help="Other public word vectors.")] = None,
    output: Annotated[Path, typer.Option(help="Names of the files, without their ending.")] = Path(
        "benchmark"
    ),
    part: Annotated[
        list[str] | None,
        typer.Option(
            help="Measure this part only, and keep the others of an earlier OUTPUT.csv; may be repeated: "
            "rates, component, growth, vocabulary, memory, trees, start, or a package.",
            show_default=False,
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A minute, on a small vocabulary.")
    ] = False,
    no_peers: Annotated[bool, typer.Option("--no-peers", help="Without other packages.")] = False,
    largest: Annotated[
        int | None, typer.Option(help="Words of the largest vocabulary.", show_default="400,000")
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(help="Keep environments and indexes here, for the next run."),
    ] = None,
    epsilon: Annotated[float, typer.Option(help="Per unit of distance of the vectors.")] = 6.0,
) -> None:
    """Measure everything, print the tables and write them and the figure."""
    parts = list(part or PARTS)
    for name in parts:
        if name not in PARTS:
            raise typer.BadParameter(f"{name!r}; parts are {', '.join(PARTS)}.")
    if no_peers:
        parts = [name for name in parts if name not in PEERS]
    if quick and not part:
        parts.remove("start")  # it makes an environment, which takes minutes
    record = output.with_suffix(".csv")
    results = Results.read(record) if part and record.exists() else Results()
    results.drop([table for name in parts for table in TABLES.get(name, (name,))])
    material = gather(data_dir, vectors, quick, epsilon)
    known = results.notes(*MATERIAL)
    if known and known != [material.described] and parts != ["start"]:
        raise typer.BadParameter(
            f"the parts that are kept were measured on {known[0]} Measure this one on the same, or all."
        )
    size = len(material.vocabulary)
    if not known:
        results.add(*MATERIAL, size, material.described)
    top = largest or (2 * size if quick else 400_000)
    wanted = {s for s in (5_000, 10_000, 20_000) if s < top and (not quick or s < size)}
    output.parent.mkdir(parents=True, exist_ok=True)
    with private_cache(cache) as folder:
        graph = bool({*parts} - {"component", "start", "trees"})
        index = tables_of(material, folder, graph) if graph or "component" in parts else None
        for name in parts:
            if name == "rates":
                side_by_side(material, index, results, 3 if quick else 5)
            elif name == "component":
                component(material, index, results, 3 if quick else 7)
            elif name == "growth":
                growth(material, index, results, quick)
            elif name == "vocabulary":
                vocabularies(material, results, sorted(wanted | {size, top}), folder, quick)
            elif name == "memory":
                memory(material, results, sorted({size, top}), folder)
            elif name == "trees":
                trees(
                    material, results, sorted({size, top}), folder, 100_000 if quick else 1_000_000
                )
            elif name == "start":
                start(results, folder, 5)
            else:
                peers(name, material, index, results, folder, quick)
            results.write(record)
    text = markdown(results, output.name)
    output.with_suffix(".md").write_text(text, encoding="utf-8")
    figure(results, output)
    print(text)


if __name__ == "__main__":
    typer.run(main)
