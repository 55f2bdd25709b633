"""The trade-off at equal recovery: what private text is still worth where attackers recover as many words.

    python recipes/tradeoff.py --data-dir DATA --out tradeoff
    python recipes/tradeoff.py --data-dir DATA --out tradeoff --peers

Mechanisms are set to the epsilon at which the better of two attackers recovers 5, 10 or 20 % of content words, and compared
on IMDB, Yelp, AG News and Banking77; ``--peers`` adds those of other packages. DATA contains ``imdb``, ``yelp``,
``ag_news``, ``banking77`` and ``embeddings``; without ``--data-dir`` they are fetched (``text_sets``). Half of IMDB's
training reviews is private. The context attacker's model and the judge of perplexity are each counted in a part of the
rest, and the attacker is tried on another. OUT gets one CSV, one Markdown table and one figure a task.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from peers import FORMS, Peer
from text_sets import COUNTS, VECTORS, fetched_texts

import textpriv
from textpriv.evaluation.best_attacker import BestAttacker, PublicText
from textpriv.evaluation.comparison import Comparison, Documents, Task, compare
from textpriv.language import NGrams
from textpriv.language.general_english import general_english
from textpriv.mechanisms.base import Mechanism

# Where IMDB's training half is parted: private reviews, the attacker's model, the judge; the attacker is tried on the rest.
PARTS = (0.5, 0.75, 0.96)
ATTACKED = 40  # reviews
RECOVERY = (0.05, 0.1, 0.2)
Records = list[dict[str, Any]]


def lines_of(path: Path) -> Records:
    """Records of a packed file of JSON lines."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def read(records: Records, label: str, words: textpriv.Vocabulary) -> Documents:
    """Records as labelled documents."""
    texts = [str(record["text"]) for record in records]
    return Documents.read(texts, [record[label] for record in records], words)


def tasks_of(
    data: Path, vocabulary: textpriv.Vocabulary, most: int | None, only: list[str] | None
) -> tuple[dict[str, Task], PublicText]:
    """The tasks by name, all or some of them, and what the context attacker is tried on."""
    train = lines_of(data / "imdb/train.jsonl.gz")
    ends = [round(share * len(train)) for share in PARTS]
    private, counted, judged = train[: ends[0]], train[ends[0] : ends[1]], train[ends[1] : ends[2]]
    size = len(vocabulary)
    model, judge = (read(part, "label", vocabulary) for part in (counted, judged))
    attacked = read(train[ends[2] :][:ATTACKED], "label", vocabulary)
    judge = NGrams.from_ids(judge.ids, judge.offsets, size)
    text = PublicText(
        NGrams.from_ids(model.ids, model.offsets, size), attacked.ids, attacked.offsets
    )

    def films() -> tuple[Records, Records]:
        return private[:most], lines_of(data / "imdb/test.jsonl.gz")[:most]

    def yelp() -> tuple[Records, Records]:
        records = lines_of(data / "yelp/reviews.jsonl.gz")
        return newest([{**record, "good": record["stars"] >= 4} for record in records])

    def news() -> tuple[Records, Records]:
        return newest(lines_of(data / "ag_news/articles.jsonl.gz"))

    def bank() -> tuple[Records, Records]:
        queries = lines_of(data / "banking77/train.jsonl.gz")
        mixed = np.random.default_rng(0).permutation(len(queries))
        return [queries[at] for at in mixed], lines_of(data / "banking77/test.jsonl.gz")

    known: dict[str, tuple[Callable[[], tuple[Records, Records]], str, float]] = {
        "imdb": (films, "label", 0.1),
        "yelp stars": (yelp, "good", 0.1),
        "yelp topic": (yelp, "category", 0.1),
        "ag news": (news, "label", 0.1),
        "banking77": (bank, "label", 1.0),
    }
    tasks = {}
    for name in only or known:
        if name not in known:
            raise typer.BadParameter(f"--only takes one of: {', '.join(known)}")
        parts, label, cost = known[name]
        one, two = (read(part, label, vocabulary) for part in parts())
        tasks[name] = Task(one, two, judge, cost)
    return tasks, text


def newest(records: Records) -> tuple[Records, Records]:
    """Learn from the first four fifths, and test on the rest."""
    border = len(records) * 4 // 5
    return records[:border], records[border:]


