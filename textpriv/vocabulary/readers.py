"""Readers of word vectors and word counts: GloVe, word2vec and fastText files, gensim and spaCy.

A format is recognised by its first bytes, and every error names the file and the line. Words and vectors are handed on as
they stand; what makes them a vocabulary, and what is refused in one, is decided in ``vocabulary.vocabulary``.
"""

from __future__ import annotations

import gzip
import os
import re
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias, cast

import numpy as np

from textpriv.errors import VocabularyError
from textpriv.vocabulary.public_sets import get, is_named, set_named

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["BLOCK_VALUES", "check_counts", "read_counts", "read_source"]

_MAX_DIMENSION = 65_536
_MAX_LINE_BYTES = 1 << 22
_SAMPLE_LINES = 32
_READ_BYTES = 1 << 22
BLOCK_VALUES = 1 << 20

_HEADER = re.compile(rb"\s*(\d{1,18})[ \t]+(\d{1,18})\s*")
_GZIP_MAGIC = b"\x1f\x8b"
_UNPACK = "Unpack it first, or pack it with gzip."
# How a file that is no vector file begins, what it is, and what the user can do. None of these
# beginnings can be a word.
_FOREIGN: tuple[tuple[bytes, str, str], ...] = (
    (
        b"\x80",
        "a Python pickle (a saved gensim object is one)",
        "A pickle can run any code when it is opened, so this library opens none: if you trust "
        "the file, load it yourself, for instance with KeyedVectors.load, and pass the object.",
    ),
    (
        b"\xba\x16\x4f\x2f",
        "a fastText model with subwords",
        "Use the .vec file, or load the model with gensim.models.fasttext.load_facebook_vectors "
        "and pass the object.",
    ),
    (b"\x93NUMPY", "a NumPy array", "Load it with numpy.load and call Vocabulary(words, vectors)."),
    (b"PK\x03\x04", "a zip archive", _UNPACK),
    (b"BZh91AY&SY", "a bzip2 file", _UNPACK),
    (b"\xfd7zXZ\x00", "an xz file", _UNPACK),
    (b"\x28\xb5\x2f\xfd", "a zstd file", _UNPACK),
    (b"\xef\xbb\xbf", "text with a byte order mark", "Save it as UTF-8 without the mark."),
)


# Sources

_Read: TypeAlias = "tuple[Sequence[str], ArrayLike, Callable[[int], str], str | None]"


def read_source(source: Any, limit: int | None, counts: Mapping[str, float] | None = None) -> _Read:
    """Return words, vectors, a function that names a word by its id in messages, and the language if it is known.

    ``counts`` say which of the words that share a row of a spaCy table is taken for it, and in which order.
    """
    if isinstance(source, str) and source.startswith("builtin:"):
        from textpriv.vocabulary.builtin import read_builtin

        own = read_builtin(source.removeprefix("builtin:"))
        return own.words[:limit], own.vectors[:limit], "the word with id {}".format, own.language
    if is_named(source) and not Path(source).exists():
        chosen = set_named(source)
        words, rows, name_of, language = read_source(get(chosen), limit, counts)
        return words, rows, name_of, language or chosen.language
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        if path.is_dir():
            return _from_spacy(_load_spacy(path), limit, counts)
        if path.exists():
            return _read_file(path, limit)
        return _from_spacy(_load_spacy(os.fspath(source)), limit, counts)
    keyed = getattr(source, "wv", source)
    if hasattr(keyed, "index_to_key") and hasattr(keyed, "vectors"):
        return (
            keyed.index_to_key[:limit],
            keyed.vectors[:limit],
            lambda i: f"the word with index {i} in the KeyedVectors",
            None,
        )
    if hasattr(source, "vocab") and hasattr(source.vocab, "vectors"):
        return _from_spacy(source, limit, counts)
    raise VocabularyError(
        "Expected the path of a vector file, the name of a spaCy package, a spaCy Language or a "
        f"gensim KeyedVectors, found {type(source).__name__}. For words and vectors in memory, "
        "call Vocabulary(words, vectors)."
    )


