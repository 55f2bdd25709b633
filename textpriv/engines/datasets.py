"""Hugging Face ``datasets``: a Dataset or splits in, the same out, through ``map``."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from textpriv.engines.batch import BatchRelease, Columns, PrivatizerSettings, release_in_process
from textpriv.engines.identity import Occurrences, refuse_repeated
from textpriv.errors import CorpusError
from textpriv.randomness import framed

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import Dataset, DatasetDict, IterableDataset, IterableDatasetDict

__all__ = ["privatize_dataset"]

_ROWS = 1_000  # at a time
_NUMBER = "textpriv number of {}"

AnyDataset = TypeVar(
    "AnyDataset", "Dataset", "IterableDataset", "DatasetDict", "IterableDatasetDict"
)


def privatize_dataset(
    dataset: AnyDataset,
    settings: PrivatizerSettings,
    *,
    text_column: str | Sequence[str] = "text",
    document_column: str | None = None,
    author_column: str | None = None,
    labels_column: str | None = None,
    null: str = "keep",
    workers: int = 1,
) -> AnyDataset:
    """Return a Dataset, or all its splits, with private texts and the other columns as they are.

    Parameters
    ----------
    dataset : datasets.Dataset, IterableDataset, DatasetDict or IterableDatasetDict
        Splits are one corpus, in their order.
    settings : PrivatizerSettings
        A ledger cannot be used.
    document_column : str, optional
        The name of each document, from which its randomness follows, all different. Without one, its own text and its
        number among equal texts. The names, or else the texts, are read once before anything is mapped.
    text_column, author_column, labels_column, null
        As in :class:`textpriv.engines.batch.Columns`; the labels are left out.
    workers : int
        Processes; an IterableDataset has one.

    Returns
    -------
    datasets.Dataset, IterableDataset, DatasetDict or IterableDatasetDict
        In the format of ``dataset``, an IterableDataset in none; without the description of the dataset in its ``info``.

    Raises
    ------
    CorpusError
        For settings with a ledger, a column that is missing, a name that is there twice, and a text that is none.

    Notes
    -----
    ``datasets`` keeps what it maps in its cache folder: the private texts and the other columns. It finds it there again for
    the same dataset, index, settings and key.
    """
    if settings.ledger is not None:
        raise CorpusError("A ledger counts in one process: use textpriv.corpus, or a run key.")
    columns = Columns(text_column, document_column, author_column, labels=labels_column, null=null)
    if document_column is None:
        columns = replace(columns, occurrence=[_NUMBER.format(name) for name in columns.texts])
    splits: dict[Any, Any] = dict(dataset) if isinstance(dataset, dict) else {None: dataset}
    if document_column is not None:
        names = (_names(split, document_column) for split in splits.values())
        refuse_repeated(chain.from_iterable(names), document_column)
    release = release_in_process(settings, columns)  # settings that cannot be used are an error now
    known = [Occurrences() for _ in columns.occurrences]
    private = {}
    for name, split in splits.items():
        work = _Batches(settings, columns, _later(split, columns.texts, known))
        private[name] = _mapped(split, work, release, workers)
    return type(dataset)(private) if isinstance(dataset, dict) else private[None]


def _mapped(dataset: Any, work: _Batches, release: BatchRelease, workers: int) -> Any:
    options: dict[str, Any] = {"batched": True, "batch_size": _ROWS, "with_indices": True}
    options["remove_columns"] = work.left_out
    arrow = dataset.with_format("arrow")
    if not hasattr(dataset, "format"):  # an IterableDataset, which has none
        private = arrow.map(work, **options).with_format(None)
        return _undescribed(private, private.features)
    features = dataset.features.copy()
    for name in work.columns.texts:
        if hasattr(features.get(name), "dtype"):  # beside which it may have an id
            features[name] = type(features[name])(features[name].dtype)
    for name in work.left_out:
        features.pop(name, None)
    # A hash of the function would follow the path of an index or of a key and not its content.
    mark = _fingerprint(dataset, work, release)
    processes = workers if workers > 1 else None
    options |= {"features": features, "num_proc": processes, "new_fingerprint": mark}
    private = arrow.map(work, **options)
    form = dataset.format
    shown = [name for name in form["columns"] if name not in work.left_out]
    private = private.with_format(
        form["type"], shown, form["output_all_columns"], **form["format_kwargs"]
    )
    return _undescribed(private, features)


def _undescribed(private: Any, features: Any) -> Any:
    """Return a mapped dataset without the description of the raw one, which may contain anything."""
    from datasets import DatasetInfo

    vars(private.info).update(vars(DatasetInfo(features=features)))
    return private


def _fingerprint(dataset: Any, work: _Batches, release: BatchRelease) -> str:
    """Return the name of a result in the cache, which follows from all that decides it; it shows no key."""
    from textpriv import __version__

    seed = work.settings.seed
    digest = hashlib.blake2b(
        key=b"" if seed is not None else work.settings.secret(),
        digest_size=16,
        person=b"textpriv-cache",
    )
    detect, known = work.settings.detect, dataset._fingerprint
    settings = repr((__version__, seed, detect, work.columns, work.later, known))
    for part in (settings.encode(), release.privatizer.fingerprint):
        digest.update(framed(part))
    return digest.hexdigest()


def _later(
    dataset: Any, columns: Sequence[str], known: Sequence[Occurrences]
) -> dict[int, tuple[int, ...]]:
    """Count the texts of a dataset; return the numbers of rows with a text that is not the first of its kind."""
    later = {}
    for row, values in enumerate(dataset.with_format(None) if known else ()):
        # What is no text is an error when its batch is mapped.
        texts = zip(known, (values.get(column) for column in columns), strict=True)
        numbers = tuple(k.count(text) if isinstance(text, str) else 1 for k, text in texts)
        if max(numbers) > 1:
            later[row] = numbers
    return later


def _names(dataset: Any, column: str) -> Iterator[Any]:
    """Yield the names of all documents; a missing column is an error when its first batch is mapped."""
    if dataset.column_names is not None:
        if column not in dataset.column_names:
            return
        dataset = dataset.select_columns([column])
    for row in dataset.with_format(None):
        yield row.get(column)


@dataclass(frozen=True)
class _Batches:
    """The mapped function: tables and the numbers of their rows in the dataset in, tables out."""

    settings: PrivatizerSettings
    columns: Columns
    later: Mapping[int, tuple[int, ...]]  # numbers among equal texts, where one is not the first

    @property
    def left_out(self) -> list[str]:
        return [] if self.columns.labels is None else [self.columns.labels]

    def __call__(self, table: pa.Table, numbers: list[int]) -> pa.Table:
        import pyarrow as pa

        release = release_in_process(self.settings, self.columns)
        (batch,) = table.combine_chunks().to_batches() or [None]
        if batch is None:
            return table
        names = [name for name in batch.schema.names if name not in self.left_out]
        first = (1,) * len(self.columns.texts)
        for place, column in enumerate(self.columns.occurrences):
            found = [self.later.get(number, first)[place] for number in numbers]
            batch = batch.append_column(column, pa.array(found, pa.uint64()))
        return pa.Table.from_batches([release(batch).select(names)])
