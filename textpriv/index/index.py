"""The public tables a mechanism draws from, built once: vocabulary, metric and nearest lists, in memory or as a folder.

An index folder holds plain arrays that are mapped, not read, so that many processes share one copy. Every file is listed
with its size and checksum in ``index.json``; a folder is written beside its place and moved there whole. This module
knows files and arrays; it draws nothing and computes no law.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from textpriv.bounds import at_most
from textpriv.errors import IndexFolderError, MetricError, TextprivError
from textpriv.files import atomic_write, flush, umask
from textpriv.html_card import card
from textpriv.index.hnsw import approximate_lists, hnsw_index, measure_recall
from textpriv.index.neighbours import Neighbourhoods, RankBands, exact_lists
from textpriv.index.quantized import QuantizedRows, quantize
from textpriv.index.storage import (
    BANDS_FILE,
    FORMAT,
    META,
    QUANTIZED_FILE,
    TREE,
    Tables,
    check_graph,
    check_sample,
    check_values,
    checksum,
    meta_checksum,
    read_meta,
    read_tables,
    verify_files,
)
from textpriv.index.typical import REFERENCE, Typical, typical_distances
from textpriv.metrics import (
    ANGULAR,
    EUCLIDEAN,
    INTERPRETED,
    Mahalanobis,
    Metric,
    Rounding,
    check_metric,
    distances_from,
    get_metric,
    paired_distances,
)
from textpriv.vocabulary.vocabulary import Vocabulary, equal_rows, read_only

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["FORMAT", "Index", "reporter"]

_RECORDS = "records"  # certificates and calibrations, one file each
_WIDE = 1e-3  # of the reference distance: a group of words with one law that is wider is warned of


class Index:
    """Vocabulary, metric and nearest lists: everything public that a mechanism needs.

    Build one with :meth:`build` or open a saved one with :meth:`load`.

    Attributes
    ----------
    vocabulary : Vocabulary
    metric : Metric
    coordinates : ndarray, shape (V, n)
        The vectors in the coordinates of the metric.
    neighbours : Neighbourhoods
        The lists: (V, k) ids and distances, the word itself first.
    representatives : ndarray of int32, shape (V,)
        For each word the word whose law it uses as an input: words at distance zero, or so close that the rounding of
        their own coordinates cannot tell, must have one law (mechanisms.md TEM-11).
    backend : str
        ``"exact"``, or ``"hnsw"`` for approximate lists, which support no proof.
    recall : float
        1.0 for exact lists; for approximate ones the share of true neighbours found on a sample.
    rounding : Rounding
        Bounds on the error of the distances that a mechanism uses.
    reference_distance, reference_distance_90 : float
        Distances that half, and nine tenths, of all running words have to their 10th nearest word with another vector; see
        :attr:`typical`.
    diameter_bound : float
        No two words are farther apart: twice the least of some largest distances from one word.
    path : Path or None
        The folder, if the index lives in one.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        metric: Metric,
        coordinates: NDArray[Any],
        neighbours: Neighbourhoods,
        representatives: NDArray[np.int32],
        *,
        backend: str,
        recall: float,
        rounding: Rounding,
        diameter_bound: float,
        fingerprint: str,
        path: Path | None = None,
        graph: Any = None,
        quantized: QuantizedRows | None = None,
        typical: dict[int, Typical] | None = None,
    ) -> None:
        self.vocabulary = vocabulary
        self.metric = metric
        self.coordinates = read_only(coordinates)
        self.neighbours = Neighbourhoods(
            read_only(neighbours.ids), read_only(neighbours.distances), neighbours.bands
        )
        self.representatives = read_only(representatives)
        self.backend = backend
        self.recall = recall
        self.rounding = rounding
        self.diameter_bound = diameter_bound
        self.fingerprint = fingerprint
        self.path = path
        self._graph = graph
        self._stored_quantized = quantized
        self._stored_typical = typical
        self._records: dict[str, dict[str, Any]] = {}
        self._bindings: dict[str, Any] = {}

    @property
    def k(self) -> int:
        """Length of each list, the word itself included."""
        return int(self.neighbours.ids.shape[1])

    @property
    def exact(self) -> bool:
        """Whether the lists are exact."""
        return self.backend == "exact"

    @cached_property
    def typical(self) -> dict[int, Typical]:
        """Median and 90 % of the distances from running words to their 1st, 10th and 100th nearest words.

        Running words are counted by the counts that the vocabulary carries, or else by rank. Words that share a vector are
        one word. The 100th is missing where the lists are too short for it. Behind approximate lists, what a list does not
        reach is taken for the diameter bound.
        """
        if self._stored_typical is not None:
            return self._stored_typical
        counted: Literal["counts", "zipf"] = "zipf" if self.vocabulary.prior is None else "counts"
        return typical_distances(
            self.neighbours,
            self.representatives,
            self.coordinates,
            self.metric,
            self.vocabulary.prior_weights(counted),
            beyond=None if self.exact else self.diameter_bound,
        )

    @property
    def reference_distance(self) -> float:
        """Half of all running words have their 10th nearest word with another vector within this distance."""
        return self.typical[REFERENCE].median

    @property
    def reference_distance_90(self) -> float:
        """Nine tenths of all running words have their 10th nearest word with another vector within this distance."""
        return self.typical[REFERENCE].ninety

    def __len__(self) -> int:
        return len(self.vocabulary)

    @property
    def tau(self) -> float:
        """Bound on the error of the distance between any two words."""
        return self.rounding.at(self.diameter_bound)

    @property
    def wide(self) -> NDArray[np.int64]:
        """Ids of the words whose law is that of a word farther away than the rounding of coordinates explains."""
        return self._members[self._apart > 4 * self.rounding.absolute]

    @cached_property
    def _members(self) -> NDArray[np.int64]:
        return np.flatnonzero(self.representatives != np.arange(len(self)))

    @cached_property
    def _apart(self) -> NDArray[np.float64]:
        """The distance of each member of a group from the word whose law it uses."""
        return self._paired(self._members, self.representatives[self._members])

    def _paired(self, first: NDArray[Any], second: NDArray[Any]) -> NDArray[np.float64]:
        """Distances between the words of two arrays, pair by pair."""
        if self.metric.kind == INTERPRETED:
            pairs = zip(self.coordinates[first], self.coordinates[second], strict=True)
            return np.array([float(self.metric.pairwise(a, b)[0, 0]) for a, b in pairs])
        pair = (np.ascontiguousarray(words, dtype=np.int64) for words in (first, second))
        return paired_distances(self.metric.kind, self.coordinates, *pair)

    @cached_property
    def width(self) -> float:
        """No word is farther from the word whose law it uses."""
        if not len(self._members):
            return 0.0
        return float(self._apart.max()) * (1 + self.rounding.relative) + self.rounding.absolute

    def _warn_of_width(self) -> None:
        """Warn where words share a law that are not close to each other."""
        if not len(self.wide) or self.width <= _WIDE * self.reference_distance:
            return
        warnings.warn(
            f"{len(self.wide):,} words share the law of another word up to {self.width:.3g} away, where half of all running "
            f"words have their 10th nearest within {self.reference_distance:.3g}: chains of words that the rounding of the "
            f"metric {self.metric.name!r} cannot tell apart. Every statement charges for it. Give the vectors in float64, "
            "or leave such words out.",
            stacklevel=3,
        )

    def distance(self, first: int, second: int) -> float:
        """Distance between two words, by their own coordinates."""
        return float(self._paired(np.array([first]), np.array([second]))[0])

    def distances_between(self, word: int, others: NDArray[np.int64]) -> NDArray[np.float64]:
        """Distances from a word to some others, by their own coordinates: shape (len(others),)."""
        return self._paired(np.full(len(others), word), others)

    def distances_of(self, words: NDArray[np.int64], *, device: str = "cpu") -> NDArray[np.float64]:
        """Distances by which some words' laws are made, to every word: shape (len(words), V), float64 by differences.

        Those of a word that shares another one's law are the other one's. ``device`` is as in :meth:`build`.
        """
        rows = self.representatives[words]
        if device != "cpu":
            from textpriv.index.torch_distances import choose_device, distance_rows

            return distance_rows(choose_device(device), self.metric.kind, self.coordinates, rows)
        if self.metric.kind == INTERPRETED:
            out = self.metric.pairwise(self.coordinates[rows], self.coordinates).copy()
            out[np.arange(len(rows)), rows] = 0.0
            return out
        out = np.empty((len(rows), len(self)))
        for place, row in enumerate(rows.tolist()):
            distances_from(self.metric.kind, self.coordinates, row, out[place])
        return out

    def __reduce__(self) -> tuple[Any, ...]:
        # A worker opens the folder again and shares its pages; only an index without one travels by value.
        if self.path is not None:
            metric = self.metric if self.metric.kind == INTERPRETED else None
            return _reopen, (self.path, metric, self.fingerprint)
        state = {
            name: value
            for name, value in self.__dict__.items()
            if name
            not in (
                "graph",
                "_graph",
                "quantized",
                "_stored_quantized",
                "_stored_typical",
                "bands",
                "_members",
                "_apart",
                "width",
                "path",
                "_records",
                "_bindings",
            )
        }
        # Found once; looking at all rows again would take longer than sending the result.
        state["quantized"], state["typical"] = self.quantized, self.typical
        return _revive, (state,)

    def __repr__(self) -> str:
        lists = "exact" if self.exact else f"approximate, recall {self.recall:.4f}"
        return (
            f"Index({len(self)} words x {self.vocabulary.vectors.shape[1]}, {self.metric.name}, "
            f"k={self.k} {lists})"
        )

    def _repr_html_(self) -> str:
        lists = "exact" if self.exact else f"approximate, recall {self.recall:.4f}"
        return card(
            "Index",
            [
                ("words", f"{len(self):,}"),
                (
                    "vectors",
                    f"{self.vocabulary.vectors.shape[1]} dimensions, {self.coordinates.dtype}",
                ),
                ("metric", self.metric.name),
                ("nearest lists", f"{self.k} words each, {lists}"),
                ("counts", "stored" if self.vocabulary.prior is not None else "none"),
                (
                    "10th neighbour",
                    f"within {at_most(self.reference_distance, 4)} for half of all running words, "
                    f"{at_most(self.reference_distance_90, 4)} for nine tenths",
                ),
                ("diameter", f"at most {at_most(self.diameter_bound, 4)}"),
                ("folder", "in memory only" if self.path is None else str(self.path)),
                ("fingerprint", self.fingerprint[:16]),
            ],
            verdict="exact lists" if self.exact else "approximate lists prove nothing",
            good=self.exact,
        )

    @classmethod
    def build(
        cls,
        vocabulary: Vocabulary,
        metric: str | Metric = "euclidean",
        k: int = 256,
        *,
        backend: str = "exact",
        hnsw: bool = True,
        progress: bool | Callable[[str, int, int], None] = False,
        device: str = "cpu",
    ) -> Index:
        """Build the tables of a vocabulary.

        Parameters
        ----------
        vocabulary : Vocabulary
        metric : str or Metric
            One of :data:`textpriv.metrics.METRICS` or an object. What is not a metric is refused.
        k : int
            Length of a nearest list, the word itself included. Longer lists make sampling faster, never different. A
            vocabulary with fewer words has complete lists.
        backend : {"exact", "hnsw"}
            ``"hnsw"`` takes the lists from an approximate search where exact ones are out of reach. It measures its
            recall, and every mechanism that needs exact lists then states ``proved=False``.
        hnsw : bool
            Also build the approximate index that Madlib searches (Euclidean metrics only). Left out, it is built when
            first needed.
        progress : bool or callable
            True draws progress bars on standard error; a callable receives (stage, done, all).
        device : str
            "cpu", or a CUDA device of torch ("cuda", "cuda:1") on which the exact lists of a Euclidean or angular metric are
            screened, with the same error bounds. Everything else runs on the processor.

        Raises
        ------
        MetricError, TextprivError
        """
        chosen = get_metric(metric)
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
            raise TextprivError(
                f"k is the length of a nearest list and must be a whole number from 1 up; got {k!r}."
            )
        if backend not in ("exact", "hnsw"):
            raise TextprivError(
                f"unknown backend {backend!r}; use 'exact', or 'hnsw' for approximate lists."
            )
        if device != "cpu":
            from textpriv.index.torch_distances import choose_device

            choose_device(device)
        if chosen.kind == INTERPRETED:
            check_metric(chosen, vocabulary.vectors)
        coordinates = read_only(chosen.coordinates(vocabulary.vectors))
        length = min(int(k), len(vocabulary))
        with reporter(progress) as report:
            graph = None
            if backend == "hnsw" or (hnsw and chosen.kind == EUCLIDEAN):
                if chosen.kind not in (EUCLIDEAN, ANGULAR):
                    raise TextprivError(
                        f"backend='hnsw' searches Euclidean space; the metric {chosen.name!r} needs backend='exact'."
                    )
                graph = hnsw_index(coordinates, progress=report("approximate index"))
            recall = 1.0
            if backend == "exact":
                lists = exact_lists(
                    coordinates, chosen, length, report("exact lists"), device=device
                )
            else:
                lists = approximate_lists(
                    coordinates, chosen, length, graph, report("approximate lists")
                )
                recall = measure_recall(lists, coordinates, chosen)
        errors = chosen.coordinate_errors(vocabulary.vectors)
        rounding = _rounding(coordinates, errors)
        index = cls(
            vocabulary,
            chosen,
            coordinates,
            lists,
            _representatives(coordinates, chosen, lists, errors),
            backend=backend,
            recall=recall,
            rounding=rounding,
            diameter_bound=_diameter_bound(coordinates, chosen, rounding),
            fingerprint=vocabulary.fingerprint(),
            graph=graph,
        )
        index._warn_of_width()
        return index

    @classmethod
    def builtin(cls, language: str = "en") -> Index:
        """Open the index over :meth:`Vocabulary.builtin`, which is built at the first use and kept for the next.

        It is kept in the user's cache folder, or in that of the environment variable TEXTPRIV_CACHE_DIR; where neither can
        be written, it is built in memory.

        Parameters
        ----------
        language : str
            "en".

        Raises
        ------
        VocabularyError
            Where no vocabulary of that language comes with the package.
        """
        from textpriv.index.builtin import builtin_index

        return builtin_index(language)

    def find_record(self, binding: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return what was recorded for exactly this binding, in memory or in the folder.

        A record whose binding or checksum does not match its content is ignored, with a warning.
        """
        name = _record_name(binding)
        if name in self._records:
            return self._records[name]
        if self.path is None:
            return None
        file = self.path / _RECORDS / f"{name}.json"
        try:
            entry = json.loads(file.read_text(encoding="utf-8"))
            content, bound = dict(entry["content"]), entry["binding"]
            sound = entry["checksum"] == _digest([bound, content]) and bound == _plain(binding)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            sound = False
        if not sound:
            warnings.warn(
                f"{file} does not match what it is bound to and is ignored; it will be computed again.",
                stacklevel=2,
            )
            return None
        self._records[name] = content
        return dict(content)

    def keep_record(self, binding: Mapping[str, Any], content: dict[str, Any]) -> None:
        """Record something computed for a binding: in memory, and in the folder where that can be written."""
        name = _record_name(binding)
        self._records[name] = content
        self._bindings[name] = _plain(binding)
        if self.path is not None:
            # A folder that others own may be read-only; the record then serves this process alone.
            with suppress(OSError):
                _write_record(self.path / _RECORDS, name, binding, content)

    @cached_property
    def quantized(self) -> QuantizedRows:
        """Quantized coordinates, from which bounds on a Euclidean distance can be read; none for other metrics."""
        rows = self._stored_quantized
        if rows is None:
            euclidean = self.metric.kind == EUCLIDEAN
            rows = quantize(self.coordinates) if euclidean else QuantizedRows.none()
        return rows._replace(rows=read_only(rows.rows))

    @property
    def sketch(self) -> QuantizedRows:
        """Deprecated name of :attr:`quantized`."""
        warnings.warn("Index.sketch is Index.quantized now.", DeprecationWarning, stacklevel=2)
        return self.quantized

    @cached_property
    def bands(self) -> RankBands:
        """Bounds on the distances to words outside the lists, by rank bands; a trivial one where none are known."""
        known = self.neighbours.bands
        if known is None:
            known = RankBands.none(len(self), self.k)
        return known._replace(nearest=read_only(known.nearest))

    @cached_property
    def graph(self) -> Any:
        """The hnswlib index over the coordinates; loaded or built at the first use.

        Raises
        ------
        MetricError
            If the metric is not Euclidean.
        """
        if self.metric.kind != EUCLIDEAN:
            raise MetricError(
                f"the approximate index searches Euclidean space, and the metric is {self.metric.name!r}. "
                "Use search='exact'."
            )
        if self._graph is not None:
            return self._graph
        meta = None if self.path is None else read_meta(self.path)
        if self.path is not None and meta is not None and "hnsw.bin" in meta["files"]:
            import hnswlib

            verify_files(self.path, meta, ["hnsw.bin"])
            check_graph(self.path / "hnsw.bin", self.coordinates)
            graph = hnswlib.Index(space="l2", dim=int(self.coordinates.shape[1]))
            graph.load_index(str(self.path / "hnsw.bin"), max_elements=len(self))
            graph.set_ef(100)
            return graph
        return hnsw_index(self.coordinates)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the index as a folder, whole or not at all.

        Parameters
        ----------
        path : path
            A folder that does not exist yet.
        overwrite : bool
            Replace an index folder that stands there; anything else is never replaced.

        Raises
        ------
        IndexFolderError
            If something stands at the path, or the vocabulary's metric cannot be recorded.
        """
        target = Path(path)
        if target.exists() and not (overwrite and (target / META).is_file()):
            remedy = (
                "pass overwrite=True (--force) to replace it, or choose another name"
                if (target / META).is_file()
                else "it is not an index folder; choose another name"
            )
            raise IndexFolderError(f"{target} exists already: {remedy}.")
        target.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        try:
            self._write(staging)
            os.chmod(staging, 0o777 & ~umask())
            if target.exists():
                old = Path(tempfile.mkdtemp(prefix=f".{target.name}.old.", dir=target.parent))
                os.replace(target, old / "index")
                try:
                    os.replace(staging, target)
                except BaseException:
                    os.replace(old / "index", target)
                    old.rmdir()
                    raise
                shutil.rmtree(old)
            else:
                os.replace(staging, target)
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise

    def _write(self, folder: Path) -> None:
        arrays = {
            "vectors.npy": self.vocabulary.vectors,
            "neighbours.npy": self.neighbours.ids,
            "distances.npy": self.neighbours.distances,
            "representatives.npy": self.representatives,
        }
        if self.coordinates is not self.vocabulary.vectors:
            arrays["coordinates.npy"] = self.coordinates
        if self.vocabulary.prior is not None:
            arrays["prior.npy"] = self.vocabulary.prior
        if len(self.quantized.rows):
            arrays[QUANTIZED_FILE] = self.quantized.rows
        bands = self.neighbours.bands
        if bands is not None:
            arrays[BANDS_FILE] = bands.nearest
        for name, array in arrays.items():
            with open(folder / name, "wb") as file:
                np.save(file, array, allow_pickle=False)
                flush(file)
        with open(folder / "words.json", "w", encoding="utf-8") as text:
            json.dump(self.vocabulary.words, text, ensure_ascii=False)
            flush(text)
        names = [*arrays, "words.json"]
        graph = self._graph if self._graph is not None else self.__dict__.get("graph")
        if graph is not None:
            graph.save_index(str(folder / "hnsw.bin"))
            names.append("hnsw.bin")
        elif self.path is not None and (self.path / "hnsw.bin").is_file():
            # Not opened yet, so copied as it is; its checksum is compared with the recorded one first.
            verify_files(self.path, read_meta(self.path), ["hnsw.bin"])
            shutil.copyfile(self.path / "hnsw.bin", folder / "hnsw.bin")
            names.append("hnsw.bin")
        meta: dict[str, Any] = {
            "format": FORMAT,
            "words": len(self),
            "dimension": int(self.vocabulary.vectors.shape[1]),
            "metric": self.metric.settings(),
            "k": self.k,
            "backend": self.backend,
            "recall": self.recall,
            "tau": self.tau,
            "rounding": list(self.rounding),
            "typical": {str(rank): list(ends) for rank, ends in self.typical.items()},
            "diameter_bound": self.diameter_bound,
            "sketch": {"leading": self.quantized.leading, "grain": self.quantized.scales.tolist()},
            "bands": None
            if bands is None
            else {"starts": bands.starts.tolist(), "step": bands.step},
            "fingerprint": self.fingerprint,
            "files": {
                name: {"bytes": (folder / name).stat().st_size, "sha256": checksum(folder / name)}
                for name in names
            },
        }
        self._write_listing(folder, meta)

    def _write_listing(self, folder: Path, meta: dict[str, Any]) -> None:
        meta["checksum"] = meta_checksum(meta)
        # Records carry their own checksums and may be added later, so the list of files leaves them out.
        if self.path is not None and (self.path / _RECORDS).is_dir():
            shutil.copytree(self.path / _RECORDS, folder / _RECORDS)
        for name, binding in self._bindings.items():
            _write_record(folder / _RECORDS, name, binding, self._records[name])
        with open(folder / META, "w", encoding="utf-8") as text:
            json.dump(meta, text, indent=1)
            flush(text)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        metric: str | Metric | None = None,
        verify: bool = True,
    ) -> Index:
        """Open an index folder; the arrays are mapped from disk and shared between processes.

        Parameters
        ----------
        path : path
        metric : str or Metric, optional
            The metric the caller counts on; another one in the folder is an error. Needed, as the object, for an index
            built with a CallableMetric.
        verify : bool
            Compare the checksum of every file (except the approximate index, compared when first used), and the
            fingerprint with that of words and vectors. Sizes, types, shapes, ranges and order are always checked.

        Raises
        ------
        IndexFolderError
            Naming the file that is missing, truncated, altered, damaged or of a newer format.
        """
        return cls._open(Path(path), metric, verify=verify)

    @classmethod
    def _open(
        cls, folder: Path, metric: str | Metric | None, *, verify: bool, check: bool = True
    ) -> Index:
        meta = read_meta(folder)
        if meta.get("kind") == TREE:
            from textpriv.index.tree import Tree

            return Tree.opened(folder, meta, metric, verify=verify, check=check)
        recorded = meta["metric"]
        if metric is not None:
            wanted = get_metric(metric)
            if wanted.settings() != recorded:
                raise IndexFolderError(
                    f"{folder} was built with the metric {recorded['name']!r}, not {wanted.name!r}. Epsilon means "
                    "something else under another metric: build an index with the metric you want."
                )
            chosen = wanted
        else:
            chosen = _metric_of(folder, recorded)
        wanted_files = [name for name in meta["files"] if name != "hnsw.bin"]
        verify_files(folder, meta, wanted_files, content=verify)
        tables = read_tables(folder, meta)
        if check:
            check_values(folder, tables, chosen.kind)
            check_sample(folder, meta, tables, chosen)
        vocabulary = Vocabulary.trusted(tables.words, tables.vectors, tables.prior)
        if verify and vocabulary.fingerprint() != meta["fingerprint"]:
            raise IndexFolderError(
                f"{folder / META} has the fingerprint of other words or vectors; build the index again."
            )
        index = cls._of(folder, meta, chosen, vocabulary, tables)
        if check:
            index._warn_of_width()
        return index

    @classmethod
    def _of(
        cls,
        folder: Path,
        meta: Mapping[str, Any],
        metric: Metric,
        vocabulary: Vocabulary,
        tables: Tables,
    ) -> Index:
        return cls(
            vocabulary,
            metric,
            tables.coordinates,
            Neighbourhoods(tables.ids, tables.distances, tables.bands),
            tables.representatives,
            backend=meta["backend"],
            recall=float(meta["recall"]),
            rounding=_kept_rounding(folder, meta, metric, tables),
            diameter_bound=float(meta["diameter_bound"]),
            fingerprint=meta["fingerprint"],
            path=folder.resolve(),
            quantized=tables.quantized,
            typical=_kept_typical(folder, meta),
        )


