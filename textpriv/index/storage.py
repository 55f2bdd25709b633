"""Reading the files of an index folder, which may come from anywhere: each is checked before anything is computed from it.

What lives here: the listing with its checksums, JSON, mapped arrays, and the checks of types and shapes. What does not: the
checks of the values (``checking``; of the search graph, ``hnsw``), and what an index is (``index``). A checksum tells of an
accident; whoever makes a folder makes its checksums, too.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import IndexFolderError, TextprivError
from textpriv.index.quantized import QuantizedRows
from textpriv.index.rank_bands import RankBands
from textpriv.index.typical import REFERENCE, Typical
from textpriv.metrics import Mahalanobis, Metric, Rounding, get_metric
from textpriv.vocabulary.vocabulary import is_language

__all__ = [
    "BANDS_FILE",
    "FORMAT",
    "GRAPH_FILE",
    "LEVELS",
    "META",
    "QUANTIZED_FILE",
    "TREE",
    "TREE_FORMAT",
    "Tables",
    "TreeTables",
    "checksum",
    "meta_checksum",
    "read_json",
    "read_meta",
    "read_tables",
    "read_tree",
    "refuse",
    "stored_metric",
    "stored_rounding",
    "stored_typical",
    "verify_files",
]

FORMAT = 1  # of the folder; raised when an older reader would misread a newer folder
TREE_FORMAT = 2  # of a tree's folder, which a reader of format 1 would take for a damaged index
TREE = "tree"  # what the listing of such a folder has as its kind
META = "index.json"
QUANTIZED_FILE = "sketch.npy"
BANDS_FILE = "bands.npy"
GRAPH_FILE = "hnsw.bin"

_LEAF = 1 << 23  # bytes hashed at a time, so that a large file is hashed on all processors
_PIECE = 1 << 18  # bytes read at a time, which stay in a processor's own cache
_NEEDED = ("words.json", "vectors.npy", "neighbours.npy", "distances.npy", "representatives.npy")
_NEEDED_OF_TREE = ("words.json", "order.npy", "gaps.npy")
_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
_MOST = 2**31 - 1  # words have int32 ids
LEVELS = 64  # different heights that a tree may have


@dataclass(frozen=True)
class Tables:
    """The arrays of a folder, mapped, as :class:`textpriv.index.Index` describes them.

    Attributes
    ----------
    words : list of str
    vectors : ndarray, shape (V, n)
    prior : ndarray of float64, shape (V,), or None
    ids : ndarray of int32, shape (V, k)
    distances : ndarray, shape (V, k)
    coordinates : ndarray, shape (V, n')
    representatives : ndarray of int32, shape (V,)
    quantized : QuantizedRows
    bands : RankBands or None
    """

    words: list[str]
    vectors: NDArray[Any]
    prior: NDArray[np.float64] | None
    ids: NDArray[np.int32]
    distances: NDArray[Any]
    coordinates: NDArray[Any]
    representatives: NDArray[np.int32]
    quantized: QuantizedRows
    bands: RankBands | None


@dataclass(frozen=True)
class TreeTables:
    """The arrays of a tree's folder, mapped, as :class:`textpriv.index.tree.Tree` describes them.

    Attributes
    ----------
    words : list of str
    prior : ndarray of float64, shape (V,), or None
    order : ndarray of int32, shape (V,)
    gaps : ndarray of uint8, shape (V,)
    """

    words: list[str]
    prior: NDArray[np.float64] | None
    order: NDArray[np.int32]
    gaps: NDArray[np.uint8]


def refuse(path: Path, what: str) -> NoReturn:
    """Raise the error of a damaged file."""
    raise IndexFolderError(f"{path} is damaged ({what}); build the index again.")


# Files


def checksum(path: Path) -> str:
    """SHA-256 over the SHA-256 of each 8 MiB: one number a file, computed on all processors."""
    size = path.stat().st_size

    def leaf(start: int) -> bytes:
        digest, left = hashlib.sha256(), _LEAF
        piece = memoryview(bytearray(_PIECE))
        with open(path, "rb", buffering=0) as file:
            file.seek(start)
            while left and (read := file.readinto(piece[:left])):
                digest.update(piece[:read])
                left -= read
        return digest.digest()

    with ThreadPoolExecutor() as pool:
        return hashlib.sha256(b"".join(pool.map(leaf, range(0, size, _LEAF)))).hexdigest()


def meta_checksum(meta: dict[str, Any]) -> str:
    """SHA-256 of the listing without its own checksum."""
    content = {key: value for key, value in meta.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def read_json(path: Path) -> Any:
    """Return what a JSON file holds.

    Raises
    ------
    IndexFolderError
        If it is no file, cannot be read, or is no JSON, or JSON nested deeper than Python reads.
    """
    if path.exists() and not path.is_file():
        refuse(path, "it is no file")
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            raise
        raise IndexFolderError(
            f"{path} is damaged or unreadable; build the index again."
        ) from error


def read_meta(folder: Path) -> dict[str, Any]:
    """Return the listing of a folder, every entry of it checked.

    Raises
    ------
    IndexFolderError
    """
    path = folder / META
    try:
        meta = read_json(path)
    except FileNotFoundError:
        there = (
            "is not an index folder (it has no index.json)" if folder.exists() else "does not exist"
        )
        raise IndexFolderError(
            f"{folder} {there}. Make one with: textpriv index SOURCE {folder}"
        ) from None
    except NotADirectoryError:
        raise IndexFolderError(
            f"{folder} is a file, not an index folder. Make one with: textpriv index SOURCE OUT"
        ) from None
    version = meta.get("format") if isinstance(meta, dict) else None
    if type(version) is not int or version < 1:
        refuse(path, "it names no format")
    newest = TREE_FORMAT if meta.get("kind") == TREE else FORMAT
    if version > newest:
        raise IndexFolderError(
            f"{path} has format {version}, and this version reads up to {newest}. Upgrade textpriv, or "
            "build the index again."
        )
    if meta.get("checksum") != meta_checksum(meta):
        raise IndexFolderError(f"{path} was altered after it was written; build the index again.")
    if meta.get("kind") == TREE:
        _check_tree_meta(path, meta)
    else:
        _check_meta(path, meta)
    return dict(meta)


def _check_meta(path: Path, meta: Mapping[str, Any]) -> None:
    _check_listing(path, meta, _NEEDED, ("words", "dimension", "k"))
    if meta["k"] > meta["words"]:
        refuse(path, "lists are longer than the vocabulary")
    for name in ("tau", "diameter_bound"):
        if not _number(meta.get(name), 0.0):
            refuse(path, f"{name!r} must be a finite number from 0 up")
    if meta.get("backend") not in ("exact", "hnsw") or not _number(meta.get("recall"), 0.0, 1.0):
        refuse(path, "'backend' and 'recall' do not say how the lists were found")
    if meta["backend"] == "exact" and meta["recall"] != 1:
        refuse(path, "exact lists have recall 1")
    metric = meta.get("metric")
    if not isinstance(metric, dict) or not isinstance(metric.get("name"), str):
        refuse(path, "it names no metric")


def _check_tree_meta(path: Path, meta: Mapping[str, Any]) -> None:
    _check_listing(path, meta, _NEEDED_OF_TREE, ("words",))
    heights, names, apart = (meta.get(name) for name in ("heights", "names", "separated"))
    if (
        not isinstance(heights, list)
        or len(heights) > LEVELS
        or not all(_number(height, 0.0) for height in heights)
        or any(high <= low for low, high in zip([0.0, *heights], heights, strict=False))
    ):
        refuse(path, f"'heights' must be at most {LEVELS} rising numbers above 0")
    if (
        not isinstance(names, list)
        or len(names) not in (0, len(heights))
        or not all(type(name) is str and name for name in names)
        or len(set(names)) != len(names)
    ):
        refuse(path, "'names' must name every height, each differently, or be empty")
    if (
        not isinstance(apart, dict)
        or not _whole(apart.get("looked_at"), 0, _MOST)
        or not isinstance(apart.get("shares"), list)
        or len(apart["shares"]) != (len(heights) if apart["looked_at"] else 0)
        or not all(_number(share, 0.0, 1.0) for share in apart["shares"])
    ):
        refuse(path, "'separated' must have a share for every height")
    for name in ("source", "below"):
        if meta.get(name) is not None and not isinstance(meta[name], str):
            refuse(path, f"{name!r} must be a word")


def _check_listing(
    path: Path, meta: Mapping[str, Any], needed: Iterable[str], counts: Iterable[str]
) -> None:
    for name in counts:
        if not _whole(meta.get(name), 1, _MOST):
            refuse(path, f"{name!r} must be a whole number from 1 up")
    if not _is_digest(meta.get("fingerprint")):
        refuse(path, "'fingerprint' must be 64 hexadecimal digits")
    if "language" in meta and not is_language(meta["language"]):
        refuse(path, "'language' must be a code such as \"de\"")
    files = meta.get("files")
    if not isinstance(files, dict):
        refuse(path, "it lists no files")
    for name, entry in files.items():
        # A name is never a way out of the folder.
        plain = name == os.path.basename(name) and name not in ("", ".", "..") and "\0" not in name
        if not plain or not isinstance(entry, dict):
            refuse(path, "its list of files is none")
        if not _whole(entry.get("bytes"), 0, 2**62) or not _is_digest(entry.get("sha256")):
            refuse(path, f"it has no size or checksum of {name!r}")
    for name in needed:
        if name not in files:
            refuse(path, f"it does not list {name!r}")


def _whole(value: Any, low: int, high: int) -> bool:
    return type(value) is int and low <= value <= high


def _number(value: Any, low: float, high: float = math.inf) -> bool:
    if type(value) not in (int, float) or not low <= value <= high:
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond every float
        return False


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 64 and set(value) <= set("0123456789abcdef")


def verify_files(
    folder: Path, meta: Mapping[str, Any], names: Iterable[str], *, content: bool = True
) -> None:
    """Compare the sizes of files, and with ``content`` their checksums, with the listing.

    Raises
    ------
    IndexFolderError
        Naming the first that is missing, truncated or altered.
    """
    names = list(names)
    for name in names:
        recorded, file = meta["files"][name], folder / name
        if not file.is_file():
            missing = "is no file" if file.exists() else "is missing"
            raise IndexFolderError(f"{file} {missing}; build the index again.")
        actual = file.stat().st_size
        if actual != recorded["bytes"]:
            raise IndexFolderError(
                f"{file} has {actual} bytes where {recorded['bytes']} were written: it is truncated or altered. "
                "Build the index again."
            )
    if content:
        for name in names:
            if checksum(folder / name) != meta["files"][name]["sha256"]:
                raise IndexFolderError(
                    f"{folder / name} was altered after it was written (its checksum differs). Build the index again."
                )


# Tables


def read_tables(folder: Path, meta: Mapping[str, Any]) -> Tables:
    """Map the arrays of a folder; types and shapes are checked, and of what they hold the words, scales and bands.

    Raises
    ------
    IndexFolderError
        Naming the file.
    """
    size, dimension, k = meta["words"], meta["dimension"], meta["k"]
    files = meta["files"]
    vectors = _mapped(folder, "vectors.npy", (size, dimension), *_FLOATS)
    coordinates = vectors
    if "coordinates.npy" in files:
        coordinates = _mapped(folder, "coordinates.npy", (size, None), *_FLOATS)
        if not coordinates.shape[1]:
            refuse(folder / "coordinates.npy", "it has no columns")
    prior = None
    if "prior.npy" in files:
        prior = _mapped(folder, "prior.npy", (size,), np.dtype(np.float64))
    return Tables(
        _words(folder / "words.json", size),
        vectors,
        prior,
        _mapped(folder, "neighbours.npy", (size, k), np.dtype(np.int32)),
        _mapped(folder, "distances.npy", (size, k), *_FLOATS),
        coordinates,
        _mapped(folder, "representatives.npy", (size,), np.dtype(np.int32)),
        _stored_quantized(folder, meta, size),
        _stored_bands(folder, meta, size),
    )


def read_tree(folder: Path, meta: Mapping[str, Any]) -> TreeTables:
    """Map the arrays of a tree's folder; every value of them is checked.

    Raises
    ------
    IndexFolderError
        Naming the file.
    """
    size = meta["words"]
    order = _mapped(folder, "order.npy", (size,), np.dtype(np.int32))
    gaps = _mapped(folder, "gaps.npy", (size,), np.dtype(np.uint8))
    # Whoever stands there twice keeps another from standing there.
    if order.min() < 0 or order.max() >= size or np.bincount(order, minlength=size).max() > 1:
        refuse(folder / "order.npy", "it is no order of all words")
    if gaps.max() != len(meta["heights"]) or gaps[-1]:
        refuse(folder / "gaps.npy", "its largest height is not the last of those listed")
    prior = None
    if "prior.npy" in meta["files"]:
        prior = _mapped(folder, "prior.npy", (size,), np.dtype(np.float64))
        if not (np.isfinite(prior).all() and (prior > 0).all()):
            refuse(folder / "prior.npy", "a weight is not a finite number above 0")
    return TreeTables(_words(folder / "words.json", size), prior, order, gaps)


def _words(path: Path, size: int) -> list[str]:
    words = read_json(path)
    if not isinstance(words, list) or len(words) != size:
        raise IndexFolderError(f"{path} does not hold {size} words; build the index again.")
    if not all(type(word) is str for word in words):
        refuse(path, "an entry is no string")
    different = set(words)
    if len(different) != size or "" in different:
        refuse(path, "a word is empty or stands there twice")
    try:
        "".join(words).encode()
    except UnicodeEncodeError:
        refuse(path, "a word is no text that UTF-8 can write")
    return words


def _mapped(
    folder: Path, name: str, shape: tuple[int | None, ...], *kinds: np.dtype[Any]
) -> NDArray[Any]:
    """Map an array of one of these types, in rows, as numpy saves it."""
    path = folder / name
    try:
        array = np.lib.format.open_memmap(path, mode="r")
    except Exception as error:
        # A damaged header is parsed as Python's literals are, where almost anything can be raised.
        raise IndexFolderError(f"{path} is damaged; build the index again.") from error
    if len(array.shape) != len(shape) or any(
        want is not None and have != want for have, want in zip(array.shape, shape, strict=True)
    ):
        raise IndexFolderError(
            f"{path} has shape {array.shape} where {shape} was expected; build the index again."
        )
    if array.dtype not in kinds or not array.flags.c_contiguous:
        refuse(path, f"expected rows of {' or '.join(map(str, kinds))}")
    # The bare array avoids the memmap subclass, whose every slice costs microseconds.
    return np.asarray(array)


def _stored_quantized(folder: Path, meta: Mapping[str, Any], size: int) -> QuantizedRows:
    """The quantized rows of a saved folder; none where an earlier version has saved none like them."""
    path, found = folder / META, meta.get("sketch", {"grain": []})
    scales = found.get("grain") if isinstance(found, dict) else None
    if not isinstance(scales, list) or not all(_number(value, 0.0) for value in scales):
        refuse(path, "'sketch' must have steps that are finite numbers from 0 up")
    if len(scales) != len(QuantizedRows.none().scales) or QUANTIZED_FILE not in meta["files"]:
        return QuantizedRows.none()
    rows = _mapped(folder, QUANTIZED_FILE, (size, None), np.dtype(np.int8))
    leading, line = found.get("leading"), QuantizedRows.none().leading
    if not _whole(leading, line, rows.shape[1] - 1) or leading % line or rows.shape[1] % line:
        refuse(folder / QUANTIZED_FILE, "its rows do not have the parts that index.json tells of")
    if not (scales[0] > 0 and scales[2] > 0):
        refuse(path, "'sketch' must have steps above 0")
    return QuantizedRows(rows, leading, np.array(scales, dtype=np.float64))


def _stored_bands(folder: Path, meta: Mapping[str, Any], size: int) -> RankBands | None:
    """The bounds of a saved folder; None where an earlier version, or an approximate search, has saved none."""
    found = meta.get("bands")
    if found is None or BANDS_FILE not in meta["files"]:
        return None
    starts = found.get("starts") if isinstance(found, dict) else None
    if not isinstance(starts, list) or not all(_whole(start, 0, size) for start in starts):
        refuse(folder / BANDS_FILE, "its bands do not begin with words")
    if len(starts) < 2 or starts[0] != 0 or starts[-1] != size:
        refuse(folder / BANDS_FILE, "its bands do not begin at 0 and end with the vocabulary")
    bounds = np.array(starts, dtype=np.int32)
    if not (np.diff(bounds) > 0).all() or not _number(found.get("step"), 0.0) or not found["step"]:
        refuse(folder / BANDS_FILE, "its bands or their steps do not rise")
    nearest = _mapped(folder, BANDS_FILE, (size, len(starts) - 1), np.dtype(np.uint8))
    return RankBands(bounds, nearest, float(found["step"]))


# Settings


def stored_rounding(folder: Path, meta: Mapping[str, Any], metric: Metric) -> Rounding | None:
    """The bounds on rounding of a saved folder; None in one of an earlier version."""
    if "rounding" in meta:
        found = meta["rounding"]
        if not (
            isinstance(found, list)
            and len(found) == 2
            and all(_number(value, 0.0) for value in found)
        ):
            raise IndexFolderError(f"{folder / META} is damaged; build the index again.")
        return Rounding(*map(float, found))
    if metric.name == Mahalanobis.name:
        raise IndexFolderError(
            f"{folder} was built by an earlier version, which rounded the coordinates of the metric 'mahalanobis' by more "
            "than it charged. Build the index again."
        )
    return None


def stored_typical(folder: Path, meta: Mapping[str, Any]) -> dict[int, Typical] | None:
    """The typical distances of a saved folder; None where an earlier version has saved none of this kind."""
    if "typical" not in meta:
        return None
    try:
        found = {int(rank): Typical(*map(float, ends)) for rank, ends in meta["typical"].items()}
    except (AttributeError, OverflowError, TypeError, ValueError):
        found = {}
    whole = all(0 <= ends.median <= ends.ninety < np.inf for ends in found.values())
    if REFERENCE not in found or not whole:
        raise IndexFolderError(f"{folder / META} is damaged; build the index again.")
    return found


def stored_metric(folder: Path, meta: Mapping[str, Any], metric: str | Metric | None) -> Metric:
    """The metric of a saved folder, which is also the one that the caller counts on, if any."""
    recorded = meta["metric"]
    if metric is not None:
        wanted = get_metric(metric)
        if wanted.settings() != recorded:
            raise IndexFolderError(
                f"{folder} was built with the metric {recorded['name']!r}, not {wanted.name!r}. Epsilon means "
                "something else under another metric: build an index with the metric you want."
            )
        return wanted
    try:
        return get_metric(recorded)
    except TextprivError:
        raise
    except (TypeError, ValueError) as error:
        raise IndexFolderError(
            f"{folder / META} is damaged (its metric has settings that none has); build the index again."
        ) from error
