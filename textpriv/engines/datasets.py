"""The Arrow-batch function by ``map`` of Hugging Face ``datasets``: a Dataset in, a Dataset out. Needs datasets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from textpriv.engines.batch import (
    NO_SALT,
    Columns,
    PrivatizerSettings,
    corpus_name,
    refuse_repeated,
    release_in_process,
)
from textpriv.errors import CorpusError

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import Dataset, IterableDataset

__all__ = ["privatize_dataset"]

_NUMBER = "textpriv number"

AnyDataset = TypeVar("AnyDataset", "Dataset", "IterableDataset")


def privatize_dataset(
    dataset: AnyDataset,
    settings: PrivatizerSettings,
    *,
    text_column: str = "text",
    document_column: str | None = None,
    workers: int = 1,
    batch_size: int = 1000,
) -> AnyDataset:
    """Return a Dataset with private texts and the other columns as they are.

    Parameters
    ----------
    dataset : datasets.Dataset or datasets.IterableDataset
    settings : PrivatizerSettings
        Its run key (``key_file`` or ``run_key``) makes the release repeatable, and so shows whether a text has changed
        between two of them. A ledger cannot be used.
    text_column : str
        Its name is part of what each document is known by.
    document_column : str, optional
        The name of each document, from which its randomness follows, all different: this column is read once before
        anything is mapped. Without one, its number in the dataset. The same documents under the same settings and key
        come out as from ``textpriv.corpus``.
    workers : int
        Processes; an IterableDataset has one.
    batch_size : int
        Rows at a time; changes speed only.

    Returns
    -------
    datasets.Dataset or datasets.IterableDataset
        In the format of ``dataset``; an IterableDataset in none.

    Raises
    ------
    CorpusError
        For settings with a ledger, a column that is missing, a name that is there twice, and a text that is none.

    Notes
    -----
    ``datasets`` keeps what it maps in its cache folder: the private texts and the other columns.
    """
    if settings.ledger is not None:
        raise CorpusError("A ledger counts in one process: use textpriv.corpus, or a run key.")
    corpus = b""
    if document_column is not None:
        refuse_repeated(_names(dataset, document_column), document_column)
    elif settings.seed is None:
        corpus = corpus_name(_texts(dataset, text_column), settings.secret())
    number = None if document_column is not None else _NUMBER
    columns = Columns(text_column, document=document_column, number=number)
    work = _Batches(settings, columns, NO_SALT + corpus)
    release_in_process(
        settings, columns, work.context
    )  # settings that cannot be used are an error now
    options: dict[str, Any] = {"batched": True, "batch_size": batch_size, "with_indices": True}
    if hasattr(dataset, "num_rows"):
        # Cached results are looked up by the settings, and an index may have changed under its path.
        options |= {"load_from_cache_file": False, "features": dataset.features}
        options["num_proc"] = workers if workers > 1 else None
    private: AnyDataset = dataset.with_format("arrow").map(work, **options)
    if not hasattr(dataset, "format"):  # an IterableDataset, which has none
        return private.with_format(None)
    form = dataset.format
    return private.with_format(
        form["type"], form["columns"], form["output_all_columns"], **form["format_kwargs"]
    )


def _texts(dataset: Any, column: str) -> Iterator[tuple[int, str]]:
    # Whatever the format: rows as plain values, with all columns.
    for number, row in enumerate(islice(dataset.with_format(None), 1000)):
        text = row.get(column)
        if isinstance(text, str):
            yield number, text


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
    """The mapped function: tables and the numbers of their rows in, tables out."""

    settings: PrivatizerSettings
    columns: Columns
    context: bytes

    def __call__(self, table: pa.Table, numbers: list[int]) -> pa.Table:
        import pyarrow as pa

        release = release_in_process(self.settings, self.columns, self.context)
        (batch,) = table.combine_chunks().to_batches() or [None]
        if batch is None:
            return table
        names = batch.schema.names
        if self.columns.number is not None:
            batch = batch.append_column(self.columns.number, pa.array(numbers, pa.uint64()))
        return pa.Table.from_batches([release(batch).select(names)], table.schema)
