"""The general-English trigram model of the package ``pocketsphinx`` as a model over a vocabulary.

The package holds 72,547 words, 2.1 million pairs and 1.7 million triples (``en-us.lm.bin``; BSD).
Its own library writes them as an ARPA file, once, in a process of its own; the file is kept in the cache folder.
"""

from __future__ import annotations

import contextlib
import ctypes
import gzip
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from textpriv.errors import TextprivError
from textpriv.files import atomic_write, cache_folder, one_at_a_time, sha256_file
from textpriv.language.ngrams import NGrams
from textpriv.optional import needs

__all__ = ["EXTRA", "general_english"]

EXTRA = "language-model"

# The header of the shipped file counts six pairs more than there are, and the library of 5.1.1 runs off their end.
_SHIPPED = "db21d0642286677699e6dbc859d2e5395570222361999387ce60f6e1d01995d6"
_PAIRS = 2_051_541
_MODEL = "en-us/en-us.lm.bin"


def general_english(words: Sequence[str]) -> NGrams:
    """Return the trigram model of general English, over a vocabulary.

    Parameters
    ----------
    words : sequence of str
        In lower case, as the model's are.

    Raises
    ------
    TextprivError
        Where pocketsphinx is not installed, or its library cannot write the model.
    """
    package = needs("pocketsphinx", EXTRA)
    model = Path(package.get_model_path(_MODEL))
    digest = sha256_file(model)
    kept = cache_folder() / f"en-us-{digest[:16]}.arpa.gz"
    with one_at_a_time("language-model"):
        if kept.exists():
            return NGrams.read_arpa(kept, words)
        with tempfile.TemporaryDirectory() as folder:
            plain = Path(folder) / "model.arpa"
            _write_apart(model, plain, _PAIRS if digest == _SHIPPED else 0)
            found = NGrams.read_arpa(plain, words)  # looked at before it is kept
            with (
                contextlib.suppress(OSError),
                atomic_write(kept) as file,
                open(plain, "rb") as source,
                gzip.open(file, "wb", compresslevel=1) as packed,
            ):
                shutil.copyfileobj(source, packed)
            return found


def _write_apart(model: Path, target: Path, pairs: int) -> None:
    """Write a model as an ARPA file in a process of its own, which a fault of the library ends."""
    program = f"from {__name__} import _write; import sys; _write(*sys.argv[1:])"
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program, str(model), str(target), str(pairs)], capture_output=True
    )
    if done.returncode:
        raise TextprivError(
            f"pocketsphinx cannot write {model} as an ARPA file (exit {done.returncode}). Install version 5.1.1, or give an "
            "ARPA file of your own."
        )


def _write(model: str, target: str, pairs: str) -> None:
    """Write a model as an ARPA file by the library's public interface in C (``pocketsphinx/model.h``)."""
    library = ctypes.CDLL(needs("pocketsphinx._pocketsphinx", EXTRA).__file__)
    pointer = ctypes.c_void_p
    library.logmath_init.restype = library.ngram_model_read.restype = pointer
    library.ngram_model_get_counts.restype = ctypes.POINTER(ctypes.c_uint32)
    logarithms = pointer(library.logmath_init(ctypes.c_double(1.0001), 0, 0))
    loaded = pointer(library.ngram_model_read(None, model.encode(), 0, logarithms))
    if not loaded:
        raise SystemExit(1)
    if int(pairs):
        library.ngram_model_get_counts(loaded)[1] = int(pairs)
    arpa = library.ngram_str_to_type(b"arpa")
    raise SystemExit(1 if library.ngram_model_write(loaded, target.encode(), arpa) else 0)
