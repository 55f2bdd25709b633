"""What other packages for private words do with given words and vectors; run inside the environment of one of them.

``recipes/benchmark.py`` makes an environment for each package and starts this file in it:

    python peers.py PACKAGE JOB.json ANSWER.json

It needs that package alone, times its mechanisms word for word, and reads the law of their output on a small vocabulary:
from the scores that a mechanism adds its noise to, found by changing the noise until another word wins, from the
probabilities it keeps, or, where neither can be had, by counting draws. Nothing is judged here, and nothing of textpriv is
used.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import process
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

Step = Callable[[str], str]  # one word to one private word
Read = Callable[[str], "dict[str, float]"]  # a word's law

UNKNOWN = "notawordofanylanguage"


@dataclass
class Peer:
    """One mechanism of a package.

    Attributes
    ----------
    name : str
    fast : callable
        Makes the mechanism for the large vocabulary and returns its step.
    small : callable, optional
        Makes it for the small vocabulary: returns its step and, if its law can be read, how. None where the law is that of
        another row.
    unit : str
        Of the distance in which the package states its epsilon: "distance" of vectors or "position" in its list.
    positions : callable, optional
        For the latter, the order of the small vocabulary's words.
    workers : bool
        Whether worker processes do the work: then the time that passes counts, else the processor time.
    """

    name: str
    fast: Callable[[], Step]
    small: Callable[[], tuple[Step, Read | None]] | None
    unit: str = "distance"
    positions: Callable[[], Sequence[str]] | None = None
    workers: bool = False


# ----------------------------------------------------------------------------------------------
# Reading laws
# ----------------------------------------------------------------------------------------------


class Noise:
    """Stands in for a Gumbel source: silent, but for one draw."""

    def __init__(self) -> None:
        self.calls, self.target, self.amount, self.scale = 0, -1, 0.0, 1.0

    def __call__(self, loc: float = 0.0, scale: float = 1.0, size: int | None = None) -> Any:
        """One draw of the given scale; an array of equal ones if a size is asked for."""
        self.scale = float(scale)
        value = self.amount if self.calls == self.target else 0.0
        self.calls += 1
        return value if size is None else np.full(size, value)


def read_scores(
    step: Callable[[Noise], tuple[str, Sequence[str] | None]], *, digits: int = 56
) -> dict[str, float]:
    """The law of report-noisy-max with Gumbel noise, from the noise with which each candidate just wins.

    ``step`` runs the mechanism with the given noise. It returns the output, and where the mechanism has chosen its
    placeholder for all other words, the words among which it then draws uniformly.
    """
    noise = Noise()
    step(noise)
    count = noise.calls

    def win(target: int, amount: float) -> tuple[str, Sequence[str] | None]:
        noise.calls, noise.target, noise.amount = 0, target, amount
        return step(noise)

    # With noise large enough every candidate wins and shows its name.
    far = 1e6 * noise.scale
    law: dict[str, float] = {}
    for target in range(count):
        name, among = win(target, far)
        low, high = 0.0, far
        for _ in range(digits):
            middle = 0.5 * (low + high)
            reached, others = win(target, middle)
            if (others is None) == (among is None) and (among is not None or reached == name):
                high = middle
            else:
                low = middle
        names = [name] if among is None else among
        for other in names:
            law[other] = law.get(other, 0.0) + float(np.exp(-high / noise.scale)) / len(names)
    total = sum(law.values())
    return {word: weight / total for word, weight in law.items()}


def counted(step: Step, word: str, draws: int) -> dict[str, int]:
    """Draws of one word."""
    tally: dict[str, int] = {}
    for _ in range(draws):
        out = str(step(word))
        tally[out] = tally.get(out, 0) + 1
    return tally


# ----------------------------------------------------------------------------------------------
# Packages
# ----------------------------------------------------------------------------------------------


class Tables:
    """Words and vectors of one vocabulary, in the forms that the packages read."""

    def __init__(self, folder: Path, words: list[str], vectors: np.ndarray) -> None:
        self.folder, self.words, self.vectors = folder, words, vectors

    def file(self, name: str, *, header: bool) -> str:
        """A text file, one word and its values on each line."""
        path = self.folder / name
        if not path.exists():
            with open(path, "w", encoding="utf-8") as out:
                if header:
                    out.write(f"{len(self.words)} {self.vectors.shape[1]}\n")
                for word, row in zip(self.words, self.vectors.tolist(), strict=True):
                    out.write(word + " " + " ".join(map("{:.9g}".format, row)) + "\n")
        return str(path)

    def keyed(self) -> Any:
        """Gensim's KeyedVectors."""
        from gensim.models import KeyedVectors

        found = KeyedVectors(self.vectors.shape[1])
        found.add_vectors(self.words, self.vectors)
        return found


