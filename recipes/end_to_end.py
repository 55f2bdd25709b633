"""From private text to private models: what protecting words, records, or both costs, and what is promised together.

Documents are privatized word by word, become means of public embeddings, and train two learners of ``pairwise``: a ranking
of one class above the rest, and a metric under which documents of a class lie close. Both are tested on clear documents. The
table shows every combination of clear or private words with a learner that is private or not; below it stand the statements
and what holds for someone who sees the model alone.

    python recipes/end_to_end.py
    python recipes/end_to_end.py --data-dir ../shared/data --vectors VECTORS --epsilon-words 3

Without arguments it needs no network and no file: the texts are the encyclopedia articles that ship with gensim, cut into
pieces of 80 words and filed into four groups of articles, and the public vectors are the built-in ones. With
``--data-dir`` the documents are IMDB's reviews, and their class is the sentiment.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

import textpriv
from textpriv.errors import TextprivError
from textpriv.evaluation.joint import joint_guarantee
from textpriv.evaluation.law import Law
from textpriv.evaluation.utility import count_matrix, mean_rows, standardized

PIECE = 80  # words of an article that make a document
GROUPS = 4


def shipped() -> tuple[list[str], NDArray[np.int64], NDArray[np.bool_]]:
    """Pieces of the articles that ship with gensim, their group, and which are for training."""
    from gensim.test.utils import datapath
    from sklearn.cluster import KMeans
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    with open(datapath("head500.noblanks.cor"), encoding="utf-8") as file:
        articles = [line for line in (line.strip() for line in file) if line]
    # What a librarian would do by hand: whole articles are filed by subject, before anything is private.
    weights = TfidfVectorizer(max_features=5_000, stop_words="english").fit_transform(articles)
    subjects = TruncatedSVD(20, random_state=0).fit_transform(weights)
    subjects /= np.linalg.norm(subjects, axis=1, keepdims=True)
    filed = KMeans(GROUPS, n_init=10, random_state=0).fit_predict(subjects)
    rng = np.random.default_rng(0)
    training = rng.random(len(articles)) < 0.7
    texts, groups, train = [], [], []
    for article, group, first in zip(articles, filed, training, strict=True):
        words = article.split()
        for start in range(0, len(words) - PIECE + 1, PIECE):
            texts.append(" ".join(words[start : start + PIECE]))
            groups.append(int(group))
            train.append(bool(first))
    return texts, np.array(groups), np.array(train)


def reviews(data_dir: Path, limit: int) -> tuple[list[str], NDArray[np.int64], NDArray[np.bool_]]:
    """IMDB: as many training and test reviews, sentiment, and which are for training."""
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    from data import DataUnavailable, MalformedData, imdb

    try:
        sets = imdb(data_dir)
    except (DataUnavailable, MalformedData) as error:
        raise TextprivError(str(error)) from error
    texts: list[str] = []
    labels: list[int] = []
    train: list[bool] = []
    for split in ("train", "test"):
        size = len(sets[split])
        chosen = np.random.default_rng(0).permutation(size)[:limit]
        part = sets[split].select(np.sort(chosen))
        texts += part["text"]
        labels += part["label"]
        train += [split == "train"] * len(part)
    return texts, np.array(labels), np.array(train)


def embedded(codes: list[NDArray[np.int32]], table: NDArray[np.float32]) -> NDArray[np.float64]:
    """Means of embeddings, scaled to length one: a record's own length is nobody else's business."""
    offsets = np.concatenate([[0], np.cumsum([len(each) for each in codes])]).astype(np.int64)
    means = mean_rows(count_matrix(np.concatenate(codes), offsets, len(table)), table)
    norms = np.linalg.norm(means, axis=1, keepdims=True)
    found: NDArray[np.float64] = means.astype(np.float64) / np.where(norms > 0, norms, 1)
    return found


def auc_of(scores: NDArray[np.float64], positive: NDArray[np.bool_]) -> float:
    """AUC of scores."""
    from textpriv.evaluation.roc import score_attack

    return score_attack("ranking", scores[positive], scores[~positive]).auc.value


def neighbours_accuracy(
    model: Any,
    train: NDArray[np.float64],
    labels: NDArray[np.int64],
    test: NDArray[np.float64],
    truth: NDArray[np.int64],
) -> float:
    """Accuracy of 15 nearest neighbours under a metric; the neighbours stand in for a public reference set."""
    from sklearn.neighbors import KNeighborsClassifier

    found = KNeighborsClassifier(15).fit(model.transform(train), labels)
    return float(found.score(model.transform(test), truth))


def main(
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder with imdb/*.jsonl.gz; without it shipped articles.")
    ] = None,
    vectors: Annotated[
        Path | None,
        typer.Option(help="A file of public word vectors; without it the built-in ones."),
    ] = None,
    index: Annotated[
        Path | None, typer.Option(help="An index of public vectors, instead of --vectors.")
    ] = None,
    epsilon_words: Annotated[
        float | None,
        typer.Option(
            help="Per unit of distance; without it the value that keeps half of the words."
        ),
    ] = None,
    epsilon_records: Annotated[float, typer.Option(help="Of each learner, replace-one.")] = 2.0,
    limit: Annotated[int, typer.Option(help="Reviews of each split.")] = 5_000,
    trials: Annotated[int, typer.Option(help="Draws of words and noise to average over.")] = 3,
    out: Annotated[
        Path | None, typer.Option(help="Write the table as OUT.csv and OUT.md too.")
    ] = None,
) -> None:
    """Measure the four combinations, and print the table and the statements."""
    try:
        if index is not None:
            tables = textpriv.Index.load(index)
        elif vectors is not None:
            tables = textpriv.Index.build(
                textpriv.Vocabulary.load(vectors, limit=20_000), hnsw=False
            )
        else:
            tables = textpriv.Index.builtin("en")
        if epsilon_words is None:
            epsilon_words = round(float(textpriv.epsilon_for(tables, keep=0.5)), 1)
        texts, labels, training = shipped() if data_dir is None else reviews(data_dir, limit)
        run(tables, texts, labels, training, epsilon_words, epsilon_records, trials, out)
    except TextprivError as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(1) from None


def run(
    tables: textpriv.Index,
    texts: list[str],
    labels: NDArray[np.int64],
    training: NDArray[np.bool_],
    epsilon_words: float,
    epsilon_records: float,
    trials: int,
    out: Path | None,
) -> None:
    """Measure, print and write."""
    from pairwise import PrivateAUCClassifier, PrivateMetricLearner

    mechanism = textpriv.TEM(tables, epsilon_words)
    table = standardized(tables.vocabulary)
    through = Law(mechanism).posterior_means(table)
    reader = textpriv.Privatizer(mechanism)
    raw = [reader.read(text) for text in texts]
    clear = [each.codes[each.codes >= -1] for each in raw]
    kept = np.array([bool((each >= 0).any()) for each in clear])
    train, test = np.flatnonzero(training & kept), np.flatnonzero(~training & kept)
    # The ranking is of class 1 against the rest; two classes are their own metric task.
    positive = labels == 1
    records = embedded(clear, table)
    rows: dict[tuple[str, str], list[tuple[float, float]]] = {}
    statements: dict[str, Any] = {}
    delta = min(1e-5, len(train) ** -1.5)
    for trial in range(trials):
        privatizer = textpriv.Privatizer(mechanism, seed=trial)
        drawn = privatizer.release([raw[i] for i in train], list(range(len(train))))
        private = [each.outputs[each.outputs >= 0] for each in drawn]
        sources = {
            "clear": records[train],
            "private": embedded(private, table),
            "private, through the channel": embedded(private, through),
        }
        for words, features in sources.items():
            for protected in (False, True):
                epsilon = epsilon_records if protected else float("inf")
                options: dict[str, Any] = {
                    "epsilon": epsilon,
                    "delta": delta,
                    "random_state": trial,
                }
                ranking = PrivateAUCClassifier(classes=[0, 1], **options).fit(
                    features, positive[train].astype(int)
                )
                metric = PrivateMetricLearner(
                    n_components=8, classes=sorted(set(labels.tolist())), **options
                ).fit(features, labels[train])
                found = (
                    auc_of(ranking.decision_function(records[test]), positive[test]),
                    neighbours_accuracy(
                        metric, records[train], labels[train], records[test], labels[test]
                    ),
                )
                kind = f"epsilon {epsilon_records:g}" if protected else "none"
                rows.setdefault((words, kind), []).append(found)
                if protected:
                    statements["ranking"], statements["metric"] = (
                        ranking.statement_,
                        metric.statement_,
                    )
    lines = [
        "| words | protection of records | AUC of the ranking | accuracy of 15 neighbours |",
        "|---|---|---|---|",
    ]
    for (words, kind), values in rows.items():
        means = np.mean(values, axis=0)
        halves = (np.max(values, axis=0) - np.min(values, axis=0)) / 2
        cells = [
            f"{mean:.3f} ± {half:.3f}" if trials > 1 else f"{mean:.3f}"
            for mean, half in zip(means, halves, strict=True)
        ]
        name = words if words == "clear" else f"{words} (epsilon {epsilon_words:g})"
        lines.append(f"| {name} | {kind} | {' | '.join(cells)} |")
    text = "\n".join(lines) + "\n"
    length = int(np.median([len(clear[i]) for i in train]))
    several = f"mean and half range of {trials} trials" if trials > 1 else "one trial"
    print(f"{len(train)} documents train, {len(test)} test; {several}.\n")
    print(text)
    print(promised(mechanism, statements, epsilon_records, delta, length))
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.with_suffix(".md").write_text(text, encoding="utf-8")
        with open(out.with_suffix(".csv"), "w", encoding="utf-8") as file:
            file.write("words,records,trial,auc,neighbours\n")
            for (words, kind), values in rows.items():
                for trial, (auc, accuracy) in enumerate(values):
                    file.write(f'"{words}",{kind},{trial},{auc:.5f},{accuracy:.5f}\n')


def promised(
    mechanism: Any, statements: dict[str, Any], epsilon: float, delta: float, length: int
) -> str:
    """Both statements, and what they promise together."""
    words = mechanism.statement
    distance = words.figures["reference_distance"]
    parts = [
        "Words: " + words.paragraph(),
        *(
            f"{name.capitalize()}: epsilon {each.epsilon:g}, delta {each.delta:.1e}, {each.adjacency}, {each.unit}."
            for name, each in statements.items()
        ),
        "Together, for someone who sees one model, between two training sets that differ in one document of equal length:",
        "",
        "| the documents differ in | loss of the words | epsilon of the model | delta |",
        "|---|---|---|---|",
    ]
    for count, apart, what in (
        (
            1,
            distance,
            "1 word, replaced by its 10th neighbour (at most, for half of all running words)",
        ),
        (1, math.inf, "1 word, replaced by any other"),
        (10, distance, "10 such words, each by its 10th neighbour"),
        (length, math.inf, f"all {length} words"),
    ):
        loss = count * words.loss_at(apart)
        joint = joint_guarantee(loss, epsilon, delta)
        parts.append(f"| {what} | {loss:.2f} | {joint.epsilon:.3f} | {joint.delta:.1e} |")
    parts += [
        "",
        "Someone who sees both models adds their epsilons. Someone who sees the private text meets the words' guarantee "
        "alone, and labels, lengths and the number of documents are not protected by it. Words and learners were seeded "
        "here, which is for experiments.",
    ]
    return "\n".join(parts)


if __name__ == "__main__":
    typer.run(main)
