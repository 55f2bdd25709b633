"""Attacks on private reviews: single words, words in context, whose review it is, and which two are by one author.

Every attack knows the mechanism and the public word prior. The table gives what it achieves, 95 % intervals, and the most
that the guarantee allows, where it bounds the figure at all.

    python recipes/attacks.py --data-dir ../shared/data --vectors VECTORS --out attacks

The n-gram model of the masked attack is counted on the test reviews, which stand for public text; training reviews are
attacked. Linkage splits each review in two and asks which halves belong together, across two independent releases. The work
is in ``textpriv.evaluation``; membership of a training set is in ``imdb.py``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

import textpriv
from textpriv.errors import TextprivError
from textpriv.evaluation.inversion import invert, simulate
from textpriv.evaluation.law import Law
from textpriv.evaluation.masked_inference import infer_masked
from textpriv.evaluation.ngrams import NGrams
from textpriv.evaluation.reidentification import (
    link_authors,
    log_likelihoods,
    reidentify,
    similarities,
)
from textpriv.evaluation.roc import Attack, Rate
from textpriv.evaluation.utility import count_matrix
from textpriv.randomness import KeyedStreams

HEAD = "| attack | epsilon | right answers (95 %) | at most | AUC (95 %) | TPR at 1 % FPR | TPR at 0.1 % FPR |"


def line(name: str, epsilon: float, found: Attack) -> str:
    """One row of the table."""

    def part(rate: Rate) -> str:
        return f"{rate.value:.4f} ({rate.low:.4f} to {rate.high:.4f})"

    success = "-" if found.success is None else part(found.success)
    ceiling = 1.0 if found.success is None else found.success.ceiling
    return (
        f"| {name} | {epsilon:g} | {success} | {'-' if ceiling >= 1 else f'{ceiling:.4f}'} | {part(found.auc)} | "
        f"{part(found.tpr[0.01])} | {part(found.tpr[0.001])} |"
    )


def attack(
    index: textpriv.Index,
    reviews: tuple[np.ndarray, np.ndarray],
    public: tuple[np.ndarray, np.ndarray],
    epsilon: float,
    rate: str,
    seed: int,
) -> list[str]:
    """Run all attacks at one epsilon; returns rows of the table."""
    ids, offsets = reviews
    mechanism = textpriv.TEM(index, epsilon, rate=rate)
    streams = KeyedStreams(seed=seed)
    documents = len(offsets) - 1

    def release(part: np.ndarray, ends: np.ndarray, name: str) -> np.ndarray:
        own = [streams.stream(f"{name}/{i}") for i in range(len(ends) - 1)]
        return mechanism.sample_documents(part, ends, own)

    private = release(ids, offsets, "reviews")
    rows = []
    best = invert(mechanism)
    words = simulate(mechanism, best, streams.stream("words"), draws=100_000)
    rows.append(line(f"word inversion (exact: {best.success:.4f})", epsilon, words))
    law = Law(mechanism)
    model = NGrams.train(*public, len(index))
    for name, known in (("masked word, context", None), ("masked word, context and law", law)):
        found = infer_masked(ids, private, offsets, model, law=known, places=2_000, seed=seed)
        rows.append(line(name, epsilon, found))
    truth = np.arange(documents)
    size = len(index)
    lengths = np.diff(offsets)
    equal = np.where(lengths[:, None] == lengths[None, :], 0.0, -np.inf)
    scores = {
        "whose review, length alone": equal,
        "whose review, rare words": similarities(
            count_matrix(private, offsets, size), count_matrix(ids, offsets, size)
        ),
        "whose review, embeddings": similarities(
            count_matrix(private, offsets, size),
            count_matrix(ids, offsets, size),
            index.vocabulary.vectors,
        ),
        "whose review, law word by word": log_likelihoods(private, offsets, ids, offsets, law),
    }
    for name, each in scores.items():
        rows.append(line(name, epsilon, reidentify(each, truth)))
    middle = offsets[:-1] + lengths // 2
    first = np.concatenate([np.arange(a, b) for a, b in zip(offsets[:-1], middle, strict=True)])
    second = np.concatenate([np.arange(a, b) for a, b in zip(middle, offsets[1:], strict=True)])
    ends = [
        np.concatenate([[0], np.cumsum(part)]) for part in (lengths // 2, lengths - lengths // 2)
    ]
    halves = [
        release(ids[part], ends[number].astype(np.int64), f"half {number}")
        for number, part in enumerate((first, second))
    ]
    for name, table in (("rare words", None), ("embeddings", index.vocabulary.vectors)):
        found = link_authors(halves[0], ends[0], halves[1], ends[1], size, table=table)
        rows.append(line(f"one author, {name}", epsilon, found))
    return rows


def main(
    vectors: Annotated[Path, typer.Option(help="A file of public word vectors.")],
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Folder with imdb/*.jsonl.gz; without it the set is downloaded."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Where to write OUT.md.")] = Path("attacks"),
    epsilons: Annotated[str, typer.Option(help="Comma-separated.")] = "2,3,4",
    rate: Annotated[str, typer.Option(help="half, calibrated or best.")] = "best",
    limit: Annotated[int, typer.Option(help="Words to take.")] = 8_000,
    reviews: Annotated[int, typer.Option(help="Reviews that are attacked.")] = 500,
    seed: Annotated[int, typer.Option(help="Of draws and choices.")] = 0,
) -> None:
    """Attack, and print the table."""
    try:
        wanted = [float(part) for part in epsilons.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"epsilons are numbers with commas between them, such as 2,3,4; got {epsilons!r}."
        ) from None
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    from data import DataUnavailable, MalformedData, imdb

    try:
        sets = imdb(data_dir)
        index = textpriv.Index.build(textpriv.Vocabulary.load(vectors, limit=limit), hnsw=False)
    except (TextprivError, DataUnavailable, MalformedData) as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    reader = textpriv.Privatizer(textpriv.TEM(index, epsilon=1.0))

    def read(split: str, size: int) -> tuple[np.ndarray, np.ndarray]:
        chosen = np.sort(np.random.default_rng(seed).permutation(len(sets[split]))[:size])
        codes = [reader.read(text).codes for text in sets[split].select(chosen)["text"]]
        codes = [each[each >= -1] for each in codes]
        return np.concatenate(codes), np.concatenate([[0], np.cumsum([len(c) for c in codes])])

    attacked, public = read("train", reviews), read("test", 10 * reviews)
    table = [HEAD, "|---" * 7 + "|"]
    for epsilon in wanted:
        table += attack(index, attacked, public, epsilon, rate, seed)
    text = "\n".join(table) + "\n"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.with_suffix(".md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    typer.run(main)
