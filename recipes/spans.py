"""Typed spans: how much of personal data survives as written, and what detectors cost.

    python recipes/spans.py survival --data-dir DATA
    python recipes/spans.py rate --data-dir DATA --reviews 25000
    python recipes/spans.py found synth_dataset_v2.json

A unit of personal data survives if it is anywhere in the private text as a whole, even as the output of another word.
``survival`` looks at prompts with marked units, and at court cases and biographies, where dates, numbers
and runs of capitalised words are units. ``rate`` takes processor seconds over the same reviews, after a first pass that
compiles. ``found`` counts marked phone numbers, social security numbers and ages that the patterns find, in a
set of the GitHub repository microsoft/presidio-research (folder ``data``). DATA contains ``pupa/prompts.jsonl.gz``,
``tab/legal25.jsonl.gz``, ``bios/synthetic.jsonl.gz`` and ``imdb/train.jsonl.gz``. No text is printed.
"""

from __future__ import annotations

import ast
import gzip
import json
import math
import re
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import spacy
import typer

import textpriv
from textpriv.ledger import DocumentName
from textpriv.mechanisms import default_mechanism
from textpriv.mechanisms.base import UNKNOWN, Mechanism
from textpriv.spans.detectors import PatternDetector, PresidioDetector, SpacyDetector
from textpriv.spans.policy import SpanPolicy

app = typer.Typer(add_completion=False)

DataDir = Annotated[Path, typer.Option(help="Folder with the public sets.")]
_MONTH = "(?:January|February|March|April|May|June|July|August|September|October|November|December)"
_UNITS = {
    "date": rf"\b\d{{1,2}} {_MONTH} \d{{4}}\b|\b{_MONTH} \d{{1,2}}, \d{{4}}\b|\b\d\d?[/.-]\d\d?[/.-]\d{{4}}\b",
    "number": r"\b\d[\d.,/:-]*\d\b",
    "name": r"\b[A-Z][\w'-]+(?: [A-Z][\w'-]+)+",
}
_UNIT = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in _UNITS.items()))


def records(data_dir: Path, name: str) -> Iterator[dict[str, Any]]:
    """The records of a set."""
    with gzip.open(data_dir / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def units_of(data_dir: Path, name: str) -> list[tuple[str, dict[str, str]]]:
    """The texts of a set, each with its units of personal data and their kinds."""
    if name != "pupa/prompts":
        texts = [record["text"] for record in records(data_dir, name)]
        return [
            (text, {each.group(): each.lastgroup or "" for each in _UNIT.finditer(text)})
            for text in texts
        ]
    marked = []
    for record in records(data_dir, name):
        text, units = record["user_query"], record["pii_units"]
        units = ast.literal_eval(units) if isinstance(units, str) else units
        marked.append((text, {unit: "marked" for unit in units if found_in(unit, text)}))
    return marked


def found_in(unit: str, text: str) -> bool:
    """Whether a unit is in a text as a whole, in any casing and with any blanks."""
    parts = r"\s*".join(map(re.escape, re.findall(r"\w+|[^\w\s]", unit)))
    return bool(parts) and bool(re.search(rf"(?<!\w){parts}(?!\w)", text, re.IGNORECASE))


def survivors(
    privatizer: textpriv.Privatizer, marked: list[tuple[str, dict[str, str]]], name: str
) -> dict[str, tuple[float, int]]:
    """The share of units that survive one release and their number, by kind, and under ``""`` of all."""
    keys = [f"{name} {number}" for number in range(len(marked))]
    named = [DocumentName(key, key) for key in keys] if privatizer.spans else keys
    private = privatizer.pipe([text for text, _ in marked], keys=named)
    stays: dict[str, list[bool]] = {"": []}
    for text, (_, units) in zip(private, marked, strict=True):
        unmasked = re.sub(r"\[[A-Z_ -]+\]", " ", text)
        for unit, kind in units.items():
            survives = found_in(unit, unmasked)
            stays[""].append(survives)
            stays.setdefault(kind, []).append(survives)
    return {kind: (float(np.mean(of or [False])), len(of)) for kind, of in stays.items()}


@app.command()
def survival(
    data_dir: DataDir, recovery: float = 0.1, policy: str = "chat", draws: int = 20
) -> None:
    """Print the share of units that survive, by set, detector and kind, with the default mechanism."""
    index = textpriv.Index.builtin("en")
    epsilon = textpriv.epsilon_for(index, recovery=recovery)
    mechanism = default_mechanism(index, epsilon)
    spans = SpanPolicy.of(policy)
    settings: dict[str, dict[str, Any]] = {
        "no detector": {},
        "patterns": {"spans": spans, "detector": PatternDetector()},
        "Presidio's patterns": {"spans": spans, "detector": PresidioDetector()},
    }
    for name in ("pupa/prompts", "tab/legal25", "bios/synthetic"):
        marked = units_of(data_dir, name)
        kept = mean_keep(mechanism, [text for text, _ in marked])
        print(f"{name}, epsilon {epsilon:g}: the mechanism keeps {kept:.2%} of words")
        for which, given in settings.items():
            privatizer = textpriv.Privatizer(mechanism, seed=0, **given)
            found = [survivors(privatizer, marked, str(draw)) for draw in range(draws)]
            for kind in found[0]:
                share = np.mean([each[kind][0] for each in found])
                units = found[0][kind][1]
                print(f"{name}, {policy}, {which}, {kind or 'all'}: {share:.2%} of {units:,} units")


@app.command()
def found(file: Path) -> None:
    """Print how many marked units of a kind the patterns find under that kind, and how many spans of it are none."""
    kinds = {"PHONE_NUMBER": "PHONE", "US_SSN": "SSN", "AGE": "AGE"}
    records = json.loads(file.read_text(encoding="utf-8"))
    units: dict[str, list[bool]] = {kind: [] for kind in kinds.values()}
    spans: dict[str, list[bool]] = {kind: [] for kind in kinds.values()}
    detected = PatternDetector().detect([record["full_text"] for record in records])
    for record, own in zip(records, detected, strict=True):
        marked = [
            (each["start_position"], each["end_position"], kinds[each["entity_type"]])
            for each in record["spans"]
            if each["entity_type"] in kinds
        ]
        given = [tuple(span) for span in own if span.kind in spans]
        for these, others, into in ((marked, given, units), (given, marked, spans)):
            for start, end, kind in these:
                met = any(a < end and start < b and kind == also for a, b, also in others)
                into[kind].append(met)
    for kind, met in units.items():
        wrong = len(spans[kind]) - sum(spans[kind])
        print(
            f"{kind}: found {sum(met)} of {len(met)}; {wrong} of {len(spans[kind])} spans are none"
        )


def mean_keep(mechanism: Mechanism, texts: Sequence[str]) -> float:
    """The share of drawn tokens that stay, as at the start of a text; an unknown word never stays."""
    codes = textpriv.Privatizer(mechanism).read_batch(texts).codes
    drawn = codes[codes >= UNKNOWN]
    words, counts = np.unique(drawn[drawn != UNKNOWN], return_counts=True)
    stays = [math.exp(mechanism.log_prob(int(word))[word]) for word in words]
    return float(counts @ np.array(stays) / len(drawn))


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
