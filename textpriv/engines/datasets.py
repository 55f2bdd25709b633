"""Hugging Face ``datasets``: a Dataset or splits in, the same out, through ``map``."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from textpriv.engines.batch import (
    numbers_of,
    refuse_repeated,
    release_in_process,
    release_table,
)
from textpriv.engines.columns import Columns
from textpriv.errors import CorpusError
from textpriv.randomness import Occurrences
from textpriv.settings import PrivatizerSettings

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 1_000  # at a time

Numbers = Mapping[int, tuple[int, ...]]  # of rows


def privatize_dataset(
    dataset: Any, settings: PrivatizerSettings, *, workers: int = 1, **columns: Any
) -> Any:
    """Return a Dataset, or all its splits, with private texts and the other columns as they are.

    The format stays, but for an IterableDataset, which gets none; the description in ``info`` does not. ``datasets`` keeps
    the result, the private texts and the other columns, in its cache folder.

    Parameters
    ----------
    dataset : datasets.Dataset, IterableDataset, DatasetDict or IterableDatasetDict
        Splits are one corpus, in their order.
    settings : PrivatizerSettings
        A ledger cannot be used.
    workers : int
        Processes; an IterableDataset has one.
    **columns
        Fields of :class:`textpriv.engines.columns.Columns`. The names, or else the texts, are read once, now.
    """
    if settings.ledger is not None:
        raise CorpusError("A ledger counts in one process: use textpriv.corpus, or a run key.")
    chosen = Columns(**columns)
    splits: dict[Any, Any] = dict(dataset) if isinstance(dataset, dict) else {None: dataset}
    if (document := chosen.document_column) is not None:
        rows = (row for split in splits.values() for row in _rows(split, [document]))
        refuse_repeated(row[document] for row in rows)
    release_in_process(settings, chosen)  # settings that cannot be used are an error now
    known = [Occurrences() for _ in chosen.texts]
    private = {}
    for name, split in splits.items():
        later = {}  # the numbers of rows with a text that is not the first of its kind
        for row, values in enumerate(() if document else _rows(split, chosen.texts)):
            numbers = numbers_of([values[column] for column in chosen.texts], known)
            if max(numbers) > 1:
                later[row] = numbers
        private[name] = _mapped(split, settings, chosen, later, workers)
    return type(dataset)(private) if isinstance(dataset, dict) else private[None]


def _mapped(
    dataset: Any, settings: PrivatizerSettings, columns: Columns, later: Numbers, workers: int
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
    options["new_fingerprint"] = secrets.token_hex(16)
    private = arrow.map(work, num_proc=workers if workers > 1 else None, **options)
    form = dataset.format
    form["columns"] = [name for name in form["columns"] if name not in left_out]
    return _undescribed(private.with_format(**form), features)


def _undescribed(private: Any, features: Any) -> Any:
    """Return a mapped dataset without the description of the raw one, which may contain anything."""
    from datasets import DatasetInfo

    vars(private.info).update(vars(DatasetInfo(features=features)))
    return private


def _rows(dataset: Any, columns: Sequence[str]) -> Any:
    return dataset.select_columns(list(columns)).with_format(None)


def _released(
    table: pa.Table, rows: list[int], settings: PrivatizerSettings, columns: Columns, later: Numbers
) -> pa.Table:
    numbers = [later.get(row, (1,) * len(columns.texts)) for row in rows]
    return release_table(table, settings, columns, numbers)
