"""Reading the files of an index folder, which may come from anywhere: each is checked before anything is computed from it.

What lives here: the listing with its checksums, JSON, mapped arrays, and the checks of what they hold: types, shapes,
ranges, order, finiteness, the links of the search graph. What does not: what an index is (``index``), and whether a
mechanism over it keeps its promise (``certificate``). A checksum tells of an accident; whoever makes a folder makes its
checksums, too. The checks see to it that no file can crash a process or end in a traceback, and find the damage that a look
at every value, or at a sample of distances, shows. They cannot tell whether vectors, lists and bounds are what an honest
build would have made: take indexes from those whom you trust.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
import struct
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numba import njit
from numpy.typing import NDArray

from textpriv.errors import IndexFolderError
from textpriv.index.neighbours import RankBands, processors
from textpriv.index.quantized import QuantizedRows
from textpriv.metrics import INTERPRETED, Metric, row_distance

__all__ = [
    "BANDS_FILE",
    "FORMAT",
    "LEVELS",
    "META",
    "QUANTIZED_FILE",
    "TREE",
    "TREE_FORMAT",
    "Tables",
    "TreeTables",
    "check_graph",
    "check_sample",
    "check_values",
    "checksum",
    "meta_checksum",
    "read_json",
    "read_meta",
    "read_tables",
    "read_tree",
    "verify_files",
]

FORMAT = 1  # of the folder; raised when an older reader would misread a newer folder
TREE_FORMAT = (
    2  # of a tree's folder, which a reader of format 1 alone would take for a damaged index
)
TREE = "tree"  # what the listing of such a folder has as its kind
META = "index.json"
QUANTIZED_FILE = "sketch.npy"
BANDS_FILE = "bands.npy"

_LEAF = 1 << 23  # bytes hashed at a time, so that a large file is hashed on all processors
_ROWS = 4096  # rows checked at a time
_SAMPLE = 16  # words whose listed distances are computed again
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


def _refuse(path: Path, what: str) -> NoReturn:
    raise IndexFolderError(f"{path} is damaged ({what}); build the index again.")


# Files


def checksum(path: Path) -> str:
    """SHA-256 over the SHA-256 of each stretch of 8 MiB: one number a file, computed on all processors."""
    size = path.stat().st_size

    def leaf(start: int) -> bytes:
        with open(path, "rb") as file:
            file.seek(start)
            return hashlib.sha256(file.read(_LEAF)).digest()

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
        _refuse(path, "it is no file")
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
        _refuse(path, "it names no format")
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
        _refuse(path, "lists are longer than the vocabulary")
    for name in ("tau", "diameter_bound"):
        if not _number(meta.get(name), 0.0):
            _refuse(path, f"{name!r} must be a finite number from 0 up")
    if meta.get("backend") not in ("exact", "hnsw") or not _number(meta.get("recall"), 0.0, 1.0):
        _refuse(path, "'backend' and 'recall' do not say how the lists were found")
    if meta["backend"] == "exact" and meta["recall"] != 1:
        _refuse(path, "exact lists have recall 1")
    metric = meta.get("metric")
    if not isinstance(metric, dict) or not isinstance(metric.get("name"), str):
        _refuse(path, "it names no metric")


def _check_tree_meta(path: Path, meta: Mapping[str, Any]) -> None:
    _check_listing(path, meta, _NEEDED_OF_TREE, ("words",))
    heights, names, apart = (meta.get(name) for name in ("heights", "names", "separated"))
    if (
        not isinstance(heights, list)
        or len(heights) > LEVELS
        or not all(_number(height, 0.0) for height in heights)
        or any(high <= low for low, high in zip([0.0, *heights], heights, strict=False))
    ):
        _refuse(path, f"'heights' must be at most {LEVELS} rising numbers above 0")
    if (
        not isinstance(names, list)
        or len(names) not in (0, len(heights))
        or not all(type(name) is str and name for name in names)
        or len(set(names)) != len(names)
    ):
        _refuse(path, "'names' must name every height, each differently, or be empty")
    if (
        not isinstance(apart, dict)
        or not _whole(apart.get("looked_at"), 0, _MOST)
        or not isinstance(apart.get("shares"), list)
        or len(apart["shares"]) != (len(heights) if apart["looked_at"] else 0)
        or not all(_number(share, 0.0, 1.0) for share in apart["shares"])
    ):
        _refuse(path, "'separated' must have a share for every height")
    for name in ("source", "below"):
        if meta.get(name) is not None and not isinstance(meta[name], str):
            _refuse(path, f"{name!r} must be a word")


def _check_listing(
    path: Path, meta: Mapping[str, Any], needed: Iterable[str], counts: Iterable[str]
) -> None:
    for name in counts:
        if not _whole(meta.get(name), 1, _MOST):
            _refuse(path, f"{name!r} must be a whole number from 1 up")
    if not _is_digest(meta.get("fingerprint")):
        _refuse(path, "'fingerprint' must be 64 hexadecimal digits")
    files = meta.get("files")
    if not isinstance(files, dict):
        _refuse(path, "it lists no files")
    for name, entry in files.items():
        # A name is never a way out of the folder.
        plain = name == os.path.basename(name) and name not in ("", ".", "..") and "\0" not in name
        if not plain or not isinstance(entry, dict):
            _refuse(path, "its list of files is none")
        if not _whole(entry.get("bytes"), 0, 2**62) or not _is_digest(entry.get("sha256")):
            _refuse(path, f"it has no size or checksum of {name!r}")
    for name in needed:
        if name not in files:
            _refuse(path, f"it does not list {name!r}")


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
            _refuse(folder / "coordinates.npy", "it has no columns")
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
        _refuse(folder / "order.npy", "it is no order of all words")
    if gaps.max() != len(meta["heights"]) or gaps[-1]:
        _refuse(folder / "gaps.npy", "its largest height is not the last of those listed")
    prior = None
    if "prior.npy" in meta["files"]:
        prior = _mapped(folder, "prior.npy", (size,), np.dtype(np.float64))
        if not (np.isfinite(prior).all() and (prior > 0).all()):
            _refuse(folder / "prior.npy", "a weight is not a finite number above 0")
    return TreeTables(_words(folder / "words.json", size), prior, order, gaps)


def _words(path: Path, size: int) -> list[str]:
    words = read_json(path)
    if not isinstance(words, list) or len(words) != size:
        raise IndexFolderError(f"{path} does not hold {size} words; build the index again.")
    if not all(type(word) is str for word in words):
        _refuse(path, "an entry is no string")
    different = set(words)
    if len(different) != size or "" in different:
        _refuse(path, "a word is empty or stands there twice")
    try:
        "".join(words).encode()
    except UnicodeEncodeError:
        _refuse(path, "a word is no text that UTF-8 can write")
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
        _refuse(path, f"expected rows of {' or '.join(map(str, kinds))}")
    # The bare array avoids the memmap subclass, whose every slice costs microseconds.
    return np.asarray(array)


def _stored_quantized(folder: Path, meta: Mapping[str, Any], size: int) -> QuantizedRows:
    """The quantized rows of a saved folder; none where an earlier version has saved none like them."""
    path, found = folder / META, meta.get("sketch", {"grain": []})
    scales = found.get("grain") if isinstance(found, dict) else None
    if not isinstance(scales, list) or not all(_number(value, 0.0) for value in scales):
        _refuse(path, "'sketch' must have steps that are finite numbers from 0 up")
    if len(scales) != len(QuantizedRows.none().scales) or QUANTIZED_FILE not in meta["files"]:
        return QuantizedRows.none()
    rows = _mapped(folder, QUANTIZED_FILE, (size, None), np.dtype(np.int8))
    leading, line = found.get("leading"), QuantizedRows.none().leading
    if not _whole(leading, line, rows.shape[1] - 1) or leading % line or rows.shape[1] % line:
        _refuse(folder / QUANTIZED_FILE, "its rows do not have the parts that index.json tells of")
    if not (scales[0] > 0 and scales[2] > 0):
        _refuse(path, "'sketch' must have steps above 0")
    return QuantizedRows(rows, leading, np.array(scales, dtype=np.float64))


def _stored_bands(folder: Path, meta: Mapping[str, Any], size: int) -> RankBands | None:
    """The bounds of a saved folder; None where an earlier version, or an approximate search, has saved none."""
    found = meta.get("bands")
    if found is None or BANDS_FILE not in meta["files"]:
        return None
    starts = found.get("starts") if isinstance(found, dict) else None
    if not isinstance(starts, list) or not all(_whole(start, 0, size) for start in starts):
        _refuse(folder / BANDS_FILE, "its bands do not begin with words")
    if len(starts) < 2 or starts[0] != 0 or starts[-1] != size:
        _refuse(folder / BANDS_FILE, "its bands do not begin at 0 and end with the vocabulary")
    bounds = np.array(starts, dtype=np.int32)
    if not (np.diff(bounds) > 0).all() or not _number(found.get("step"), 0.0) or not found["step"]:
        _refuse(folder / BANDS_FILE, "its bands or their steps do not rise")
    nearest = _mapped(folder, BANDS_FILE, (size, len(starts) - 1), np.dtype(np.uint8))
    return RankBands(bounds, nearest, float(found["step"]))


# Values


# Each has an inner loop without a way out, so that the compiler takes many values at a time.


@njit(cache=True, nogil=True)
def _bad_ids(ids: NDArray[np.int32], start: int, stop: int) -> int:
    """First of some rows whose ids do not begin with its own or are out of range; -1 if there is none."""
    size = ids.shape[0]
    for row in range(start, stop):
        largest = np.uint32(0)
        for place in range(ids.shape[1]):
            largest = max(largest, np.uint32(ids[row, place]))  # a negative one becomes large
        if largest >= size or ids[row, 0] != row:
            return row
    return -1


@njit(cache=True, nogil=True)
def _repeated_ids(ids: NDArray[np.int32], start: int, stop: int) -> int:
    """First of some rows, whose ids are in range, that has an id twice; -1 if there is none."""
    seen = np.zeros(ids.shape[0], np.uint8)
    for row in range(start, stop):
        mark = np.uint8(row % 255 + 1)
        if mark == 1:
            seen[:] = 0
        repeated = 0
        for place in range(ids.shape[1]):
            word = np.uint64(ids[row, place])
            repeated += seen[word] == mark
            seen[word] = mark
        if repeated:
            return row
    return -1


@njit(cache=True, nogil=True)
def _bad_distances(distances: NDArray[Any], start: int, stop: int, low: float) -> int:
    """First of some rows that does not begin with 0, rises and stays finite; -1 if there is none."""
    last = distances.shape[1] - 1
    for row in range(start, stop):
        falls = 0
        for place in range(2, last + 1):
            falls += not distances[row, place - 1] <= distances[row, place]
        nearest = distances[row, min(1, last)]
        if (
            falls
            or distances[row, 0] != 0
            or not low <= nearest
            or not distances[row, last] < np.inf
        ):
            return row
    return -1


@njit(cache=True, nogil=True)
def _largest_exponent(bits: NDArray[Any], mask: Any, start: int, stop: int) -> Any:
    """Largest of the masked bits of some rows: of floats, that of an infinity or of no number is the mask itself."""
    largest = mask & ~mask
    for row in range(start, stop):
        for column in range(bits.shape[1]):
            largest = max(largest, bits[row, column] & mask)
    return largest


def check_values(folder: Path, tables: Tables, kind: int) -> None:
    """Look at every value once: ranges, order, finiteness.

    Parameters
    ----------
    folder : Path
        Named in the error.
    tables : Tables
    kind : int
        Of the metric: distances of the user's own function may round below 0.

    Raises
    ------
    IndexFolderError
    """
    size = len(tables.words)
    own = tables.representatives
    if int(own.min()) < 0 or int(own.max()) >= size or not np.array_equal(own[own], own):
        _refuse(folder / "representatives.npy", "a representative is no word, or has another one")
    prior = tables.prior
    if prior is not None and not (np.isfinite(prior).all() and (prior > 0).all()):
        _refuse(folder / "prior.npy", "a weight is not finite and above 0")
    low = -np.inf if kind == INTERPRETED else 0.0
    ids, distances = tables.ids, tables.distances

    def bad_list(rows: tuple[int, int]) -> int:
        bad = max(_bad_ids(ids, *rows), _bad_distances(distances, *rows, low))
        return bad if bad >= 0 else _repeated_ids(ids, *rows)

    share = -(-size // processors())  # one stretch a thread, for each needs a note of all words
    with ThreadPoolExecutor(processors()) as pool:
        for bad in pool.map(bad_list, [(s, min(s + share, size)) for s in range(0, size, share)]):
            if bad >= 0:
                _refuse(
                    folder / "neighbours.npy",
                    f"with distances.npy: the list of word {bad} is not of different words in order of distance",
                )
        named = {"vectors.npy": tables.vectors}
        if tables.coordinates is not tables.vectors:
            named["coordinates.npy"] = tables.coordinates
        for name, array in named.items():
            if not _is_finite(array, pool):
                _refuse(folder / name, "a value is not finite")
    for array in (ids, distances, *named.values()):
        _release(array)


def _release(array: NDArray[Any]) -> None:
    """Take the pages of a mapped array out of this process; the system has them still, for whoever needs one."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        base.madvise(mmap.MADV_DONTNEED)


