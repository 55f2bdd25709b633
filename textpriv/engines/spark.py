"""Apache Spark: a private DataFrame, and tasks of a corpus on executors, through ``mapInArrow``.

Each worker process loads the index once, by its path, so the index and ``textpriv`` must be on every machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from textpriv.engines.batch import (
    Columns,
    PrivatizerSettings,
    release_in_process,
    without_trace,
)
from textpriv.engines.identity import repeated_name
from textpriv.errors import CorpusError, how_to_install

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["each", "privatize_dataframe", "session"]

_ATTEMPTS = 4  # of a task, as on a cluster


def privatize_dataframe(
    frame: DataFrame,
    settings: PrivatizerSettings,
    *,
    document_column: str,
    text_column: str | Sequence[str] = "text",
    author_column: str | None = None,
    labels_column: str | None = None,
    null: str = "keep",
) -> DataFrame:
    """Return a lazy DataFrame with private texts and the other columns as they are.

    Parameters
    ----------
    frame : pyspark.sql.DataFrame
    settings : PrivatizerSettings
        With ``key_file``, a path that every executor can read, no secret is sent to the executors. A ledger cannot be used.
    document_column : str
        The name of each document, from which its randomness follows. All names are different: Spark counts them once, now.
    text_column, author_column, labels_column, null
        As in :class:`textpriv.engines.batch.Columns`; the labels are left out.

    Raises
    ------
    CorpusError
        For settings with a ledger, columns that are missing, and a name that is there twice.
    """
    if settings.ledger is not None:
        raise CorpusError("A ledger counts on one machine: use a run key.")
    columns = Columns(text_column, document_column, author_column, labels=labels_column, null=null)
    columns.check(frame.columns)
    _refuse_repeated(frame, document_column)
    work = _Batches(settings.without_secret(), columns)
    schema = type(frame.schema)([each for each in frame.schema if each.name != labels_column])
    return frame.mapInArrow(work, _types_alone(schema))


def _types_alone(kind: Any) -> Any:
    """A type without metadata of its fields, such as comments, at whatever depth."""
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType

    if isinstance(kind, StructType):
        fields = ((each.name, _types_alone(each.dataType), each.nullable) for each in kind)
        return StructType([StructField(*each) for each in fields])
    if isinstance(kind, ArrayType):
        return ArrayType(_types_alone(kind.elementType), kind.containsNull)
    if isinstance(kind, MapType):
        inner = _types_alone(kind.keyType), _types_alone(kind.valueType)
        return MapType(*inner, kind.valueContainsNull)
    return kind


def _refuse_repeated(frame: DataFrame, column: str) -> None:
    """Have Spark count the names; nothing but names is moved between executors."""
    from pyspark.sql import functions

    name = functions.col("`" + column.replace("`", "``") + "`")
    counted = frame.select(name.cast("string").alias("name")).groupBy("name")
    repeated = counted.agg(functions.count("*").alias("rows")).where(
        "name IS NOT NULL AND rows > 1"
    )
    if not repeated.isEmpty():
        raise repeated_name("A row", column)


@dataclass(frozen=True)
class _Batches:
    """The work of an executor: record batches in, record batches out."""

    settings: PrivatizerSettings
    columns: Columns

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        release = release_in_process(self.settings, self.columns)
        for batch in batches:
            yield without_trace(release, batch)


@dataclass(frozen=True)
class _Tasks:
    """The work of an executor: numbers of tasks in, their results out."""

    tasks: Sequence[Any]
    work: Callable[[Any], dict[str, Any]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            results = [
                json.dumps(without_trace(self.work, self.tasks[number]))
                for number in batch.column(0).to_pylist()
            ]
            yield pa.RecordBatch.from_pydict({"result": pa.array(results, pa.string())})


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
    with session(address, workers) as spark:
        numbers = spark.range(0, len(tasks), 1, numPartitions=len(tasks))
        try:
            rows = numbers.mapInArrow(_Tasks(tasks, work), "result string").collect()
        except Exception as error:  # what Spark says of it is long and may quote anything
            raise CorpusError(
                f"Spark gave up a task after {_ATTEMPTS} attempts ({type(error).__name__}): a worker was killed or ran out "
                "of memory, the index is not where the executors look for it, or textpriv is not installed there. Spark's "
                "own log says more. What is done is kept: continue with --resume."
            ) from None
        yield from (json.loads(row.result) for row in rows)


@contextlib.contextmanager
def session(address: str | None = None, workers: int = 1) -> Iterator[SparkSession]:
    """Open a Spark session for the block; one that is open already is used, and left open.

    Without the address of a master, Spark runs on this machine, on the loopback interface only.
    """
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError:
        raise CorpusError(
            f"Spark needs pyspark and a Java runtime: {how_to_install('spark')}."
        ) from None
    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    local = address is None or address.startswith("local")
    # Workers must be the Python that has textpriv; on a cluster the user may know better where it is.
    before = os.environ.get("PYSPARK_PYTHON")
    if local or before is None:
        os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.appName("textpriv")
        .master(address or f"local[{workers},{_ATTEMPTS}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "1000")
        .config("spark.log.level", "ERROR")
    )
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config(
            "spark.driver.host", "127.0.0.1"
        )
    try:
        try:
            spark = builder.getOrCreate()
        except (PySparkException, OSError, RuntimeError) as error:
            raise CorpusError(
                f"Spark did not start ({type(error).__name__}): it needs a Java runtime (java -version), and a master "
                "that can be reached."
            ) from None
        try:
            yield spark
        finally:
            spark.stop()
    finally:
        if before is None:
            os.environ.pop("PYSPARK_PYTHON", None)
        else:
            os.environ["PYSPARK_PYTHON"] = before
