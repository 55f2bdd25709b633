"""What a classifier learns from new records under differential privacy for each record.

    python recipes/records.py --data-dir DATA --out records
    python recipes/records.py --data-dir DATA --only imdb --epsilons 1,4 --audit

Private records become 25,000 new ones by ``TextSynthesizer``, logistic regression on word counts learns from them, and
clear test texts are asked. Beside it: clear text, word-level text at 10 % recovery over the built-in words, the same noisy
sums as naive Bayes, a private ranking of mean word vectors (two classes), noisy gradient descent on words weighted by their
rarity, new records with new words (a tenth of the budget finds them), and the commonest class, which is all that the public
model alone can say. The strength of the penalty is chosen on clear training texts, once for a set and size. ``--audit``
asks on the first set whether training texts show. DATA contains ``imdb``, ``yelp`` and ``banking77``, and ``tweets`` and
``titles`` as files of train and test lines. A run adds to OUT.csv what it does not have yet, so one that was stopped goes
on; OUT.md and OUT.svg show all of it.
"""

from __future__ import annotations

import itertools
import math
import re
import warnings
from pathlib import Path
from typing import Annotated, Any

import matplotlib
import numpy as np
import pandas as pd
import typer
from matplotlib import pyplot, ticker
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import softmax
from scipy.stats import t
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import normalize
from tradeoff import lines_of

import textpriv
from pairwise import PrivateAUCClassifier
from pairwise.accounting.gaussian import release_mu
from textpriv.evaluation.comparison import Documents
from textpriv.synthesis.synthesizer import PublicSide

DELTA, RECOVERY = 1e-5, 0.1
PENALTIES = (0.01, 0.1, 1.0)  # values of C
TRIED = 10_000  # records at most, four fifths of them to learn from, on which C is chosen
DRAWN = 25_000  # new records, whatever the number of private ones: more of them cost nothing
RUN = 8  # words
STEPS, RATE = 30, 30.0  # of gradient descent, by the mean gradient; chosen on other sets
CLEAR, WORDS, SYNTHETIC = "clear text", "word by word", "new records"
BAYES, RANKING, NOTHING = "sums as naive Bayes", "private ranking", "commonest class"
DESCENT = "noisy gradient descent"
WITH_NEW, SHARE = "with new words", 0.1  # of the budget
STYLES = {CLEAR: "--", WORDS: ":", SYNTHETIC: "o-", BAYES: "s-", RANKING: "^-", NOTHING: "-."}
STYLES |= {DESCENT: "x-", WITH_NEW: "*-"}
SETS = {
    "imdb": "IMDB",
    "yelp": "Yelp",
    "tweets": "Tweets",
    "titles": "Technical titles",
    "banking77": "Banking77",
}
SHOWN = (1.0, 4.0)  # epsilons of the narrow tables
COLUMNS = ("set", "records", "method", "epsilon", "draw", "accuracy", "C")
Texts = tuple[list[str], list[Any]]


