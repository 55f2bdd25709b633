"""Other packages on the trade-off curve: the same texts, the same attackers, the same shares of content words got back.

Each row is the form of a mechanism: its law, written here from what the package computes, or, for noise on vectors, the
same noise and search for many words at once. No package is fast enough to draw millions of words, and none is imported
here: ``check`` asks each, in an environment of its own, for its law or its draws on 24 words in the plane, and compares them
with the form. De-identification alone masks common first names and leaves all other words.

    python recipes/tradeoff.py prepare --data-dir DATA --folder prepared
    python recipes/tradeoff_peers.py check --cache CACHE --out peers.json
    python recipes/tradeoff_peers.py run --folder prepared --out peers.json
    python recipes/tradeoff_peers.py record --out peers.json --docs docs/results

Attackers are those of ``tradeoff.py``. Against noise on vectors, which has no closed law, they know what draws tell: from
some they take how likely each output is, and on others they are tried. That bounds the best attacker from below, so the row
gets more epsilon, and is shown better, than it should be.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any

import benchmark
import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.ndimage import maximum
from scipy.stats import chi2_contingency
from tradeoff import (
    PUBLISHED,
    SEEDS,
    SHARES,
    Results,
    at_shares,
    clear_cell,
    curve,
    data_and_laws,
    drawn_cell,
    write_tables,
)

import textpriv
from textpriv.evaluation.best_attacker import BestAttacker
from textpriv.evaluation.recovery import content_prior
from textpriv.evaluation.tradeoff import Task, interval
from textpriv.vocabulary.sensitive_words import FIRST_NAMES, words_in

CHOSEN = "topic vectors, 32 dimensions, common words apart, counts^0"
SHOWN = ("imdb", "yelp stars", "banking77")
PARTS = ("clear", "peers", "shown", "masked", "groups", "forms")
MASKED = "de-identification alone"
NOISE = "noise on vectors"
GROUPS = "groups without noise"
SPACE = ("topic vectors", 32, False)  # of the chosen law, without common words apart
BETA = 0.001  # of TEM in both packages
NEAREST = 20  # words that CusText draws among
PLACES = 5  # within which dp-diffractor's TEM draws by distance
SEARCHED, TRIED = 20_000, 20_000  # draws that an attacker learns from, and is tried on
POOL = 60, 600  # draws that stand for all of a word in documents: of a rare one, a common one
POOLED = 1_000_000  # running content words, of which each word has as many draws as it stands there
_BLOCK = 4096  # noisy vectors at a time

Rows = NDArray[np.float32]
Form = Callable[[NDArray[np.float64], float], Rows]  # distances and epsilon to a law, a row a word

# ----------------------------------------------------------------------------------------------
# Forms
# ----------------------------------------------------------------------------------------------


def _scaled(weights: NDArray[np.floating[Any]]) -> Rows:
    weights /= weights.sum(axis=1, keepdims=True, dtype=np.float64)
    return weights.astype(np.float32, copy=False)


def _weights(distances: NDArray[np.floating[Any]], rate: float) -> Any:
    return np.exp(np.asarray(distances, dtype=np.float32) * np.float32(-rate))


def santext(distances: NDArray[np.float64], epsilon: float) -> Rows:
    """SanText (Yue et al. 2021, eq. 3): ``exp(-epsilon d / 2)`` over all words."""
    return _scaled(_weights(distances, epsilon / 2))


def custext(distances: NDArray[np.float64], epsilon: float, nearest: int = NEAREST) -> Rows:
    """CusText (Chen et al. 2023): the exponential mechanism among the nearest words, distances over the largest of them."""
    among = np.argpartition(distances, nearest - 1, axis=1)[:, :nearest]
    near = np.take_along_axis(distances, among, axis=1)
    rows = np.zeros(distances.shape, dtype=np.float32)
    kept = _weights(near / near.max(axis=1, keepdims=True), epsilon / 2)
    np.put_along_axis(rows, among, kept, axis=1)
    return _scaled(rows)


def mldp_tem(distances: NDArray[np.float64], epsilon: float) -> Rows:
    """TEM of mldp-text: the words beyond gamma weigh V / L, for L words within it."""
    size = len(distances)
    gamma = round(2 / epsilon * np.log((1 - BETA) * size / BETA), 1)
    inside = distances <= gamma
    within = inside.sum(axis=1, keepdims=True)
    beyond = size / within * np.exp(-epsilon * gamma / 2) / np.maximum(size - within, 1)
    return _scaled(np.where(inside, _weights(distances, epsilon / 2), beyond.astype(np.float32)))


def pypantera_tem(distances: NDArray[np.float64], epsilon: float) -> Rows:
    """TEM of pypantera: where the words beyond gamma win, the word itself is released."""
    size = len(distances)
    gamma = 2 / epsilon * np.log((1 - BETA) * (size - 1) / BETA)
    inside = distances <= gamma
    rows = np.where(inside, _weights(distances, epsilon / 2), np.float32(0))
    itself = np.arange(size)
    rows[itself, itself] += (size - inside.sum(axis=1)) * np.exp(-epsilon * gamma / 2)
    return _scaled(rows)


def listed(vectors: NDArray[np.float64]) -> NDArray[np.int64]:
    """The place of each word in dp-diffractor's list: always on to the nearest word not yet in it, among 50."""
    distances = _apart(vectors)
    left, place, at = np.ones(len(vectors), dtype=bool), np.empty(len(vectors), dtype=np.int64), 0
    for step in range(len(vectors)):
        place[at], left[at] = step, False
        near = np.argsort(distances[at], kind="stable")[: min(50, int(left.sum()) + 1)]
        free = near[left[near]]
        at = int(free[0]) if len(free) else int(left.argmax())
    return place


