"""Readers of word vectors: GloVe, word2vec and fastText files, gensim and spaCy.

A format is recognised by its content. Errors name the file and the line, and never quote it.
"""

from __future__ import annotations

import gzip
import os
import re
import zlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import numpy as np

from textpriv.errors import VocabularyError
from textpriv.vocabulary.public_sets import set_named

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

_GZIP_MAGIC = b"\x1f\x8b"
_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_WHOLE_NUMBERS = re.compile(rb"[\d\s]+")
_HEADER = re.compile(rb"\s*(\d{1,9})[ \t]+(\d{1,5})\s*")
_LONGEST = 1 << 22  # bytes of a line

_Read: TypeAlias = "tuple[Sequence[str], ArrayLike, str | None]"


def read_source(source: Any, limit: int | None, counts: Mapping[str, float] | None = None) -> _Read:
    """Return words, vectors and the language if it is known; see :meth:`Vocabulary.load`."""
    if isinstance(source, str) and source.startswith("builtin:"):
        from textpriv.vocabulary.builtin import read_builtin

        own = read_builtin(source.removeprefix("builtin:"))
        return own.words[:limit], own.vectors[:limit], own.language
    chosen = set_named(source) if isinstance(source, str) else None
    if chosen is not None and not Path(source).exists():
        words, rows, language = read_source(chosen.fetched(), limit, counts)
        return words, rows, language or chosen.language
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        if path.is_file():
            return (*_read_file(path, limit), None)
        return _from_spacy(_load_spacy(path if path.is_dir() else os.fspath(source)), limit, counts)
    keyed = getattr(source, "wv", source)
    if hasattr(keyed, "index_to_key") and hasattr(keyed, "vectors"):
        return keyed.index_to_key[:limit], keyed.vectors[:limit], None
    if hasattr(source, "vocab") and hasattr(source.vocab, "vectors"):
        return _from_spacy(source, limit, counts)
    raise VocabularyError(
        f"Vectors cannot be read from {type(source).__name__}. Pass the path of a vector file, the name of a spaCy package, "
        "a spaCy Language or a gensim KeyedVectors."
    )


# spaCy


def _load_spacy(source: str | Path) -> Any:
    import spacy

    if isinstance(source, str) and not spacy.util.is_package(source):
        raise VocabularyError(
            f"{source!r} is no vector file, saved pipeline or installed spaCy package. Check the path, or list public sets "
            "with: textpriv index --list"
        )
    try:
        return spacy.load(source)
    except Exception as error:  # a pipeline runs the code of its components
        raise VocabularyError(
            f"spaCy cannot load {os.fspath(source)!r} ({type(error).__name__}). See the error above, or pass a vector file."
        ) from error


def _from_spacy(nlp: Any, limit: int | None, counts: Mapping[str, float] | None) -> _Read:
    table, strings = nlp.vocab.vectors, nlp.vocab.strings
    if getattr(table, "mode", "default") == "floret" or not len(table.key2row):
        raise VocabularyError(
            "The spaCy pipeline has no table with one vector for each word. Use a medium or large package (md, lg), or a "
            "vector file."
        )
    if any(key not in strings for key in table.key2row):
        raise VocabularyError(
            "The spaCy vectors have keys without a string. Add the words to nlp.vocab.strings."
        )
    data = table.data.get() if hasattr(table.data, "get") else table.data  # from GPU memory
    # A pruned table has many words a row: nothing could tell them apart, and each list would be full of them.
    count, taken = (counts or {}).get, dict[int, str]()
    for key, row in table.key2row.items():
        word = strings[key]
        if row not in taken or count(word, 0) > count(taken[row], 0):
            taken[row] = word
    order = sorted(taken, key=lambda row: (-count(taken[row], 0), row))[:limit]
    return [taken[row] for row in order], data[order], nlp.lang if nlp.lang != "xx" else None


# Files


def refuse(path: Path, number: int, problem: str) -> NoReturn:
    """Raise the error of a line; the line itself is never quoted."""
    raise VocabularyError(
        f"{path}, line {number}: {problem}. Correct the file, or fetch it again."
    ) from None


def decoded(path: Path, number: int, word: bytes) -> str:
    """Return a word of a line as text."""
    try:
        return word.decode("utf-8")
    except UnicodeDecodeError:
        refuse(path, number, "the word is not UTF-8")


