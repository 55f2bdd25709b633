"""Speed and start of textpriv against its limits.

    python recipes/benchmark.py --data-dir DATA --output benchmark

DATA contains ``embeddings/imdb-unsup-sg-40k.300d.bin.gz`` and ``imdb/train.jsonl.gz``. Without it the built-in words and the
articles that ship with gensim serve; the limits are stated for DATA on two quiet cores. Compared times take turns in one
process, and each is the median of several rounds. Starts and file to file are processes of their own, measured by processor
time. OUTPUT.md and OUTPUT.csv get the table. ``--quick`` takes a minute.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated

import numpy as np
import spacy
import typer

import textpriv
from textpriv.language import NGrams
from textpriv.randomness import Stream

VECTORS = "embeddings/imdb-unsup-sg-40k.300d.bin.gz"
EPSILONS = (2.0, 4.0, 6.0, 20.0)
EPSILON = 6.0
SENTENCE = "The patient was admitted with chest pain."
ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Limit:
    """One line of the table.

    Attributes
    ----------
    name, unit : str
    value, wanted : float
    most : bool
        Whether ``wanted`` is an upper bound.
    """

    name: str
    unit: str
    value: float
    wanted: float
    most: bool = True

    @property
    def met(self) -> bool:
        """Whether the value is on the right side."""
        return self.value <= self.wanted if self.most else self.value >= self.wanted

    def line(self) -> str:
        """A row of a Markdown table."""
        sign = "at most" if self.most else "at least"
        met = "yes" if self.met else "**no**"
        return f"| {self.name} | {self.value:,.4g} {self.unit} | {sign} {self.wanted:,g} | {met} |"


def texts_of(data_dir: Path | None, count: int) -> list[str]:
    """Reviews, or pieces of the articles that ship with gensim."""
    if data_dir is not None:
        with gzip.open(data_dir / "imdb/train.jsonl.gz", "rt", encoding="utf-8") as lines:
            return [json.loads(line)["text"] for line in islice(lines, count)]
    from gensim.test.utils import datapath

    words = Path(datapath("lee_background.cor")).read_text(encoding="utf-8").split()
    pieces = [" ".join(words[at : at + 200]) for at in range(0, len(words), 200)]
    return [pieces[number % len(pieces)] for number in range(count)]


def in_turns(works: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median processor time of each work, all of them once a round after a first one that compiles."""
    seen: dict[str, list[float]] = {name: [] for name in works}
    for number in range(rounds + 1):
        for name, work in works.items():
            begun = time.process_time()
            work()
            if number:
                seen[name].append(time.process_time() - begun)
    return {name: statistics.median(times) for name, times in seen.items()}


def pipelines(index: textpriv.Index, texts: list[str], rounds: int) -> Iterator[Limit]:
    """Text to text and the component, against blank spaCy."""
    blank, private = spacy.blank("en"), spacy.blank("en")
    mechanism = textpriv.TEM(index, EPSILON)
    with tempfile.TemporaryDirectory() as folder:
        index.save(Path(folder) / "a.idx")
        chosen = {"@textpriv_mechanisms": "textpriv.TEM.v1", "epsilon": EPSILON}
        private.add_pipe("textpriv", config={"index": f"{folder}/a.idx", "mechanism": chosen})
        privatizer = textpriv.Privatizer(mechanism)
        times = in_turns(
            {
                "tokenizer": lambda: [blank.tokenizer(text) for text in texts],
                "text": lambda: list(privatizer.pipe(texts)),
                "blank": lambda: list(blank.pipe(texts)),
                "component": lambda: list(private.pipe(texts)),
            },
            rounds,
        )
    yield Limit("text to text", "of blank tokenization", times["text"] / times["tokenizer"], 0.4)
    ratio = times["component"] / times["blank"]
    yield Limit("component in `nlp.pipe`", "of a blank pipeline", ratio, 1.8)


def draws(index: textpriv.Index, tokens: int, rounds: int) -> Iterator[Limit]:
    """TEM alone, on words drawn by Zipf's law: by a new mechanism, which fills its tables, and again."""
    weights = index.vocabulary.prior_weights("zipf")
    ids = np.random.default_rng(0).choice(len(index), tokens, p=weights).astype(np.int32)
    for prior in ("uniform", "zipf"):
        for epsilon in EPSILONS:
            made: dict[str, textpriv.TEM] = {}

            def first(prior: str = prior, epsilon: float = epsilon, made: dict = made) -> None:
                made["TEM"] = textpriv.TEM(index, epsilon, prior=prior)
                made["TEM"].sample(ids, Stream())

            works = {"first": first, "again": lambda made=made: made["TEM"].sample(ids, Stream())}
            for name, seconds in in_turns(works, rounds).items():
                title = f"TEM, {prior} prior, epsilon {epsilon:g}, {name}"
                wanted = 400_000 if name == "first" else 1_000_000
                yield Limit(title, "words a second", tokens / seconds, wanted, most=False)