def _is_finite(array: NDArray[Any], pool: ThreadPoolExecutor) -> bool:
    bits = array.view(np.uint32 if array.dtype == np.float32 else np.uint64)
    mask = bits.dtype.type(0x7F80_0000 if array.dtype == np.float32 else 0x7FF0_0000_0000_0000)
    starts = range(0, len(array), _ROWS)
    found = pool.map(
        lambda start: _largest_exponent(bits, mask, start, min(start + _ROWS, len(array))), starts
    )
    return all(largest != mask for largest in found)


def check_sample(folder: Path, meta: Mapping[str, Any], tables: Tables, metric: Metric) -> None:
    """Compute some listed distances again, from the vectors and from the coordinates, and test the bounds on some others.

    Files that belong to different indexes, a metric that was exchanged, or rows that were moved show in nearly every word,
    and so in a sample; a single altered value mostly does not. The sample is public and always the same.

    Raises
    ------
    IndexFolderError, MetricError
    """
    size, k = tables.ids.shape
    rows = np.unique(np.linspace(0, size - 1, min(size, _SAMPLE)).astype(np.int64))
    random = np.random.default_rng(0)
    for row in rows.tolist():
        places = np.unique(np.linspace(0, k - 1, min(k, _SAMPLE)).astype(np.int64))
        listed, given = tables.ids[row, places], tables.distances[row, places].astype(np.float64)
        others = random.choice(size, size=min(size, 4 * _SAMPLE), replace=False)
        others = others[~np.isin(others, tables.ids[row])]
        both = np.concatenate([listed, others])
        ends = tables.vectors[[row]], tables.vectors[both]
        found = metric.pairwise(*ends)[0]
        # Far more than rounding ever makes of a distance, and far less than between any two words.
        scale = float(np.abs(tables.coordinates[both]).max())
        slack = 4 * meta["tau"] + 1e-3 * found + 1e-5 * (meta["diameter_bound"] + scale)
        if not (np.abs(found - _own_distances(tables, metric, row, both, found)) <= slack).all():
            _refuse(folder, "coordinates are not those of the vectors")
        near, far = found[: len(listed)], found[len(listed) :]
        if not (np.abs(near - given) <= slack[: len(listed)]).all():
            _refuse(folder, "listed distances are not those of the vectors")
        if not (found <= meta["diameter_bound"] + slack).all():
            _refuse(folder / META, "words are farther apart than the diameter")
        least = given[-1] if meta["backend"] == "exact" else 0.0
        least = np.maximum(least, _band_bounds(tables, row, others))
        least = np.maximum(least, _quantized_bounds(tables, row, others))
        if not (far + slack[len(listed) :] >= least).all():
            _refuse(folder, "a word that is not listed is nearer than the lists tell")


