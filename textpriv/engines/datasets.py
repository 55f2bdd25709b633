"""The Arrow-batch function by ``map`` of Hugging Face ``datasets``: a Dataset in, a Dataset out. Needs datasets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from textpriv.engines.batch import (
    Columns,
    PrivatizerSettings,
    corpus_name,
    release_context,
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
        Its run key (``key_file`` or ``run_key``) makes the release repeatable. A ledger cannot be used.
    text_column : str
    document_column : str, optional
        The name of each document, from which its randomness follows; without one, its number in the dataset. The same
        documents under the same settings and key come out as from ``textpriv.corpus``.
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
        For settings with a ledger, a column that is missing, and a text that is none.

    Notes
    -----
    ``datasets`` keeps what it maps in its cache folder: the private texts and the other columns.
    """
    if settings.ledger is not None:
        raise CorpusError("A ledger counts in one process: use textpriv.corpus, or a run key.")
    privatizer = settings.build()
    corpus = b""
    if document_column is None and settings.seed is None:
        corpus = corpus_name(_texts(dataset, text_column), settings.secret())
    number = None if document_column is not None else _NUMBER
    work = _Batches(
        settings,
        Columns(text_column, document=document_column, number=number),
        release_context(privatizer, corpus),
    )
    options: dict[str, Any] = {"batched": True, "batch_size": batch_size, "with_indices": True}
    if hasattr(dataset, "num_rows"):
        # Kept results are looked up by the settings, and an index may have changed under its path.
        options |= {"load_from_cache_file": False, "features": dataset.features}
        options["num_proc"] = workers if workers > 1 else None
    private: AnyDataset = dataset.with_format("arrow").map(work, **options)
    if not hasattr(dataset, "format"):  # an IterableDataset, which does not tell its own
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


@dataclass(frozen=True)
class _Batches:
    """What is mapped: tables and the numbers of their rows in, tables out."""

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
