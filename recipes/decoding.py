"""Decoded reviews: how fluent they are, how near to what was written, and how much of it they recover.

    python recipes/decoding.py --data-dir DATA --out decoding

Reviews are made private at the epsilon at which the exact attacker recovers a given share of content words, and decoded by a
trigram model counted in other reviews. Fluency is the perplexity under the bundled model of general English, which the
decoder never saw. Nearness is the mean cosine of TF-IDF weighted means of public word vectors.
"""

from __future__ import annotations

import gzip
import json
from itertools import islice
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

import textpriv
from textpriv.evaluation.best_attacker import BestAttacker, largest_epsilon
from textpriv.evaluation.comparison import Documents
from textpriv.evaluation.decoding import Decoder
from textpriv.language import NGrams
from textpriv.language.general_english import general_english

VECTORS = "embeddings/imdb-unsup-sg-40k.300d.bin.gz"


def reviews(data_dir: Path, split: str, count: int, words: textpriv.Vocabulary) -> Documents:
    """The first reviews of a split, up to 100 words of each."""
    with gzip.open(data_dir / f"imdb/{split}.jsonl.gz", "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in islice(lines, count)]
    texts = [" ".join(record["text"].split()[:100]) for record in records]
    return Documents.read(texts, [record["label"] for record in records], words)


def nearness(
    first: NDArray[np.int32],
    second: NDArray[np.int32],
    documents: Documents,
    rarity: NDArray[np.float64],
    vectors: NDArray[np.float32],
) -> float:
    """Mean cosine between weighted mean vectors of documents."""
    means = []
    for ids in (first, second):
        counts = documents.counts(len(vectors), ids)
        means.append(counts.multiply(rarity).tocsr() @ vectors)
    lengths = np.linalg.norm(means[0], axis=1) * np.linalg.norm(means[1], axis=1)
    return float(np.mean((means[0] * means[1]).sum(axis=1) / np.maximum(lengths, 1e-12)))


def main(
    data_dir: Annotated[Path, typer.Option()],
    out: Annotated[Path, typer.Option()] = Path("decoding"),
    limit: Annotated[int, typer.Option(help="Words of the vocabulary.")] = 8000,
    count: Annotated[int, typer.Option("--reviews")] = 200,
    public: Annotated[int, typer.Option(help="Reviews the model is counted in.")] = 5000,
    recovery: Annotated[float, typer.Option()] = 0.2,
) -> None:
    """Measure, and write a table."""
    vocabulary = textpriv.Vocabulary.load(data_dir / VECTORS, limit=limit, language="en")
    prior = vocabulary.prior_weights("zipf")
    index = textpriv.Index.build(vocabulary, "euclidean")
    attacker = BestAttacker(prior, is_content=vocabulary.is_content)
    found = largest_epsilon(lambda e: textpriv.TEM(index, e), recovery, attacker.success, 3.0)
    mechanism = textpriv.TEM(index, found.epsilon)
    counted = reviews(data_dir, "test", public, vocabulary)
    written = reviews(data_dir, "train", count, vocabulary)
    model = NGrams.from_ids(counted.ids, counted.offsets, limit)
    private = mechanism.sample(written.ids, np.random.default_rng(0))
    decoder = Decoder(textpriv.Privatizer(mechanism), model)
    judge = general_english(vocabulary.words).words_only()
    seen = np.asarray((counted.counts(limit) > 0).sum(axis=0)).ravel()
    rarity = np.log((1 + public) / (1 + seen))
    vectors = (vocabulary.vectors - prior @ vocabulary.vectors).astype(np.float32)
    known = written.ids >= 0
    content = known & vocabulary.is_content[written.ids]
    lines = [
        f"Epsilon {found.epsilon:.3g}: {100 * found.share:.1f} % of content words recovered alone.\n",
        "| text | words unchanged, % | content words unchanged, % | perplexity | nearness |",
        "|---|---|---|---|---|",
    ]
    texts = {
        "original": written.ids,
        "private": private,
        "decoded": decoder.words(private, written.offsets),
    }
    for name, ids in texts.items():
        same = ids == written.ids
        values = [f"{100 * same[known].mean():.1f}", f"{100 * same[content].mean():.1f}"]
        values.append(f"{judge.perplexity(ids, written.offsets):.0f}")
        values.append(f"{nearness(written.ids, ids, written, rarity, vectors):.3f}")
        lines.append(f"| {name} | {' | '.join(values)} |")
    table = "\n".join(lines) + "\n"
    out.with_suffix(".md").write_text(table, encoding="utf-8")
    print(table)


if __name__ == "__main__":
    typer.run(main)
