"""Ray: a private Dataset, and tasks of a corpus on actors, through ``map_batches``.

Each actor loads the index once, by its path, so the index and ``textpriv`` must be on every machine.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from textpriv.engines.batch import (
    Columns,
    PrivatizerSettings,
    release_in_process,
    without_trace,
)
from textpriv.engines.identity import refuse_repeated
from textpriv.engines.schemas import types_alone
from textpriv.errors import CorpusError, how_to_install

if TYPE_CHECKING:
    import pyarrow as pa
    from ray.data import Dataset

__all__ = ["cluster", "each", "privatize_dataset"]

_ROWS = 1_000  # at a time
_STORE_BYTES = 256 * 1024 * 1024  # of an object store on this machine; batches pass through it


def privatize_dataset(
    dataset: Dataset,
    settings: PrivatizerSettings,
    *,
    document_column: str,
    text_column: str | Sequence[str] = "text",
    author_column: str | None = None,
    labels_column: str | None = None,
    null: str = "keep",
    workers: int = 1,
) -> Dataset:
    """Return a lazy Ray Dataset with private texts and the other columns as they are.

    Parameters
    ----------
    dataset : ray.data.Dataset
    settings : PrivatizerSettings
        With ``key_file``, a path that every actor can read, no secret is sent to the actors. A ledger cannot be used.
    document_column : str
        The name of each document, from which its randomness follows. All names are different: they are read once, now.
    text_column, author_column, labels_column, null
        As in :class:`textpriv.engines.batch.Columns`; the labels are left out.
    workers : int
        Actors.

    Raises
    ------
    CorpusError
        For settings with a ledger, a column that is missing, and a name that is there twice.
    """
    if settings.ledger is not None:
        raise CorpusError("A ledger counts on one machine: use a run key.")
    columns = Columns(text_column, document_column, author_column, labels=labels_column, null=null)
    columns.check(dataset.columns() or [])
    refuse_repeated(_names(dataset, document_column), document_column)
    return dataset.map_batches(
        _Batches,
        fn_constructor_args=(settings.without_secret(), columns),
        batch_format="pyarrow",
        batch_size=_ROWS,
        concurrency=workers,
    )


def _names(dataset: Dataset, column: str) -> Iterator[Any]:
    for row in dataset.select_columns([column]).iter_rows():
        yield row[column]


class _Batches:
    """The work of an actor: tables in, tables out."""

    def __init__(self, settings: PrivatizerSettings, columns: Columns) -> None:
        self._left_out = columns.labels
        self._release = release_in_process(settings, columns)

    def __call__(self, table: pa.Table) -> pa.Table:
        import pyarrow as pa

        done = [without_trace(self._release, batch) for batch in table.to_batches()]
        schema = types_alone(table.schema)
        if self._left_out is not None:
            schema = schema.remove(schema.get_field_index(self._left_out))
        return pa.Table.from_batches(done, schema)


class _Tasks:
    """The work of an actor: tasks in, their results out."""

    def __init__(self, tasks: Sequence[Any], work: Callable[[Any], dict[str, Any]]) -> None:
        self._tasks = tasks
        self._work = work

    def __call__(self, table: pa.Table) -> pa.Table:
        import pyarrow as pa

        results = [
            json.dumps(without_trace(self._work, self._tasks[number]))
            for number in table.column("id").to_pylist()
        ]
        return pa.table({"result": pa.array(results, pa.string())})


def each(
    tasks: Sequence[Any],
    work: Callable[[Any], dict[str, Any]],
    *,
    address: str | None = None,
    workers: int = 1,
) -> Iterator[dict[str, Any]]:
    """Do tasks on actors, and yield their results as they finish; as :func:`textpriv.engines.spark.each`."""
    with cluster(address, workers):
        import ray

        # Not ray.data.range, whose reading wants a processor that the actors may hold.
        blocks = [{"id": number} for number in range(len(tasks))]
        numbers = ray.data.from_items(blocks, override_num_blocks=len(tasks)).map_batches(
            _Tasks,
            fn_constructor_args=(tasks, work),
            batch_format="pyarrow",
            batch_size=1,
            concurrency=min(workers, len(tasks)),
        )
        try:
            for row in numbers.iter_rows():
                yield json.loads(row["result"])
        except ray.exceptions.RayError as error:
            raise CorpusError(
                f"Ray gave up a task ({type(error).__name__}): an actor was killed again and again or ran out of memory, "
                "the index is not where the actors look for it, or textpriv is not installed there. Ray's own log says "
                "more. What is done is kept: continue with --resume."
            ) from None


@contextlib.contextmanager
def cluster(address: str | None = None, workers: int = 1) -> Iterator[None]:
    """Connect to Ray for the block; a connection that is open already is used, and left open.

    Without the address of a cluster, one is started on this machine, on the loopback interface only.
    """
    # Nothing is reported to anyone, whatever the machine's settings.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # By default actors give way to every other program.
    os.environ.setdefault("RAY_worker_niceness", "0")
    try:
        import ray
        import ray.data
    except ImportError:
        raise CorpusError(f"Ray needs the package ray: {how_to_install('ray')}.") from None
    if ray.is_initialized():
        yield
        return
    options: dict[str, Any] = {"address": address}
    if address is None:
        options = {
            "address": "local",
            "num_cpus": workers + 1,  # one to read and write with
            "object_store_memory": _STORE_BYTES,
            "include_dashboard": False,
            "_node_ip_address": "127.0.0.1",
        }
    try:
        ray.init(log_to_driver=False, logging_level=logging.ERROR, **options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise CorpusError(
            f"Ray did not start ({type(error).__name__}): is there a cluster at the address?"
        ) from None
    context = ray.data.DataContext.get_current()
    before = context.enable_progress_bars
    context.enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    try:
        yield
    finally:
        context.enable_progress_bars = before
        ray.shutdown()
