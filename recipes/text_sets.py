"""Labelled public texts that mechanisms are compared on, fetched into the layout of a local copy.

IMDB (Maas et al. 2011) and the test half of AG News (Zhang et al. 2015, for research) come from the Hugging Face hub, all
others from public repositories at a fixed commit: Banking77 (Casanueva et al. 2020, CC-BY-4.0), intents (Larson et al. 2019,
CC-BY-3.0), medical abstracts (Schopf et al. 2022, CC-BY-SA-3.0), and without a stated licence 5,000 reviews of Yelp (as
processed by Yue et al. 2023), sentences of film reviews (Pang and Lee 2005), questions (Li and Roth 2002), tweets to
airlines (CrowdFlower 2015), text messages (Almeida et al. 2011) and titles of questions to programmers (Xu et al. 2015).
Recipes that are given a folder read that one; which texts are private, and what is learned of them, is their matter.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import tempfile
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from data import DataUnavailable

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SHORT_SETS", "fetched_texts"]

IMDB = "stanfordnlp/imdb"
AG_NEWS = "fancyzhx/ag_news"
_GITHUB = "https://raw.githubusercontent.com"
BANKING77 = (
    "PolyAI-LDN/task-specific-datasets/57ec275d8078af65b7731c2a98be812d844a6d6b/banking_data"
)
YELP = "AI-secure/aug-pe/a3f292f6fec7427b6a6e6d982b83b68c1f0a86d5/data/yelp/test.csv"
SENTENCES = "harvardnlp/sent-conv-torch/d61ded09c99c0199d8c5bca946cd65864de2b296/data/raw"
INTENTS = "clinc/oos-eval/828f8093932c8fe6ca7936c3d2e52903b1c523de/data"
TWEETS = "Ramlah0/Twitter-US-Airline-Sentiment-Analysis/b485e56d824c0c0c0ed573932a98db309523bc75/Tweets.csv"
ABSTRACTS = "sebischair/Medical-Abstracts-TC-Corpus/70a2d9106c724729be8b3c4ddb00d1b14ec300c8/medical_tc_test.csv"
MESSAGES = "justmarkham/pycon-2016-tutorial/5339710562cc46c4a32a369d63f1e8751a18a54e/data/sms.tsv"
TITLES = "jacoxu/StackOverflow/7c207f51e649fff9e4736610b9d44431bb7ccf00/rawText"
_TESTED = 4  # one text in so many is a test text, where a set has no test half
Texts = Iterable[tuple[str, Any]]


def fetched_texts(folder: Path) -> Path:
    """Fetch what is not yet in a folder, and return the folder.

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
    for split in ("train", "test"):
        if not (folder / f"banking77/{split}.jsonl.gz").is_file():
            intents = json.loads(_read("Banking77", f"{BANKING77}/categories.json"))
            queries = _table("Banking77", f"{BANKING77}/{split}.csv")
            pairs = zip(queries["text"], queries["category"], strict=True)
            rows = ({"text": text, "label": intents.index(name)} for text, name in pairs)
            _write_lines(folder / f"banking77/{split}.jsonl.gz", rows)
    if not (folder / "ag_news/articles.jsonl.gz").is_file():
        _write_lines(folder / "ag_news/articles.jsonl.gz", _from_hub("AG News", AG_NEWS)["test"])
    if not (folder / "yelp/reviews.jsonl.gz").is_file():
        _write_lines(folder / "yelp/reviews.jsonl.gz", _yelp_rows(_table("Yelp", YELP)))
    for name, read in SHORT_SETS.items():
        paths = [folder / name / f"{split}.jsonl.gz" for split in ("train", "test")]
        if not all(path.is_file() for path in paths):
            for path, texts in zip(paths, read(), strict=True):
                _write_lines(path, ({"text": text, "label": label} for text, label in texts))
    return folder


def _sentences() -> tuple[Texts, Texts]:
    return _parted(
        (text, label)
        for label, end in enumerate(("neg", "pos"))
        for text in _lines("sentences", f"{SENTENCES}/rt-polarity.{end}", "latin-1")
    )


def _questions() -> tuple[Texts, Texts]:
    """Questions by the kind of their answer."""

    def half(split: str) -> Texts:
        lines = _lines("questions", f"{SENTENCES}/TREC.{split}", "latin-1")
        for kind, _, text in (line.partition(" ") for line in lines):
            yield text, kind.partition(":")[0]

    return half("train"), half("test")


def _intents() -> tuple[Texts, Texts]:
    """Requests by domain, without those out of scope."""
    domains = json.loads(_read("intents", f"{INTENTS}/domains.json"))
    domain = {intent: name for name, intents in domains.items() for intent in intents}
    found = json.loads(_read("intents", f"{INTENTS}/data_full.json"))
    train, test = (
        [(text, domain[intent]) for text, intent in found[split]] for split in ("train", "test")
    )
    return train, test


def _tweets() -> tuple[Texts, Texts]:
    table = _table("tweets", TWEETS)
    return _parted(zip(table["text"], table["airline_sentiment"], strict=True))


def _abstracts() -> tuple[Texts, Texts]:
    table = _table("abstracts", ABSTRACTS)
    return _parted(zip(table["medical_abstract"], table["condition_label"], strict=True))


def _messages() -> tuple[Texts, Texts]:
    lines = _lines("messages", MESSAGES)
    return _parted((text, label) for label, _, text in (line.partition("\t") for line in lines))


def _titles() -> tuple[Texts, Texts]:
    """Titles of questions to programmers, by tag."""
    texts, tags = (
        _lines("titles", f"{TITLES}/{kind}_StackOverflow.txt") for kind in ("title", "label")
    )
    return _parted(zip(texts, tags, strict=True))


# Sets of a train and a test file, by the names of their folders.
SHORT_SETS: dict[str, Callable[[], tuple[Texts, Texts]]] = {
    "sentences": _sentences,
    "tweets": _tweets,
    "abstracts": _abstracts,
    "questions": _questions,
    "intents": _intents,
    "messages": _messages,
    "titles": _titles,
}


def _parted(texts: Texts) -> tuple[Texts, Texts]:
    """Texts in a fixed order, of which the first quarter is for tests."""
    whole = list(texts)
    mixed = [whole[at] for at in np.random.default_rng(0).permutation(len(whole))]
    border = len(mixed) // _TESTED
    return mixed[border:], mixed[:border]


def _from_hub(name: str, at: str) -> Any:
    import datasets

    with _from_network(name, "the Hugging Face hub"):
        return datasets.load_dataset(at)


def _read(name: str, at: str, encoding: str = "utf-8") -> str:
    url = f"{_GITHUB}/{at}"
    with _from_network(name, url), urllib.request.urlopen(url) as file:  # noqa: S310 - of GitHub
        return str(file.read(), encoding)


def _lines(name: str, at: str, encoding: str = "utf-8") -> list[str]:
    return [line.strip() for line in _read(name, at, encoding).split("\n") if line.strip()]


def _table(name: str, at: str) -> pd.DataFrame:
    import pandas as pd

    return pd.read_csv(io.StringIO(_read(name, at)), dtype=str, keep_default_na=False)


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
