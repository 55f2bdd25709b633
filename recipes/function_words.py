"""Which words the recommended space sets apart: utility at equal protection, by list of function words.

    python recipes/function_words.py --data-dir DATA

TEM with a flat prior over the built-in words, with four lists: the one that ships, spaCy's stop words, the 250 commonest
words, and none. At equal protection an attacker recovers 10 % of the words outside the list that ships, whichever words are
set apart. The table shows the accuracy of a logistic regression on word counts that learned from private text and is tested
on clear text. DATA contains the sets by name (``text_sets``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated

import typer
from spacy.lang.en.stop_words import STOP_WORDS
from tradeoff import TextSet, sets_of

import textpriv
from textpriv.evaluation.best_attacker import BestAttacker
from textpriv.evaluation.comparison import Documents, Task, compare

RECOVERY, MOST = 0.1, 6_000  # texts of a set
LISTS: dict[str, Callable[[textpriv.Vocabulary], Iterable[str]]] = {
    "closed classes (ships)": lambda words: words.function_words.words,
    "spaCy's stop words": lambda _: STOP_WORDS,
    "the 250 commonest": lambda words: words.words[:250],
    "none": lambda _: (),
}
COSTS = {"IMDB": 0.1, "Sentences": 0.1, "Yelp stars": 0.1, "Intents": 1.0, "Banking77": 1.0}  # C


def task_of(found: TextSet, words: textpriv.Vocabulary, cost: float) -> Task:
    """A set as a task."""
    train = Documents.read(found.train, found.labels, words)
    return Task(train, Documents.read(found.test, found.answers, words), cost=cost)


def main(
    data_dir: Annotated[Path, typer.Option()],
    draws: Annotated[int, typer.Option()] = 3,
    most: Annotated[int, typer.Option(help="Texts of a set at most.")] = MOST,
    only: Annotated[list[str], typer.Option(help="Lists, by name.")] = list(LISTS),  # noqa: B006
) -> None:
    """Measure, and print a Markdown table."""
    shipped = textpriv.Vocabulary.builtin("en")
    outside = BestAttacker(shipped.prior_weights("zipf"), is_content=shipped.is_content)
    sets = sets_of(data_dir)
    tasks = {name: task_of(sets[name](most), shipped, cost) for name, cost in COSTS.items()}
    print(f"| words set apart | number | epsilon | {' | '.join(tasks)} |")
    print("|---" * (3 + len(tasks)) + "|", flush=True)
    for name in only:
        words = textpriv.Vocabulary(
            shipped.words, shipped.vectors, language="en", function_words=LISTS[name](shipped)
        )
        mechanism = textpriv.TEM(textpriv.Index.build(words, k=64), 3.3)
        found = compare([mechanism], tasks, recovery=(RECOVERY,), attacker=outside, draws=draws)
        rows = found.dropna(subset="asked")
        accuracies = [
            f"{100 * row['accuracy']:.1f}±{50 * (row['high'] - row['low']):.1f}"
            for _, row in rows.iterrows()
        ]
        number, epsilon = len(words.function_words.words), rows["epsilon"].iloc[0]
        print(f"| {name} | {number} | {epsilon:.3f} | {' | '.join(accuracies)} |", flush=True)


if __name__ == "__main__":
    typer.run(main)
