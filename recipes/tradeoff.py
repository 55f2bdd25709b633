"""The trade-off as it ships: what private text is still worth, each mechanism at its own ``recovery=0.1``.

    python recipes/tradeoff.py --data-dir DATA --out tradeoff
    python recipes/tradeoff.py --data-dir DATA --out tradeoff --peers
    python recipes/tradeoff.py --data-dir DATA --out context --context --recovery 0.2

Texts are made private by the calls that users make, over the built-in English words. A logistic regression on word counts
learns from them, and is tested on clear texts. Its C is chosen on clear text, once for all rows of a set, and also on
private text alone, to show what that costs. From the default a ``ChannelClassifier`` learns, too. ``--peers`` adds the
mechanisms of other packages. ``--context`` sets each mechanism so that the better of two attackers recovers the share: the
one of single words, or the one that reads whole texts. DATA contains the sets by name (``text_sets``); without
``--data-dir`` they are fetched. OUT gets one CSV, one Markdown page and one figure.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import spacy
import typer
from numpy.typing import NDArray
from peers import FORMS, Peer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from text_sets import SHORT_SETS, fetched_texts

import textpriv
from textpriv.evaluation.best_attacker import BestAttacker, largest_epsilon, sampled_text
from textpriv.evaluation.comparison import interval
from textpriv.evaluation.learning import ChannelClassifier
from textpriv.guarantees.epsilon import keep_share
from textpriv.language.general_english import general_english
from textpriv.mechanisms import make_mechanism
from textpriv.mechanisms.base import Mechanism

COSTS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)  # C
HELD_OUT = 5  # one text in so many is held out to choose C
DEFAULT = " (default)"
CLEAR, FUNCTION_WORDS = "clear text", "function words only"
Texts = Sequence[str]
Labels = NDArray[Any]


@dataclass(frozen=True)
class TextSet:
    """Texts to make private and learn from, and clear ones to test on."""

    train: Texts
    labels: Labels
    test: Texts
    answers: Labels

    @cached_property
    def cost(self) -> float:
        """C that is best on clear texts."""
        return Counts.of(self.train, self.labels).chosen_cost()

    def right(self, texts: Texts, cost: float | None = None) -> NDArray[np.bool_]:
        """Which test texts are right if one learns from these in place of ``train``."""
        learned = Counts.of(texts, self.labels)
        model = learned.model(cost or self.cost)
        return model.predict(learned.words.transform(self.test).log1p()) == self.answers


@dataclass(frozen=True)
class Counts:
    """Texts as logarithms of word counts, to learn from by logistic regression."""

    words: CountVectorizer
    matrix: Any
    labels: Labels

    @classmethod
    def of(cls, texts: Texts, labels: Labels) -> Counts:
        """Count the words of texts."""
        words = CountVectorizer()
        return cls(words, words.fit_transform(texts).log1p(), labels)

    def model(self, cost: float, rows: NDArray[np.bool_] | slice = slice(None)) -> Any:
        """Learn from all texts, or from some."""
        model: Any = LogisticRegression(C=cost, solver="liblinear", tol=0.01)
        if len(np.unique(self.labels)) > 2:
            model = OneVsRestClassifier(model)
        return model.fit(self.matrix[rows], self.labels[rows])

    def chosen_cost(self) -> float:
        """C that is best on every fifth text, if one learns from the others."""
        held = np.arange(len(self.labels)) % HELD_OUT == 0
        some, answers = self.matrix[held], self.labels[held]
        right = [(self.model(cost, ~held).predict(some) == answers).mean() for cost in COSTS]
        return COSTS[int(np.argmax(right))]


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Records of a packed file of JSON lines."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def set_of(train: list[dict[str, Any]], test: list[dict[str, Any]], label: str) -> TextSet:
    """A set of records, in mixed order where they are sorted by label."""
    mixed = np.random.default_rng(0).permutation(len(train))
    parts = [train[at] for at in mixed], test
    read = [([each["text"] for each in some], [each[label] for each in some]) for some in parts]
    (texts, labels), (tests, answers) = read
    return TextSet(texts, np.array(labels), tests, np.array(answers))


def sets_of(data: Path) -> dict[str, Callable[[int | None], TextSet]]:
    """How to read each set, with so many texts at most to learn from."""

    def halves(name: str) -> Callable[[int | None], TextSet]:
        def read(most: int | None) -> TextSet:
            train, test = (lines_of(data / name / f"{part}.jsonl.gz") for part in ("train", "test"))
            return set_of(train[:most], test[:most], "label")

        return read

    def newest(file: str, label: str) -> Callable[[int | None], TextSet]:
        """Learn from the first four fifths, and test on the rest."""

        def read(most: int | None) -> TextSet:
            records = lines_of(data / file)[:most]
            stars = [{**record, "good": record.get("stars", 0) >= 4} for record in records]
            border = len(records) * 4 // 5
            return set_of(stars[:border], stars[border:], label)

        return read

    return {
        **{name.capitalize(): halves(name) for name in SHORT_SETS},
        "Banking77": halves("banking77"),
        "AG News": newest("ag_news/articles.jsonl.gz", "label"),
        "Yelp stars": newest("yelp/reviews.jsonl.gz", "good"),
        "Yelp topic": newest("yelp/reviews.jsonl.gz", "category"),
        "IMDB": halves("imdb"),
    }


def mechanisms_of(
    index: textpriv.Index, recovery: float, attacker: BestAttacker | None = None
) -> dict[str, Mechanism]:
    """The rows of the table by name, each at the epsilon that ``recovery`` or an attacker gives it."""
    words = index.vocabulary
    plain, tree = textpriv.Index.build(words, "euclidean"), textpriv.Tree.build(words)
    rows: dict[str, tuple[textpriv.Index, str, dict[str, Any]]] = {
        "TEM": (index, "tem", {"prior": "uniform"}),
        "TEM as published": (plain, "tem", {"prior": "uniform"}),
        "TEM, Zipf prior": (index, "tem", {"prior": "zipf"}),
        "ContextualTEM": (index, "contextual", {}),
        "TreeTEM": (tree, "tree", {"prior": "zipf"}),
    }
    made = {}
    for name, (space, short, settings) in rows.items():

        def at(epsilon: float, space: Any = space, short: str = short, own: Any = settings) -> Any:
            return make_mechanism(space, short, epsilon=epsilon, **own)

        if attacker:
            epsilon = largest_epsilon(at, recovery, attacker.success, precise=0.01).epsilon
        else:
            epsilon = textpriv.epsilon_for(space, recovery=recovery, mechanism=short, **settings)
        made[name] = at(epsilon)
    default = repr(make_mechanism(index, epsilon=made["TEM"].epsilon))
    return {name + DEFAULT * (repr(row) == default): row for name, row in made.items()}


def peers_of(
    index: textpriv.Index, recovery: float, attacker: BestAttacker
) -> dict[str, Mechanism]:
    """Mechanisms of other packages at the recovery, by the single-word attacker."""
    plain = textpriv.Index.build(index.vocabulary, "euclidean", k=1)
    made: dict[str, Mechanism] = {}
    for name in FORMS:
        found = largest_epsilon(
            lambda epsilon, form=name: Peer(plain, epsilon, form), recovery, attacker.alone
        )
        made[name] = Peer(plain, found.epsilon, name)
    return made


def function_words_only(texts: Texts, vocabulary: textpriv.Vocabulary) -> list[str]:
    """Texts without their content words."""
    kept = {
        word
        for word, content in zip(vocabulary.words, vocabulary.is_content, strict=True)
        if not content
    }
    read = spacy.blank("en").tokenizer.pipe(texts)
    return ["".join(each.text_with_ws for each in doc if each.lower_ in kept) for doc in read]


def measured(
    whole: TextSet, mechanisms: dict[str, Mechanism], index: textpriv.Index, draws: int
) -> list[dict[str, Any]]:
    """Rows of one set: clear text and function words first."""
    shared = {"texts": len(whole.train), "cost": whole.cost}
    few = function_words_only(whole.train, index.vocabulary)
    rows = [
        {"mechanism": name, **shared, **interval(whole.right(texts)[None])}
        for name, texts in ((CLEAR, whole.train), (FUNCTION_WORDS, few))
    ]
    for name, mechanism in mechanisms.items():
        private = [
            list(textpriv.Privatizer(mechanism, seed=seed).pipe(whole.train))
            for seed in range(draws)
        ]
        found: dict[str, Any] = interval(np.stack([whole.right(texts) for texts in private]))
        if name.endswith(DEFAULT):
            own = Counts.of(private[0], whole.labels).chosen_cost()
            knows = ChannelClassifier(mechanism).fit(private[0], whole.labels)
            found |= {
                "own_cost": own,
                "by_own_cost": whole.right(private[0], own).mean(),
                "by_three_times": whole.right(private[0], 3 * own).mean(),
                "channel": (knows.predict(whole.test) == whole.answers).mean(),
            }
        rows.append({"mechanism": name, **shared, **found})
    return rows


def attacked(mechanisms: dict[str, Mechanism], attacker: BestAttacker) -> list[dict[str, Any]]:
    """Protection of each mechanism: recovery by both attackers, and the share of words that stay."""
    return [
        {
            "mechanism": name,
            "epsilon": mechanism.epsilon,
            "alone": attacker.alone(mechanism)[0],
            "context": attacker.in_context(mechanism)[0],
            "kept": keep_share(mechanism)[0],
        }
        for name, mechanism in mechanisms.items()
    ]


def markdown(found: pd.DataFrame) -> str:
    """Two tables: accuracy in percent on each set, and the protection of each mechanism."""
    names = list(dict.fromkeys(found["mechanism"]))
    lines = [f"| set | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for at, rows in found.groupby("set", sort=False):
        by_name = rows.set_index("mechanism")
        best = by_name["accuracy"].drop([CLEAR, FUNCTION_WORDS], errors="ignore").max()
        cells = []
        for name in names:
            row = by_name.loc[name]
            share = f"{100 * row['accuracy']:.1f}"
            share = f"**{share}**" if row["accuracy"] == best else share
            cells.append(f"{share}±{50 * (row['high'] - row['low']):.1f}")
        lines.append(f"| {at} | {' | '.join(cells)} |")
    lines += ["", "| mechanism | epsilon | recovered alone | in context | words that stay |"]
    lines.append("|---" * 5 + "|")
    for row in found.dropna(subset="epsilon").drop_duplicates("mechanism").to_dict("records"):
        shares = " | ".join(f"{row[name]:.1%}" for name in ("alone", "context", "kept"))
        lines.append(f"| {row['mechanism']} | {row['epsilon']:.4g} | {shares} |")
    return "\n".join(lines) + "\n"


def figure(found: pd.DataFrame) -> Any:
    """Accuracy on each set, one line of marks a set; intervals as bars."""
    from matplotlib import pyplot, ticker

    sets, names = list(dict.fromkeys(found["set"])), list(dict.fromkeys(found["mechanism"]))
    drawn, axes = pyplot.subplots(figsize=(6, 1.2 + 0.5 * len(sets)), layout="constrained")
    marks = {CLEAR: ("|", "black"), FUNCTION_WORDS: ("|", "0.6")}
    for number, name in enumerate(names):
        rows = found[found["mechanism"] == name]
        shift = 0.0 if name in marks else 0.12 * (number - (len(names) + 1) / 2)
        at = [sets.index(each) + shift for each in rows["set"]]
        mark, colour = marks.get(name, ("o", f"C{number - 2}"))
        bars = [rows["accuracy"] - rows["low"], rows["high"] - rows["accuracy"]]
        size = 16 if name in marks else 4
        axes.errorbar(
            rows["accuracy"],
            at,
            xerr=None if name in marks else bars,
            fmt=mark,
            color=colour,
            label=name,
            markersize=size,
        )
    axes.set_yticks(range(len(sets)), sets)
    axes.invert_yaxis()
    axes.xaxis.set_major_formatter(ticker.PercentFormatter(1, decimals=0))
    axes.set_xlabel("accuracy on clear text, learned from private text")
    drawn.legend(loc="outside upper center", ncols=2, fontsize=9, frameon=False)
    return drawn


def main(
    data_dir: Annotated[Path | None, typer.Option()] = None,
    out: Annotated[Path, typer.Option()] = Path("tradeoff"),
    draws: Annotated[int, typer.Option()] = 3,
    only: Annotated[list[str] | None, typer.Option(help="Sets, by name; all if none.")] = None,
    recovery: Annotated[float, typer.Option()] = 0.1,
    most: Annotated[int | None, typer.Option(help="Texts of a set at most.")] = None,
    peers: Annotated[bool, typer.Option("--peers")] = False,
    context: Annotated[bool, typer.Option("--context")] = False,
) -> None:
    """Measure, and write tables and a figure. Without --data-dir the sets are fetched."""
    index = textpriv.Index.builtin("en")
    words = index.vocabulary
    readers = sets_of(data_dir or fetched_texts(out.with_name("fetched")))
    if unknown := set(only or ()) - set(readers):
        raise typer.BadParameter(f"no set {', '.join(unknown)}. --only takes: {', '.join(readers)}")
    attacker = BestAttacker(
        words.prior_weights("zipf"),
        text=sampled_text(index.model or general_english(words.words)),
        is_content=words.is_content,
    )
    mechanisms = mechanisms_of(index, recovery, attacker if context else None)
    if peers:
        mechanisms |= peers_of(index, recovery, attacker)
    protection = pd.DataFrame(attacked(mechanisms, attacker))
    rows: list[dict[str, Any]] = []
    for name in only or readers:
        whole = readers[name](most)
        rows += [{"set": name, **row} for row in measured(whole, mechanisms, index, draws)]
        found = pd.DataFrame(rows).merge(protection, on="mechanism", how="left")
        out.parent.mkdir(parents=True, exist_ok=True)
        found.to_csv(out.with_suffix(".csv"), index=False, float_format="%.4g")
        out.with_suffix(".md").write_text(markdown(found), encoding="utf-8")
        figure(found).savefig(out.with_suffix(".svg"), metadata={"Date": None})
        print(f"{name}: {len(whole.train):,} texts", flush=True)
    print(markdown(found))


if __name__ == "__main__":
    typer.run(main)
