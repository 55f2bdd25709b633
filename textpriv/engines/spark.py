"""Apache Spark: a private DataFrame, and tasks of a corpus on executors, through ``mapInArrow``.

Each worker process loads the index once, by its path, so the index and ``textpriv`` must be on every machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from textpriv.engines.batch import (
    REPEATED_NAME,
    gave_up,
    release_in_process,
    results,
    without_trace,
)
from textpriv.engines.columns import Columns
from textpriv.errors import CorpusError, needs
from textpriv.settings import PrivatizerSettings

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_ATTEMPTS = 4  # of a task, as on a cluster


def privatize_dataframe(
    frame: DataFrame, settings: PrivatizerSettings, **columns: Any
) -> DataFrame:
    """Return a lazy DataFrame with private texts and the other columns as they are.

    Parameters
    ----------
    frame : pyspark.sql.DataFrame
    settings : PrivatizerSettings
        With ``key_file``, a path that every executor can read, no secret is sent to the executors. A ledger cannot be used.
    **columns
        Fields of :class:`textpriv.engines.columns.Columns`, among them ``document_column``. Spark counts the names, now.
    """
    chosen = Columns.on_machines(settings, **columns)
    chosen.check(frame.columns)
    # Spark counts the names; nothing but names is moved between executors.
    name = frame["`" + str(chosen.document_column).replace("`", "``") + "`"].cast("string")
    counted = frame.where(name.isNotNull()).groupBy(name.alias("name")).count()
    if not counted.where("count > 1").isEmpty():
        raise CorpusError(f"A row: {REPEATED_NAME}")
    kept = frame if chosen.labels_column is None else frame.drop(f"{chosen.labels_column}")
    work = partial(_released, settings=settings, columns=chosen)
    return frame.mapInArrow(work, _types_alone(kept.schema))


def _released(
    batches: Iterator[pa.RecordBatch], settings: PrivatizerSettings, columns: Columns
) -> Iterator[pa.RecordBatch]:
    release = release_in_process(settings, columns)
    for batch in batches:
        yield without_trace(release, batch)


def _types_alone(schema: Any) -> Any:
    """Return a schema of Spark without metadata of its fields, such as comments, at whatever depth."""

    def bare(field: dict[str, Any]) -> dict[str, Any]:
        return {**field, "metadata": {}} if "metadata" in field else field

    return type(schema).fromJson(json.loads(schema.json(), object_hook=bare))


def each(
    tasks: Sequence[Any],
    work: Callable[[Any], dict[str, Any]],
    *,
    address: str | None = None,
    workers: int = 1,
) -> Iterator[dict[str, Any]]:
    """Do tasks on executors, each in a Spark task of its own, and yield their results.

    Spark may repeat a task. A task and the work can be pickled, and a result is made of JSON types.
    """

    def do(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from results(batch.column(0), tasks, work).to_batches()

    with session(address, workers) as spark:
        numbers = spark.range(0, len(tasks), 1, numPartitions=len(tasks))
        try:
            rows = numbers.mapInArrow(do, "result string").collect()
        except Exception as error:
            raise gave_up("Spark", error) from None
        yield from (json.loads(row.result) for row in rows)


@contextlib.contextmanager
def session(address: str | None = None, workers: int = 1) -> Iterator[SparkSession]:
    """Open a Spark session for the block; one that is open already is used, and left open.

    Without the address of a master, Spark runs on this machine, on the loopback interface only.
    """
    sql = needs("pyspark.sql", "spark")
    if (active := sql.SparkSession.getActiveSession()) is not None:
        yield active
        return
    # Workers must be a Python that has textpriv.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    options = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    options["spark.log.level"] = "ERROR"
    if address is None or address.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        options |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    builder = sql.SparkSession.builder.appName("textpriv").config(map=options)
    try:
        spark = builder.master(address or f"local[{workers},{_ATTEMPTS}]").getOrCreate()
    except Exception as error:  # of Java, too
        raise CorpusError(
            f"Spark did not start ({type(error).__name__}): it needs a Java runtime, and a master that can be reached."
        ) from None
    try:
        yield spark
    finally:
        spark.stop()