def _load_spacy(source: str | Path) -> Any:
    import spacy

    if isinstance(source, str) and not spacy.util.is_package(source):
        raise VocabularyError(
            "Expected a vector file, a saved pipeline or an installed spaCy package, found no "
            f"{source!r}. Check the path, or install the package. For public sets: textpriv vectors"
        )
    try:
        return spacy.load(source)
    except Exception as error:
        # A pipeline runs the code of its components when it is loaded, so that anything can be
        # raised here.
        raise VocabularyError(
            f"Expected a spaCy pipeline in {os.fspath(source)!r}, found that spaCy cannot load it "
            f"({type(error).__name__}). See the error above, or pass the path of a vector file."
        ) from error


def _from_spacy(nlp: Any, limit: int | None, counts: Mapping[str, float] | None) -> _Read:
    table, strings = nlp.vocab.vectors, nlp.vocab.strings
    if getattr(table, "mode", "default") == "floret":
        raise VocabularyError(
            "Expected a table with one vector for each word, found floret vectors, which have no "
            "word list. Use a pipeline with an ordinary table, or compute the vectors of a public "
            "word list and call Vocabulary(words, vectors)."
        )
    if not len(table.key2row):
        raise VocabularyError(
            "Expected a spaCy pipeline with word vectors, found a table without any. Small "
            "packages (sm) have none: use a medium or large one (md, lg), or a vector file."
        )
    nameless = sum(key not in strings for key in table.key2row)
    if nameless:
        raise VocabularyError(
            f"Expected the string of every key in the spaCy vectors, found {nameless:,} keys "
            "without one. Add the words to nlp.vocab.strings and try again."
        )
    data = table.data.get() if hasattr(table.data, "get") else table.data  # from GPU memory
    # A pruned table has many words a row: nothing could tell them apart, and each list would be full of them.
    taken: dict[int, str] = {}
    for key, row in table.key2row.items():
        word = strings[key]
        if row not in taken or (
            counts is not None and counts.get(word, 0) > counts.get(taken[row], 0)
        ):
            taken[row] = word
    order = sorted(
        taken, key=lambda row: (0 if counts is None else -counts.get(taken[row], 0), row)
    )
    rows = np.array(order[:limit])
    return (
        [taken[row] for row in rows.tolist()],
        data[rows],
        lambda i: f"the word in place {i} (row {rows[i]}) of the spaCy vectors",
        nlp.lang if nlp.lang != "xx" else None,
    )


# Files


