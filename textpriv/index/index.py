"""The public tables a mechanism draws from, built once: vocabulary, metric and nearest lists, in memory or as a folder.

An index folder holds plain arrays that are mapped, not read, so that many processes share one copy. Every file is listed
with its size and checksum in ``index.json``. Folders are written in ``index.saving``, read and checked in ``index.storage``.
Nothing is drawn here, and no law computed.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from textpriv.bounds import at_most
from textpriv.errors import IndexFolderError, MetricError
from textpriv.html_card import card
from textpriv.index.building import build_tables, rounding_of
from textpriv.index.checking import check_sample, check_values
from textpriv.index.hnsw import hnsw_index, read_graph
from textpriv.index.neighbours import Neighbourhoods
from textpriv.index.quantized import QuantizedRows, quantize
from textpriv.index.rank_bands import RankBands
from textpriv.index.records import RECORDS, Records
from textpriv.index.saving import save, write
from textpriv.index.some_lists import WordLists
from textpriv.index.storage import (
    FORMAT,
    GRAPH_FILE,
    META,
    TREE,
    read_meta,
    read_tables,
    stored_metric,
    stored_rounding,
    stored_typical,
    verify_files,
)
from textpriv.index.typical import REFERENCE, Typical, typical_distances
from textpriv.index.word_distances import WordDistances
from textpriv.metrics import (
    EUCLIDEAN,
    INTERPRETED,
    Graph,
    Metric,
    Projection,
    Rounding,
    get_metric,
)
from textpriv.vocabulary.vocabulary import Vocabulary, read_only

__all__ = ["FORMAT", "Index"]

# What an index without a folder travels by; quantized rows and typical distances take longer to find than to send.
_STATE = (
    "vocabulary",
    "metric",
    "coordinates",
    "neighbours",
    "representatives",
    "backend",
    "recall",
    "rounding",
    "diameter_bound",
    "fingerprint",
    "quantized",
    "typical",
)
_WIDE = 1e-3  # of the reference distance: a group of words with one law that is wider is warned of


class Index(WordDistances):
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
    language : str or None
        That of the vocabulary.
    path : Path or None
        The folder, if the index lives in one.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        metric: Metric,
        coordinates: NDArray[Any],
        neighbours: Neighbourhoods | None,
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
        if neighbours is not None:  # else a subclass finds them when they are first needed
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
        self._records = Records(None if path is None else path / RECORDS)

    def lists_of(self, words: NDArray[np.int64]) -> WordLists:
        """The lists of some words, and how near the words are that these leave out."""
        lists = self.neighbours
        return WordLists(lists.ids[words], lists.distances[words], self.bands.nearest[words])

    @property
    def band_starts(self) -> NDArray[np.int32]:
        """Where the rank bands start; see :class:`textpriv.index.rank_bands.RankBands`."""
        return self.bands.starts

    @property
    def band_step(self) -> float:
        """The distance in which their bounds are counted."""
        return self.bands.step

    @cached_property
    def bands_digest(self) -> str:
        """A checksum of the rank bands."""
        return self.bands.digest()

    @property
    def language(self) -> str | None:
        """Code of the language of the words, by whose rules texts are tokenized; None where it is not known."""
        return self.vocabulary.language

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

    def __reduce__(self) -> tuple[Any, ...]:
        # A worker opens the folder again and shares its pages; only an index without one travels by value.
        if self.path is not None:
            metric = self.metric if self.metric.kind == INTERPRETED else None
            return _reopen, (self.path, metric, self.fingerprint)
        return partial(Index, **{name: getattr(self, name) for name in _STATE}), ()

    def __repr__(self) -> str:
        size = f"{len(self)} words x {self.vocabulary.vectors.shape[1]}"
        return f"Index({size}, {self.metric.name}, k={self.k} {self._lists})"

    @property
    def _lists(self) -> str:
        return "exact" if self.exact else f"approximate, recall {self.recall:.4f}"

    def _repr_html_(self) -> str:
        return _card(self)

    @classmethod
    def build(
        cls,
        vocabulary: Vocabulary,
        metric: str | Metric = "euclidean",
        k: int = 256,
        *,
        projection: int | None = None,
        radius: float | None = None,
        graph: int | None = None,
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
        projection : int, optional
            Take distances after a projection on so many principal directions of the public vectors, which lengthens none:
            every promise holds in the given metric as well. For "euclidean" and "unit_euclidean"; see
            :class:`textpriv.metrics.Projection`.
        radius : float, optional
            Scale longer vectors to this length first, which lengthens no distance either.
        graph : int, optional
            Take distances along shortest paths over each word's so many nearest neighbours, which shortens none: promises
            hold in this metric and not in the given one. See :class:`textpriv.metrics.Graph`.
        backend : {"exact", "hnsw"}
            ``"hnsw"`` takes the lists from an approximate search where exact ones are out of reach. It measures its
            recall, and every mechanism that needs exact lists then states ``proved=False``.
        hnsw : bool
            Also build the approximate index that Madlib searches (Euclidean metrics only), where hnswlib is installed
            (the extra ``hnsw``). Left out, it is built when first needed.
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
        if projection is not None or radius is not None:
            size = vocabulary.vectors.shape[1] if projection is None else projection
            chosen = Projection.principal(vocabulary.vectors, size, base=chosen.name, radius=radius)
        if graph is not None:
            chosen = Graph(graph, base=chosen)
        index = cls(
            vocabulary, **build_tables(vocabulary, chosen, k, backend, hnsw, progress, device)
        )
        _warn_of_width(index)
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
        return self._records.find(binding)

    def keep_record(self, binding: Mapping[str, Any], content: dict[str, Any]) -> None:
        """Record something computed for a binding: in memory, and in the folder where that can be written."""
        self._records.keep(binding, content)

    @cached_property
    def quantized(self) -> QuantizedRows:
        """Quantized coordinates, from which bounds on a Euclidean distance can be read; none for other metrics."""
        rows = self._stored_quantized or (
            quantize(self.coordinates) if self.metric.kind == EUCLIDEAN else QuantizedRows.none()
        )
        return rows._replace(rows=read_only(rows.rows))

    @property
    def sketch(self) -> QuantizedRows:
        """Deprecated name of :attr:`quantized`."""
        warnings.warn("Index.sketch is Index.quantized now.", DeprecationWarning, stacklevel=2)
        return self.quantized

    @cached_property
    def bands(self) -> RankBands:
        """Bounds on the distances to words outside the lists, by rank bands; a trivial one where none are known."""
        known = self.neighbours.bands or RankBands.none(len(self), self.k)
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
        if self.path is not None and GRAPH_FILE in read_meta(self.path)["files"]:
            verify_files(self.path, read_meta(self.path), [GRAPH_FILE])
            return read_graph(self.path / GRAPH_FILE, self.coordinates)
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
        save(self, Path(path), overwrite=overwrite)

    def _write(self, folder: Path) -> None:
        write(self, folder)

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
        from textpriv.index.tree import Tree

        if meta.get("kind") == TREE:
            return Tree.opened(folder, meta, metric, verify=verify, check=check)
        if issubclass(cls, Tree):
            raise IndexFolderError(
                f"{folder} is an index of vectors and no tree. Open it by Index.load, or make a tree with: textpriv "
                "tree SOURCE OUT"
            )
        chosen = stored_metric(folder, meta, metric)
        files = [name for name in meta["files"] if name != GRAPH_FILE]
        verify_files(folder, meta, files, content=verify)
        tables = read_tables(folder, meta)
        if check:
            check_values(folder, tables, chosen.kind)
            check_sample(folder, meta, tables, chosen)
        vocabulary = Vocabulary.trusted(
            tables.words, tables.vectors, tables.prior, meta.get("language")
        )
        if verify and vocabulary.fingerprint() != meta["fingerprint"]:
            raise IndexFolderError(
                f"{folder / META} has the fingerprint of other words or vectors; build the index again."
            )
        index = cls(
            vocabulary,
            chosen,
            tables.coordinates,
            Neighbourhoods(tables.ids, tables.distances, tables.bands),
            tables.representatives,
            backend=meta["backend"],
            recall=float(meta["recall"]),
            rounding=stored_rounding(folder, meta, chosen)
            or rounding_of(tables.coordinates, chosen.coordinate_errors(tables.vectors)),
            diameter_bound=float(meta["diameter_bound"]),
            fingerprint=meta["fingerprint"],
            path=folder.resolve(),
            quantized=tables.quantized,
            typical=stored_typical(folder, meta),
        )
        if check:
            _warn_of_width(index)
        return index


def _card(index: Index) -> str:
    """The index as a notebook shows it."""
    half, ninety = (at_most(each, 4) for each in index.typical[REFERENCE])
    dimension, dtype = index.vocabulary.vectors.shape[1], index.coordinates.dtype
    return card(
        "Index",
        [
            ("words", f"{len(index):,}"),
            ("language", index.language or "not known"),
            ("vectors", f"{dimension} dimensions, {dtype}"),
            ("metric", index.metric.name),
            ("nearest lists", f"{index.k} words each, {index._lists}"),
            ("counts", "stored" if index.vocabulary.prior is not None else "none"),
            (
                "10th neighbour",
                f"within {half} for half of all running words, {ninety} for nine tenths",
            ),
            ("diameter", f"at most {at_most(index.diameter_bound, 4)}"),
            ("folder", "in memory only" if index.path is None else str(index.path)),
            ("fingerprint", index.fingerprint[:16]),
        ],
        verdict="exact lists" if index.exact else "approximate lists prove nothing",
        good=index.exact,
    )


def _warn_of_width(index: Index) -> None:
    """Warn where words share a law that are not close to each other."""
    if not len(index.wide) or index.width <= _WIDE * index.reference_distance:
        return
    warnings.warn(
        f"{len(index.wide):,} words share the law of another word up to {index.width:.3g} away, where half of all running "
        f"words have their 10th nearest within {index.reference_distance:.3g}: chains of words that the rounding of the "
        f"metric {index.metric.name!r} cannot tell apart. Every statement charges for it. Give the vectors in float64, "
        "or leave such words out.",
        stacklevel=3,
    )


def _reopen(path: Path, metric: Metric | None, fingerprint: str) -> Index:
    # The process that sends the path has checked what lies there.
    index = Index._open(path, metric, verify=False, check=False)
    if index.fingerprint != fingerprint:
        raise IndexFolderError(
            f"{path} was replaced by another index while it was in use. Load it again."
        )
    return index
