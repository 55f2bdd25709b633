"""The texts and word vectors that laws are compared on, fetched into the layout of a local copy.

IMDB with its unlabelled reviews and the test half of AG News (Zhang et al. 2015, for research) come from the Hugging Face
hub, Banking77 (Casanueva et al. 2020, CC-BY-4.0) and 5,000 reviews of Yelp (as processed by Yue et al. 2023, no licence
stated) from the repositories of their papers, at a fixed commit. Word vectors are trained here on the unlabelled reviews.
Recipes that are given a folder read that one; which texts are private, and what is learned of them, is their matter.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from data import DataUnavailable

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["COUNTS", "VECTORS", "fetched_texts"]

VECTORS = "embeddings/imdb-unsup-sg-40k.300d.bin.gz"
COUNTS = "embeddings/imdb-unsup-sg-40k.counts.txt.gz"
IMDB = "stanfordnlp/imdb"
AG_NEWS = "fancyzhx/ag_news"
_GITHUB = "https://raw.githubusercontent.com"
BANKING77 = f"{_GITHUB}/PolyAI-LDN/task-specific-datasets/57ec275d8078af65b7731c2a98be812d844a6d6b/banking_data"
YELP = f"{_GITHUB}/AI-secure/aug-pe/a3f292f6fec7427b6a6e6d982b83b68c1f0a86d5/data/yelp/test.csv"
# Of skip-gram vectors; three passes of the 50,000 reviews take some ten minutes of two cores.
TRAINING = {"vector_size": 300, "window": 5, "min_count": 5, "sg": 1, "epochs": 3, "seed": 1}


def fetched_texts(folder: Path) -> Path:
    """Fetch and make what is not yet in a folder, and return the folder.

    Files have the names and lines of a local copy. The hub lists reviews by label, so they are mixed by a fixed seed: in
    another order than in a local copy, and figures differ by that.

    Raises
    ------
    DataUnavailable
        Where the network does not give a set.
    """
    if not all((folder / f"imdb/{split}.jsonl.gz").is_file() for split in ("train", "test")):
        reviews = _from_hub("IMDB", IMDB)
        for seed, split in enumerate(("train", "test")):
            mixed = np.random.default_rng(seed).permutation(len(reviews[split]))
            _write_lines(folder / f"imdb/{split}.jsonl.gz", reviews[split].select(mixed))
    if not all((folder / name).is_file() for name in (VECTORS, COUNTS)):
        _train(_from_hub("IMDB", IMDB)["unsupervised"]["text"], folder)
    for split in ("train", "test"):
        if not (folder / f"banking77/{split}.jsonl.gz").is_file():
            intents = _read("Banking77", f"{BANKING77}/categories.json").tolist()
            queries = _read("Banking77", f"{BANKING77}/{split}.csv")
            pairs = zip(queries["text"], queries["category"], strict=True)
            rows = ({"text": text, "label": intents.index(name)} for text, name in pairs)
            _write_lines(folder / f"banking77/{split}.jsonl.gz", rows)
    if not (folder / "ag_news/articles.jsonl.gz").is_file():
        _write_lines(folder / "ag_news/articles.jsonl.gz", _from_hub("AG News", AG_NEWS)["test"])
    if not (folder / "yelp/reviews.jsonl.gz").is_file():
        _write_lines(folder / "yelp/reviews.jsonl.gz", _yelp_rows(_read("Yelp", YELP)))
    return folder


def _from_hub(name: str, at: str) -> Any:
    import datasets

    with _from_network(name, "the Hugging Face hub"):
        return datasets.load_dataset(at)


def _read(name: str, url: str) -> Any:
    import pandas as pd

    with _from_network(name, url):
        if url.endswith(".json"):
            return pd.read_json(url, typ="series")
        return pd.read_csv(url, dtype=str, keep_default_na=False)


def _yelp_rows(reviews: pd.DataFrame) -> Iterator[dict[str, Any]]:
    columns = (reviews[name] for name in ("text", "label1", "label2"))
    for text, category, stars in zip(*columns, strict=True):
        yield {
            "text": text,
            "stars": int(float(stars.removeprefix("Review Stars: "))),
            "category": category.removeprefix("Business Category: "),
        }


@contextlib.contextmanager
def _from_network(name: str, place: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # the clients raise many kinds
        raise DataUnavailable(
            f"{name} could not be fetched from {place}. Without a network, name a folder that holds the texts: "
            "--data-dir DIR."
        ) from error


def _train(texts: Iterable[str], folder: Path) -> None:
    """Train word vectors on lower-cased public texts, and count the words."""
    import spacy
    from gensim.models import Word2Vec

    read = spacy.blank("en").tokenizer.pipe(text.lower() for text in texts)
    # One string a word, however often it is written.
    sentences = [[sys.intern(token.text) for token in doc if not token.is_space] for doc in read]
    counts = Counter(word for sentence in sentences for word in sentence)
    vectors = Word2Vec(sentences, workers=os.cpu_count() or 1, **TRAINING).wv
    with _written(folder / VECTORS) as partial:
        vectors.save_word2vec_format(str(partial), binary=True)
    with _written(folder / COUNTS) as partial, gzip.open(partial, "wt", encoding="utf-8") as file:
        file.writelines(f"{word} {counts[word]}\n" for word in vectors.index_to_key)


def _write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    with _written(path) as partial, gzip.open(partial, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


@contextlib.contextmanager
def _written(path: Path) -> Iterator[Path]:
    """A file that takes its name when it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as beside:
        partial = Path(beside) / path.name  # by whose ending it is packed
        yield partial
        os.replace(partial, path)