class _File:
    """An open file, packed or not, that counts its lines and names the line where the data are damaged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.unit = "line"
        self.number = 0
        """The last line or row that was read whole, from 1."""

    def __enter__(self) -> _File:
        try:
            self._raw = self.path.open("rb")
        except OSError as error:
            self._refuse_unreadable(error)
        packed = self._raw.peek(len(_GZIP_MAGIC)).startswith(_GZIP_MAGIC)
        unpacked = gzip.GzipFile(fileobj=self._raw) if packed else self._raw
        self.stream = cast("IO[bytes]", unpacked)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stream.close()
        self._raw.close()
        if isinstance(error, EOFError | zlib.error | gzip.BadGzipFile):
            raise VocabularyError(
                f"{self.path}: expected whole gzip data, found them cut short or damaged after "
                f"{self.unit} {self.number}. Fetch the file again and compare its size or "
                "checksum."
            ) from error
        if isinstance(error, OSError):
            self._refuse_unreadable(error)

    def _refuse_unreadable(self, error: OSError) -> NoReturn:
        raise VocabularyError(
            f"{self.path}: expected a file that can be read, found: {error.strerror or error}. "
            "Check the path and its permissions."
        ) from error

    def at(self, number: int) -> str:
        return f"{self.path}, {self.unit} {number}"

    def refuse(self, problem: str, remedy: str, number: int | None = None) -> NoReturn:
        # Nothing is chained: the exception of decode() carries the bytes that it was given.
        raise VocabularyError(
            f"{self.at(self.number if number is None else number)}: {problem}. {remedy}"
        ) from None

    def lines(self, start: int = 1) -> Iterator[bytes]:
        """Yield the lines, counted from `start`; empty lines may stand at the end only."""
        empty = 0
        for number, line in enumerate(self.stream, start):
            self.number = number
            if line.isspace():
                empty = empty or number
                continue
            if empty:
                self.refuse("the line is empty", "Remove it.", empty)
            yield line


class _Layout(NamedTuple):
    """How a vector file is laid out."""

    binary: bool
    promised: int | None
    """The number of rows in the header; None without a header."""
    dimension: int
    start: int
    """Where the first row begins, in bytes."""


def _read_file(path: Path, limit: int | None) -> _Read:
    with _File(path) as file:
        layout = _detect_layout(file)
        file.stream.seek(layout.start)
        first = 2 if layout.promised is not None and not layout.binary else 1
        file.number = first - 1
        if layout.binary:
            file.unit = "row"
            words, vectors = _read_binary(file, layout, limit)
        else:
            words, vectors = _read_text(file, layout, limit)
        found = len(words)
        if layout.promised is not None and found < min(layout.promised, limit or layout.promised):
            file.refuse(
                f"the header says {layout.promised:,} rows and the file ends after {found:,}",
                "The file is cut short, or the header wrong: fetch it again, or correct the "
                "header.",
            )
    return words, vectors, lambda i: f"the word on {file.unit} {i + first} of {path}", None


def _detect_layout(file: _File) -> _Layout:
    stream = file.stream
    head = stream.readline(_MAX_LINE_BYTES)
    if not head:
        raise VocabularyError(
            f"{file.path}: expected word vectors, found an empty file. Fetch it again."
        )
    for magic, name, remedy in _FOREIGN:
        if head.startswith(magic):
            raise VocabularyError(f"{file.path}: expected word vectors, found {name}. {remedy}")
    header = _HEADER.fullmatch(head)
    if header:
        promised, dimension = int(header[1]), int(header[2])
        if promised < 1 or not 1 <= dimension <= _MAX_DIMENSION:
            raise VocabularyError(
                f"{file.path}: expected a header with at least 1 word and 1 to {_MAX_DIMENSION:,} "
                f"values, found {promised:,} and {dimension:,}. Correct the first line, or fetch "
                "the file again."
            )
        # Text has numbers where binary data have arbitrary bytes. Half of them are enough, so that
        # text with a bad first row is still read as text and refused with the true reason; but a
        # few floats can have the bytes of one short number, so rows of up to four need all.
        row = stream.readline(_MAX_LINE_BYTES)
        numbers = sum(map(_is_number, row.split(b" ")[1:]))
        is_text = not row or numbers >= max(dimension / 2, min(dimension, 4))
        return _Layout(not is_text, promised, dimension, len(head))
    sample = [head, *(stream.readline(_MAX_LINE_BYTES) for _ in range(_SAMPLE_LINES - 1))]
    tally = Counter(line.rstrip().count(b" ") for line in sample if line and not line.isspace())
    # On a tie the shorter lines win: longer ones may be words with spaces.
    dimension = min(tally, key=lambda count: (-tally[count], count), default=0)
    if not 1 <= dimension <= _MAX_DIMENSION:
        raise VocabularyError(
            f"{file.path}: expected a word and its values on each line, separated by single "
            "spaces, found lines without values. Pass a GloVe, word2vec or fastText .vec file."
        )
    return _Layout(False, None, dimension, 0)


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return b"_" not in field  # Python reads 1_000 as a number; no vector file means it so


def _decode(file: _File, word: bytes) -> str:
    try:
        return word.decode("utf-8")
    except UnicodeDecodeError:
        file.refuse("the word is not UTF-8", "Convert the file to UTF-8, or leave the row out.")


def _read_text(
    file: _File, layout: _Layout, limit: int | None
) -> tuple[list[str], NDArray[np.float32]]:
    """Read rows of text in one pass.

    gensim's reader is not used here: it takes a word with spaces for a broken line, drops a
    repeated word and ignores rows beyond the header, takes values that are not finite, and needs
    several times as long.
    """
    dimension, promised = layout.dimension, layout.promised
    words: list[str] = []
    values = array("f")
    for line in islice(file.lines(1 if promised is None else 2), limit):
        if len(words) == promised:
            file.refuse(
                f"the header says {promised:,} rows, and here is one more",
                "Correct the header, or pass limit= to read only the first rows.",
            )
        fields = line.rstrip().rsplit(b" ", dimension)
        word = fields[0]
        if len(fields) <= dimension:
            file.refuse(
                f"expected a word and {dimension} values separated by single spaces, found "
                f"{len(fields) - 1} values",
                "Correct the line, or leave it out.",
            )
        if b" " in word:
            pieces = word.split(b" ")
            if not all(pieces) or _is_number(pieces[-1]):
                file.refuse(
                    f"expected a word and {dimension} values separated by single spaces, found "
                    "more values or stray spaces",
                    "Correct the line, or leave it out.",
                )
        try:
            values.extend(map(float, fields[1:]))
        except ValueError:
            strict = False
        else:
            strict = line.count(b"_") == word.count(b"_")
        if not strict:
            bad = next(i for i, field in enumerate(fields[1:], 1) if not _is_number(field))
            file.refuse(
                f"value {bad} of {dimension} is not a number", "Correct the line, or leave it out."
            )
        words.append(_decode(file, word))
    return words, np.frombuffer(values, dtype=np.float32).reshape(len(words), dimension)


def _read_binary(
    file: _File, layout: _Layout, limit: int | None
) -> tuple[list[str], NDArray[np.float32]]:
    """Read rows of word2vec's binary format in one pass.

    gensim's reader is not used here: it drops a repeated word, ignores rows beyond the header and
    cannot say where a file is broken. gensim writes no line end after a row, the original tool
    does; both are read.
    """
    width = 4 * layout.dimension
    promised = layout.promised or 0
    rows = min(promised, limit or promised)
    words: list[str] = []
    values = bytearray()
    buffer, position = b"", 0
    while len(words) < rows:
        space = buffer.find(b" ", position)
        end = space + 1 + width
        if space < 0 or end > len(buffer):
            more = file.stream.read(max(_READ_BYTES, width))
            if not more:
                file.number = len(words) + 1
                file.refuse(
                    f"expected a word, a space and {layout.dimension} float32 values, found the "
                    f"end of the file, while the header says {promised:,} rows",
                    "The file is cut short, or it is text with a broken first row: fetch it "
                    "again, or correct that row.",
                )
            buffer, position = buffer[position:] + more, 0
            continue
        file.number = len(words) + 1
        words.append(_decode(file, buffer[position:space].lstrip(b"\n")))
        values += memoryview(buffer)[space + 1 : end]
        position = end
    read_all = limit is None or limit > promised
    if read_all and (buffer[position:].strip(b"\n") or file.stream.read(2).strip(b"\n")):
        file.refuse(
            f"the header says {promised:,} rows, and more data follow",
            "Correct the header, or fetch the file again; limit= reads only the first rows.",
        )
    vectors = np.frombuffer(values, dtype="<f4").reshape(len(words), layout.dimension)
    return words, vectors


# Counts


def check_counts(counts: Mapping[str, float]) -> None:
    """Refuse counts that are no finite numbers from 0 up."""
    for i, count in enumerate(counts.values()):
        try:
            good = 0.0 <= float(count) < np.inf
        except (TypeError, ValueError, OverflowError):
            good = False
        if not good:
            raise VocabularyError(
                f"Expected counts that are finite and not negative, found entry {i} of the "
                "mapping to be none. Correct it or leave it out."
            )


def read_counts(path: Path) -> dict[str, float]:
    """Read a file of lines "word count", packed with gzip or not. A word may contain spaces."""
    counts: dict[str, float] = {}
    with _File(path) as file:
        for line in file.lines():
            fields = line.rsplit(maxsplit=1)
            if (
                len(fields) != 2
                or not _is_number(fields[1])
                or not 0.0 <= float(fields[1]) < np.inf
            ):
                file.refuse(
                    "expected a word, a space and a count that is finite and not negative, found "
                    "something else",
                    "Correct the line, or leave it out.",
                )
            word = _decode(file, fields[0])
            if word in counts:
                file.refuse(
                    "the word has a count already, further up", "Keep one line for each word."
                )
            counts[word] = float(fields[1])
    if not counts:
        raise VocabularyError(
            f'{path}: expected lines "word count", found an empty file. Fetch it again.'
        )
    return counts
