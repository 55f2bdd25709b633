"""Typed spans: what detectors cost, and what the patterns find.

    python recipes/spans.py rate --data-dir DATA --reviews 25000
    python recipes/spans.py found synth_dataset_v2.json

``rate`` takes processor seconds over the same reviews, after a first pass that compiles. ``found`` counts marked phone
numbers, social security numbers and ages that the patterns find, in a set of the GitHub repository
microsoft/presidio-research (folder ``data``). DATA contains ``imdb/train.jsonl.gz``. No text is printed.
"""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import spacy
import typer

import textpriv
from textpriv.spans.detectors import PatternDetector, PresidioDetector, SpacyDetector
from textpriv.spans.policy import SpanPolicy

app = typer.Typer(add_completion=False)

DataDir = Annotated[Path, typer.Option(help="Folder with the public sets.")]


def records(data_dir: Path, name: str) -> Iterator[dict[str, Any]]:
    """The records of a set."""
    with gzip.open(data_dir / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


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
