"""Reader of n-gram models in ARPA files, packed by gzip or not.

ARPA models back off: a listed n-gram has its own probability, others the back-off weight of their context times that with
one token less. Here each becomes its excess over the latter, at least 0, and contexts back off with what is left of 1.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import TextprivError
from textpriv.language.ngrams import OTHER, START, NGrams

_LARGEST = 0.999  # of a context's probability that its successors have


def read_arpa(path: Path, words: Sequence[str]) -> NGrams:
    """Read the n-grams of up to three tokens over a vocabulary; a TextprivError names the line that cannot be read.

    N-grams with a word outside the vocabulary are left out, so their contexts back off. The end of a sentence counts as the
    start of the next one.
    """
    size = len(words)
    place = {word: at for at, word in enumerate(words)} | {START: size, "</s>": size}
    single = np.zeros(size + 3)
    longer: dict[int, list[tuple[Any, ...]]] = {2: [], 3: []}
    for probability, tokens in _entries(path):
        ids = [place.get(token, size + 2) for token in tokens]
        if len(ids) > 1 and max(ids) < size + 2:
            longer[len(ids)].append((*ids, probability))
        elif tokens != [START] and len(ids) == 1:
            single[ids[0]] += probability
    if not single[:size].any():
        raise TextprivError(f"{path} has no unigrams of the vocabulary. Is it an ARPA file?")
    model = NGrams.from_probabilities(size, (START, OTHER), single)
    levels: list[tuple[NDArray[Any], ...]] = []
    for length, rows in longer.items():
        table = np.array(rows).reshape(-1, length + 1)
        # In rising order, of equal n-grams the first.
        distinct, first = np.unique(table[:, :-1].astype(np.int64), axis=0, return_index=True)
        *before, last = distinct.T
        share = table[first, -1]
        context = before[0] if length == 2 else model.find(0, *before)
        if (context < 0).any():
            raise TextprivError(f"{path} has a trigram whose first two words are no bigram of it.")
        weights = _excess(context, share, model.probability(last, *before[1:]))
        levels.append((context, last, weights))
        model = NGrams.from_probabilities(size, (START, OTHER), single, *levels)
    return model


def _excess(
    context: NDArray[np.int64], share: NDArray[np.float64], less: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return weights of successors, given their probabilities and those with one token less."""
    left = 1.0 - np.bincount(context, share)
    others = 1.0 - np.bincount(context, less)
    backoff = np.clip(left / np.maximum(others, 1e-9), 0.0, 1.0)
    weights = np.maximum(share - backoff[context] * less, 0.0)
    whole = np.bincount(context, weights)
    return weights * np.minimum(1.0, _LARGEST / np.maximum(whole, 1e-12))[context]


def _entries(path: Path) -> Iterator[tuple[float, list[str]]]:
    section, number, last = 0, 0, ""
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):  # noqa: B007 - named in errors
                parts = line.split()
                if not parts:
                    continue
                if line[0] == "\\":
                    section, last = int(line[1]) if line[1].isdigit() else 0, parts[0]
                elif 1 <= section <= 3:
                    tokens, probability = parts[1 : section + 1], 10.0 ** float(parts[0])
                    if not section < len(parts) <= section + 2 or not probability <= 1:
                        raise ValueError
                    yield probability, tokens
    except (ValueError, OverflowError):
        raise TextprivError(
            f"{path}, line {number}: expected a logarithm up to 0, the words, and perhaps a back-off weight."
        ) from None
    except (OSError, EOFError, zlib.error):
        raise TextprivError(f"{path} cannot be read as an ARPA file.") from None
    if last != "\\end\\":
        raise TextprivError(f"{path} does not end as an ARPA file. Is it whole?")