def mldp_text(large: Tables, small: Tables, job: dict[str, Any]) -> list[Peer]:
    """The mechanisms of mldp-text that use vectors."""
    import mldp_text as package

    epsilon, wide = job["epsilon"], job["noise_epsilon"]
    big, little = large.keyed(), small.keyed()

    def make(kind: Any, tables: Tables, keyed: Any, amount: float, **options: Any) -> Any:
        return kind(
            amount,
            embedding_matrix=keyed,
            dim=tables.vectors.shape[1],
            vocab=set(tables.words),
            **options,
        )

    def tem() -> tuple[Step, Read]:
        mechanism = make(package.TEM, small, little, job["small_epsilon"])

        def read(word: str) -> dict[str, float]:
            def step(noise: Noise) -> tuple[str, Sequence[str] | None]:
                among: list[Sequence[str]] = []

                def choice(others: Sequence[str]) -> str:
                    among.append(list(others))
                    return "?"

                with (
                    mock.patch.object(np.random, "gumbel", noise),
                    mock.patch.object(np.random, "choice", choice),
                ):
                    out = mechanism.replace_word(word)
                return str(out), among[0] if among else None

            return read_scores(step)

        return mechanism.replace_word, read

    def drawn(kind: Any, **options: Any) -> Callable[[], tuple[Step, Read | None]]:
        # The approximate search of the package needs at least 100 words; what follows the noise may be exact.
        return lambda: (
            make(
                kind, small, little, job["small_epsilon"], use_faiss=False, **options
            ).replace_word,
            None,
        )

    def reach(tables: Tables) -> dict[str, float]:
        """What the constructor would find itself, but for an error under Python 3.11 and later."""
        apart = np.linalg.norm(tables.vectors - tables.vectors[0], axis=1)
        return {"max_inter_dist": float(apart.max()), "min_inter_dist": float(apart[1:].min())}

    return [
        Peer("TEM", lambda: make(package.TEM, large, big, epsilon).replace_word, tem),
        Peer(
            "MultivariateCalibrated",
            lambda: make(package.MultivariateCalibrated, large, big, wide).replace_word,
            drawn(package.MultivariateCalibrated),
        ),
        Peer(
            "VickreyMechanism",
            lambda: make(package.VickreyMechanism, large, big, wide).replace_word,
            drawn(package.VickreyMechanism),
        ),
        Peer(
            "TruncatedGumbel",
            lambda: make(package.TruncatedGumbel, large, big, wide, **reach(large)).replace_word,
            drawn(package.TruncatedGumbel, **reach(small)),
        ),
    ]


def pypantera(large: Tables, small: Tables, job: dict[str, Any]) -> list[Peer]:
    """The mechanisms of pypantera for plain Euclidean distance; its wheel installs them as the package ``src``."""
    from src.EmbeddingPerturbationMechanism.cmp import CMP
    from src.EmbeddingPerturbationMechanism.vickrey import VickreyCMP
    from src.SamplingPerturbationMechanism.custext import CusText
    from src.SamplingPerturbationMechanism.santext import SanText
    from src.SamplingPerturbationMechanism.tem import TEM

    epsilon, wide, narrow = job["epsilon"], job["noise_epsilon"], job["small_epsilon"]
    files = {id(large): "large.txt", id(small): "small.txt"}

    def make(kind: Any, tables: Tables, amount: float, **options: Any) -> Any:
        path = tables.file(files[id(tables)], header=False)
        return kind({"embPath": path, "epsilon": amount, **options})

    def listed(mechanism: Any) -> Step:
        return lambda word: str(mechanism.processText([word]))

    def moved(mechanism: Any) -> Step:
        return lambda word: str(mechanism.processText(mechanism.noisyEmb([word])))

    def tem() -> tuple[Step, Read]:
        mechanism = make(TEM, small, narrow, beta=0.001)

        def read(word: str) -> dict[str, float]:
            def step(noise: Noise) -> tuple[str, Sequence[str] | None]:
                called = []
                honest = np.random.choice

                def choice(*given: Any) -> Any:
                    called.append(True)
                    return honest(*given)

                def silent() -> Any:
                    return noise(0.0, 2 / mechanism.epsilon, 1)

                with (
                    mock.patch.object(mechanism, "pullNoise", silent),
                    mock.patch.object(np.random, "choice", choice),
                ):
                    out = str(mechanism.processText([word]))
                return out, [out] if called else None

            return read_scores(step)

        return listed(mechanism), read

    def santext() -> tuple[Step, Read]:
        mechanism = make(SanText, small, narrow)

        def read(word: str) -> dict[str, float]:
            mechanism.processText([word])
            law = mechanism.prob_matrix[((word,), mechanism.epsilon)][0]
            return dict(zip(mechanism.vocab.embeddings, map(float, law), strict=True))

        return listed(mechanism), read

    def custext() -> tuple[Step, Read]:
        mechanism = make(CusText, small, narrow, k=10, distance="euclidean")

        def read(word: str) -> dict[str, float]:
            mechanism.processText([word])
            pairs = zip(mechanism._simWordDict[word], mechanism._pDict[word], strict=True)
            return {other: float(p) for other, p in pairs}

        return listed(mechanism), read

    return [
        Peer("TEM", lambda: listed(make(TEM, large, epsilon, beta=0.001)), tem),
        Peer("SanText", lambda: listed(make(SanText, large, epsilon)), santext),
        Peer(
            "CusText",
            lambda: listed(make(CusText, large, epsilon, k=20, distance="euclidean")),
            custext,
        ),
        Peer(
            "CMP",
            lambda: moved(make(CMP, large, wide)),
            lambda: (moved(make(CMP, small, narrow)), None),
        ),
        Peer(
            "VickreyCMP",
            lambda: moved(make(VickreyCMP, large, wide, t=0.75)),
            lambda: (moved(make(VickreyCMP, small, narrow, t=0.75)), None),
        ),
    ]


