"""What axes learned from labels are worth: TEM with and without them, at equal recovery of the content words of the texts.

    python recipes/axes.py --data-dir DATA --out axes
    python recipes/axes.py --data-dir DATA --only imdb --draws 3

The axes are learned from the training texts at epsilon 1 for each record. Then the same texts are made private word by
word, over the built-in words with and without the axes. Each epsilon is set so that an attacker recovers 10 % of content
words who guesses word by word and knows exactly how often the texts write each word. A logistic regression on word counts
learns from the private texts, and is tested on clear ones. Its C is chosen on clear training texts. DATA contains folders
of ``train.jsonl.gz`` and ``test.jsonl.gz``, with fields text and label. A run adds to OUT.csv.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from records import read
from tradeoff import TextSet

import textpriv
from textpriv.evaluation.best_attacker import BestAttacker, largest_epsilon
from textpriv.evaluation.comparison import Documents, Task

EPSILON, DELTA, RECOVERY = 1.0, 1e-5, 0.1
UNSEEN = 1e-6  # occurrences of a word that the texts do not write


def measure(task: Task, index: textpriv.Index, draws: int) -> tuple[float, float, list[float]]:
    """The epsilon of the recovery, the recovery in general English there, and the accuracy of each draw."""
    words, ids = index.vocabulary, task.train.ids
    counts = np.bincount(ids[ids >= 0], minlength=len(words))
    exact = words.prior_weights(np.maximum(counts, UNSEEN))
    attackers = [
        BestAttacker(prior, is_content=words.is_content)
        for prior in (exact, words.prior_weights("zipf"))
    ]
    found = largest_epsilon(
        lambda epsilon: textpriv.TEM(index, epsilon),
        RECOVERY,
        attackers[0].success,
        4 / index.reference_distance,
    )
    mechanism = textpriv.TEM(index, found.epsilon)
    accuracies = []
    for seed in range(draws):
        drawn = mechanism.sample(ids, np.random.default_rng(seed))
        accuracies.append(float(task.right(len(index), drawn).mean()))
    return found.epsilon, attackers[1].success(mechanism)[0], accuracies


def main(
    data_dir: Annotated[Path, typer.Option()],
    out: Annotated[Path, typer.Option()] = Path("axes"),
    only: Annotated[str, typer.Option()] = "imdb,sentences,tweets,questions,intents,titles",
    draws: Annotated[int, typer.Option()] = 1,
) -> None:
    """Add the rows of some sets to OUT.csv, and print them."""
    plain = textpriv.Index.builtin("en")
    vocabulary = plain.vocabulary
    for name in only.split(","):
        train, test = read(data_dir, name)
        classes = sorted(set(train[1]))
        known, asked = (Documents.read(*part, vocabulary) for part in (train, test))
        task = Task(known, asked, cost=TextSet(train[0], np.array(train[1]), [], np.array([])).cost)
        learned = textpriv.LabelAxes(EPSILON, DELTA, classes, index=plain).fit(*train).axes_
        clear = float(task.right(len(plain), task.train.ids).mean())
        indexes = {
            "plain": plain,
            "axes": textpriv.Index.build(vocabulary, k=plain.k, axes=learned),
        }
        for kind, index in indexes.items():
            epsilon, general, accuracies = measure(task, index, draws)
            shown = f"{np.mean(accuracies):.4f},{np.ptp(accuracies):.4f}"
            row = f"{name},{len(train[0])},{len(classes)},{clear:.4f},{kind},{epsilon:.4g},{general:.4f},{shown}"
            with open(out.with_suffix(".csv"), "a", encoding="utf-8") as file:
                file.write(row + "\n")
            print(row, flush=True)


if __name__ == "__main__":
    typer.run(main)
