"""Hugging Face ``datasets``: a Dataset or splits in, the same out, through ``map``."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from textpriv.engines.batch import refuse_repeated, release_in_process
from textpriv.engines.settings import Columns, PrivatizerSettings
from textpriv.errors import CorpusError
from textpriv.randomness import Occurrences, framed

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import Dataset, DatasetDict, IterableDataset, IterableDatasetDict

__all__ = ["privatize_dataset"]

_ROWS = 1_000  # at a time

AnyDataset = TypeVar(
    "AnyDataset", "Dataset", "IterableDataset", "DatasetDict", "IterableDatasetDict"
)
Numbers = Mapping[int, tuple[int, ...]]  # of rows with a text that is not the first of its kind


def privatize_dataset(
    dataset: AnyDataset, settings: PrivatizerSettings, *, workers: int = 1, **columns: Any
) -> AnyDataset:
    """Return a Dataset, or all its splits, with private texts and the other columns as they are.

    ``datasets`` keeps what it maps in its cache folder: the private texts and the other columns. It finds it there again for
    the same dataset, index, settings and key.

    Parameters
    ----------
    dataset : datasets.Dataset, IterableDataset, DatasetDict or IterableDatasetDict
        Splits are one corpus, in their order.
    settings : PrivatizerSettings
        A ledger cannot be used.
    workers : int
        Processes; an IterableDataset has one.
    **columns
        Fields of :class:`textpriv.engines.settings.Columns`. The names, or else the texts, are read once, now.

    Returns
    -------
    datasets.Dataset, IterableDataset, DatasetDict or IterableDatasetDict
        In the format of ``dataset``, an IterableDataset in none; without the description of the dataset in its ``info``.

    Raises
    ------
    CorpusError
        For settings with a ledger, a column that is missing, and a name that is there twice.
    """
    if settings.ledger is not None:
        raise CorpusError("A ledger counts in one process: use textpriv.corpus, or a run key.")
    chosen = Columns(**columns)
    splits: dict[Any, Any] = dict(dataset) if isinstance(dataset, dict) else {None: dataset}
    if (document := chosen.document_column) is not None:
        names = chain.from_iterable(_names(split, document) for split in splits.values())
        refuse_repeated(names, document)
    # Settings that cannot be used are an error now.
    index = release_in_process(settings, chosen).privatizer.fingerprint
    known = [Occurrences() for _ in chosen.texts]
    private = {}
    for name, split in splits.items():
        later = {} if document is not None else _later(split, chosen.texts, known)
        private[name] = _mapped(split, settings, chosen, later, index, workers)
    return type(dataset)(private) if isinstance(dataset, dict) else private[None]


def _mapped(
    dataset: Any,
    settings: PrivatizerSettings,
    columns: Columns,
    later: Numbers,
    index: bytes,
    workers: int,
) -> Any:
    left_out = [] if columns.labels_column is None else [columns.labels_column]
    work = partial(_released, settings=settings, columns=columns, later=later)
    options: dict[str, Any] = {"batched": True, "batch_size": _ROWS, "with_indices": True}
    options["remove_columns"] = left_out
    arrow = dataset.with_format("arrow")
    if not hasattr(dataset, "format"):  # an IterableDataset, which has none
        private = arrow.map(work, **options).with_format(None)
        return _undescribed(private, private.features)
    features = dataset.features.copy()
    for name in columns.texts:
        if hasattr(features.get(name), "dtype"):  # beside which it may have an id
            features[name] = type(features[name])(features[name].dtype)
    for name in left_out:
        features.pop(name, None)
    options["features"] = features
    # A hash of the function would follow the path of an index or of a key and not its content.
    options["new_fingerprint"] = _fingerprint(dataset, settings, columns, later, index)
    private = arrow.map(work, num_proc=workers if workers > 1 else None, **options)
    form = dataset.format
    form["columns"] = [name for name in form["columns"] if name not in left_out]
    return _undescribed(private.with_format(**form), features)


def _undescribed(private: Any, features: Any) -> Any:
    """Return a mapped dataset without the description of the raw one, which may contain anything."""
    from datasets import DatasetInfo

    vars(private.info).update(vars(DatasetInfo(features=features)))
    return private


def _fingerprint(
    dataset: Any, settings: PrivatizerSettings, columns: Columns, later: Numbers, index: bytes
) -> str:
    """Return the name of a result in the cache, which follows from all that decides it; it shows no key."""
    from textpriv import __version__

    secret = b"" if settings.seed is not None else settings.secret()
    digest = hashlib.blake2b(key=secret, digest_size=16, person=b"textpriv-cache")
    known = __version__, settings.seed, settings.detect, columns, later, dataset._fingerprint
    for part in (repr(known).encode(), index):
        digest.update(framed(part))
    return digest.hexdigest()


def _later(dataset: Any, columns: Sequence[str], known: Sequence[Occurrences]) -> Numbers:
    """Count the texts of a dataset; return the numbers of rows with a text that is not the first of its kind."""
    later = {}
    for row, values in enumerate(dataset.with_format(None)):
        texts = zip(known, columns, strict=True)
        numbers = tuple(each.count(values.get(column)) for each, column in texts)
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


def _released(
    table: pa.Table,
    rows: list[int],
    settings: PrivatizerSettings,
    columns: Columns,
    later: Numbers,
) -> pa.Table:
    if not len(table):
        return table
    numbers = [later.get(row, (1,) * len(columns.texts)) for row in rows]
    (batch,) = table.combine_chunks().to_batches()
    return type(table).from_batches([release_in_process(settings, columns)(batch, numbers)])
