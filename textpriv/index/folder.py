"""An index or a tree on disk: plain arrays that are mapped, words and a listing with checksums, written whole or not at all.

A folder may come from anywhere, so what is computed from is checked, and nothing is unpickled. Checksums show accidents.
Whoever makes a folder makes its checksums, too: take indexes from people whom you trust.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import IndexFolderError
from textpriv.files import flush, sha256_file, umask
from textpriv.index.axes import AXES, FREQUENCY, Axes
from textpriv.index.grid import Grid
from textpriv.language.ngrams import NGrams, read_model, write_model
from textpriv.vocabulary.function_words import FunctionWords
from textpriv.vocabulary.vocabulary import Vocabulary

if TYPE_CHECKING:
    from textpriv.index.index import Index

INDEX, TREE = "index", "tree"
META = "index.json"

FORMAT = 5
_WORDS, _FUNCTION = "words.json", "function.json"
_PRIOR, _MODEL = "prior.npy", "model.npz"
_SAMPLE = 32  # words whose lists are computed again

# Dimensions and types of the arrays of each kind of folder
_ARRAYS: dict[str, dict[str, tuple[int, tuple[str, ...]]]] = {
    INDEX: {
        "vectors.npy": (2, ("float32", "float64")),
        "points.npy": (2, ("int8", "int16")),
        "neighbours.npy": (2, ("int32",)),
        "steps.npy": (2, ("int32",)),
        _PRIOR: (1, ("float64",)),
        AXES: (2, ("float64",)),
        FREQUENCY: (1, ("float64",)),
    },
    TREE: {"order.npy": (1, ("int32",)), "gaps.npy": (1, ("uint8",)), _PRIOR: (1, ("float64",))},
}
_OPTIONAL = (_PRIOR, _MODEL, AXES, FREQUENCY)


class FolderContent(NamedTuple):
    """What a folder contains: its listing, and the arrays by file name, mapped."""

    path: Path
    meta: dict[str, Any]
    vocabulary: Vocabulary
    arrays: dict[str, NDArray[Any]]
    model: NGrams | None
    axes: Axes | None


def refuse(path: Path, what: str) -> NoReturn:
    """Raise the error of a damaged file."""
    raise IndexFolderError(f"{path} is damaged ({what}); build the index again.")


@contextmanager
def refusing_damage(path: Path) -> Iterator[None]:
    """Refuse a folder if its values, which may come from anywhere, raise any error where they are used."""
    try:
        yield
    except IndexFolderError:
        raise
    except Exception:
        refuse(path, "it cannot be read as an index")


def write(target: Path, index: Index, *, overwrite: bool) -> None:
    """Write an index beside its place and move it there whole."""
    is_index = (target / META).is_file()
    if target.exists() and not (overwrite and is_index):
        remedy = "Pass overwrite=True (--force) to replace it, or choose another name."
        remedy = remedy if is_index else "It is not an index folder. Choose another name."
        raise IndexFolderError(f"{target} exists already. {remedy}")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix=f".{target.name}.", dir=target.parent, ignore_cleanup_errors=True
    ) as temporary:
        staging, old = Path(temporary) / "new", Path(temporary) / "old"
        staging.mkdir()
        _fill(staging, index)
        os.chmod(staging, 0o777 & ~umask())
        if target.exists():
            os.replace(target, old)
        try:
            os.replace(staging, target)
        except BaseException:
            if old.exists():
                os.replace(old, target)
            raise


def _fill(folder: Path, index: Index) -> None:
    """Write the arrays, the words, and last the listing of all files."""
    arrays, meta = index.folder_content()
    if index.vocabulary.prior is not None:
        arrays[_PRIOR] = index.vocabulary.prior
    for name, array in arrays.items():
        with open(folder / name, "wb") as file:
            np.save(file, array, allow_pickle=False)
            flush(file)
    if index.model is not None:
        write_model(folder / _MODEL, index.model)
    _dump(folder / _WORDS, index.vocabulary.words)
    _dump(folder / _FUNCTION, index.vocabulary.function_words.words)
    listing = {
        "format": FORMAT,
        "fingerprint": index.fingerprint,
        "language": index.language,
        "function_words": index.vocabulary.function_words.source,
        **meta,
        "files": {each.name: {"sha256": sha256_file(each)} for each in sorted(folder.iterdir())},
    }
    _dump(folder / META, {**listing, "checksum": meta_checksum(listing)})


def _dump(file: Path, content: Any) -> None:
    with open(file, "w", encoding="utf-8") as out:
        json.dump(content, out, ensure_ascii=False, indent=1 if file.name == META else None)
        flush(out)


def meta_checksum(meta: Mapping[str, Any]) -> str:
    """SHA-256 of the listing without its own checksum."""
    content = {key: value for key, value in meta.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def read(path: Path, *, verify: bool) -> FolderContent:
    """Map the arrays of a folder; on request the checksum of every file is compared."""
    if not (path / META).exists():
        there = "is not an index folder" if path.exists() else "does not exist"
        raise IndexFolderError(f"{path} {there}. Make one with: textpriv index SOURCE OUT")
    meta = _json(path / META)
    if meta["format"] != FORMAT:
        refuse(path / META, "it is not of this version's format")
    if meta["checksum"] != meta_checksum(meta):
        refuse(path / META, "it was altered after it was written")
    forms, files = _ARRAYS[meta["kind"]], meta["files"]
    for name in (_WORDS, _FUNCTION, *forms, _MODEL):
        file = path / name
        if name in _OPTIONAL and not (name in files or file.exists()):
            continue
        if name not in files:
            refuse(path / META, f"it does not list {name!r}")
        if not file.is_file():
            refuse(file, "it is missing or no file")
        if verify and sha256_file(file) != files[name]["sha256"]:
            refuse(file, "it was altered after it was written")
    words = _json(path / _WORDS)
    arrays = {
        name: _mapped(path / name, len(words), *form)
        for name, form in forms.items()
        if name in files
    }
    vectors = arrays.get("vectors.npy", np.zeros((len(words), 1)))
    listed = FunctionWords(tuple(_json(path / _FUNCTION)), meta["function_words"])
    vocabulary = Vocabulary(words, vectors, arrays.get(_PRIOR), meta["language"], listed)
    if vocabulary.function_words != listed:
        refuse(path / _FUNCTION, "it has function words that are no words of the index")
    model = read_model(path / _MODEL, len(words)) if _MODEL in files else None
    axes = None
    if meta.get("axes") is not None:
        known = {**meta["axes"], "labels": tuple(meta["axes"]["labels"])}
        axes = Axes(values=arrays[AXES], frequency=arrays[FREQUENCY], **known)
    return FolderContent(path.resolve(), meta, vocabulary, arrays, model, axes)


def _json(file: Path) -> Any:
    if not file.is_file():
        refuse(file, "it is no file")
    return json.loads(file.read_bytes())


def _mapped(file: Path, size: int, dimensions: int, types: tuple[str, ...]) -> NDArray[Any]:
    array = np.lib.format.open_memmap(file, mode="r")
    if array.ndim != dimensions or len(array) != size or not array.size:
        refuse(file, f"its shape {array.shape} is another one than was written")
    if str(array.dtype) not in types or not array.flags.c_contiguous:
        refuse(file, f"it has no rows of {' or '.join(types)}")
    # The bare array avoids the memmap subclass, whose every slice costs microseconds.
    return np.asarray(array)


def check_lists(path: Path, grid: Grid, ids: NDArray[np.int32], steps: NDArray[np.int32]) -> None:
    """Check order and ranges of lists, and compute those of some words again; the sample is always the same."""
    size = len(ids)
    if ids.min() < 0 or ids.max() >= size or not np.array_equal(ids[:, 0], np.arange(size)):
        refuse(path / "neighbours.npy", "a list does not begin with its word, or has no word")
    if not (np.diff(np.sort(ids, axis=1), axis=1) > 0).all():
        refuse(path / "neighbours.npy", "a list has a word twice")
    if steps.shape != ids.shape or steps[:, 0].any() or not (np.diff(steps, axis=1) >= 0).all():
        refuse(path / "steps.npy", "a list does not rise from 0")
    if not grid.is_exact():
        refuse(path / "points.npy", "a point is longer than any on a grid")
    rows = np.unique(np.linspace(0, size - 1, min(size, _SAMPLE)).astype(np.int64))
    for row in rows:
        found = grid.steps(np.array([row]))[0]
        if not np.array_equal(found[ids[row]], steps[row]):
            refuse(path, f"the listed distances of word {row} are not those of the points")
        if (found < steps[row, -1]).sum() != (steps[row] < steps[row, -1]).sum():
            refuse(path, f"a word that is nearer than the list of word {row} is missing in it")