def dp_diffractor(large: Tables, small: Tables, job: dict[str, Any]) -> list[Peer]:
    """Both mechanisms of dp-diffractor, as ``rewrite`` runs them in its own worker process, and bare."""
    from diffractor import Diffractor, DiffractorConfig, core

    # It reads its vectors from a cache and would otherwise download its own.
    cache = Path(os.environ["HOME"]) / ".cache" / "diffractor"
    cache.mkdir(parents=True, exist_ok=True)
    small.folder = cache
    small.file("glove-wiki-gigaword-300.txt", header=True)

    def made(method: str, amount: float) -> Any:
        config = DiffractorConfig(
            method=method, epsilon=amount, replace_stopwords=True, verbose=False
        )
        with contextlib.redirect_stdout(sys.stderr):
            return Diffractor(config, ["glove-wiki-gigaword-300"])

    def resources(mechanism: Any, rng: Any) -> None:
        core._RESOURCES = {
            "list": mechanism.mgr.lists[0],
            "mapping": mechanism.mgr.word_to_idx[0],
            "config": mechanism.config,
            "rng": rng,
        }

    def own_path(mechanism: Any, amount: float) -> Step:
        """What ``rewrite`` does with one token."""
        # It takes the number of a worker process for the number of a list, so that a second instance in one process starts
        # workers that fail, for ever. Counting from one again spares it that.
        process._process_counter = itertools.count(1)
        mechanism.start()
        opened.append(mechanism)

        def step(word: str) -> str:
            candidates = mechanism._pool.starmap(core.apply_privacy_mechanism, [(word, amount)])
            return str(mechanism._pick_final_word(word, candidates))

        return step

    def enlarged(method: str) -> Any:
        # The time of a draw does not depend on the order of the list, which takes hours to compute for many words.
        mechanism = made(method, job["epsilon"])
        mechanism.mgr.lists = [large.words]
        mechanism.mgr.word_to_idx = [{word: i for i, word in enumerate(large.words)}]
        return mechanism

    def bare(method: str) -> Step:
        resources(enlarged(method), np.random.default_rng(0))
        return lambda word: str(core.apply_privacy_mechanism(word, job["epsilon"]))

    opened: list[Any] = []

    def order() -> Sequence[str]:
        found: Sequence[str] = made("geometric", 1.0).mgr.lists[0]
        return found

    def geometric() -> tuple[Step, Read]:
        amount = job["small_position_epsilon"]
        mechanism = made("geometric", amount)
        step = own_path(mechanism, amount)
        words = mechanism.mgr.lists[0]

        class Source:
            def __init__(self, noise: int) -> None:
                self.values = [max(noise, 0) + 1, max(-noise, 0) + 1]

            def geometric(self, p: float) -> int:
                self.p = float(p)
                return self.values.pop(0)

        def read(word: str) -> dict[str, float]:
            law: dict[str, float] = {}
            reach = 4 * len(words)
            for noise in range(-reach, reach + 1):
                source = Source(noise)
                resources(mechanism, source)
                out = str(core.apply_privacy_mechanism(word, amount))
                # The difference of two geometric numbers.
                q = 1 - source.p
                law[out] = law.get(out, 0.0) + (1 - q) / (1 + q) * q ** abs(noise)
            return law

        return step, read

    def tem() -> tuple[Step, Read]:
        amount = job["small_position_epsilon"]
        mechanism = made("TEM", amount)
        step = own_path(mechanism, amount)
        size = len(mechanism.mgr.lists[0])

        def read(word: str) -> dict[str, float]:
            class Source:
                def __init__(self, noise: Noise, first: int) -> None:
                    self.gumbel, self.next, self.asked = noise, first, False

                def integers(self, low: int, high: int) -> int:
                    self.asked = True
                    self.next += 1
                    return (self.next - 1) % high

            def once(noise: Noise) -> tuple[str, Sequence[str] | None]:
                source = Source(noise, 0)
                resources(mechanism, source)
                out = str(core.apply_privacy_mechanism(word, amount))
                if not source.asked:
                    return out, None
                among = set()
                for first in range(size):
                    noise.calls = 0
                    resources(mechanism, Source(noise, first))
                    among.add(str(core.apply_privacy_mechanism(word, amount)))
                return out, sorted(among)

            return read_scores(once)

        return step, read

    return [
        Peer(
            "geometric",
            lambda: own_path(enlarged("geometric"), job["epsilon"]),
            geometric,
            "position",
            order,
            workers=True,
        ),
        Peer(
            "TEM",
            lambda: own_path(enlarged("TEM"), job["epsilon"]),
            tem,
            "position",
            order,
            workers=True,
        ),
        Peer("geometric, bare function", lambda: bare("geometric"), None),
        Peer("TEM, bare function", lambda: bare("TEM"), None),
    ]


