"""What private comments give away of their authors: attributes and authorship, on SynthPAI (Yukhymenko et al. 2024).

    python recipes/attributes.py --data-dir ../shared/data --out attributes

DATA_DIR holds ``synthpai/comments.jsonl.gz`` and ``synthpai/guesses.jsonl.gz`` (300 invented authors, CC-BY-NC-SA-4.0: for
evaluation only). The attacker is a linear classifier of other authors' comments, as released; its setting is chosen on every
second author, and the figures are about the others. The ceiling is GPT-4's first guess from the clear comments of an author,
where the source scored it. Authorship: each author's comments are split in two, released apart, and matched.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

import textpriv
from textpriv.errors import TextprivError
from textpriv.evaluation.attributes import infer_attribute
from textpriv.evaluation.reidentification import link_authors
from textpriv.evaluation.roc import Rate, binomial_interval
from textpriv.evaluation.utility import count_matrix
from textpriv.randomness import KeyedStreams

HEAD = "| what is guessed | authors | blind | {} | GPT-4, clear (of those scored) |"
_AGES = (29, 44)  # the borders of three bands
_FEW = 10  # authors that a value needs


def read(data_dir: Path, name: str) -> list[dict[str, Any]]:
    """The lines of a file of the set."""
    path = data_dir / "synthpai" / f"{name}.jsonl.gz"
    try:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]
    except FileNotFoundError:
        raise TextprivError(
            f"there is no {path}; get it from github.com/eth-sri/SynthPAI."
        ) from None
    except (OSError, EOFError, ValueError):
        raise TextprivError(f"{path} is damaged: expected JSON lines, packed by gzip.") from None


def value(attribute: str, label: dict[str, Any]) -> str:
    """The value of an attribute as it is guessed: ages in three bands."""
    found = str(label["estimate"]).strip().lower()
    if attribute == "age":
        return str(sum(int(found) > border for border in _AGES))
    return {"in a relationship": "in relationship"}.get(found, found)


def part(rate: Rate) -> str:
    """A rate with its interval."""
    return f"{rate.value:.3f} ({rate.low:.3f} to {rate.high:.3f})"


def main(
    data_dir: Annotated[Path, typer.Option(help="Folder with synthpai/*.jsonl.gz.")],
    out: Annotated[Path, typer.Option(help="Where to write OUT.md.")] = Path("attributes"),
    vectors: Annotated[
        Path | None,
        typer.Option(help="A file of public word vectors; else those that are built in."),
    ] = None,
    limit: Annotated[int, typer.Option(help="Words to take of it.")] = 8_000,
    epsilons: Annotated[str, typer.Option(help="Comma-separated.")] = "2,4,6",
    seed: Annotated[int, typer.Option(help="Of draws and choices.")] = 0,
) -> None:
    """Attack, and print the table."""
    try:
        people, guesses = read(data_dir, "comments"), read(data_dir, "guesses")
        index = (
            textpriv.Index.builtin("en")
            if vectors is None
            else textpriv.Index.build(textpriv.Vocabulary.load(vectors, limit=limit), hnsw=False)
        )
    except TextprivError as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    reader = textpriv.Privatizer(textpriv.TEM(index, epsilon=1.0))
    halves: list[list[NDArray[np.int32]]] = [[], []]
    for person in people:
        codes = [reader.read(text).codes for text in person["comments"]]
        for number, half in enumerate(halves):
            mine = [each[each >= -1] for each in codes[number::2]]
            half.append(np.concatenate([np.empty(0, np.int32), *mine]))
    streams, releases = KeyedStreams(seed=seed), {}
    for epsilon in (None, *map(float, epsilons.split(","))):
        released = []
        for number, half in enumerate(halves):
            ids, offsets = np.concatenate(half), np.append(0, np.cumsum([len(h) for h in half]))
            if epsilon is not None:
                own = [streams.stream(f"{epsilon}/{number}/{i}") for i in range(len(half))]
                ids = textpriv.TEM(index, epsilon).sample_documents(ids, offsets, own)
            released.append((ids, offsets))
        releases["clear" if epsilon is None else f"epsilon {epsilon:g}"] = released
    shown = np.arange(len(people)) % 2 == 1
    rows = [HEAD.format(" | ".join(releases)), "|---" * (len(releases) + 4) + "|"]
    size = len(index)
    counts = {
        name: sum((count_matrix(*half, size) for half in both[1:]), count_matrix(*both[0], size))
        for name, both in releases.items()
    }
    for attribute in ("sex", "age", "income_level", "education_category", "relationship_status"):
        if sum(attribute in person["labels"] for person in people) < _FEW:
            continue
        rows.append(_attribute_row(attribute, people, guesses, counts, shown, seed))
    rows.append(_authorship_row(releases, shown, index))
    text = "\n".join(rows) + "\n"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.with_suffix(".md").write_text(text, encoding="utf-8")
    print(text)


def _attribute_row(
    attribute: str,
    people: list[dict[str, Any]],
    guesses: list[dict[str, Any]],
    counts: dict[str, Any],
    shown: NDArray[np.bool_],
    seed: int,
) -> str:
    has = np.array([attribute in person["labels"] for person in people])
    values = np.array(
        [
            value(attribute, person["labels"][attribute]) if attribute in person["labels"] else ""
            for person in people
        ]
    )
    often = [each for each in set(values.tolist()) if (values == each).sum() >= _FEW]
    has &= np.isin(values, often)
    cells = []
    for each in counts.values():
        found = infer_attribute(each[np.flatnonzero(has)], values[has], shown[has], seed=seed)
        cells.append(part(found.success))
    # The source scored an education by its words, of which the category is a coarser form.
    name = attribute.removesuffix("_category")
    scored = [
        float(guesses[i]["guesses"][name]["correct"][0] == 1)
        for i in np.flatnonzero(has & shown).tolist()
        if "correct" in guesses[i]["guesses"].get(name, {})
    ]
    ceiling = "-"
    if scored:
        low, high = binomial_interval(int(sum(scored)), len(scored), 0.95)
        ceiling = f"{part(Rate(float(np.mean(scored)), low, high))} ({len(scored)})"
    return (
        f"| {attribute} | {found.authors} | {found.blind:.3f} | {' | '.join(cells)} | {ceiling} |"
    )


def _authorship_row(
    releases: dict[str, Any], shown: NDArray[np.bool_], index: textpriv.Index
) -> str:
    """Which two halves are by one author, by rare words or embeddings: what does better on the other authors."""

    def success(both: list[Any], authors: NDArray[np.int64], table: Any) -> Rate:
        chosen = []
        for ids, offsets in both:
            parts = [ids[offsets[i] : offsets[i + 1]] for i in authors]
            chosen += [np.concatenate(parts), np.append(0, np.cumsum([len(p) for p in parts]))]
        found = link_authors(*chosen, len(index), table=table).success
        assert found is not None
        return found

    cells = []
    tables = (None, index.vocabulary.vectors)
    for both in releases.values():
        tried = [success(both, np.flatnonzero(~shown), table).value for table in tables]
        cells.append(part(success(both, np.flatnonzero(shown), tables[int(np.argmax(tried))])))
    count = int(shown.sum())
    return f"| which half is by the same author | {count} | {1 / count:.3f} | {' | '.join(cells)} | - |"


if __name__ == "__main__":
    typer.run(main)
