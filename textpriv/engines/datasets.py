"""The Arrow-batch function by ``map`` of Hugging Face ``datasets``, which it needs: a Dataset or splits in, the same out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeVar

from textpriv.engines.batch import (
    NO_SALT,
    BatchRelease,
    Columns,
    PrivatizerSettings,
    corpus_name,
    refuse_repeated,
    release_in_process,
)
from textpriv.errors import CorpusError
from textpriv.randomness import framed

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import Dataset, DatasetDict, IterableDataset, IterableDatasetDict

__all__ = ["privatize_dataset"]

_NUMBER = "textpriv number"

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
    workers: int = 1,
    batch_size: int = 1000,
) -> AnyDataset:
    """Return a Dataset, or all its splits, with private texts and the other columns as they are.

    Parameters
    ----------
    dataset : datasets.Dataset, IterableDataset, DatasetDict or IterableDatasetDict
        Splits are one corpus, in their order: documents without names are counted on from one to the next, for which those
        of an IterableDatasetDict are read once.
    settings : PrivatizerSettings
        Its run key (``key_file`` or ``run_key``) makes the release repeatable, and so shows whether a text has changed
        between two of them. A ledger cannot be used.
    text_column : str or sequence of str
        One column of texts, or several, which are released independently. Its name is part of what documents are known by.
    document_column : str, optional
        The name of each document, from which its randomness follows, all different: this column is read once before
        anything is mapped. Without one, its number in the dataset. The same documents under the same settings and key
        come out as from ``textpriv.corpus``.
    author_column, labels_column : str, optional
        As ``author`` and ``labels`` in :class:`textpriv.engines.batch.Columns`; the labels are left out.
    workers : int
        Processes; an IterableDataset has one.
    batch_size : int
        Rows at a time; changes speed only.

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
    ``datasets`` keeps what it maps in its cache folder: the private texts and the other columns. It is found there again
    for the same dataset, index, settings and key alone, whatever paths these have.
    """
    if settings.ledger is not None:
        raise CorpusError("A ledger counts in one process: use textpriv.corpus, or a run key.")
    number = None if document_column is not None else _NUMBER
    columns = Columns(
        text_column,
        document=document_column,
        author=author_column,
        number=number,
        labels=labels_column,
    )
    splits: dict[Any, Any] = dict(dataset) if isinstance(dataset, dict) else {None: dataset}
    context = NO_SALT
    if document_column is not None:
        names = (_names(split, document_column) for split in splits.values())
        refuse_repeated(chain.from_iterable(names), document_column)
    elif settings.seed is None:
        context += corpus_name(_texts(splits.values(), columns.texts), settings.secret())
    # Settings that cannot be used are an error now.
    release = release_in_process(settings, columns, context)
    private, first = {}, 0
    for name, split in splits.items():
        work = _Batches(settings, columns, context, first)
        private[name] = _mapped(split, work, release, workers, batch_size)
        if number is not None and len(private) < len(splits):
            first += split.num_rows if hasattr(split, "num_rows") else sum(1 for _ in split)
    return type(dataset)(private) if isinstance(dataset, dict) else private[None]


def _mapped(
    dataset: Any, work: _Batches, release: BatchRelease, workers: int, batch_size: int
) -> Any:
    options: dict[str, Any] = {"batched": True, "batch_size": batch_size, "with_indices": True}
    arrow = dataset.with_format("arrow")
    if not hasattr(dataset, "format"):  # an IterableDataset, which has none
        private = arrow.map(work, remove_columns=work.left_out, **options).with_format(None)
        return _undescribed(private, private.features)
    features = dataset.features.copy()
    for name in work.columns.texts:
        if hasattr(features.get(name), "dtype"):  # beside which it may have an id
            features[name] = type(features[name])(features[name].dtype)
    shown = dataset.format["columns"]
    for name in work.left_out:
        features.pop(name, None)
        shown = [each for each in shown if each != name]
    options |= {
        "remove_columns": work.left_out,
        "features": features,
        "num_proc": workers if workers > 1 else None,
    }
    # A hash of the function would follow the path of an index or of a key and not what lies there.
    private = arrow.map(work, new_fingerprint=_fingerprint(dataset, work, release), **options)
    form = dataset.format
    private = private.with_format(
        form["type"], shown, form["output_all_columns"], **form["format_kwargs"]
    )
    return _undescribed(private, features)


def _undescribed(private: Any, features: Any) -> Any:
    """A mapped dataset without what the raw one was described by: anything, such as where its texts came from."""
    from datasets import DatasetInfo

    vars(private.info).update(vars(DatasetInfo(features=features)))
    return private


def _fingerprint(dataset: Any, work: _Batches, release: BatchRelease) -> str:
    """What a result is known by in the cache: the dataset and all that decides the release; it shows no key."""
    from textpriv import __version__

    seed = work.settings.seed
    digest = hashlib.blake2b(
        key=b"" if seed is not None else work.settings.secret(),
        digest_size=16,
        person=b"textpriv-cache",
    )
    settings = repr(
        (__version__, seed, work.settings.detect, work.columns, work.first, dataset._fingerprint)
    )
    for part in (settings.encode(), release.privatizer.fingerprint, work.context):
        digest.update(framed(part))
    return digest.hexdigest()


def _texts(splits: Iterable[Any], columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    # Whatever the format: rows as plain values, with all columns.
    rows = chain.from_iterable(split.with_format(None) for split in splits)
    for number, row in enumerate(islice(rows, 1000)):
        texts = [row.get(column) for column in columns]
        if all(isinstance(text, str) for text in texts):
            yield number, *texts


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
    context: bytes
    first: int = 0  # documents of the splits before

    @property
    def left_out(self) -> list[str]:
        return [] if self.columns.labels is None else [self.columns.labels]

    def __call__(self, table: pa.Table, numbers: list[int]) -> pa.Table:
        import pyarrow as pa

        release = release_in_process(self.settings, self.columns, self.context)
        (batch,) = table.combine_chunks().to_batches() or [None]
        if batch is None:
            return table
        names = [name for name in batch.schema.names if name != self.columns.labels]
        if self.columns.number is not None:
            known = pa.array([self.first + number for number in numbers], pa.uint64())
            batch = batch.append_column(self.columns.number, known)
        return pa.Table.from_batches([release(batch).select(names)])
