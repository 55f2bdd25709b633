"""An index or a tree on disk: plain arrays that are mapped, words and a listing with checksums, written whole or not at all.

A folder may come from anywhere, so every value is checked before anything is computed from it, and nothing is unpickled.
Checksums show accidents. Whoever makes a folder makes its checksums, too: take indexes from people whom you trust.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import IndexFolderError, TextprivError, VocabularyError
from textpriv.files import flush, sha256_file, umask
from textpriv.index.axes import AXES, FREQUENCY, Axes
from textpriv.index.grid import Grid
from textpriv.index.spaces import SPACES
from textpriv.language.ngrams import NGrams, read_model, write_model
from textpriv.vocabulary.function_words import FunctionWords
from textpriv.vocabulary.vocabulary import Vocabulary

if TYPE_CHECKING:
    from textpriv.index.index import Index

INDEX, TREE = "index", "tree"
META = "index.json"

_FORMAT = 4
_WORDS, _FUNCTION = "words.json", "function.json"
_PRIOR, _MODEL = "prior.npy", "model.npz"
_SAMPLE = 32  # words whose lists are computed again


class FolderContent(NamedTuple):
    """What a folder contains: its kind, listing, arrays by file name, mapped, language model and axes."""

    path: Path
    kind: str
    meta: dict[str, Any]
    vocabulary: Vocabulary
    arrays: dict[str, NDArray[Any]]
    model: NGrams | None
    axes: Axes | None


def refuse(path: Path, what: str) -> NoReturn:
    """Raise the error of a damaged file."""
    raise IndexFolderError(f"{path} is damaged ({what}); build the index again.")


# Writing


def write(
    target: Path,
    index: Index,
    arrays: Mapping[str, NDArray[Any]],
    meta: Mapping[str, Any],
    *,
    overwrite: bool,
) -> None:
    """Write an index beside its place and move it there whole."""
    if target.exists() and not (overwrite and (target / META).is_file()):
        remedy = (
            "Pass overwrite=True (--force) to replace it, or choose another name."
            if (target / META).is_file()
            else "It is not an index folder. Choose another name."
        )
        raise IndexFolderError(f"{target} exists already. {remedy}")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix=f".{target.name}.", dir=target.parent, ignore_cleanup_errors=True
    ) as temporary:
        staging, old = Path(temporary) / "new", Path(temporary) / "old"
        staging.mkdir()
        _fill(staging, index, arrays, meta)
        os.chmod(staging, 0o777 & ~umask())
        if target.exists():
            os.replace(target, old)
        try:
            os.replace(staging, target)
        except BaseException:
            if old.exists():
                os.replace(old, target)
            raise


def _fill(
    folder: Path, index: Index, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]
) -> None:
    """Write the arrays, the words, and last the listing of all files."""
    prior = index.vocabulary.prior
    for name, array in {**arrays, **({} if prior is None else {_PRIOR: prior})}.items():
        with open(folder / name, "wb") as file:
            np.save(file, array, allow_pickle=False)
            flush(file)
    if index.model is not None:
        write_model(folder / _MODEL, index.model)
    _dump(folder / _WORDS, index.vocabulary.words)
    _dump(folder / _FUNCTION, index.vocabulary.function_words.words)
    listing = {
        "format": _FORMAT,
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


# Reading


def read(path: Path, *, verify: bool) -> FolderContent:
    """Map the arrays of a folder; every value is checked, and on request the checksum of every file."""
    meta = _read_meta(path)
    for name, recorded in meta["files"].items():
        if not (path / name).is_file():
            refuse(path / name, "it is missing or no file")
        if verify and sha256_file(path / name) != recorded["sha256"]:
            refuse(path / name, "it was altered after it was written")
    words, tables = _json(path / _WORDS), _TABLES[meta["kind"]]
    arrays = {
        name: _mapped(path / name, len(words), *form)
        for name, form in tables.items()
        if name in meta["files"]
    }
    vectors = arrays.get("vectors.npy", np.zeros((len(words), 1)))
    listed = FunctionWords(tuple(_json(path / _FUNCTION)), meta["function_words"])
    try:
        vocabulary = Vocabulary(words, vectors, arrays.get(_PRIOR), meta["language"], listed)
    except VocabularyError:
        refuse(path, "its words, vectors or weights are no vocabulary")
    if vocabulary.function_words != listed:
        refuse(path / _FUNCTION, "it has function words that are no words of the index")
    if meta["kind"] == INDEX:
        _check_lists(path, arrays["neighbours.npy"], arrays["steps.npy"])
    model = None
    if _MODEL in meta["files"]:
        model = read_model(path / _MODEL, len(words))
        if model is None:
            refuse(path / _MODEL, "it is no language model of these words")
    axes = _axes(path, meta, arrays)
    return FolderContent(path.resolve(), meta["kind"], meta, vocabulary, arrays, model, axes)


def _axes(path: Path, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Axes | None:
    if meta.get("axes") is None:
        return None
    try:
        listed = {**meta["axes"], "labels": tuple(meta["axes"]["labels"])}
        return Axes(values=arrays[AXES], frequency=arrays[FREQUENCY], **listed)
    except (KeyError, TypeError, TextprivError):
        refuse(path / AXES, "it has no axes of these words")


def _read_meta(path: Path) -> dict[str, Any]:
    file = path / META
    if not file.exists():
        there = "is not an index folder" if path.exists() else "does not exist"
        raise IndexFolderError(f"{path} {there}. Make one with: textpriv index SOURCE OUT")
    meta = _json(file)
    if not isinstance(meta, dict) or meta.get("format") != _FORMAT:
        refuse(file, "it is not of this version's format")
    if meta.get("checksum") != meta_checksum(meta):
        refuse(file, "it was altered after it was written")
    if meta.get("kind") not in (INDEX, TREE):
        refuse(file, "it names no kind of index")
    meta = {"language": None, **meta}
    for name, is_sound in {**_FIELDS["both"], **_FIELDS[meta["kind"]]}.items():
        if not is_sound(meta.get(name)):
            refuse(file, f"{name!r} has a value that none has")
    for name in (_WORDS, _FUNCTION, *_TABLES[meta["kind"]], _MODEL):
        optional = _PRIOR, _MODEL, AXES, FREQUENCY
        needed = name not in optional or (path / name).exists()
        if needed and name not in meta["files"]:
            refuse(file, f"it does not list {name!r}")
    return meta


def _json(file: Path) -> Any:
    if not file.is_file():
        refuse(file, "it is no file")
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        refuse(file, "it cannot be read")
    if not isinstance(found, dict if file.name == META else list):
        refuse(file, "it has no list in it")
    return found


def _mapped(file: Path, size: int, dimensions: int, types: tuple[str, ...]) -> NDArray[Any]:
    # A damaged header is parsed as Python's literals are, which may raise anything.
    try:
        array = np.lib.format.open_memmap(file, mode="r")
    except Exception:
        refuse(file, "it is no array")
    if array.ndim != dimensions or len(array) != size or not array.size:
        refuse(file, f"its shape {array.shape} is another one than was written")
    if array.dtype not in map(np.dtype, types) or not array.flags.c_contiguous:
        refuse(file, f"it has no rows of {' or '.join(types)}")
    # The bare array avoids the memmap subclass, whose every slice costs microseconds.
    return np.asarray(array)


def _check_lists(path: Path, ids: NDArray[np.int32], steps: NDArray[np.int32]) -> None:
    size = len(ids)
    if ids.min() < 0 or ids.max() >= size or not np.array_equal(ids[:, 0], np.arange(size)):
        refuse(path / "neighbours.npy", "a list does not begin with its word, or has no word")
    if not (np.diff(np.sort(ids, axis=1), axis=1) > 0).all():
        refuse(path / "neighbours.npy", "a list has a word twice")
    if steps.shape != ids.shape or steps[:, 0].any() or not (np.diff(steps, axis=1) >= 0).all():
        refuse(path / "steps.npy", "a list does not rise from 0")


def check_sample(path: Path, grid: Grid, ids: NDArray[np.int32], steps: NDArray[np.int32]) -> None:
    """Compute the lists of some words again; the sample is public and always the same."""
    size = len(ids)
    if not grid.is_exact():
        refuse(path / "points.npy", "a point is longer than any on a grid")
    rows = np.unique(np.linspace(0, size - 1, min(size, _SAMPLE)).astype(np.int64))
    for row in rows:
        found = grid.steps(np.array([row]))[0]
        if not np.array_equal(found[ids[row]], steps[row]):
            refuse(path, f"the listed distances of word {row} are not those of the points")
        if (found < steps[row, -1]).sum() != (steps[row] < steps[row, -1]).sum():
            refuse(path, f"a word that is nearer than the list of word {row} is missing in it")


# Files and fields of a folder: dimensions and types of arrays, and what is true of a value

_TABLES: dict[str, dict[str, tuple[int, tuple[str, ...]]]] = {
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


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None


def _are_floats(value: Any) -> bool:
    return isinstance(value, list) and all(
        type(each) is float and 0 <= each < math.inf for each in value
    )


def _are_files(value: Any) -> bool:
    # A name is never a way out of the folder.
    return isinstance(value, dict) and all(
        re.fullmatch(r"[a-z]+\.(npy|npz|json|bin)", name)
        and isinstance(entry, dict)
        and _is_digest(entry.get("sha256"))
        for name, entry in value.items()
    )


_FIELDS: dict[str, dict[str, Callable[[Any], bool]]] = {
    "both": {
        "fingerprint": _is_digest,
        "files": _are_files,
        "function_words": lambda value: isinstance(value, str),
    },
    INDEX: {
        "space": lambda value: value in SPACES,
        "unit": lambda value: _are_floats([value]) and value > 0,
        "moved": lambda value: _are_floats(value) and len(value) == 4,
    },
    TREE: {
        "heights": _are_floats,
        "names": lambda value: isinstance(value, list) and all(type(each) is str for each in value),
        "source": lambda value: isinstance(value, str),
        "looked_at": lambda value: type(value) is int and value >= 0,
        "outside": lambda value: _are_floats(value) and max(value, default=0) <= 1,
    },
}
