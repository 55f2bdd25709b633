"""The same job on Spark: a DataFrame in, a DataFrame out. Needs the extra spark and a Java runtime.

python examples/spark_job.py [INDEX] [MASTER]
"""

import sys
import tempfile
from pathlib import Path

from textpriv.corpus import PrivatizerSettings
from textpriv.engines.spark import privatize_dataframe, session
from textpriv.run_key import RunKey

TEXTS = ["The police say the fire is out.", "The minister told the union.", "Rain in Sydney."]


def main(folder: str = "builtin:en", master: str | None = None) -> None:
    """Privatize a small DataFrame; on a cluster, index and key lie on storage that all machines see."""
    with tempfile.TemporaryDirectory() as shared, session(master, workers=2) as spark:
        key = Path(shared) / "run.key"
        RunKey.open(key).keep()
        settings = PrivatizerSettings(folder, options={"epsilon": 10.0}, key_file=str(key))
        frame = spark.createDataFrame(list(enumerate(TEXTS)), ["id", "text"])
        private = privatize_dataframe(frame, settings, document_column="id")
        for row in private.orderBy("id").collect():
            print(row.id, row.text)


if __name__ == "__main__":
    main(*sys.argv[1:3])
