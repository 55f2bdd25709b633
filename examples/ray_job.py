"""The same job on Ray: a Dataset in, a Dataset out. Needs the extra ray.

python examples/ray_job.py [INDEX] [ADDRESS]
"""

import sys
import tempfile
from pathlib import Path

import ray

from textpriv.corpus import PrivatizerSettings
from textpriv.engines.ray import cluster, privatize_dataset
from textpriv.run_key import RunKey

TEXTS = ["The police say the fire is out.", "The minister told the union.", "Rain in Sydney."]


def main(folder: str = "builtin:en", address: str | None = None) -> None:
    """Privatize a small Dataset; on a cluster, index and key lie on storage that all machines see."""
    with tempfile.TemporaryDirectory() as shared, cluster(address, workers=1):
        key = Path(shared) / "run.key"
        RunKey.open(key).keep()
        settings = PrivatizerSettings(folder, options={"epsilon": 10.0}, key_file=str(key))
        dataset = ray.data.from_items([{"id": i, "text": text} for i, text in enumerate(TEXTS)])
        private = privatize_dataset(dataset, settings, document_column="id")
        for row in private.take_all():
            print(row["id"], row["text"])


if __name__ == "__main__":
    main(*sys.argv[1:3])
