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
import shutil
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import IndexFolderError
from textpriv.files import flush, sha256_file, umask
from textpriv.index.grid import SPACES, Grid
from textpriv.vocabulary.vocabulary import is_language

if TYPE_CHECKING:
    from textpriv.index.index import Index

__all__ = [
    "FORMAT",
    "GRAPH",
    "INDEX",
    "LEVELS",
    "META",
    "RECORDS",
    "TREE",
    "Found",
    "check_sample",
    "copy_graph",
    "meta_checksum",
    "read",
    "refuse",
    "verify_graph",
    "write",
    "write_tables",
]

FORMAT = 3
INDEX, TREE = "index", "tree"
META, GRAPH, WORDS, PRIOR = "index.json", "hnsw.bin", "words.json", "prior.npy"
RECORDS = "records"  # folder of certificates
LEVELS = 64  # heights that a tree may have

_SAMPLE = 32  # words whose lists are computed again
_MOST = 2**31 - 1  # words have int32 ids
_FLOATS = (np.float32, np.float64)


@dataclass(frozen=True)
class Found:
    """What a folder holds.

    Attributes
    ----------
    path : Path
    kind : str
        "index" or "tree".
    meta : dict
        The listing.
    words : list of str
    arrays : dict of str to ndarray
        Mapped, by file name.
    """

    path: Path
    kind: str
    meta: dict[str, Any]
    words: list[str]
    arrays: dict[str, NDArray[Any]]


def refuse(path: Path, what: str) -> NoReturn:
    """Raise the error of a damaged file."""
    raise IndexFolderError(f"{path} is damaged ({what}); build the index again.")


# Writing


def write(target: Path, fill: Callable[[Path], None], *, overwrite: bool) -> None:
    """Make a folder beside its place with ``fill`` and move it there whole.

    Raises
    ------
    IndexFolderError
        If something is there that must not be replaced.
    """
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
        fill(staging)
        os.chmod(staging, 0o777 & ~umask())
        if target.exists():
            os.replace(target, old)
        try:
            os.replace(staging, target)
        except BaseException:
            if old.exists():
                os.replace(old, target)
            raise


def write_tables(
    target: Path, index: Index, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]
) -> None:
    """Write arrays, the words and prior, and last the listing of all files."""
    prior, language = index.vocabulary.prior, index.language
    for name, array in {**arrays, **({} if prior is None else {PRIOR: prior})}.items():
        with open(target / name, "wb") as file:
            np.save(file, array, allow_pickle=False)
            flush(file)
    with open(target / WORDS, "w", encoding="utf-8") as text:
        json.dump(index.vocabulary.words, text, ensure_ascii=False)
        flush(text)
    files = {
        file.name: {"bytes": file.stat().st_size, "sha256": sha256_file(file)}
        for file in sorted(target.iterdir())
    }
    listing: dict[str, Any] = {
        "format": FORMAT,
        "words": len(index),
        "fingerprint": index.fingerprint,
        **({} if language is None else {"language": language}),
        **meta,
        "files": files,
    }
    listing["checksum"] = meta_checksum(listing)
    with open(target / META, "w", encoding="utf-8") as text:
        json.dump(listing, text, indent=1)
        flush(text)
    index._records.copy_to(target / RECORDS)


def copy_graph(source: Path, target: Path) -> None:
    """Copy the graph of a folder, once its checksum is compared."""
    verify_graph(source)
    shutil.copyfile(source / GRAPH, target / GRAPH)