def diffractor_geometric(places: NDArray[np.float64], epsilon: float) -> Rows:
    """Two-sided geometric noise on places in the list, clipped at its ends."""
    step = np.exp(-epsilon)
    rows = (1 - step) / (1 + step) * _weights(np.abs(places), epsilon)
    # The first word lies at the most negative difference of each row; all noise beyond it ends there.
    for end in (places.argmin(axis=1), places.argmax(axis=1)):
        at = np.arange(len(rows)), end
        rows[at] = step ** np.abs(places[at]) / (1 + step)
    return _scaled(rows)


def diffractor_tem(places: NDArray[np.float64], epsilon: float) -> Rows:
    """TEM on places in the list, truncated at five of them."""
    away = np.abs(places)
    inside = away <= PLACES
    rows = np.where(inside, np.exp(-epsilon / 2 * away), np.exp(-epsilon / 2 * PLACES))
    return _scaled(rows)


def _apart(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    squares = (vectors**2).sum(axis=1)
    apart: NDArray[np.float64] = squares[:, None] + squares - 2 * vectors @ vectors.T
    np.fill_diagonal(apart, 0.0)
    return np.sqrt(np.maximum(apart, 0.0))


class Table:
    """A law as a table, with what attackers ask of a mechanism. A word outside the vocabulary becomes any word.

    Parameters
    ----------
    index : Index
        Whose words they are.
    rows : ndarray of float32, shape (V, V)
    """

    def __init__(self, index: textpriv.Index, rows: Rows) -> None:
        self.index, self.rows = index, rows

    def exponential_law(self) -> None:
        """It is read by rows."""

    def likeliest_inputs(self, prior: NDArray[np.float64]) -> tuple[Any, Any]:
        """For each output the word that it most likely came from, and the joint probability of the two."""
        joint = self.rows * prior[:, None].astype(np.float32)
        most = joint.max(axis=0)  # several times as fast as argmax, which equality then gives
        return (joint == most).argmax(axis=0), most.astype(np.float64)

    def log_prob(self, word: int) -> NDArray[np.float32]:
        """Logarithms of a row."""
        with np.errstate(divide="ignore"):
            size = len(self.rows)
            return np.log(np.full(size, np.float32(1 / size)) if word < 0 else self.rows[word])

    def sample(self, ids: NDArray[np.int32], rng: np.random.Generator) -> NDArray[np.int32]:
        """Draw an output for each word."""
        size = len(self.rows)
        drawn = rng.integers(size, size=len(ids)).astype(np.int32)
        order = np.argsort(ids, kind="stable")
        bounds = np.searchsorted(ids[order], np.arange(size + 1))
        for word, (begin, end) in enumerate(zip(bounds[:-1], bounds[1:], strict=True)):
            if begin < end:
                law = np.cumsum(self.rows[word], dtype=np.float64)
                points = rng.random(end - begin) * law[-1]
                drawn[order[begin:end]] = np.searchsorted(law, points, side="right")
        return np.minimum(drawn, size - 1)


class Noise:
    """Noise of density ``exp(-epsilon |z|)`` on vectors, then the nearest word: mldp-text's calibrated and pypantera's CMP.

    The random directions and lengths are one and the same for all epsilons, so what is got back moves smoothly with it.
    """

    def __init__(self, index: textpriv.Index, content: NDArray[np.float64]) -> None:
        self.index, self.content = index, content
        self.vectors = index.coordinates.astype(np.float32)
        self.squares = (self.vectors**2).sum(axis=1)

    def moved(self, ids: NDArray[np.int64], rng: np.random.Generator) -> Rows:
        """Noise of epsilon 1 for words, shape (T, n)."""
        noise = rng.standard_normal((len(ids), self.vectors.shape[1]), dtype=np.float32)
        noise /= np.linalg.norm(noise, axis=1, keepdims=True)
        return noise * rng.gamma(noise.shape[1], size=(len(ids), 1)).astype(np.float32)

    def draws(self, ids: NDArray[np.int64], epsilon: float, seed: int) -> NDArray[np.int32]:
        """Draw an output for each word."""
        rng, out = np.random.default_rng(seed), np.empty(len(ids), dtype=np.int32)
        for begin in range(0, len(ids), _BLOCK):
            block = ids[begin : begin + _BLOCK]
            points = self.vectors[block] + self.moved(block, rng) / np.float32(epsilon)
            out[begin : begin + _BLOCK] = (self.squares - 2 * points @ self.vectors.T).argmin(1)
        return out

    @cached_property
    def told(self) -> tuple[NDArray[np.int64], Rows]:
        """Content words as they are written, and the products of their noise with all vectors."""
        rng = np.random.default_rng(0)
        ids = rng.choice(len(self.content), size=SEARCHED + TRIED, p=self.content)
        return ids, self.moved(ids, rng) @ self.vectors.T

    @lru_cache(maxsize=2)  # noqa: B019 - the tables of the last, which are large
    def at(self, epsilon: float) -> Drawn:
        """The mechanism at an epsilon."""
        return Drawn(self, epsilon)


class Drawn:
    """Noise at one epsilon, and what draws tell of it."""

    def __init__(self, noise: Noise, epsilon: float) -> None:
        self.noise, self.epsilon, self.index = noise, epsilon, noise.index

    def exponential_law(self) -> None:
        """It has none."""

    def likeliest_inputs(self, prior: NDArray[np.float64]) -> tuple[Any, Any]:
        """What an output most likely came from by some draws, and by others how often that is right: a lower bound.

        He names the word that it came from most often, or the output itself; whichever does better. The draws are of content
        words; of all words they say what becomes of these alone, which is a lower bound too.
        """
        noise, size = self.noise, len(prior)
        ids, moved = noise.told
        out = np.empty(len(ids), dtype=np.int64)
        products = noise.vectors @ noise.vectors.T
        for begin in range(0, len(ids), _BLOCK):
            part = slice(begin, begin + _BLOCK)
            score = products[ids[part]] + moved[part] / np.float32(self.epsilon)
            out[part] = (noise.squares - 2 * score).argmin(axis=1)
        seen = np.zeros((size, size), dtype=np.float32)
        np.add.at(seen, (ids[:SEARCHED], out[:SEARCHED]), 1.0)
        likeliest = np.where(seen.max(axis=0) > 0, seen.argmax(axis=0), np.arange(size))
        part = prior[noise.content > 0].sum()
        ids, out = ids[SEARCHED:], out[SEARCHED:]
        told = []
        for guess in (likeliest, np.arange(size)):
            right = guess[out] == ids
            told.append((guess, np.bincount(out[right], minlength=size) * part / TRIED))
        return max(told, key=lambda each: float(each[1].sum()))

    @cached_property
    def table(self) -> Table:
        """Shares of draws of each word, common ones more often."""
        size, content = len(self.noise.content), self.noise.content
        count = np.clip(content * POOLED, *POOL).astype(np.int64)
        count[content == 0] = POOL[1]
        ids = np.repeat(np.arange(size), count)
        rows = np.zeros((size, size), dtype=np.float32)
        np.add.at(rows, (ids, self.noise.draws(ids, self.epsilon, 1)), 1.0)
        return Table(self.index, _scaled(rows))

    def log_prob(self, word: int) -> NDArray[np.float32]:
        """What the attacker who reads in context takes for the law."""
        return self.table.log_prob(word)

    def sample(self, ids: NDArray[np.int32], rng: np.random.Generator) -> NDArray[np.int32]:
        """Fresh draws of few words; of many, draws from those of the table."""
        if len(ids) > 20 * _BLOCK:
            return self.table.sample(ids, rng)
        drawn = self.noise.draws(np.maximum(ids, 0).astype(np.int64), self.epsilon, 2)
        return np.where(ids < 0, rng.integers(len(self.noise.content), size=len(ids)), drawn)


class Told(BestAttacker):
    """Who knows of a law what draws tell, and attacks other draws."""

    def released(self, mechanism: Any) -> NDArray[np.int32]:
        """Noise is the same for all epsilons."""
        assert self.text is not None
        drawn: NDArray[np.int32] = mechanism.sample(self.text.ids, np.random.default_rng(0))
        return drawn


FORMS: dict[str, tuple[str, str, Form, bool]] = {  # package, mechanism, form, by place
    "SanText, pypantera's": ("pypantera", "SanText", santext, False),
    f"CusText, pypantera's, {NEAREST} words": ("pypantera", "CusText", custext, False),
    "TEM, mldp-text's": ("mldp-text", "TEM", mldp_tem, False),
    "TEM, pypantera's": ("pypantera", "TEM", pypantera_tem, False),
    "geometric, dp-diffractor's": ("dp-diffractor", "geometric", diffractor_geometric, True),
    "TEM, dp-diffractor's": ("dp-diffractor", "TEM", diffractor_tem, True),
}
NAMES = (CHOSEN, PUBLISHED, *FORMS, NOISE)
# ----------------------------------------------------------------------------------------------
# Are the forms those of the packages?
# ----------------------------------------------------------------------------------------------


def same(first: NDArray[np.int64], second: NDArray[np.int64]) -> bool:
    """Whether draws of two samples may be of one law: Pearson's test, wrong with a probability below 1e-9."""
    both = np.stack([first, second])
    expected = both.sum(axis=0) * first.sum() / both.sum()
    rare = expected < 8  # counted together, and left out where they are still too few
    table = np.c_[both[:, ~rare], both[:, rare].sum(axis=1)]
    table = table[:, table.sum(axis=0) * first.sum() / both.sum() >= 8]
    return table.shape[1] < 2 or float(chi2_contingency(table).pvalue) >= 1e-9


def check(cache_folder: Path) -> dict[str, str]:
    """Compare every form with what the package does on 24 words: the largest difference, or a test on draws."""
    words, points = benchmark.small_vocabulary()
    found: dict[str, str] = {}
    answers = {}
    for package, wanted in benchmark.PEERS.items():
        python = benchmark.install(package, cache_folder, wanted)
        job = {
            "words": words,
            "vectors": points.astype(np.float32),
            "stream": words[:2],
            "seconds": 0.01,
            "epsilon": 2.0,
            "noise_epsilon": 2.0,
            "small_words": words,
            "small_vectors": points.tolist(),
            "small_epsilon": 2.0,
            "small_position_epsilon": 1.0,
            "draws": 2_000,
            "check_draws": 200,
        }
        answer = python if isinstance(python, str) else benchmark.ask(package, python, job, 1_000)
        answers[package] = answer
    for name, (package, mechanism, form, by_place) in FORMS.items():
        answer = answers[package]
        if isinstance(answer, str):
            found[name] = answer
            continue
        row = next(each for each in answer["rows"] if each["name"] == mechanism)
        given = listed(points) if by_place else None
        if given is not None and [words[i] for i in np.argsort(given)] != row["positions"]:
            found[name] = "another list of words"
            continue
        distances = _apart(points) if given is None else np.subtract.outer(given, given).T * 1.0
        options = {"nearest": 10} if mechanism == "CusText" else {}
        rows = form(distances, 1.0 if by_place else 2.0, **options)
        law = np.array([[row["law"][w].get(out, 0.0) for out in words] for w in words])
        far = float(np.abs(law - rows).max())
        found[name] = f"{answer['version']}: no probability differs by more than {far:.0e}"
    index = textpriv.Index.build(textpriv.Vocabulary(words, points), hnsw=False)
    noise = Noise(index, np.full(len(words), 1 / len(words)))
    counts = np.stack(
        [np.bincount(noise.draws(np.full(200_000, w), 2.0, w), minlength=24) for w in range(24)]
    )
    told = []
    for package, mechanism in (("mldp-text", "MultivariateCalibrated"), ("pypantera", "CMP")):
        answer = answers[package]
        if isinstance(answer, str):
            told.append(f"{package}: {answer}")
            continue
        row = next(each for each in answer["rows"] if each["name"] == mechanism)
        tallies = [[row["draws"][word].get(out, 0) for out in words] for word in words]
        alike = all(map(same, np.array(tallies), counts))
        verdict = "pass for" if alike else "differ from"
        told.append(
            f"{package} {answer['version']}: 2,000 draws of each of 24 words {verdict} the form's"
        )
    found[NOISE] = "; ".join(told)
    return found


# ----------------------------------------------------------------------------------------------
# Cells
# ----------------------------------------------------------------------------------------------


@cache
def maker(folder: str, name: str) -> Callable[[float], Any]:
    """The mechanism of an epsilon, of a row."""
    data, laws, made = data_and_laws(folder)
    if name in made:
        return made[name]
    index = laws.index("vectors", None, apart=False)
    attacker = data.attacker()
    if name == NOISE:
        return Noise(index, content_prior(attacker.prior, attacker.common)).at
    _, _, form, by_place = FORMS[name]
    vectors = index.coordinates.astype(np.float64)
    if by_place:
        place = listed(vectors)
        distances = np.subtract.outer(place, place).T.astype(np.float64)
    else:
        distances = _apart(vectors)
    return lambda epsilon: Table(index, form(distances, epsilon))


def epsilons(folder: str, name: str) -> dict[str, Any]:
    """A row: at each share epsilon, and what attackers get back."""
    data, _, _ = data_and_laws(folder)
    attacker = data.attacker()
    if name == NOISE:
        attacker = Told(attacker.prior, attacker.of, attacker.text, attacker.common)
    return at_shares(maker(folder, name), attacker, lambda mechanism: {})


def shown_cell(folder: str, name: str, epsilon: float, seed: int) -> dict[str, Any]:
    """One draw of a row on every task."""
    data, _, _ = data_and_laws(folder)
    return drawn_cell(data, maker(folder, name)(epsilon), seed, SHOWN)


def masked(folder: str) -> dict[str, Any]:
    """De-identification alone: what is left to get back, and what is learned."""
    data, _, _ = data_and_laws(folder)
    hidden = np.zeros(data.words, dtype=bool)
    hidden[data.vocabulary.ids(words_in(data.vocabulary, FIRST_NAMES))] = True
    attacker = data.attacker()
    content = content_prior(attacker.prior, attacker.common)
    right: dict[str, float] = {}
    for name in SHOWN:
        task = data.task(name)
        ids = task.train.ids
        kept = np.where((ids >= 0) & hidden[ids], -1, ids).astype(np.int32)
        right[name] = float(task.right(kept).mean())
    # Of masked names the attacker names the commonest.
    back = float(content[~hidden].sum() + content[hidden].max(initial=0.0))
    return {"content": back, "accuracy": right, "names": int(hidden.sum())}


def grouped(folder: str) -> dict[str, Any]:
    """No law: content words stand for their group of near words, without noise, and common words for themselves.

    What is learned by it is what a law could keep that says nothing but which group a word is of. Groups are Ward's, in the
    space of the chosen law, as many as let an attacker who names the commonest word of each be right as often as is asked;
    both private and test documents are read by them.
    """
    data, laws, _ = data_and_laws(folder)
    attacker, task = data.attacker(), data.task("imdb")
    content = content_prior(attacker.prior, attacker.common)
    words = np.flatnonzero(content > 0)
    joined = linkage(laws.index(*SPACE).coordinates[words], "ward")
    found: dict[str, Any] = {}
    for share in (0.0, *SHARES):
        group, back = np.full(data.words, -1, dtype=np.int32), 0.0
        group[content == 0] = np.flatnonzero(content == 0)
        low, high = 0, len(words) if share else 1
        while high - low > 1:  # groups are nested, so that more of them give away more
            middle = (low + high) // 2
            label = fcluster(joined, middle, "maxclust")
            most = maximum(content[words], label, np.arange(1, middle + 1))
            if most.sum() <= share:
                low, back = middle, float(most.sum())
                group[words] = words[label - 1]  # any word may stand for a group
            else:
                high = middle
        both = [
            part._replace(ids=np.where(part.ids < 0, -1, group[part.ids]).astype(np.int32))
            for part in (task.train, task.test)
        ]
        kept = Task(*both, task.words)
        accuracy = float(kept.right(kept.train.ids).mean())
        found[f"{share:g}"] = {"groups": low, "content": back, "accuracy": accuracy}
        if share:  # who reads the groups, and common words as they stand, gets back more
            rows = np.zeros((data.words, data.words), dtype=np.float32)
            rows[np.arange(data.words), group] = 1.0
            index = laws.index("vectors", None, apart=False)
            found[f"{share:g}"]["context"] = attacker.in_context(Table(index, rows))[0]
    return found


def run(folder: Path, out: Path, jobs: int, seeds: int) -> None:
    """Measure every row that is missing."""
    results, place = Results(out, PARTS), str(folder)
    data, _, _ = data_and_laws(place)
    data.attacker()
    for name in SHOWN:  # before processes part, which then share them
        data.task(name).tested  # noqa: B018
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("fork")) as pool:
        results.fill("masked", {MASKED: (masked, place)}, pool)
        results.fill("groups", {GROUPS: (grouped, place)}, pool)
        results.fill("clear", {name: (clear_cell, place, name) for name in SHOWN}, pool)
        results.fill("peers", {name: (epsilons, place, name) for name in NAMES}, pool)
        shown = {
            f"{name} | {share} | {seed}": (shown_cell, place, name, cell["epsilon"], seed)
            for name in NAMES
            for share, cell in results.content["peers"][name].items()
            if "epsilon" in cell
            for seed in range(seeds)
        }
        results.fill("shown", shown, pool)