def _own_distances(
    tables: Tables, metric: Metric, row: int, words: NDArray[Any], found: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Distances by the coordinates; those found, where the metric is the user's own and has no others."""
    if metric.kind == INTERPRETED:
        return found
    table = tables.coordinates
    return np.array([row_distance(metric.kind, table, row, table, int(word)) for word in words])


def _band_bounds(tables: Tables, row: int, words: NDArray[Any]) -> NDArray[np.float64]:
    if tables.bands is None or not len(words):
        return np.zeros(len(words))
    band = np.searchsorted(tables.bands.starts[1:-1], words, side="right")
    return np.asarray(tables.bands.nearest[row, band] * tables.bands.step)


def _quantized_bounds(tables: Tables, row: int, words: NDArray[Any]) -> NDArray[np.float64]:
    rows, leading, scales = tables.quantized
    if not len(rows):
        return np.zeros(len(words))
    apart = rows[words, :leading].astype(np.float64) - rows[row, :leading]
    return np.asarray(scales[0] * np.linalg.norm(apart, axis=1) - scales[1])


# The graph

_HEAD = struct.Struct("<6Q i I 3Q d Q")  # as hnswlib writes it, without spaces between


@njit(cache=True, nogil=True)
def _has_sound_levels(
    words: NDArray[np.uint32], size: int, most: int, top: int, entry: int
) -> bool:
    """Whether the lists of the upper levels are those of ``size`` words, each link to a word that reaches the level."""
    levels, starts = np.empty(size, np.int64), np.empty(size, np.int64)
    place, highest = 0, 0
    for word in range(size):
        if place >= len(words):
            return False
        length = np.int64(words[place])
        place += 1
        if length % (4 * (most + 1)):
            return False
        levels[word], starts[word] = length // (4 * (most + 1)), place
        highest = max(highest, levels[word])
        place += length // 4
    if place != len(words) or highest != top or levels[entry] != top:
        return False
    for word in range(size):
        for level in range(levels[word]):
            at = starts[word] + level * (most + 1)
            count = np.int64(words[at])
            if count > most:
                return False
            for link in range(count):
                other = np.int64(words[at + 1 + link])
                if other >= size or levels[other] < level + 1:
                    return False
    return True


def check_graph(path: Path, coordinates: NDArray[Any]) -> None:
    """Check a saved hnswlib graph before hnswlib follows its links, which it does unchecked.

    Raises
    ------
    IndexFolderError
        If the file is not a whole graph over these coordinates, shape (V, n), with row i under label i.
    """
    size, dimension = coordinates.shape
    if path.stat().st_size < _HEAD.size:
        _refuse(path, "it is cut short")
    content = np.memmap(path, dtype=np.uint8, mode="r")
    head = _HEAD.unpack(content[: _HEAD.size].tobytes())
    zero, _, count, each, label_at, data_at, top, entry, most, most_below, most_again, *_ = head
    block = np.dtype(
        [
            ("count", "<u4"),
            ("links", "<u4", (most_below if most_below <= 2 * size + 4096 else 0,)),
            ("row", "<f4", (dimension,)),
            ("label", "<u8"),
        ]
    )
    sizes = zero == 0 and count == size and 1 < most == most_again and most_below == 2 * most
    layout = (each, label_at, data_at) == (block.itemsize, block.itemsize - 8, 4 * most_below + 4)
    middle = _HEAD.size + size * block.itemsize
    if not (sizes and layout and entry < size and 0 <= top < 64) or len(content) < middle:
        _refuse(path, "its head is not that of a graph over this vocabulary")
    blocks = content[_HEAD.size : middle].view(block)
    for start in range(0, size, _ROWS):
        part = blocks[start : start + _ROWS]
        listed = np.arange(most_below) < part["count"][:, None]
        wanted = coordinates[start : start + _ROWS].astype(np.float32)
        if (
            (part["count"] > most_below).any()
            or (part["links"][listed] >= size).any()
            or not np.array_equal(part["label"], np.arange(start, start + len(part)))
            or not np.array_equal(part["row"], wanted)
        ):
            _refuse(path, "it is not a graph over these coordinates")
    rest = content[middle:]
    if len(rest) % 4 or not _has_sound_levels(
        np.frombuffer(rest.tobytes(), dtype=np.uint32), size, most, top, entry
    ):
        _refuse(path, "its upper levels are not those of a graph")
