"""The Arrow-batch function on Apache Spark: a DataFrame in, a DataFrame out, and tasks shared out among executors.

Everything runs through ``mapInArrow``. Each Python worker process of an executor loads the index once, by its path, and
keeps it for all its batches; so the index and the ``textpriv`` package must be on every machine. Needs pyspark and a Java
runtime.
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
from textpriv.errors import CorpusError
from textpriv.optional import how_to_install

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
) -> DataFrame:
    """Return a DataFrame with private texts and the other columns as they are.

    Parameters
    ----------
    frame : pyspark.sql.DataFrame
        Rows without a text (null) make the job fail: filter them out first.
    settings : PrivatizerSettings
        With ``key_file``, a path that every executor can read, no secret is sent to the executors. With ``run_key`` the
        key travels in the job. A ledger cannot be used.
    document_column : str
        The name of each document, from which its randomness follows: rows have no order that Spark keeps. All names are
        different: Spark counts those of this column once, now. The same name, text, text column, settings and key give the
        same private text on any engine; whoever sees two releases knows which texts have changed between them.
    text_column : str or sequence of str
        One column of texts, or several, which are released independently.
    author_column, labels_column : str, optional
        As ``author`` and ``labels`` in :class:`textpriv.engines.batch.Columns`; the labels are left out.

    Returns
    -------
    pyspark.sql.DataFrame
        Lazy, like any other. A task that Spark repeats gives the same rows again.

    Raises
    ------
    CorpusError
        For settings with a ledger, columns that are missing, and a name that is there twice.
    """
    if settings.ledger is not None:
        raise CorpusError(
            "A ledger lies on a local disk, where executors cannot count in it: use a run key."
        )
    columns = Columns(
        text_column, document=document_column, author=author_column, labels=labels_column
    )
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

    Parameters
    ----------
    tasks : sequence
        Values that can be pickled.
    work : callable
        From a task to JSON types; can be pickled. Spark may call it several times with one task.
    address, workers
        As for :func:`session`.

    Raises
    ------
    CorpusError
        If Spark gives a task up.
    """
    with session(address, workers) as spark:
        numbers = spark.range(0, len(tasks), 1, numPartitions=len(tasks))
        try:
            rows = numbers.mapInArrow(_Tasks(tasks, work), "result string").collect()
        except Exception as error:
            raise _gave_up(error) from None
        yield from (json.loads(row.result) for row in rows)


@contextlib.contextmanager
def session(address: str | None = None, workers: int = 1) -> Iterator[SparkSession]:
    """Open a Spark session for the block; one that is open already is used, and left open.

    Parameters
    ----------
    address : str, optional
        The Spark master; by default an engine on this machine, on the loopback interface only.
    workers : int
        Tasks at a time, of an engine on this machine.

    Raises
    ------
    CorpusError
        If pyspark or Java is missing, or the master cannot be reached.
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


def _gave_up(error: Exception) -> CorpusError:
    """The error of a failed job by its kind: what Spark says of it is long and may quote anything."""
    return CorpusError(
        f"Spark gave up a task after {_ATTEMPTS} attempts ({type(error).__name__}): a worker was killed or ran out of "
        "memory, the index is not where the executors look for it, or textpriv is not installed there. Spark's own log "
        "says more. What is done is kept: continue with --resume."
    )