def lines_of(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file, packed with gzip or not, with their numbers from 1; empty lines only at its end."""
    number = empty = 0
    with _opened(path) as file:
        for number, line in enumerate(file, start=1):
            if line.isspace():
                empty = empty or number
                continue
            if empty:
                refuse(path, empty, "the line is empty")
            yield number, line
    if not number:
        refuse(path, 1, "the file is empty")


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with path.open("rb") as file:
            opener = gzip.open if file.read(2) == _GZIP_MAGIC else open
        with opener(path, "rb") as file:
            yield file
    except (OSError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", None) or "its gzip data are damaged"
        raise VocabularyError(f"{path} cannot be read: {why}.") from None


def _read_file(path: Path, limit: int | None) -> tuple[list[str], NDArray[np.float32]]:
    with _opened(path) as file:
        first, second = file.readline(_LONGEST), file.readline(_LONGEST)
    if _PICKLE.match(first):
        raise VocabularyError(
            f"{path}, line 1: it is a pickle, such as gensim's own file, and is not read: it can run code. Load it with "
            "gensim and pass the object, or name a file that KeyedVectors.save_word2vec_format wrote."
        )
    if first.startswith(b"\xef\xbb\xbf"):
        refuse(path, 1, "it begins with a byte order mark")
    header = _HEADER.fullmatch(first)
    if _WHOLE_NUMBERS.fullmatch(first if header is None else second):
        refuse(path, 1 if header is None else 2, "whole numbers alone are no word and its values")
    if header is None:
        return _read_text(path, limit, None, len(first.split(b" ")) - 1)
    promised, dimension = int(header[1]), int(header[2])
    # Text has numbers where binary data have arbitrary bytes.
    fields = second.rstrip().split(b" ")[1:]
    if not second or (len(fields) == dimension and sum(map(is_number, fields)) >= dimension / 2):
        words, vectors = _read_text(path, limit, promised, dimension)
    else:
        words, vectors = _read_binary(path, len(first), promised, dimension, limit)
    if len(words) < min(promised, limit or promised):
        refuse(path, 1, f"it promises {promised:,} words, and the file has {len(words):,}")
    return words, vectors


def is_number(field: bytes) -> bool:
    """Whether a field of a file is a number."""
    try:
        float(field)
    except ValueError:
        return False
    return b"_" not in field  # Python reads 1_000 as a number


def _read_text(
    path: Path, limit: int | None, promised: int | None, dimension: int
) -> tuple[list[str], NDArray[np.float32]]:
    words: list[str] = []
    values = array("f")
    lines = islice(lines_of(path), 0 if promised is None else 1, None)
    for number, line in islice(lines, limit):
        if len(words) == promised:
            refuse(path, number, f"the header promises {promised:,} words, and here is one more")
        word, *fields = line.rstrip().rsplit(b" ", dimension)
        pieces = word.split(b" ")
        # A number before the values is a value too many, and so is what two spaces enclose.
        good = len(fields) == dimension > 0 and all(pieces)
        good = good and not (len(pieces) > 1 and is_number(pieces[-1]))
        try:
            values.extend(map(float, fields))
        except ValueError:
            good = False
        if not good or line.count(b"_") != word.count(b"_"):
            refuse(path, number, f"expected a word and {dimension} values with spaces between them")
        words.append(decoded(path, number, word))
    return words, np.frombuffer(values, dtype=np.float32).reshape(len(words), dimension)


def _read_binary(
    path: Path, start: int, promised: int, dimension: int, limit: int | None
) -> tuple[list[str], NDArray[np.float32]]:
    """Read word2vec's binary rows: a word, a space and little-endian float32 values."""
    width, words, rows = 4 * dimension, list[str](), list[bytes]()
    with _opened(path) as file:
        file.seek(start)
        # The whole rest: as large as the vectors that it becomes.
        content = file.read(-1 if limit is None else limit * (width + 1024))
    place = 0
    while len(words) < min(promised, limit or promised):
        space = content.find(b" ", place)
        if space < 0 or space + 1 + width > len(content):
            break
        words.append(decoded(path, len(words) + 2, content[place:space].lstrip(b"\n")))
        rows.append(content[space + 1 : space + 1 + width])
        place = space + 1 + width
    if len(words) == promised and limit is None and content[place:].strip(b"\n"):
        refuse(path, 1, f"it promises {promised:,} words, and the file has more")
    vectors = np.frombuffer(b"".join(rows), dtype="<f4").reshape(len(words), dimension)
    return words, vectors