def tables(results: Results) -> str:
    """One table for each task, and what attackers get back."""
    content = results.content
    shares = [f"{share:g}" for share in SHARES]
    head = ["", f"| row | {' | '.join(f'{share:.0%}' for share in SHARES)} |", "|---" * 4 + "|"]
    rows = {name: content["peers"][name] for name in NAMES if name in content["peers"]}
    lines: list[str] = []
    for task in SHOWN:
        clear, guessing = content["clear"][task]
        lines += [
            f"## {task}",
            "",
            f"Clear {clear:.3f}, naming the commonest class {guessing:.3f}.",
        ]
        lines += head
        for name in rows:
            drawn, told = dict(curve(results, name, task)), []
            for share in shares:
                if share in drawn:
                    mean, low, high = interval(drawn[share])
                    told.append(f"{mean:.3f} ({low:.3f} to {high:.3f})")
                else:
                    told.append("no epsilon")
            lines.append(f"| {name} | {' | '.join(told)} |")
        lines.append("")
    hidden = content["masked"][MASKED]
    learned = ", ".join(f"{hidden['accuracy'][task]:.3f} on {task}" for task in SHOWN)
    lines += [
        "## De-identification alone",
        "",
        f"{hidden['names']} common first names are masked, all other words stay: {hidden['content']:.1%} of content words "
        f"are got back. Accuracy: {learned}.",
        "",
        "## What groups keep without noise",
        "",
        "IMDB. Content words are replaced by the group of near words they are of, common words stay.",
        "",
        "| groups | content words got back, Bayes | in context | accuracy |",
        "|---" * 4 + "|",
        *(
            f"| {each['groups']} | {each['content']:.3f} | {each.get('context', 0):.3f} | {each['accuracy']:.3f} |"
            for each in content["groups"][GROUPS].values()
        ),
        "",
        "## What the attackers get back",
        "",
        "Epsilon is in units of the mechanism's own distance or place.",
        "",
        "| row | share | epsilon | content words, Bayes | in context | all words |",
        "|---" * 6 + "|",
    ]
    for name, cell in rows.items():
        for share in shares:
            if "success" in cell[share]:
                alone, everything, read = cell[share]["success"]
                lines.append(
                    f"| {name} | {float(share):.0%} | {cell[share]['epsilon']:.3g} | {alone:.3f} | {read:.3f} | "
                    f"{'' if name == NOISE else f'{everything:.3f}'} |"
                )
    lines.append("")
    for name, cell in rows.items():
        for share in shares:
            if "refused" in cell[share]:
                lines.append(f"- {name}, {float(share):.0%}: {cell[share]['refused']}")
    lines += ["", "## Are the forms those of the packages?", ""]
    lines += ["| row | on 24 words in the plane |", "|---|---|"]
    lines += [f"| {name} | {told} |" for name, told in content["forms"].items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("step", choices=["check", "run", "record"])
    parser.add_argument("--folder", type=Path, default=Path("prepared"))
    parser.add_argument("--cache", type=Path, default=Path("cache"))
    parser.add_argument("--out", type=Path, default=Path("peers.json"))
    parser.add_argument("--docs", type=Path, default=Path("tradeoff"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    given = parser.parse_args()
    if given.step == "run":
        run(given.folder, given.out, given.jobs, given.seeds)
        return
    results = Results(given.out, PARTS)
    if given.step == "check":
        results.content["forms"] = check(given.cache)
        results.write()
        print(json.dumps(results.content["forms"], indent=1))
        return
    write_tables(given.docs / "tradeoff-peers.md", "tradeoff_peers.py", tables(results))


if __name__ == "__main__":
    main()
