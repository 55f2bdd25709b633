"""Make the model of general English that comes with the package.

    pip install pocketsphinx==5.1.1
    python tools/make_language_model.py

The source is the trigram model en-us.lm.bin of pocketsphinx (Carnegie Mellon University, BSD-2-Clause), whose own library
writes it as an ARPA file. 30 million words are drawn from it under a fixed seed, contractions cut as spaCy cuts them, and
n-grams over the built-in vocabulary counted in them. Those that change probabilities most are kept.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from textpriv.language import NGrams
from textpriv.language.arpa import read_arpa
from textpriv.language.general_english import DATA, PER_UNIT
from textpriv.vocabulary.builtin import DATA as VOCABULARY

DOCUMENTS, LENGTH = 20_000, 1_500
PAIRS, TRIPLES = 330_000, 400_000
ENDINGS = ("n't", "'s", "'re", "'ve", "'ll", "'d", "'m")
COUNTED_PAIRS = 2_051_541  # the header of the file of 5.1.1 declares six more


def write_arpa(target: str) -> None:
    """Write the source as an ARPA file by the public interface of its library in C."""
    import pocketsphinx
    from pocketsphinx import _pocketsphinx

    library, pointer = ctypes.CDLL(_pocketsphinx.__file__), ctypes.c_void_p
    library.logmath_init.restype = library.ngram_model_read.restype = pointer
    library.ngram_model_get_counts.restype = ctypes.POINTER(ctypes.c_uint32)
    logarithms = pointer(library.logmath_init(ctypes.c_double(1.0001), 0, 0))
    source = pocketsphinx.get_model_path("en-us/en-us.lm.bin").encode()
    loaded = pointer(library.ngram_model_read(None, source, 0, logarithms))
    library.ngram_model_get_counts(loaded)[1] = COUNTED_PAIRS
    kind = library.ngram_str_to_type(b"arpa")
    raise SystemExit(library.ngram_model_write(loaded, target.encode(), kind))


def source_words(path: Path) -> list[str]:
    """The words of an ARPA file."""
    words = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            parts = line.split()
            if parts[:1] == ["\\2-grams:"]:
                return words
            if len(parts) in (2, 3) and parts[1][0] != "<" and parts[0] != "ngram":
                words.append(parts[1])
    return words


def drawn(path: Path, wanted: list[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Text of the source as ids of the wanted words; the end of a sentence is the symbol with number 2."""
    words = source_words(path)
    model = read_arpa(path, words)
    place = {word: at for at, word in enumerate(wanted)}
    parts = np.full((len(words) + 3, 2), -1, np.int32)
    parts[:, 1] = -9  # no second part
    for at, word in enumerate(words):
        end = next((each for each in ENDINGS if word.endswith(each) and word != each), "")
        parts[at, 0] = place.get(word.removesuffix(end), -1)
        if end:
            parts[at, 1] = place[end]
    parts[len(words), 0] = -4
    rng, rows = np.random.default_rng(0), []
    earlier = before = np.full(DOCUMENTS, model.start)
    for _ in range(LENGTH):
        earlier, before = before, model.draw(before, earlier, rng)
        rows.append(parts[before])
    text = np.stack(rows, axis=1).reshape(DOCUMENTS, -1)
    kept = text != -9
    return text[kept], np.concatenate([[0], np.cumsum(kept.sum(axis=1))])


def gains(
    before: NDArray[np.float64], weights: NDArray[np.float64], less: NDArray[np.float64]
) -> NDArray[np.float64]:
    """How much each n-gram adds to the log-probability of a text, by its context's frequency."""
    return before * (weights + less) * np.log1p(weights / less)


def pruned(model: NGrams) -> dict[str, NDArray[np.generic]]:
    """The arrays of the files."""
    single, pairs, triples, backoff, pair_backoff = model.weights
    tokens = np.arange(model.tokens)
    first = np.repeat(tokens, np.diff(model.offsets))
    pair = np.repeat(np.arange(len(pairs)), np.diff(model.pair_offsets))
    less = backoff[first] * single[model.seconds]
    joint = single[first] * (pairs + less)
    third_less = pair_backoff[pair] * model.probability(model.thirds, model.seconds[pair])
    whole = model.tokens - 1  # other words are no context, and no successor
    score = gains(joint[pair], triples, third_less)
    score[(model.thirds == whole) | (model.seconds[pair] == whole) | (first[pair] == whole)] = 0
    kept_triples = np.sort(np.argsort(-score)[:TRIPLES])
    score = gains(single[first], pairs, less)
    score[(model.seconds == whole) | (first == whole)] = 0
    needed = np.zeros(len(pairs), np.bool_)
    needed[pair[kept_triples]] = True
    score[needed] = np.inf
    kept = np.sort(np.argsort(-score)[:PAIRS])
    kept_triples = kept_triples[np.isin(pair[kept_triples], kept)]
    counts = np.bincount(np.searchsorted(kept, pair[kept_triples]), minlength=len(kept))
    return {
        "single": steps(single),
        "pair_counts": np.bincount(first[kept], minlength=model.tokens).astype(np.uint16),
        "seconds": model.seconds[kept].astype(np.uint16),
        "pairs": steps(pairs[kept]),
        "triple_counts": counts.astype(np.uint16),
        "thirds": model.thirds[kept_triples].astype(np.uint16),
        "triples": steps(triples[kept_triples]),
    }


def steps(weights: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Weights as whole steps of their logarithm, rounded down in weight."""
    return np.ceil(np.minimum(-np.log(np.maximum(weights, 1e-12)) * PER_UNIT, 255)).astype(np.uint8)


def main() -> None:
    """Write the files."""
    wanted = (VOCABULARY / "en-words.txt").read_text(encoding="utf-8").split()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.arpa"
        # A fault of the library ends a process of its own.
        subprocess.run([sys.executable, __file__, str(path)], check=True)  # noqa: S603
        ids, offsets = drawn(path, wanted)
    symbols = ("<s>", "<other>", ".")
    arrays = pruned(NGrams.from_ids(ids, offsets, len(wanted), symbols=symbols))
    DATA.mkdir(exist_ok=True)
    (DATA / "en-words.txt").write_text("\n".join(wanted) + "\n", encoding="utf-8")
    for name, of in (("pairs", ("single", "pair_counts", "seconds", "pairs")), ("triples", ())):
        part = {key: each for key, each in arrays.items() if (key in of) == (name == "pairs")}
        if name == "triples":
            part = {key: arrays[key] for key in ("triple_counts", "thirds", "triples")}
        np.savez_compressed(DATA / f"en-{name}.npz", **part)


if __name__ == "__main__":
    write_arpa(sys.argv[1]) if len(sys.argv) > 1 else main()