PACKAGES = {"mldp-text": mldp_text, "pypantera": pypantera, "dp-diffractor": dp_diffractor}


# ----------------------------------------------------------------------------------------------
# The run
# ----------------------------------------------------------------------------------------------


def rate(step: Step, stream: Sequence[str], seconds: float, clock: Callable[[], float]) -> float:
    """Words per second over a stream, repeated until the time is over; each word has been met before."""
    begun = time.perf_counter()
    for word in dict.fromkeys(stream):
        step(word)
        if time.perf_counter() - begun > 4 * seconds:
            break
    done, begun = 0, clock()
    while True:
        for word in stream:
            step(word)
            done += 1
            spent = clock() - begun
            if spent > seconds and done >= 5:
                return done / spent


@contextlib.contextmanager
def failures(row: dict[str, Any], what: str) -> Iterator[None]:
    """Write down what the package does not do, and go on."""
    try:
        yield
    except Exception as error:  # a foreign package may fail in any way
        row[what] = f"{type(error).__name__}: {error}"[:300]


def main(package: str, job_file: str, answer_file: str) -> None:
    """Time and read every mechanism of a package."""
    job = json.loads(Path(job_file).read_text(encoding="utf-8"))
    folder = Path(tempfile.mkdtemp(dir=Path(answer_file).parent))
    large = Tables(folder, job["words"], np.load(job["vectors"]))
    small = Tables(folder, job["small_words"], np.array(job["small_vectors"], dtype=np.float32))
    rows = []
    for peer in PACKAGES[package](large, small, job):
        row: dict[str, Any] = {"name": peer.name, "unit": peer.unit}
        rows.append(row)
        with failures(row, "rate_error"):
            clock = time.perf_counter if peer.workers else time.process_time
            row["rate"] = rate(peer.fast(), job["stream"], job["seconds"], clock)
        if peer.small is None:
            continue
        with failures(row, "audit_error"):
            step, read = peer.small()
            if peer.positions is not None:
                row["positions"] = list(peer.positions())
            words = small.words
            row["draws"] = {
                word: counted(step, word, job["draws"] if read is None else job["check_draws"])
                for word in (words if read is None else words[:: max(1, len(words) // 4)])
            }
            row["law"] = None if read is None else {word: read(word) for word in words}
        with failures(row, "unknown_error"):
            step, _ = peer.small()
            row["unknown_kept"] = sum(step(UNKNOWN) == UNKNOWN for _ in range(20)) / 20
        with failures(row, "repeat_error"):
            runs = []
            for _ in range(2):
                step, _ = peer.small()
                runs.append([str(step(word)) for word in small.words * 2])
            row["repeats"] = runs[0] == runs[1]
    answer = {"version": importlib.metadata.version(package), "rows": rows}
    Path(answer_file).write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
