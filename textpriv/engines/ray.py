"""Ray: a private Dataset, and tasks of a corpus on its workers, through ``map_batches``.

Each worker process loads the index once, by its path, so the index and ``textpriv`` must be on every machine.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from textpriv.engines.batch import gave_up, refuse_repeated, release_table, results
from textpriv.engines.columns import Columns
from textpriv.errors import CorpusError, needs
from textpriv.settings import PrivatizerSettings

if TYPE_CHECKING:
    import pyarrow as pa
    from ray.data import Dataset

_ROWS = 1_000  # at a time
_STORE_BYTES = 256 * 1024 * 1024  # of an object store on this machine; batches pass through it


def privatize_dataset(
    dataset: Dataset, settings: PrivatizerSettings, *, workers: int = 1, **columns: Any
) -> Dataset:
    """Return a lazy Ray Dataset with private texts and the other columns as they are.

    Parameters
    ----------
    dataset : ray.data.Dataset
    settings : PrivatizerSettings
        With ``key_file``, a path that every worker can read, no secret is sent to the workers. A ledger cannot be used.
    workers : int
        Batches that are released at a time.
    **columns
        Fields of :class:`textpriv.engines.columns.Columns`, among them ``document_column``. The names are read once, now.
    """
    chosen = Columns.on_machines(settings, **columns)
    chosen.check(dataset.columns() or [])
    name = str(chosen.document_column)
    refuse_repeated(row[name] for row in dataset.select_columns([name]).iter_rows())
    return dataset.map_batches(
        partial(release_table, settings=settings, columns=chosen),
        batch_format="pyarrow",
        batch_size=_ROWS,
        concurrency=workers,
    )


def each(
    tasks: Sequence[Any],
    work: Callable[[Any], dict[str, Any]],
    *,
    address: str | None = None,
    workers: int = 1,
) -> Iterator[dict[str, Any]]:
    """Do tasks on workers, and yield their results as they finish; as :func:`textpriv.engines.spark.each`."""

    def do(table: pa.Table) -> pa.Table:
        return results(table.column("id"), tasks, work)

    with cluster(address, workers):
        import ray

        # Not ray.data.range, whose reading wants a processor that the workers may hold.
        blocks = [{"id": number} for number in range(len(tasks))]
        numbers = ray.data.from_items(blocks, override_num_blocks=len(tasks)).map_batches(
            do, batch_format="pyarrow", batch_size=1, concurrency=min(workers, len(tasks))
        )
        try:
            for row in numbers.iter_rows():
                yield json.loads(row["result"])
        except ray.exceptions.RayError as error:
            raise gave_up("Ray", error) from None


@contextlib.contextmanager
def cluster(address: str | None = None, workers: int = 1) -> Iterator[None]:
    """Connect to Ray for the block; a connection that is open already is used, and left open.

    Without the address of a cluster, one is started on this machine, on the loopback interface only.
    """
    # Nothing is reported to anyone, whatever the machine's settings.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray, data = needs("ray", "ray"), needs("ray.data", "ray")
    if ray.is_initialized():
        yield
        return
    options: dict[str, Any] = {"address": address or "local"}
    if address is None:
        options["num_cpus"] = workers + 1  # one to read and write with
        options |= {"object_store_memory": _STORE_BYTES, "include_dashboard": False}
        options["_node_ip_address"] = "127.0.0.1"
    try:
        ray.init(log_to_driver=False, logging_level=logging.ERROR, **options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        told = f"Ray did not start ({type(error).__name__}). Is there a cluster at the address?"
        raise CorpusError(told) from None
    data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    try:
        yield
    finally:
        ray.shutdown()
