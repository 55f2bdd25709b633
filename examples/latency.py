"""The latency of a served Privatizer, by percentile, on texts of 60 words of general English.

    python examples/latency.py [INDEX] [CALLS]

Processor time leaves out what other programs do meanwhile.
"""

from __future__ import annotations

import sys
import time

import numpy as np

import textpriv
from textpriv.language.general_english import general_english


def main(folder: str = "", calls: str = "2000") -> None:
    """Print percentiles of both times, and the largest over the median."""
    index = textpriv.Index.load(folder) if folder else textpriv.Index.builtin("en")
    epsilon = 3.0 if folder else textpriv.epsilon_for(index, recovery=0.1)
    privatizer = textpriv.Privatizer(textpriv.TEM(index, epsilon))
    privatizer.warm()
    words = [*index.vocabulary.words, "unknown"]
    drawn = general_english(words[:-1]).sample(60 * int(calls), np.random.default_rng(0))
    wall, processor = [], []
    for text in (" ".join(words[word] for word in row) for row in drawn.reshape(-1, 60)):
        begun = time.perf_counter(), time.thread_time()
        privatizer.privatize(text)
        wall.append(time.perf_counter() - begun[0])
        processor.append(time.thread_time() - begun[1])
    for name, seconds in (("wall", wall), ("processor", processor)):
        p50, p95, p99, most = np.percentile(seconds, [50, 95, 99, 100]) * 1000
        print(
            f"{name} time of {calls} calls: p50 {p50:.2f} ms, p95 {p95:.2f} ms, p99 {p99:.2f} ms, "
            f"largest {most:.2f} ms ({most / p50:.1f} x p50)"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