def read(data: Path, name: str) -> tuple[Texts, Texts]:
    """Training and test texts of a set, with their labels."""
    if name == "yelp":
        reviews = lines_of(data / "yelp/reviews.jsonl.gz")
        rows = [(review["text"], int(review["stars"] >= 4)) for review in reviews]
        parts = [rows[: len(rows) * 4 // 5], rows[len(rows) * 4 // 5 :]]
    else:
        parts = [
            [(row["text"], row["label"]) for row in lines_of(data / f"{name}/{split}.jsonl.gz")]
            for split in ("train", "test")
        ]
    train, test = (([text for text, _ in part], [label for _, label in part]) for part in parts)
    return train, test


def taken(part: Texts, rows: NDArray[np.int64]) -> Texts:
    """Some records, in the order given."""
    return [part[0][row] for row in rows], [part[1][row] for row in rows]


def accuracy(train: Texts, test: Texts, penalty: float) -> float:
    """Accuracy of logistic regression on word counts."""
    counts = CountVectorizer()
    solver = "liblinear" if len(set(test[1])) == 2 else "lbfgs"
    model = LogisticRegression(C=penalty, solver=solver, max_iter=200)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(counts.fit_transform(train[0]), train[1])
    return float(model.score(counts.transform(test[0]), test[1]))


def chosen_penalty(train: Texts) -> float:
    """The C that is best on a fifth of clear training texts."""
    rows = np.random.default_rng(0).permutation(len(train[0]))[:TRIED]
    learned, asked = (taken(train, part) for part in np.split(rows, [len(rows) * 4 // 5]))
    return max(PENALTIES, key=lambda penalty: accuracy(learned, asked, penalty))


def features(side: PublicSide, texts: list[str]) -> tuple[Any, NDArray[np.float64]]:
    """The public words of some texts, each once, and their mean vectors of length one."""
    records = side.space([""]).read(side.encoder.encode(texts))
    shape = len(texts), len(side.words)
    words = csr_array((np.ones(len(records.ids)), records.ids, records.offsets), shape=shape)
    vectors = np.asarray(side.index.vocabulary.vectors, np.float64)
    vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    means = words @ (vectors - vectors.mean(axis=0))
    return words, means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)


def bayes(synthesizer: textpriv.TextSynthesizer, words: Any, labels: list[Any]) -> float:
    """Accuracy of naive Bayes by the noisy sums, a deviation of their noise added to each."""
    noisy = synthesizer.noisy_
    classes = len(noisy.classes)
    sums = noisy.words.astype(np.float64).reshape(classes, noisy.cells, -1).sum(axis=1)
    sums = np.maximum(sums, 0) + noisy.sigma * np.sqrt(noisy.cells)
    counts = np.maximum(noisy.rows.reshape(classes, -1).sum(axis=1), 1)
    scores = words @ np.log(sums / sums.sum(axis=1, keepdims=True)).T + np.log(counts)
    return float(np.mean(np.array(noisy.classes, object)[scores.argmax(axis=1)] == labels))


def descent(side: PublicSide, train: Texts, test: Texts, epsilon: float, seed: int) -> float:
    """Accuracy of logistic regression by noisy gradient descent with all records in every step, each clipped to 1.

    All steps together are one Gaussian release. The number of records is taken as public, which favours this row.
    """
    rng, classes = np.random.default_rng(seed), np.array(sorted(set(test[1])))
    rare = side.space([""]).weights
    parts = (features(side, texts)[0].multiply(rare).tocsr() for texts in (train[0], test[0]))
    known, asked = map(normalize, parts)
    labels = np.array(train[1])[:, None] == classes
    sigma = math.sqrt(STEPS) / release_mu(epsilon, DELTA)
    weights = np.zeros((len(side.words), len(classes)))
    for _ in range(STEPS):
        errors = labels - softmax(known @ weights, axis=1)
        # A row of words has length one, so the gradient of a record is as long as its error.
        errors /= np.maximum(np.linalg.norm(errors, axis=1, keepdims=True), 1.0)
        gradient = known.T @ errors + rng.normal(0, sigma, weights.shape)
        weights = weights + RATE * gradient / len(labels)
    return float(np.mean(classes[(asked @ weights).argmax(axis=1)] == np.array(test[1])))


def plain(method: str, train: Texts, test: Texts, penalty: float) -> float:
    """Accuracy of a method that has no epsilon."""
    texts, labels = train
    if method == NOTHING:
        return float(np.mean(np.array(test[1]) == max(set(labels), key=labels.count)))
    if method == WORDS:
        texts = list(textpriv.privatize(texts, recovery=RECOVERY))
    return accuracy((texts, labels), test, penalty)


class Measured:
    """The cells of a set and size that are in OUT.csv, and those that are added to it."""

    def __init__(self, out: Path, name: str, size: int) -> None:
        self.out, self.name, self.size = out, name, size
        own = pd.read_csv(out).query("set == @name and records == @size")
        self.penalty = None if own.empty else float(own["C"].iloc[0])
        keys = own[["method", "epsilon", "draw"]].fillna(0.0)
        self.known = set(keys.itertuples(index=False, name=None))

    def add(self, method: str, epsilon: float, draw: int, value: float) -> None:
        """Write a cell down; an epsilon of 0 stands for none."""
        self.known.add((method, epsilon, draw))
        row = f"{self.name},{self.size},{method},{epsilon or ''},{draw},{value:.4f},{self.penalty}"
        with open(self.out, "a", encoding="utf-8") as file:
            file.write(row + "\n")
        print(row, flush=True)


def measure(data: Path, name: str, size: int, epsilons: list[float], draws: int, out: Path) -> None:
    """Add the cells of a set and size that OUT.csv does not have."""
    train, test = read(data, name)
    size, side = min(size, len(train[0])), PublicSide()
    measured, classes = Measured(out, name, size), sorted(set(test[1]))
    for draw, epsilon in itertools.product(range(draws), [0.0, *epsilons]):
        if epsilon:
            wanted = [SYNTHETIC, WITH_NEW, BAYES, DESCENT] + [RANKING] * (len(classes) == 2)
        else:
            # All records give the same clear text in every draw.
            wanted = [WORDS] if draw and size == len(train[0]) else [CLEAR, NOTHING, WORDS]
        left = [each for each in wanted if (each, epsilon, draw) not in measured.known]
        if not left:
            continue
        mixed = np.random.default_rng(draw).permutation(len(train[0]))
        private = taken(train, mixed[:size])
        measured.penalty = measured.penalty or chosen_penalty(private)
        if SYNTHETIC in left or BAYES in left:
            synthesizer = textpriv.TextSynthesizer(epsilon, DELTA, classes).fit(*private)
        for method in left:
            if not epsilon:
                value = plain(method, private, test, measured.penalty)
            elif method == SYNTHETIC:
                value = accuracy(drawn(synthesizer, draw), test, measured.penalty)
            elif method == WITH_NEW:
                other = textpriv.TextSynthesizer(epsilon, DELTA, classes, new_words=SHARE)
                value = accuracy(drawn(other.fit(*private), draw), test, measured.penalty)
            elif method == BAYES:
                value = bayes(synthesizer, features(side, test[0])[0], test[1])
            elif method == DESCENT:
                value = descent(side, private, test, epsilon, draw)
            else:
                known, asked = (features(side, part)[1] for part in (private[0], test[0]))
                ranking = PrivateAUCClassifier(epsilon, DELTA, classes=classes)
                ranking.fit(known, np.array(private[1]))
                value = float(np.mean(ranking.predict(asked) == test[1]))
            measured.add(method, epsilon, draw, value)


def drawn(synthesizer: textpriv.TextSynthesizer, seed: int) -> Texts:
    """New records."""
    frame = synthesizer.sample(DRAWN, seed)
    return frame["text"].tolist(), frame["label"].tolist()


def audit(train: Texts, test: Texts, epsilon: float) -> dict[str, float]:
    """Whether training reviews are likelier than test reviews, and their runs of words more frequent in new texts."""
    classes = sorted(set(test[1]))
    synthesizer = textpriv.TextSynthesizer(epsilon, DELTA, classes).fit(*train)
    side, generator = PublicSide(), synthesizer._generator
    new = runs(synthesizer.sample(len(train[0]), 0)["text"].tolist())
    likely, member = [], []
    for label, tilts in zip(classes, np.split(generator.tilts[1], len(classes)), strict=True):
        models = [generator._tilted(row) for row in tilts]
        for kind, part in ((1, train), (0, test)):
            texts = [text for text, own in zip(*part, strict=True) if own == label]
            likely.append(likelihoods(models, side, texts))
            member.append(np.full(len(texts), kind))
    found = {"AUC": float(roc_auc_score(np.concatenate(member), np.concatenate(likely)))}
    for kind, part in (("training", train), ("test", test)):
        own = runs(part[0])
        found[f"{kind} runs"] = len(own)
        found[f"{kind} runs in new texts"] = int(np.isin(own, new, assume_unique=True).sum())
    return found


def likelihoods(models: list[Any], side: PublicSide, texts: list[str]) -> list[float]:
    """The mean logarithm of the probability of a word of each text, under the likeliest of some models."""
    known = Documents.read(texts, np.zeros(len(texts)), side.index.vocabulary)
    found = []
    for ids in np.split(known.ids, known.offsets[1:-1]):
        whole = np.array([0, len(ids)])
        spoken = (ids >= 0).any()
        found.append(max(-np.log(m.perplexity(ids, whole)) if spoken else 0.0 for m in models))
    return found


def runs(texts: list[str]) -> NDArray[np.uint64]:
    """Hashes of the different runs of words of some texts."""
    found = []
    for text in texts:
        words = re.findall(r"\w+", text.lower())
        found += [hash(tuple(words[at : at + RUN])) for at in range(len(words) - RUN + 1)]
    return np.unique(np.array(found, np.int64).view(np.uint64))


def shown(values: pd.Series[float]) -> str:
    """A mean in percent, with half of its 95 % interval by Student's t from three draws on."""
    if len(values) < 3:
        return f"{100 * round(float(values.mean()), 3):.1f}" if len(values) else "-"
    half = t.ppf(0.975, len(values) - 1) * values.sem()
    return f"{100 * round(float(values.mean()), 3):.1f}±{100 * round(half, 3):.1f}"


def table(found: pd.DataFrame, *wanted: tuple[str, float]) -> list[str]:
    """Lines of a table by set and size; columns are methods at an epsilon, 0 for none."""
    cells = found.fillna({"epsilon": 0.0}).groupby(["method", "epsilon"])["accuracy"]
    columns = [each for each in wanted if each in cells.groups]
    heads = [f"{method}, {epsilon:g}" if epsilon else method for method, epsilon in columns]
    lines = [f"| set, records | {' | '.join(heads)} |", "|---" * (1 + len(columns)) + "|"]
    for (name, size), own in found.groupby(["set", "records"], sort=False):
        epsilons = own["epsilon"].fillna(0.0)
        told = [
            shown(own[(own["method"] == method) & (epsilons == epsilon)]["accuracy"])
            for method, epsilon in columns
        ]
        lines.append(f"| {SETS[name]}, {size:,} | {' | '.join(told)} |")
    return [*lines, ""]


def markdown(found: pd.DataFrame) -> str:
    """Tables of all records with new texts, of all records otherwise, and of fewer records."""
    order = {name: number for number, name in enumerate(SETS)}
    by = {"set": lambda names: names.map(order), "records": lambda sizes: -sizes}
    found = found.sort_values("draw", kind="stable")
    found = found.sort_values([*by], kind="stable", key=lambda column: by[column.name](column))
    is_all = found["records"] == found.groupby("set")["records"].transform("max")
    plain = (CLEAR, 0.0), (WORDS, 0.0)
    epsilons = sorted(found["epsilon"].dropna().unique())
    new = [(SYNTHETIC, epsilon) for epsilon in epsilons]
    others = itertools.product((BAYES, RANKING, DESCENT), SHOWN)
    fewer = itertools.product((SYNTHETIC, DESCENT), SHOWN)
    lines = table(found[is_all], *plain, *new)
    lines += table(found[is_all], *others)
    lines += table(found[~is_all], *plain, *fewer)
    own = found[is_all & found["set"].isin(found["set"][found["method"] == WITH_NEW])]
    wanted = [(method, epsilon) for epsilon in SHOWN for method in (SYNTHETIC, WITH_NEW)]
    return "\n".join(lines + table(own, *wanted))


def drawn_figure(found: pd.DataFrame, path: Path) -> None:
    """Accuracy by epsilon, a panel for each set at its largest size."""
    matplotlib.rcParams["svg.hashsalt"] = "records"
    names = list(found["set"].unique())
    lines = len(names) // 2 + 1  # the last place is for the legend
    figure, axes = pyplot.subplots(lines, 2, figsize=(6, 2.6 * lines), layout="constrained")
    places = list(axes.flat)
    for axis in places[len(names) :]:
        axis.axis("off")
    for name, axis in zip(names, places, strict=False):
        own = found[found["set"] == name]
        own = own[own["records"] == own["records"].max()]
        for number, (method, style) in enumerate(STYLES.items()):
            rows = own[own["method"] == method]
            values = rows.groupby("epsilon")["accuracy"].mean()
            if len(values):
                axis.plot(values.index, values, f"C{number}{style}", label=method)
            elif len(rows):
                axis.axhline(rows["accuracy"].mean(), color=f"C{number}", ls=style, label=method)
        title = f"{SETS[name]}, {own['records'].max():,}"
        axis.set(title=title, xlabel="epsilon", xscale="log", xlim=(0.45, 4.5))
        axis.set_xticks([0.5, 1, 2, 4], ["0.5", "1", "2", "4"], minor=False)
        axis.xaxis.set_minor_locator(ticker.NullLocator())
        axis.yaxis.set_major_formatter(ticker.PercentFormatter(1, decimals=0))
    figure.supylabel("accuracy on clear test texts")
    places[-1].legend(*places[0].get_legend_handles_labels(), loc="center", frameon=False)
    figure.savefig(path, metadata={"Date": None})


def main(
    data_dir: Annotated[Path, typer.Option()],
    out: Annotated[Path, typer.Option()] = Path("records"),
    only: Annotated[str, typer.Option(help="Sets.")] = ",".join(SETS),
    sizes: Annotated[str, typer.Option(help="Numbers of records.")] = "25000,5000,1000",
    epsilons: Annotated[str, typer.Option()] = "0.5,1,2,4",
    draws: Annotated[int, typer.Option(help="0 only makes table and figure again.")] = 3,
    audited: Annotated[bool, typer.Option("--audit", help="Membership and copied runs.")] = False,
) -> None:
    """Measure, and write OUT.csv, OUT.md and OUT.svg; or audit the first set, and print."""
    names, wanted = only.split(","), list(map(float, epsilons.split(",")))
    if audited:
        most = max(map(int, sizes.split(",")))
        parts = [(texts[:most], labels[:most]) for texts, labels in read(data_dir, names[0])]
        for epsilon in wanted:
            print(epsilon, audit(*parts, epsilon), flush=True)
        return
    table = out.with_suffix(".csv")
    if not table.exists():
        table.write_text(",".join(COLUMNS) + "\n")
    for name, size in itertools.product(names, map(int, sizes.split(","))):
        measure(data_dir, name, size, wanted, draws, table)
    found = pd.read_csv(table)
    out.with_suffix(".md").write_text(markdown(found), encoding="utf-8")
    drawn_figure(found, out.with_suffix(".svg"))
    print(markdown(found))


if __name__ == "__main__":
    typer.run(main)