def meta_checksum(meta: Mapping[str, Any]) -> str:
    """SHA-256 of the listing without its own checksum."""
    content = {key: value for key, value in meta.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


# Reading


def read(path: Path, *, verify: bool) -> Found:
    """Map the arrays of a folder; every file and every value is checked.

    Parameters
    ----------
    path : Path
    verify : bool
        Compare the checksums of all files but the graph, too.

    Raises
    ------
    IndexFolderError
        Naming the file.
    """
    meta = _read_meta(path)
    kind = meta["kind"]
    _verify(path, meta, [name for name in meta["files"] if name != GRAPH] if verify else [])
    words = _words(path / WORDS, meta["words"])
    arrays = {
        name: _mapped(path / name, [meta.get(each, each) for each in shape], types)
        for name, (shape, types) in _ARRAYS[kind].items()
        if name in meta["files"]
    }
    (_check_tree if kind == TREE else _check_index)(path, meta, arrays)
    if PRIOR in arrays and not (np.isfinite(arrays[PRIOR]) & (arrays[PRIOR] > 0)).all():
        refuse(path / PRIOR, "a weight is not a finite number above 0")
    return Found(path, kind, meta, words, arrays)


def verify_graph(path: Path) -> None:
    """Compare the size and the checksum of a folder's graph with the listing."""
    meta = _read_meta(path)
    if GRAPH not in meta["files"]:
        refuse(path / META, f"it does not list {GRAPH!r}")
    _verify(path, meta, [GRAPH])


def check_sample(path: Path, grid: Grid, ids: NDArray[np.int32], steps: NDArray[np.int32]) -> None:
    """Compute the lists of some words again; the sample is public and always the same."""
    size = len(ids)
    if not grid.is_exact():
        refuse(path / "points.npy", "a point is longer than any on a grid")
    for row in np.unique(np.linspace(0, size - 1, min(size, _SAMPLE)).astype(np.int64)).tolist():
        found = grid.steps(np.array([row]))[0]
        if not np.array_equal(found[ids[row]], steps[row]):
            refuse(path, f"the listed distances of word {row} are not those of the points")
        if (found < steps[row, -1]).sum() != (steps[row] < steps[row, -1]).sum():
            refuse(path, f"a word that is nearer than the list of word {row} is missing in it")


def _read_meta(path: Path) -> dict[str, Any]:
    file = path / META
    if not file.exists():
        there = "is not an index folder" if path.exists() else "does not exist"
        raise IndexFolderError(f"{path} {there}. Make one with: textpriv index SOURCE OUT")
    meta = _json(file)
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        refuse(file, "it is not of this version's format")
    if meta.get("checksum") != meta_checksum(meta):
        refuse(file, "it was altered after it was written")
    if meta.get("kind") not in (INDEX, TREE):
        refuse(file, "it names no kind of index")
    for name, is_sound in {**_FIELDS["both"], **_FIELDS[meta["kind"]]}.items():
        if not is_sound(meta.get(name)):
            refuse(file, f"{name!r} has a value that none has")
    for name in (WORDS, *_ARRAYS[meta["kind"]]):
        if name not in meta["files"] and name != PRIOR:
            refuse(file, f"it does not list {name!r}")
    return dict(meta)


def _json(file: Path) -> Any:
    if not file.is_file():
        refuse(file, "it is no file")
    try:
        return json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        refuse(file, "it cannot be read")


def _verify(path: Path, meta: Mapping[str, Any], names: list[str]) -> None:
    """Compare the sizes of all files, and the checksums of some, with the listing."""
    for name, recorded in meta["files"].items():
        file = path / name
        if not file.is_file():
            refuse(file, "it is missing" if not file.exists() else "it is no file")
        if file.stat().st_size != recorded["bytes"]:
            refuse(file, "it has another size than was written")
    with ThreadPoolExecutor() as pool:
        found = pool.map(lambda name: sha256_file(path / name), names)
        for name, digest in zip(names, found, strict=True):
            if digest != meta["files"][name]["sha256"]:
                refuse(path / name, "it was altered after it was written")


def _words(file: Path, size: int) -> list[str]:
    words = _json(file)
    if not isinstance(words, list) or len(words) != size:
        refuse(file, f"it does not hold {size} words")
    if not all(type(word) is str and word for word in words) or len(set(words)) != size:
        refuse(file, "a word is empty, no text or there twice")
    try:
        "".join(words).encode()
    except UnicodeEncodeError:
        refuse(file, "a word cannot be written as UTF-8")
    return words


def _mapped(file: Path, shape: list[Any], types: tuple[type, ...]) -> NDArray[Any]:
    try:
        array = np.lib.format.open_memmap(file, mode="r")
    except (
        Exception
    ):  # a damaged header is parsed as Python's literals are, which may raise anything
        refuse(file, "it is no array")
    fits = len(array.shape) == len(shape) and all(
        have == want or (want is None and have > 0)
        for have, want in zip(array.shape, shape, strict=True)
    )
    if not fits:
        refuse(file, f"its shape {array.shape} is another one than was written")
    if array.dtype not in map(np.dtype, types) or not array.flags.c_contiguous:
        refuse(file, f"it has no rows of {' or '.join(each.__name__ for each in types)}")
    # The bare array avoids the memmap subclass, whose every slice costs microseconds.
    return np.asarray(array)


# Values

_ARRAYS: dict[str, dict[str, tuple[tuple[Any, ...], tuple[type, ...]]]] = {
    INDEX: {
        "vectors.npy": (("words", "dimension"), _FLOATS),
        "points.npy": (("words", None), (np.int8, np.int16)),
        "neighbours.npy": (("words", "k"), (np.int32,)),
        "steps.npy": (("words", "k"), (np.int32,)),
        PRIOR: (("words",), (np.float64,)),
    },
    TREE: {
        "order.npy": (("words",), (np.int32,)),
        "gaps.npy": (("words",), (np.uint8,)),
        PRIOR: (("words",), (np.float64,)),
    },
}


def _whole(low: int, high: int = _MOST) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and low <= value <= high


def _is_number(value: Any) -> bool:
    try:
        return type(value) in (int, float) and value >= 0 and math.isfinite(value)
    except OverflowError:  # a whole number beyond every float
        return False


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None


def _are_files(value: Any) -> bool:
    # A name is never a way out of the folder.
    return isinstance(value, dict) and all(
        re.fullmatch(r"[a-z]+\.(npy|json|bin)", name)
        and isinstance(entry, dict)
        and _whole(0, 2**62)(entry.get("bytes"))
        and _is_digest(entry.get("sha256"))
        for name, entry in value.items()
    )


def _are_heights(value: Any) -> bool:
    if not isinstance(value, list) or len(value) > LEVELS or not all(map(_is_number, value)):
        return False
    return all(high > low for low, high in zip([0.0, *value], value, strict=False))


def _is_apart(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and _whole(0)(value.get("looked_at"))
        and isinstance(value.get("shares"), list)
        and all(_is_number(share) and share <= 1 for share in value["shares"])
    )


_FIELDS: dict[str, dict[str, Callable[[Any], bool]]] = {
    "both": {
        "words": _whole(1),
        "fingerprint": _is_digest,
        "language": lambda value: value is None or is_language(value),
        "files": _are_files,
    },
    INDEX: {
        "dimension": _whole(1),
        "k": _whole(1),
        "space": lambda value: value in SPACES,
        "projection": lambda value: value is None or _whole(1)(value),
        "unit": lambda value: type(value) is float and _is_number(value) and value > 0,
        "moved": lambda value: (
            isinstance(value, list) and len(value) == 4 and all(map(_is_number, value))
        ),
    },
    TREE: {
        "heights": _are_heights,
        "names": lambda value: (
            isinstance(value, list)
            and all(type(name) is str and name for name in value)
            and len(set(value)) == len(value)
        ),
        "separated": _is_apart,
        "source": lambda value: isinstance(value, str),
    },
}


def _check_index(path: Path, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    ids, steps = arrays["neighbours.npy"], arrays["steps.npy"]
    size = len(ids)
    if ids.min() < 0 or ids.max() >= size or not np.array_equal(ids[:, 0], np.arange(size)):
        refuse(path / "neighbours.npy", "a list does not begin with its word, or has no word")
    if not (np.diff(np.sort(ids, axis=1), axis=1) > 0).all():
        refuse(path / "neighbours.npy", "a list has a word twice")
    if steps[:, 0].any() or not (np.diff(steps, axis=1) >= 0).all():
        refuse(path / "steps.npy", "a list does not rise from 0")
    if not np.isfinite(arrays["vectors.npy"]).all():
        refuse(path / "vectors.npy", "a value is not finite")


def _check_tree(path: Path, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    order, gaps, levels = arrays["order.npy"], arrays["gaps.npy"], len(meta["heights"])
    if not np.array_equal(np.sort(order), np.arange(len(order))):
        refuse(path / "order.npy", "it is no order of all words")
    if gaps.max() != levels or gaps[-1]:
        refuse(path / "gaps.npy", "its largest height is not the last of those listed")
    shares = meta["separated"]["shares"]
    if len(meta["names"]) not in (0, levels) or len(shares) not in (0, levels):
        refuse(path / META, "it has not a name or a share for every height")