def _kept_rounding(
    folder: Path, meta: Mapping[str, Any], metric: Metric, tables: Tables
) -> Rounding:
    """The bounds on rounding of a saved folder; of one of an earlier version they are found anew."""
    if "rounding" in meta:
        found = meta["rounding"]
        if not (isinstance(found, list) and len(found) == 2 and all(map(_is_bound, found))):
            raise IndexFolderError(f"{folder / META} is damaged; build the index again.")
        return Rounding(*map(float, found))
    if metric.name == Mahalanobis.name:
        raise IndexFolderError(
            f"{folder} was built by an earlier version, which rounded the coordinates of the metric 'mahalanobis' by more "
            "than it charged. Build the index again."
        )
    return _rounding(tables.coordinates, metric.coordinate_errors(tables.vectors))


def _is_bound(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < np.inf


def _kept_typical(folder: Path, meta: Mapping[str, Any]) -> dict[int, Typical] | None:
    """The typical distances of a saved folder; None where an earlier version has recorded none of this kind."""
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


def _metric_of(folder: Path, recorded: dict[str, Any]) -> Metric:
    try:
        return get_metric(recorded)
    except TextprivError:
        raise
    except (TypeError, ValueError) as error:
        raise IndexFolderError(
            f"{folder / META} is damaged (its metric has settings that none has); build the index again."
        ) from error


def _plain(value: Any) -> Any:
    """Return a value as it comes back from JSON."""
    return json.loads(json.dumps(value))


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _record_name(binding: Mapping[str, Any]) -> str:
    return _digest(_plain(binding))[:32]


def _write_record(
    folder: Path, name: str, binding: Mapping[str, Any], content: dict[str, Any]
) -> None:
    folder.mkdir(exist_ok=True)
    bound = _plain(binding)
    entry = {
        "binding": bound,
        "content": content,
        "checksum": _digest([bound, _plain(content)]),
    }
    with atomic_write(folder / f"{name}.json", mode=0o666 & ~umask()) as file:
        file.write(json.dumps(entry, indent=1).encode())


def _reopen(path: Path, metric: Metric | None, fingerprint: str) -> Index:
    # The process that sends the path has checked what lies there.
    index = Index._open(path, metric, verify=False, check=False)
    if index.fingerprint != fingerprint:
        raise IndexFolderError(
            f"{path} was replaced by another index while it was in use. Load it again."
        )
    return index


def _revive(state: dict[str, Any]) -> Index:
    return Index(**state)


def _rounding(coordinates: NDArray[Any], errors: NDArray[np.float64]) -> Rounding:
    """Bounds on the errors of distances: by float64 arithmetic on differences, storage in the lists, and coordinates."""
    stored = float(np.finfo(coordinates.dtype).eps) / 2
    arithmetic = (coordinates.shape[1] + 4) * 2.0**-53
    return Rounding(stored + arithmetic, 2 * float(errors.max(initial=0.0)))


def _diameter_bound(coordinates: NDArray[Any], metric: Metric, rounding: Rounding) -> float:
    """Twice the distance from some word to the word farthest from it (triangle inequality), the least over a sample."""
    size = len(coordinates)
    centre = coordinates.mean(axis=0, dtype=np.float64)
    offsets = np.linalg.norm(coordinates - centre, axis=1)
    least = np.inf
    for row in np.argsort(offsets, kind="stable")[: min(8, size)]:
        least = min(least, 2 * float(_distances(coordinates, metric, int(row)).max()))
    return least * (1 + (coordinates.shape[1] + 4) * 2.0**-53) + 2 * rounding.absolute


def _distances(coordinates: NDArray[Any], metric: Metric, row: int) -> NDArray[np.float64]:
    """Distances from one word to all, shape (V,)."""
    if metric.kind == INTERPRETED:
        return metric.pairwise(coordinates[row : row + 1], coordinates)[0]
    out = np.empty(len(coordinates))
    distances_from(metric.kind, coordinates, row, out)
    return out


def _representatives(
    coordinates: NDArray[Any], metric: Metric, lists: Neighbourhoods, errors: NDArray[np.float64]
) -> NDArray[np.int32]:
    """Give words that cannot be told apart one input row: equal coordinates, and pairs closer than their own rounding.

    The vectors of two such words may be at distance zero, at which no charge for rounding helps. All other pairs keep laws
    of their own, however close: the error of distances to third words is charged to every pair alike.
    """
    equal = equal_rows(coordinates)
    if not errors.any():
        return equal
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    size = len(coordinates)
    if lists.ids.shape[1] == 1 < size:
        lists = exact_lists(coordinates, metric, 2)
    # Each bound is stretched by what rounds the distance itself.
    bound = errors * (1 + 1e-5)
    reach = bound + bound.max()
    row, place = np.nonzero(lists.distances[:, 1:] <= reach[:, None])
    near = lists.ids[row, place + 1]
    close = lists.distances[row, place + 1] <= bound[row] + bound[near]
    own = np.arange(size)
    left: list[NDArray[Any]] = [own, row[close]]
    right: list[NDArray[Any]] = [equal, near[close]]
    # A list that is full of such words may not name them all.
    for word in np.unique(equal[lists.distances[:, -1] <= reach]):
        others = np.flatnonzero(_distances(coordinates, metric, int(word)) <= bound[word] + bound)
        left.append(np.full(len(others), word))
        right.append(others)
    ends = np.concatenate(left), np.concatenate(right)
    graph = coo_matrix((np.ones(len(ends[0]), dtype=bool), ends), shape=(size, size))
    count, label = connected_components(graph, directed=False)
    first = np.full(count, size, dtype=np.int32)
    np.minimum.at(first, label, own.astype(np.int32))
    return first[label]


@contextmanager
def reporter(
    progress: bool | Callable[[str, int, int], None],
) -> Iterator[Callable[[str], Callable[[int, int], None] | None]]:
    """Turn the ``progress`` argument into one reporting function a stage."""
    if progress is False or progress is None:
        yield lambda stage: None
        return
    if callable(progress):

        def bind(stage: str) -> Callable[[int, int], None]:
            return lambda done, everything: progress(stage, done, everything)

        yield bind
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bars:

        def bar(stage: str) -> Callable[[int, int], None]:
            task = bars.add_task(stage)
            return lambda done, everything: bars.update(task, completed=done, total=everything)

        yield bar