def mechanisms_of(
    vocabulary: textpriv.Vocabulary, model: NGrams, *, peers: bool
) -> dict[str, Mechanism]:
    """The rows of the tables, at epsilons from which a search begins."""
    plain, english = (
        textpriv.Index.build(vocabulary, "euclidean"),
        general_english(vocabulary.words),
    )
    recommended = textpriv.Index.build(vocabulary, "recommended")
    rows: dict[str, Mechanism] = {
        "TEM as published": textpriv.TEM(plain, 3.0, prior="uniform"),
        "TEM, prior by counts": textpriv.TEM(plain, 3.0, prior="counts"),
        "TEM, recommended space, flat prior": textpriv.TEM(recommended, 3.0, prior="uniform"),
        "TEM, recommended space, prior by counts": textpriv.TEM(recommended, 3.0, prior="counts"),
        "ContextualTEM, model of reviews": textpriv.ContextualTEM(recommended, 3.0, model),
        "ContextualTEM, general English": textpriv.ContextualTEM(recommended, 3.0, english),
        "TreeTEM, average linkage": textpriv.TreeTEM(
            textpriv.Tree.build(vocabulary, "average"), 3.0, prior="counts"
        ),
    }
    if peers:
        rows |= {name: Peer(plain, 3.0, name) for name in FORMS}
    return rows


def _with_interval(row: dict[str, Any], name: str, ends: str = "") -> str:
    if np.isnan(row[name]):
        return "-"
    return f"{row[name]:.3f} ({row[ends + 'low']:.3f} to {row[ends + 'high']:.3f})"


def markdown(found: Comparison) -> str:
    """A table of a comparison."""
    columns = ["epsilon", "alone", "context", "perplexity", "cosine", "kept"]
    head = ["mechanism", "recovery", "accuracy (95 %)", "channel (95 %)", *columns]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in found.to_dict("records"):
        learned = (_with_interval(row, "accuracy"), _with_interval(row, "channel", "channel_"))
        values = [row["mechanism"], f"{row['asked']:.0%}", *learned]
        values += [f"{row[name]:.3g}" for name in columns]
        lines.append(f"| {' | '.join(values).replace('nan%', '-').replace('nan', '-')} |")
    return "\n".join(lines) + "\n"


def main(
    data_dir: Annotated[Path | None, typer.Option()] = None,
    out: Annotated[Path, typer.Option()] = Path("tradeoff"),
    words: Annotated[int, typer.Option(help="Size of the vocabulary.")] = 6000,
    draws: Annotated[int, typer.Option()] = 5,
    only: Annotated[list[str] | None, typer.Option(help="Tasks, by name; all if none.")] = None,
    recovery: Annotated[list[float] | None, typer.Option(help="Default: 0.05, 0.1, 0.2.")] = None,
    reviews: Annotated[int | None, typer.Option(help="Reviews of IMDB at most.")] = None,
    peers: Annotated[bool, typer.Option("--peers")] = False,
) -> None:
    """Measure, and write tables and figures. Without --data-dir the sets are fetched."""
    data = data_dir or fetched_texts(out / "fetched")
    out.mkdir(parents=True, exist_ok=True)
    vocabulary = textpriv.Vocabulary.load(
        data / VECTORS, limit=words, prior=data / COUNTS, language="en"
    )
    tasks, text = tasks_of(data, vocabulary, reviews, only)
    counts = vocabulary.prior_weights("counts")
    attacker = BestAttacker(counts, "content", text, vocabulary.is_content)
    mechanisms = mechanisms_of(vocabulary, text.model, peers=peers)
    found = compare(
        mechanisms,
        tasks,
        recovery=recovery or RECOVERY,
        attacker=attacker,
        draws=draws,
        channel=True,
    )
    for name, rows in found.groupby("task", sort=False):
        stem = str(out / str(name).replace(" ", "-"))
        rows.to_csv(f"{stem}.csv", index=False)
        Path(f"{stem}.md").write_text(markdown(rows), encoding="utf-8")
        rows.plot().figure.savefig(f"{stem}.svg", metadata={"Date": None})
        print(f"## {name}\n\n{markdown(rows)}")


if __name__ == "__main__":
    typer.run(main)
