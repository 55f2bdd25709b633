"""Which words the recommended space sets apart: protection and utility by list of function words.

    python recipes/function_words.py --data-dir DATA

TEM with a flat prior over the built-in words, with four lists: the one that ships, spaCy's stop words, the 250 commonest
words, and none. Each is set to 10 % recovery of its own content words. The table shows recovery of all words outside the
list that ships, and the accuracy of a logistic regression on word counts that learned from private text and is tested
on clear text. DATA contains ``imdb``, ``yelp`` and ``banking77``.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from spacy.lang.en.stop_words import STOP_WORDS

import textpriv
from textpriv.evaluation.best_attacker import BestAttacker
from textpriv.evaluation.comparison import CLEAR, Documents, Task, compare

RECOVERY, MOST = 0.1, 6_000  # documents of a task
Records = list[dict[str, Any]]


def records_of(path: Path) -> Records:
    """Records of a packed file of JSON lines."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def task_of(
    train: Records, test: Records, label: str, words: textpriv.Vocabulary, cost: float
) -> Task:
    """Labelled records as a task."""

    def read(records: Records) -> Documents:
        texts = [str(each["text"]) for each in records]
        return Documents.read(texts, [each[label] for each in records], words)

    return Task(read(train), read(test), cost=cost)


def tasks_of(data: Path, words: textpriv.Vocabulary, most: int) -> dict[str, Task]:
    """The tasks by name."""
    yelp = [
        {**each, "good": each["stars"] >= 4} for each in records_of(data / "yelp/reviews.jsonl.gz")
    ]
    border = len(yelp) * 4 // 5
    films, bank = (
        [records_of(data / name / f"{part}.jsonl.gz") for part in ("train", "test")]
        for name in ("imdb", "banking77")
    )
    step = max(1, len(films[0]) // most)  # classes stand one after the other
    return {
        "imdb": task_of(films[0][::step], films[1][::step], "label", words, 0.1),
        "yelp stars": task_of(yelp[:border][:most], yelp[border:], "good", words, 0.1),
        "yelp topic": task_of(yelp[:border][:most], yelp[border:], "category", words, 0.1),
        "banking77": task_of(bank[0], bank[1], "label", words, 1.0),
    }


def lists_of(words: textpriv.Vocabulary) -> dict[str, Iterable[str]]:
    """The lists by name."""
    return {
        "closed classes (ships)": words.function_words.words,
        "spaCy's stop words": STOP_WORDS,
        "the 250 commonest": words.words[:250],
        "none": (),
    }


def main(
    data_dir: Annotated[Path, typer.Option()],
    draws: Annotated[int, typer.Option()] = 3,
    most: Annotated[int, typer.Option(help="Documents of a task at most.")] = MOST,
) -> None:
    """Measure, and print a Markdown table."""
    shipped = textpriv.Vocabulary.builtin("en")
    zipf = shipped.prior_weights("zipf")
    outside = BestAttacker(zipf, is_content=shipped.is_content)
    tasks = tasks_of(data_dir, shipped, most)
    print(f"| words set apart | number | epsilon | recovery | {' | '.join(tasks)} |")
    print("|---" * (4 + len(tasks)) + "|")
    for name, listed in lists_of(shipped).items():
        words = textpriv.Vocabulary(
            shipped.words, shipped.vectors, language="en", function_words=listed
        )
        index = textpriv.Index.build(words, k=64)
        found = compare(
            [textpriv.TEM(index, 3.3, prior="uniform")], tasks, recovery=(RECOVERY,), draws=draws
        )
        rows = found[found["mechanism"] != CLEAR].dropna(subset="asked")
        epsilon = float(rows["epsilon"].iloc[0])
        share, _ = outside.alone(textpriv.TEM(index, epsilon, prior="uniform"))
        shown = [
            f"{row['accuracy']:.3f} ({row['low']:.3f} to {row['high']:.3f})"
            for _, row in rows.iterrows()
        ]
        print(
            f"| {name} | {len(words.function_words.words)} | {epsilon:.3f} | {share:.3f} | "
            f"{' | '.join(shown)} |",
            flush=True,
        )


if __name__ == "__main__":
    typer.run(main)
