"""Privatize a datasets.Dataset; every other column passes through untouched.

python examples/privatize_dataset.py [INDEX]
"""

import sys

from datasets import Dataset

from textpriv.corpus import PrivatizerSettings
from textpriv.engines.datasets import privatize_dataset


def main(folder: str = "builtin:en") -> None:
    """Print a small dataset before and after."""
    texts = ["The police say the fire is out.", "The minister told the union.", "Rain in Sydney."]
    dataset = Dataset.from_dict({"id": ["a", "b", "c"], "text": texts, "stars": [3, 5, 4]})
    settings = PrivatizerSettings(folder, options={"epsilon": 10.0})
    private = privatize_dataset(dataset, settings, document_column="id")
    for before, after in zip(dataset, private, strict=True):
        print(f"{before['text']}  ->  {after['text']}  ({after['stars']} stars)")
    print(settings.build().statement)


if __name__ == "__main__":
    main(*sys.argv[1:])
