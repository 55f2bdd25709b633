"""Typed spans: how much of personal data survives as written, and what detectors cost.

Survival is measured on prompts with marked units of personal data, and on court cases and biographies where numbers and
runs of capitalised words stand for them: the share of units that stand in the private text as they stood in the original,
with detectors by patterns, with Presidio's patterns over a blank pipeline, and with none. Rates are processor seconds over
the same reviews, after a first pass that compiles. Run

    python recipes/spans.py survival --data-dir DATA
    python recipes/spans.py rate --data-dir DATA --reviews 25000

where DATA holds ``pupa/prompts.jsonl.gz``, ``tab/legal25.jsonl.gz``, ``bios/synthetic.jsonl.gz`` and
``imdb/train.jsonl.gz``. No text is printed.
"""

from __future__ import annotations

import ast
import gzip
import json
import re
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import spacy
import typer

import textpriv
from textpriv.spans.detectors import PresidioDetector, SpacyDetector
from textpriv.spans.patterns import PatternDetector
from textpriv.spans.policy import SpanPolicy

app = typer.Typer(add_completion=False)

DataDir = Annotated[Path, typer.Option(help="Folder with the public sets.")]
_UNIT = re.compile(r"\b\d[\d.,/:-]*\d\b|\b[A-Z][\w'-]+(?: [A-Z][\w'-]+)+")

_MASK = re.compile(r"\[[A-Z]+\]")


def records(data_dir: Path, name: str) -> Iterator[dict[str, Any]]:
    """The records of a set."""
    with gzip.open(data_dir / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def units_of(data_dir: Path, name: str) -> list[tuple[str, list[str]]]:
    """The texts of a set, each with its units of personal data."""
    if name != "pupa/prompts":
        texts = [record["text"] for record in records(data_dir, name)]
        return [(text, _UNIT.findall(text)) for text in texts]
    marked = []
    for record in records(data_dir, name):
        text, units = record["user_query"], record["pii_units"]
        units = ast.literal_eval(units) if isinstance(units, str) else units
        marked.append((text, [unit for unit in units if stands_in(unit, text)]))
    return marked


def stands_in(unit: str, text: str) -> bool:
    """Whether a unit stands in a text as a whole, whatever its casing."""
    return re.search(rf"(?<!\w){re.escape(unit)}(?!\w)", text, re.IGNORECASE) is not None


@app.command()
def survival(data_dir: DataDir, epsilon: float = 1.0, policy: str = "chat", draws: int = 3) -> None:
    """Print the share of units that stand in the private texts, by set and detector."""
    mechanism = textpriv.TEM(textpriv.Index.builtin("en"), epsilon=epsilon)
    spans = SpanPolicy.of(policy)
    settings: dict[str, dict[str, Any]] = {
        "no detector": {},
        "patterns": {"spans": spans, "detector": PatternDetector()},
        "Presidio's patterns": {"spans": spans, "detector": PresidioDetector()},
    }
    for name in ("pupa/prompts", "tab/legal25", "bios/synthetic"):
        marked = units_of(data_dir, name)
        count = sum(len(units) for _, units in marked)
        for which, given in settings.items():
            stay = 0
            for seed in range(draws):
                privatizer = textpriv.Privatizer(mechanism, seed=seed, **given)
                private = privatizer.pipe([text for text, _ in marked])
                for text, (_, units) in zip(private, marked, strict=True):
                    # A mask is no survivor, though "URL" may be a unit, too.
                    left = _MASK.sub("", text)
                    stay += sum(stands_in(unit, left) for unit in units)
            share = stay / count / draws
            print(f"{name}, epsilon {epsilon:g}, {which}: {share:.2%} of {count} units")


@app.command()
def rate(data_dir: DataDir, reviews: int = 25_000, epsilon: float = 3.4) -> None:
    """Print the processor time of private reviews with and without detectors, and that of the detectors alone."""
    texts = [each["text"] for each in islice(records(data_dir, "imdb/train"), reviews)]
    mechanism = textpriv.TEM(textpriv.Index.builtin("en"), epsilon=epsilon)

    def seconds(work: Any) -> float:
        begun = time.process_time()
        for _ in work:
            pass
        return time.process_time() - begun

    def text_to_text(**given: Any) -> float:
        privatizer = textpriv.Privatizer(mechanism, **given)
        privatizer.warm()
        seconds(privatizer.pipe(texts))
        return min(seconds(privatizer.pipe(texts)) for _ in range(2))

    plain = text_to_text()
    print(f"{len(texts)} reviews, no detector: {plain:.2f} s")
    for name in ("chat", "tickets"):
        policy = SpanPolicy.preset(name)
        took = text_to_text(spans=policy, detector=PatternDetector())
        print(f"patterns, {name}: {took:.2f} s, {plain / took:.2f} of the rate without")
    few = texts[: max(1, reviews // 50)]
    ruled = spacy.blank("en")
    ruled.add_pipe("entity_ruler").add_patterns([{"label": "PERSON", "pattern": "John"}])
    privatizer = textpriv.Privatizer(mechanism, spans=SpanPolicy.preset("chat"))
    for name, detector in {
        "Presidio's patterns": PresidioDetector(),
        "spaCy's EntityRuler": SpacyDetector(ruled),
    }.items():
        seconds(detector.detect(few[:10]))
        begun = time.process_time()
        labels = [list(spans) for spans in detector.detect(few)]
        own = time.process_time() - begun
        ours = seconds(privatizer.pipe(few, labels=labels))
        print(f"{len(few)} reviews, {name}: {own:.2f} s alone, textpriv {ours / own:.1%} on top")


if __name__ == "__main__":
    app()
