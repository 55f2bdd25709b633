"""The vocabularies that come with the package: public words and vectors, read from its own files and checked.

A manifest beside them names source, licence and checksums; ``tools/make_builtin_vocabulary.py`` writes it.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from textpriv.errors import VocabularyError
from textpriv.vocabulary.vocabulary import Vocabulary

__all__ = ["DATA", "FILES", "read_builtin", "read_manifest"]

DATA = Path(__file__).parent / "data"
FILES = {"words": "{}-words.txt", "numbers": "{}-numbers.npy", "scales": "{}-scales.npy"}


def read_manifest(language: str) -> dict[str, Any]:
    """Return what is recorded of a vocabulary: its source, licence, checksums and computed records."""
    languages = sorted(path.stem for path in DATA.glob("*.json"))
    if language not in languages:
        raise VocabularyError(
            f"No vocabulary of the language {language!r} comes with the package, only of: {', '.join(languages)}. List "
            "public sets with: textpriv index --list. Then build an index: textpriv index NAME FOLDER"
        )
    return json.loads((DATA / f"{language}.json").read_text(encoding="ascii"))


def read_builtin(language: str) -> Vocabulary:
    """Return the vocabulary of a language, the commonest word first, vectors in float32."""
    manifest = read_manifest(language)
    for name, recorded in manifest["files"].items():
        if hashlib.sha256((DATA / name).read_bytes()).hexdigest() != recorded:
            raise VocabularyError(
                f"{DATA / name} is not the file that this version came with: install textpriv again."
            )
    paths = {kind: DATA / pattern.format(language) for kind, pattern in FILES.items()}
    numbers = np.load(paths["numbers"], allow_pickle=False)
    scales = np.load(paths["scales"], allow_pickle=False)
    words = paths["words"].read_text(encoding="ascii").split()
    return Vocabulary(words, numbers * scales[:, None], language=language)
