"""Small corpora of made-up words, and runs over them."""

from __future__ import annotations

import csv
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from textpriv.corpus import CorpusReport, PrivatizerSettings, privatize_corpus
from textpriv.run_key import RunKey

WORDS = ["".join(parts) for parts in itertools.product("bdfgklm", "aeiou", "nrst", "ao")]


def rows(count: int) -> list[dict[str, Any]]:
    """Make documents of 25 words, the same ones every time."""
    rng = np.random.default_rng(1)
    return [
        {"id": f"n{n}", "text": " ".join(WORDS[i] for i in rng.integers(len(WORDS), size=25))}
        for n in range(count)
    ]


def _between(path: Path) -> str:
    return "\t" if path.suffix == ".tsv" else ","


def write(path: Path, given: list[dict[str, Any]]) -> Path:
    """Write rows in the format that the name says; return the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(given), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in given))
    else:
        with open(path, "w", newline="") as file:
            writer = csv.DictWriter(file, list(given[0]), delimiter=_between(path))
            writer.writeheader()
            writer.writerows(given)
    return path


def read(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a file."""
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    with open(path, newline="") as file:
        return list(csv.DictReader(file, delimiter=_between(path)))


def content(path: Path) -> dict[str, bytes]:
    """Return the bytes of an output file, or of the files of a folder."""
    files = [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())
    return {str(each.relative_to(path)): each.read_bytes() for each in files}


def run(
    index: Path, source: Path, target: Path, *, key: Path | None = None, **options: Any
) -> CorpusReport:
    """Release a corpus under the key beside its output, or another one."""
    own = RunKey.beside(target) if key is None else RunKey.open(key)
    chosen = {name: options.pop(name) for name in ("prior",) if name in options}
    chosen["epsilon"] = options.pop("epsilon", 4.0)
    settings = PrivatizerSettings(str(index), options=chosen, run_key=own.secret)
    options = {"part_records": 10, "batch_size": 7, "settings": settings, **options}
    return privatize_corpus(source, target, settings.build(), key=own, **options)


def stop_at(documents: int) -> Any:
    """Return a callback that interrupts a run."""

    def stop(progress: Any) -> None:
        if progress.documents >= documents:
            raise KeyboardInterrupt

    return stop