def in_context(texts: list[str], public: list[str], rounds: int) -> Iterator[Limit]:
    """ContextualTEM over the built-in words, with trigrams counted from public texts."""
    index = textpriv.Index.builtin("en")
    model = NGrams.count(public, index.vocabulary)
    privatizer = textpriv.Privatizer(textpriv.ContextualTEM(index, EPSILON, model))
    batch = privatizer.read_batch(texts)
    seconds = in_turns({"draws": lambda: privatizer.release_batch(batch)}, rounds)["draws"]
    rate = batch.counts["sampled"] / seconds
    yield Limit("ContextualTEM, trigrams", "words a second", rate, 50_000, most=False)


def certificate(index: textpriv.Index) -> Iterator[Limit]:
    """The exact constant over all pairs."""
    begun = time.perf_counter()
    assert textpriv.certify(textpriv.TEM(index, EPSILON)).holds
    seconds = time.perf_counter() - begun
    yield Limit(f"certificate, all pairs of {len(index):,} words", "s", seconds, 30)


def processor_time(arguments: list[str], cache: Path) -> float:
    """Processor time of a Python process and its children, with caches in a folder."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    variables = {"NUMBA_CACHE_DIR": str(cache), "TEXTPRIV_CACHE_DIR": str(cache / "textpriv")}
    subprocess.run(  # noqa: S603
        [sys.executable, *arguments],
        check=True,
        env=os.environ | variables | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def starts(runs: int) -> Iterator[Limit]:
    """One line and the demo in a new installation, and a line after that."""
    demo = ["-m", "textpriv", "demo"]
    seen: dict[str, list[float]] = {"first": [], "later": [], "demo": []}
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "in.txt").write_text(f"{SENTENCE}\n", encoding="utf-8")
            one = [*demo[:2], "privatize", str(folder / "in.txt"), "-", "--recovery", "0.1"]
            seen["first"].append(processor_time(one, folder / "cache"))
            seen["later"].append(processor_time(one, folder / "cache"))
            seen["demo"].append(processor_time(demo, folder / "empty"))
    limits = {"first": ("first line, new installation", 4.5), "later": ("a later line", 1.7)}
    for name, (title, most) in (
        limits | {"demo": ("`textpriv demo`, new installation", 6)}
    ).items():
        yield Limit(title, "s of processor time", statistics.median(seen[name]), most)


def files(index: textpriv.Index, texts: list[str]) -> Iterator[Limit]:
    """Reviews from file to file with one worker, after a first run that compiles."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        index.save(folder / "a.idx")
        lines = [json.dumps({"text": text}) + "\n" for text in texts]
        arguments = ["-m", "textpriv", "privatize", "IN", "OUT", "--index", str(folder / "a.idx")]
        arguments += ["--epsilon", f"{EPSILON:g}", "--mechanism", "tem", "--workers", "1"]
        for part in (lines[:100], lines):
            (folder / "in.jsonl").write_text("".join(part), encoding="utf-8")
            (folder / "out.jsonl").unlink(missing_ok=True)
            arguments[3:5] = [str(folder / "in.jsonl"), str(folder / "out.jsonl")]
            begun = time.perf_counter()
            processor_time(arguments, folder / "cache")
            seconds = time.perf_counter() - begun
    yield Limit(f"{len(texts):,} reviews, file to file, one worker", "s", seconds, 15)


def main(
    data_dir: Annotated[Path | None, typer.Option()] = None,
    output: Annotated[Path, typer.Option()] = Path("benchmark"),
    quick: Annotated[bool, typer.Option("--quick")] = False,
) -> None:
    """Measure, print and write the table."""
    if data_dir is None:
        index = textpriv.Index.builtin("en")
    else:
        index = textpriv.Index.build(textpriv.Vocabulary.load(data_dir / VECTORS))
    texts = texts_of(data_dir, 200 if quick else 25_000)
    rounds = 1 if quick else 5
    parts = (
        pipelines(index, texts[:3000], rounds),
        draws(index, 50_000 if quick else 1_000_000, rounds),
        in_context(texts[:500], texts[-20_000:], rounds),
        () if quick else certificate(index),
        starts(1 if quick else 3),
        files(index, texts),
    )
    head = f"{len(index):,} words x {index.points.shape[1]}, {len(texts):,} texts.\n\n"
    head += "| what | measured | limit | met |\n|---|---|---|---|\n"
    print(head, end="")
    limits = []
    for part in parts:
        for limit in part:
            limits.append(limit)
            print(limit.line(), flush=True)
    table = head + "".join(limit.line() + "\n" for limit in limits)
    output.with_suffix(".md").write_text(table, encoding="utf-8")
    with open(output.with_suffix(".csv"), "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["name", "value", "unit", "limit", "met"])
        rows.writerows((f.name, f"{f.value:.6g}", f.unit, f.wanted, f.met) for f in limits)


if __name__ == "__main__":
    typer.run(main)
