"""Privatize a Delta table by its own reader and writer: rows that were deleted are not read. Needs deltalake.

python examples/delta_table.py INDEX
"""

import sys
import tempfile

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from textpriv.corpus import PrivatizerSettings
from textpriv.engines.batch import BatchRelease, Columns
from textpriv.engines.identity import refuse_repeated

TEXTS = ["The police say the fire is out.", "The minister told the union.", "Rain in Sydney."]


def privatize_table(source: str, target: str, settings: PrivatizerSettings) -> None:
    """Write a private table, batch by batch; the other columns are copied as they are."""
    rows = DeltaTable(source).to_pyarrow_dataset()
    refuse_repeated((row["id"] for row in rows.to_table(["id"]).to_pylist()), "id")
    release = BatchRelease(settings.build(), Columns("text", document="id"))
    private = pa.RecordBatchReader.from_batches(rows.schema, map(release, rows.to_batches()))
    write_deltalake(target, private)


def main(folder: str) -> None:
    """Delete a row of a small table, and print the others when they are private."""
    with tempfile.TemporaryDirectory() as tables:
        table = pa.table({"id": ["a", "b", "c"], "text": TEXTS, "stars": [3, 5, 4]})
        write_deltalake(f"{tables}/raw", table)
        DeltaTable(f"{tables}/raw").delete("id = 'b'")
        privatize_table(
            f"{tables}/raw",
            f"{tables}/private",
            PrivatizerSettings(folder, options={"epsilon": 10}),
        )
        private = DeltaTable(f"{tables}/private").to_pyarrow_table()
        for row in private.sort_by("id").to_pylist():
            print(f"{row['id']}: {row['text']} ({row['stars']} stars)")


if __name__ == "__main__":
    main(sys.argv[1])
