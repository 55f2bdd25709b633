"""Figure 1 of TEM on IMDB: what accuracy private reviews still give, and what a membership attack learns from the model.

The setting is that of TEM (Carvalho, Vasiloudis, Feyisetan, section 5 and Appendix C): TR1 is half of the training reviews
and is privatized, TE1 half of the test reviews and stays clear; the model is a mean of word embeddings and a linear layer,
20 epochs of Adam, batches of 64; the attack model learns from a shadow model trained on the other half of the test reviews.
Each trial draws new halves. Beside it stand a linear model on word counts, and the model trained through the channel.

    python recipes/imdb.py --data-dir ../shared/data --vectors VECTORS --out imdb
    python recipes/imdb.py --quick --data-dir ../shared/data --vectors VECTORS

writes a table (CSV and Markdown) and figures (PNG and SVG) into OUT. A run that is stopped goes on where it was: every
finished cell is a file in OUT/cells. With ``--choose`` it prints the validation by which the classifier's form was chosen,
on halves that the trial does not measure, and stops. The work is in ``textpriv.evaluation``.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

import textpriv
from textpriv.errors import TextprivError
from textpriv.evaluation.coupled import CoupledMadlib
from textpriv.evaluation.law import Law
from textpriv.evaluation.membership import offline_lira, shadow_attack, true_class_logit
from textpriv.evaluation.roc import Attack
from textpriv.evaluation.utility import (
    MeanEmbeddingClassifier,
    count_matrix,
    mean_rows,
    root_counts,
    standardized,
    whitened,
    word_count_classifier,
)
from textpriv.optional import needs
from textpriv.randomness import KeyedStreams

PUBLISHED, BEST, MADLIB, MADLIB_HNSW, CLEAR = (
    "TEM as published",
    "TEM, best law",
    "Madlib, exact search",
    "Madlib, hnsw search",
    "unprivatized",
)
# Chosen by ``--choose``: models of TR2, tested on TE2.
SCALE = 1.0  # of the inputs of every model that reads words as they are, private or clear
CHANNEL_SCALE = 20.0  # of posterior means, which vary less than the words they stand for
SHADOWS = 4  # models of the likelihood-ratio attack, each trained on four fifths of TE2


@dataclass(frozen=True)
class Cell:
    """One measurement: a mechanism at an epsilon on the halves of one trial.

    ``tuned`` trains the embeddings too, a model that can memorise; ``reviews`` limits TR1 (0 for all of it).
    """

    mechanism: str
    epsilon: float
    trial: int
    tuned: bool = False
    reviews: int = 0

    def file(self, folder: Path) -> Path:
        """Where its result is kept."""
        name = hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()
        return folder / f"{name[:16]}.json"


@dataclass(frozen=True)
class Setting:
    """What all cells share: the index, the reviews as ids, and where posterior means are kept."""

    index: str
    reviews: str
    work: str


class Reviews:
    """Documents as word ids, one after the other."""

    def __init__(
        self, ids: NDArray[np.int32], offsets: NDArray[np.int64], labels: NDArray[np.int64]
    ) -> None:
        self.ids, self.offsets, self.labels = ids, offsets, labels

    def take(self, documents: NDArray[np.int64]) -> Reviews:
        """Return some documents, in the order given."""
        lengths = np.diff(self.offsets)[documents]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        places = np.repeat(self.offsets[documents] - offsets[:-1], lengths) + np.arange(offsets[-1])
        return Reviews(self.ids[places], offsets, self.labels[documents])

    def halves(self, seed: int) -> tuple[Reviews, Reviews]:
        """Two halves at random, each with its share of both classes."""
        rng = np.random.default_rng(seed)
        first: list[NDArray[np.int64]] = []
        for label in (0, 1):
            documents = rng.permutation(np.flatnonzero(self.labels == label))
            first.append(documents[: len(documents) // 2])
        chosen = np.zeros(len(self.labels), dtype=np.bool_)
        chosen[np.concatenate(first)] = True
        return self.take(np.flatnonzero(chosen)), self.take(np.flatnonzero(~chosen))

    def counts(self, words: int, ids: NDArray[np.int32] | None = None) -> Any:
        """Count words by document; of other ids in the same places, if given."""
        return count_matrix(self.ids if ids is None else ids, self.offsets, words)


def means_of(counts: Any, table: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return what the classifier reads: means of embeddings, a word said n times weighing root n."""
    return mean_rows(root_counts(counts), table)


def mechanism_of(name: str, index: textpriv.Index, epsilon: float) -> Any:
    """Make the mechanism of a name."""
    if name == PUBLISHED:
        return textpriv.TEM(index, epsilon, prior="uniform")
    if name == BEST:
        return textpriv.TEM(index, epsilon, prior="zipf", rate="best")
    return textpriv.Madlib(index, epsilon, search="hnsw" if name == MADLIB_HNSW else "exact")


@lru_cache(maxsize=1)
def shared(setting: Setting) -> tuple[textpriv.Index, dict[str, Reviews], NDArray[np.float32], Any]:
    """Load, once for each process, what its cells need."""
    import torch

    torch.set_num_threads(1)
    index = textpriv.Index.load(setting.index, verify=False)
    with np.load(setting.reviews, allow_pickle=False) as held:
        reviews = {
            split: Reviews(*(held[f"{split}_{part}"] for part in ("ids", "offsets", "labels")))
            for split in ("train", "test")
        }
    return index, reviews, whitened(index.vocabulary), CoupledMadlib(index)


@dataclass(frozen=True)
class Parts:
    """The four halves of a trial as they are, test counts, and means of the whitened vectors."""

    tr1: Reviews
    tr2: Reviews
    te1: Reviews
    te2: Reviews
    test: Any
    members: NDArray[np.float32]
    others: NDArray[np.float32]
    tested: NDArray[np.float32]


@lru_cache(maxsize=1)
def parts(setting: Setting, trial: int) -> Parts:
    """Cut the reviews for a trial; kept for its other cells."""
    index, reviews, table, _ = shared(setting)
    tr1, tr2 = reviews["train"].halves(trial)
    te1, te2 = reviews["test"].halves(1000 + trial)
    test = te1.counts(len(index))
    means = [
        means_of(counts, table) for counts in (tr1.counts(len(index)), tr2.counts(len(index)), test)
    ]
    return Parts(tr1, tr2, te1, te2, test, *means)


@lru_cache(maxsize=1)
def shadow(setting: Setting, trial: int, tuned: bool) -> tuple[NDArray[Any], NDArray[Any]]:
    """Outputs of the shadow model, trained on TE2 as it is, for TE2 and TE1; kept on disk for all cells of the trial."""
    file = Path(setting.work) / f"shadow-{trial}-{int(tuned)}.npz"
    if file.exists():
        with np.load(file, allow_pickle=False) as held:
            return held["inside"], held["outside"]
    index, _, table, _ = shared(setting)
    cut = parts(setting, trial)
    te1, te2 = cut.te1, cut.te2
    known, other = (root_counts(part.counts(len(index))) for part in (te2, te1))
    model = MeanEmbeddingClassifier(start(index, table, tuned), tune=tuned, scale=SCALE, seed=trial)
    model.fit(known, te2.labels)
    inside, outside = model.predict_proba(known), model.predict_proba(other)
    staging = file.with_suffix(f".{os.getpid()}.npz")
    np.savez(staging, inside=inside, outside=outside)
    os.replace(staging, file)
    return inside, outside


def start(index: textpriv.Index, table: NDArray[np.float32], tuned: bool) -> NDArray[np.float32]:
    """What the classifier starts from: the vectors themselves where it may train them, else whitened ones."""
    return np.asarray(index.vocabulary.vectors, dtype=np.float32) if tuned else table


def channel_table(
    setting: Setting, mechanism: Any, name: str, epsilon: float, table: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Posterior means of the whitened vectors; a pass over all pairs of words, kept for the other trials."""
    law = "published" if name == PUBLISHED else "best"
    file = Path(setting.work) / f"channel-{law}-{epsilon:g}.npy"
    if file.exists():
        found: NDArray[np.float32] = np.load(file, allow_pickle=False)
        return found
    means = Law(mechanism).posterior_means(table)
    staging = file.with_suffix(f".{os.getpid()}.npy")
    np.save(staging, means)
    os.replace(staging, file)
    return means


def measure(cell: Cell, setting: Setting) -> dict[str, Any]:
    """Privatize TR1, train, test on TE1, attack."""
    started = time.perf_counter()
    index, _, table, coupled = shared(setting)
    words = len(index)
    cut = parts(setting, cell.trial)
    tr1, te1, te2 = cut.tr1, cut.te1, cut.te2
    members = cut.members
    if cell.reviews:
        rng = np.random.default_rng(cell.trial)
        chosen = np.sort(rng.permutation(len(tr1.labels))[: cell.reviews])
        tr1, members = tr1.take(chosen), members[chosen]
    seed = int(hashlib.sha256(repr(cell).encode()).hexdigest()[:12], 16)

    def draw(part: Reviews, offset: int) -> NDArray[np.int32]:
        if cell.mechanism == CLEAR:
            return part.ids
        if cell.mechanism == MADLIB:
            return coupled.draw(cell.epsilon, part.ids, part.offsets, seed=seed + offset)
        streams = KeyedStreams(seed=seed + offset)
        drawn: NDArray[np.int32] = mechanism.sample_documents(
            part.ids, part.offsets, [streams.stream(i) for i in range(len(part.labels))]
        )
        return drawn

    mechanism = (
        None
        if cell.mechanism in (CLEAR, MADLIB)
        else mechanism_of(cell.mechanism, index, cell.epsilon)
    )
    private = tr1.counts(words, draw(tr1, 0))
    found: dict[str, Any] = {**asdict(cell), "documents": len(tr1.labels)}
    loss = np.inf
    if mechanism is not None:
        # Between two training sets that differ in one review: the sum over its words.
        loss = float(mechanism.worst_word_loss * np.median(np.diff(tr1.offsets)))

    roots = root_counts(private)
    target = MeanEmbeddingClassifier(
        start(index, table, cell.tuned), tune=cell.tuned, scale=SCALE, seed=cell.trial
    ).fit(roots, tr1.labels)
    found["training_accuracy"] = target.score(roots, tr1.labels)
    if cell.tuned:
        found["accuracy"] = target.score(root_counts(cut.test), te1.labels)
        outputs = [target.predict_proba(root_counts(part.counts(words))) for part in (tr1, cut.tr2)]
    else:
        found["accuracy"] = target.score(None, te1.labels, means=cut.tested)
        outputs = [target.predict_proba(None, means=each) for each in (members, cut.others)]
    inside, outside = shadow(setting, cell.trial, cell.tuned)
    found["shadow"] = shadow_attack(inside, outside, *outputs, loss=loss, seed=cell.trial).to_dict()
    if not cell.tuned:
        counts = word_count_classifier().fit(private, tr1.labels)
        found["word_counts"] = float(counts.score(cut.test, te1.labels))
    if cell.mechanism in (PUBLISHED, BEST) and not cell.tuned:
        posterior = channel_table(setting, mechanism, cell.mechanism, cell.epsilon, table)
        through = MeanEmbeddingClassifier(table, scale=CHANNEL_SCALE, seed=cell.trial).fit(
            None, tr1.labels, means=means_of(private, posterior)
        )
        found["channel"] = through.score(None, te1.labels, means=cut.tested)
        found["channel_shadow"] = shadow_attack(
            inside,
            outside,
            *(through.predict_proba(None, means=each) for each in (members, cut.others)),
            loss=loss,
            seed=cell.trial,
        ).to_dict()
    if cell.mechanism in (PUBLISHED, BEST, CLEAR) and not cell.tuned:
        found["lira"] = likelihood_ratio(
            means_of(te2.counts(words, draw(te2, 1)), table), te2.labels, table, target, cut, loss
        ).to_dict()
    found["seconds"] = round(time.perf_counter() - started, 1)
    return found


def likelihood_ratio(
    means: NDArray[np.float32],
    labels: NDArray[np.int64],
    table: NDArray[np.float32],
    target: MeanEmbeddingClassifier,
    cut: Parts,
    loss: float,
) -> Attack:
    """Offline LiRA with shadow models trained on TE2, privatized as the target's training data were."""
    candidates = np.concatenate([cut.members, cut.others])
    truth = np.concatenate([cut.tr1.labels, cut.tr2.labels])
    beside = []
    for number in range(SHADOWS):
        rng = np.random.default_rng(number)
        chosen = rng.permutation(len(labels))[: 4 * len(labels) // 5]
        model = MeanEmbeddingClassifier(table, scale=SCALE, seed=number).fit(
            None, labels[chosen], means=means[chosen]
        )
        beside.append(true_class_logit(model.predict_proba(None, means=candidates), truth))
    logit = true_class_logit(target.predict_proba(None, means=candidates), truth)
    member = np.arange(len(truth)) < len(cut.members)
    return offline_lira(logit, np.array(beside), member, loss=loss)


def validation(setting: Setting, epsilons: list[float], trials: int) -> str:
    """Return a Markdown table of accuracies on TE2 of models trained on TR2, from which the inputs' form is chosen.

    Both halves are disjoint from TR1 and TE1 of the same trial. TR2 is clear in the first lines, private in the others.
    """
    index, _, table, coupled = shared(setting)
    scales = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0)
    sums: dict[str, NDArray[np.float64]] = {}
    for trial in range(trials):
        cut = parts(setting, trial)
        tested = means_of(cut.te2.counts(len(index)), table)

        def scores(
            means: NDArray[np.float32],
            trial: int = trial,
            cut: Parts = cut,
            tested: NDArray[np.float32] = tested,
        ) -> NDArray[np.float64]:
            found = []
            for scale in scales:
                model = MeanEmbeddingClassifier(table, scale=scale, seed=trial)
                model.fit(None, cut.tr2.labels, means=means)
                found.append(model.score(None, cut.te2.labels, means=tested))
            return np.array(found)

        clear = [part.counts(len(index)) for part in (cut.tr2, cut.te2)]
        plain = standardized(index.vocabulary, 1.0)
        lines = {
            f"{CLEAR}, standardized vectors, counts": scores(
                mean_rows(clear[0], plain), tested=mean_rows(clear[1], plain)
            ),
            f"{CLEAR}, whitened vectors, counts": scores(
                mean_rows(clear[0], table), tested=mean_rows(clear[1], table)
            ),
            f"{CLEAR}, standardized vectors": scores(
                means_of(clear[0], plain), tested=means_of(clear[1], plain)
            ),
            CLEAR: scores(cut.others),
        }
        for name in (BEST, PUBLISHED, MADLIB):
            for epsilon in epsilons:
                seed = int(
                    hashlib.sha256(repr((name, epsilon, trial)).encode()).hexdigest()[:12], 16
                )
                line = f"{name}, epsilon {epsilon:g}"
                if name == MADLIB:
                    ids = coupled.draw(epsilon, cut.tr2.ids, cut.tr2.offsets, seed=seed)
                    lines[line] = scores(means_of(cut.tr2.counts(len(index), ids), table))
                    continue
                mechanism = mechanism_of(name, index, epsilon)
                streams = KeyedStreams(seed=seed)
                ids = mechanism.sample_documents(
                    cut.tr2.ids,
                    cut.tr2.offsets,
                    [streams.stream(i) for i in range(len(cut.tr2.labels))],
                )
                private = cut.tr2.counts(len(index), ids)
                lines[line] = scores(means_of(private, table))
                posterior = channel_table(setting, mechanism, name, epsilon, table)
                lines[f"{name}, through the channel, epsilon {epsilon:g}"] = scores(
                    means_of(private, posterior)
                )
        for line, found in lines.items():
            sums[line] = sums.get(line, np.zeros(len(scales))) + found
    out = ["| | " + " | ".join(f"scale {scale:g}" for scale in scales) + " |"]
    out.append("|---" * (len(scales) + 1) + "|")
    for line, total in sums.items():
        out.append(f"| {line} | " + " | ".join(f"{value:.3f}" for value in total / trials) + " |")
    return "\n".join(out) + "\n"


# --------------------------------------------------------------------------------------------------------------------
# The run


def prepare(
    data_dir: Path | None, index: textpriv.Index, file: Path, limit: int | None, progress: Any
) -> None:
    """Read the reviews once and keep them as ids."""
    if file.exists():
        return
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    from data import DataUnavailable, MalformedData, imdb

    try:
        sets = imdb(data_dir)
    except (DataUnavailable, MalformedData) as error:
        raise TextprivError(str(error)) from error
    reader = textpriv.Privatizer(textpriv.TEM(index, epsilon=1.0))
    held: dict[str, NDArray[Any]] = {}
    for split in ("train", "test"):
        progress(f"reading {split} reviews")
        labels = np.array(sets[split]["label"], dtype=np.int64)
        chosen = np.arange(len(labels))
        if limit is not None:
            rng = np.random.default_rng(0)
            chosen = np.sort(
                np.concatenate(
                    [
                        rng.permutation(np.flatnonzero(labels == label))[: limit // 2]
                        for label in (0, 1)
                    ]
                )
            )
        codes = []
        for text in sets[split].select(chosen)["text"]:
            read = reader.read(text).codes
            codes.append(read[read >= -1])
        held[f"{split}_ids"] = np.concatenate(codes).astype(np.int32)
        held[f"{split}_offsets"] = np.concatenate([[0], np.cumsum([len(c) for c in codes])])
        held[f"{split}_labels"] = labels[chosen]
    staging = file.with_suffix(".partial.npz")
    np.savez(staging, **held)
    os.replace(staging, file)


def plan(epsilons: list[float], trials: int, hnsw_reviews: int, tuned_trials: int) -> list[Cell]:
    """All cells, whole trials first, so that a stopped run is a run of fewer trials."""
    cells: list[Cell] = []
    for trial in range(trials):
        cells.append(Cell(CLEAR, 0.0, trial))
        for name in (BEST, PUBLISHED, MADLIB):
            cells += [Cell(name, epsilon, trial) for epsilon in epsilons]
        if trial < tuned_trials:
            cells.append(Cell(CLEAR, 0.0, trial, tuned=True))
            cells += [Cell(BEST, epsilon, trial, tuned=True) for epsilon in epsilons[:3]]
    # An approximate search for every token is slow, so both searches are compared on fewer reviews.
    for name in (MADLIB, MADLIB_HNSW):
        cells += [Cell(name, epsilon, 0, reviews=hnsw_reviews) for epsilon in epsilons]
    return cells


def run(
    cells: list[Cell], setting: Setting, folder: Path, workers: int, progress: Any, minutes: float
) -> list[dict[str, Any]]:
    """Measure what is not measured yet; stop starting new cells after so many minutes."""
    waiting = [cell for cell in cells if not cell.file(folder).exists()]
    begun = time.perf_counter()
    if waiting:
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            running: dict[Any, Cell] = {}
            while waiting or running:
                while (
                    waiting
                    and len(running) < workers
                    and time.perf_counter() - begun < 60 * minutes
                ):
                    cell = waiting.pop(0)
                    running[pool.submit(measure, cell, setting)] = cell
                if not running:
                    break
                done = next(as_completed(running))
                cell = running.pop(done)
                found = done.result()
                staging = cell.file(folder).with_suffix(".partial")
                staging.write_text(json.dumps(found), encoding="utf-8")
                os.replace(staging, cell.file(folder))
                progress(
                    f"{cell.mechanism}, epsilon {cell.epsilon:g}, trial {cell.trial}"
                    f"{', tuned' if cell.tuned else ''}: {found['accuracy']:.4f} ({found['seconds']:.0f} s)"
                )
    return [
        json.loads(cell.file(folder).read_text(encoding="utf-8"))
        for cell in cells
        if cell.file(folder).exists()
    ]


# --------------------------------------------------------------------------------------------------------------------
# Tables and figures

SERIES = (
    # name, mechanism, figure, attack on the same model
    ("TEM as published", PUBLISHED, "accuracy", "shadow"),
    ("TEM as published, through the channel", PUBLISHED, "channel", "channel_shadow"),
    ("TEM, best law", BEST, "accuracy", "shadow"),
    ("TEM, best law, through the channel", BEST, "channel", "channel_shadow"),
    ("TEM, best law, word counts", BEST, "word_counts", None),
    ("TEM as published, word counts", PUBLISHED, "word_counts", None),
    ("Madlib, exact search", MADLIB, "accuracy", "shadow"),
    ("Madlib, exact search, word counts", MADLIB, "word_counts", None),
)


def interval(values: list[float]) -> tuple[float, float]:
    """Mean and half width of its 95 % interval (Student); the width is not a number for one value."""
    from scipy.stats import t

    mean = float(np.mean(values))
    if len(values) < 2:
        return mean, float("nan")
    return mean, float(
        t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    )


def values_of(
    rows: list[dict[str, Any]], mechanism: str, epsilon: float, figure: str, **wanted: Any
) -> list[float]:
    """One number a trial; ``shadow`` and the like stand for the attack's AUC."""
    keep = {"tuned": False, "reviews": 0, **wanted}
    found = []
    for row in rows:
        if row["mechanism"] != mechanism or row["epsilon"] != epsilon or figure not in row:
            continue
        if any(row[key] != value for key, value in keep.items()):
            continue
        value = row[figure]
        found.append(value["auc"]["value"] if isinstance(value, dict) else float(value))
    return found


def shown(values: list[float]) -> str:
    """Mean and half width, for a table."""
    if not values:
        return "-"
    mean, half = interval(values)
    return f"{mean:.3f}" if np.isnan(half) else f"{mean:.3f} ± {half:.3f}"


def tables(rows: list[dict[str, Any]], epsilons: list[float]) -> str:
    """Return the Markdown tables."""
    head = "| | " + " | ".join(f"epsilon {epsilon:g}" for epsilon in epsilons) + " | trials |"
    rule = "|---" * (len(epsilons) + 2) + "|"

    def line(name: str, cells: list[list[float]]) -> str:
        counts = sorted({len(values) for values in cells if values})
        trials = "-".join(str(c) for c in counts) if counts else "0"
        return f"| {name} | " + " | ".join(shown(values) for values in cells) + f" | {trials} |"

    out = ["### Accuracy on clear reviews", "", head, rule]
    clear = {figure: values_of(rows, CLEAR, 0.0, figure) for figure in ("accuracy", "word_counts")}
    out.append(line("unprivatized", [clear["accuracy"]] * len(epsilons)))
    out.append(line("unprivatized, word counts", [clear["word_counts"]] * len(epsilons)))
    for name, mechanism, figure, _ in SERIES:
        cells = [values_of(rows, mechanism, epsilon, figure) for epsilon in epsilons]
        if any(cells):
            out.append(line(name, cells))
    for figure, words in (("accuracy", ""), ("word_counts", ", word counts")):
        pairs = [
            [values_of(rows, name, epsilon, figure) for name in (PUBLISHED, MADLIB)]
            for epsilon in epsilons
        ]
        # A stopped run may lack the second of a pair; trials stand in one order.
        gains = [[a - b for a, b in zip(ours, theirs, strict=False)] for ours, theirs in pairs]
        if any(gains):
            out.append(line(f"TEM as published less Madlib, same trial{words}", gains))
    out += [
        "",
        "### AUC of membership inference by a shadow model (0.5 is a guess)",
        "",
        head,
        rule,
    ]
    out.append(line("unprivatized", [values_of(rows, CLEAR, 0.0, "shadow")] * len(epsilons)))
    out.append(
        line(
            "unprivatized, trained embeddings",
            [values_of(rows, CLEAR, 0.0, "shadow", tuned=True)] * len(epsilons),
        )
    )
    for name, mechanism, _, attack in SERIES:
        if attack is None:
            continue
        cells = [values_of(rows, mechanism, epsilon, attack) for epsilon in epsilons]
        if any(cells):
            out.append(line(name, cells))
    cells = [values_of(rows, BEST, epsilon, "shadow", tuned=True) for epsilon in epsilons]
    if any(cells):
        out.append(line("TEM, best law, trained embeddings", cells))
    for name in (CLEAR, PUBLISHED, BEST):
        cells = [
            values_of(rows, name, 0.0 if name == CLEAR else epsilon, "lira") for epsilon in epsilons
        ]
        if any(cells):
            out.append(line(f"{name}, offline LiRA instead", cells))
    tuned = values_of(rows, CLEAR, 0.0, "accuracy", tuned=True)
    if tuned:
        train = values_of(rows, CLEAR, 0.0, "training_accuracy", tuned=True)
        out += [
            "",
            f"With trained embeddings the unprivatized model has accuracy {shown(tuned)} on clear test reviews and "
            f"{shown(train)} on its training reviews.",
        ]
    out += ["", *attack_lines(rows)]
    few = sorted({row["reviews"] for row in rows if row["reviews"]})
    for reviews in few:
        out += [
            "",
            f"### Madlib's two searches, {reviews:,} training reviews, accuracy of word counts",
            "",
            head,
            rule,
        ]
        for name in (MADLIB, MADLIB_HNSW):
            cells = [
                values_of(rows, name, epsilon, "word_counts", reviews=reviews)
                for epsilon in epsilons
            ]
            out.append(line(name, cells))
    return "\n".join(out) + "\n"


def attack_lines(rows: list[dict[str, Any]]) -> list[str]:
    """The attacks of the first trial in full."""
    out = [
        "### Attacks in full, first trial",
        "",
        "| target | epsilon | attack | AUC (95 %) | TPR at 1 % FPR (95 %) | TPR at 0.1 % FPR (95 %) | ceiling of the AUC |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if row["trial"] != 0 or row["reviews"]:
            continue
        for key in ("shadow", "channel_shadow", "lira"):
            if key not in row:
                continue
            found = row[key]

            def part(rate: dict[str, float]) -> str:
                return f"{rate['value']:.4f} ({rate['low']:.4f} to {rate['high']:.4f})"

            target = row["mechanism"] + (", trained embeddings" if row["tuned"] else "")
            target += ", through the channel" if key == "channel_shadow" else ""
            name = "offline LiRA" if key == "lira" else "shadow model"
            epsilon = f"{row['epsilon']:g}" if row["epsilon"] else "-"
            ceiling = found["auc"]["ceiling"]
            out.append(
                f"| {target} | {epsilon} | {name} | {part(found['auc'])} | {part(found['tpr']['0.01'])} | "
                f"{part(found['tpr']['0.001'])} | {'none' if ceiling >= 1 else f'{ceiling:.4f}'} |"
            )
    return out


def write_csv(rows: list[dict[str, Any]], file: Path) -> None:
    """One line a measurement."""
    with open(file, "w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(
            "mechanism epsilon trial trained_embeddings reviews figure value low high".split()
        )
        for row in rows:
            start = [row[key] for key in ("mechanism", "epsilon", "trial", "tuned", "documents")]
            for key in ("accuracy", "training_accuracy", "channel", "word_counts"):
                if key in row:
                    writer.writerow([*start, key, f"{row[key]:.5f}", "", ""])
            for key in ("shadow", "channel_shadow", "lira"):
                if key in row:
                    found = row[key]
                    for name, rate in (("auc", found["auc"]), *found["tpr"].items()):
                        label = f"{key} {name if name == 'auc' else f'tpr at fpr {name}'}"
                        numbers = [f"{rate[part]:.5f}" for part in ("value", "low", "high")]
                        writer.writerow([*start, label, *numbers])


def figures(rows: list[dict[str, Any]], epsilons: list[float], folder: Path) -> None:
    """Figure 1 (a) and (b): accuracy and attack over epsilon."""
    needs("matplotlib", "recipes").use("Agg")
    pyplot = needs("matplotlib.pyplot", "recipes")

    # Okabe and Ito's palette, and a marker of its own for each line.
    looks = {
        "TEM, best law, through the channel": ("#0072B2", "o", "-"),
        "TEM, best law": ("#56B4E9", "s", "-"),
        "TEM, best law, word counts": ("#009E73", "D", "-"),
        "TEM as published": ("#D55E00", "^", "-"),
        "TEM as published, through the channel": ("#E69F00", "v", "--"),
        "Madlib, exact search": ("#CC79A7", "X", "-."),
    }
    for name, label in (
        ("accuracy", "test accuracy (share of reviews)"),
        ("membership", "AUC of the membership attack (0.5 is a guess)"),
    ):
        figure, axes = pyplot.subplots(figsize=(8, 6.2), dpi=100)
        for series, mechanism, value, attack in SERIES:
            key = value if name == "accuracy" else attack
            if key is None or series not in looks:
                continue
            points = [(e, values_of(rows, mechanism, e, key)) for e in epsilons]
            points = [(e, values) for e, values in points if values]
            if not points:
                continue
            means, halves = zip(*(interval(values) for _, values in points), strict=True)
            colour, marker, style = looks[series]
            shift = 1.012 ** (list(looks).index(series) - 2.5)
            axes.errorbar(
                [e * shift for e, _ in points],
                means,
                yerr=np.nan_to_num(halves),
                color=colour,
                marker=marker,
                linestyle=style,
                capsize=4,
                linewidth=1.8,
                markersize=7,
                label=series,
            )
        baselines = [
            (
                "unprivatized",
                values_of(rows, CLEAR, 0.0, "accuracy" if name == "accuracy" else "shadow"),
                "-",
            )
        ]
        if name == "membership":
            baselines.append(
                (
                    "unprivatized, trained embeddings",
                    values_of(rows, CLEAR, 0.0, "shadow", tuned=True),
                    "--",
                )
            )
            tuned = [(e, values_of(rows, BEST, e, "shadow", tuned=True)) for e in epsilons]
            tuned = [(e, values) for e, values in tuned if values]
            if tuned:
                means, halves = zip(*(interval(values) for _, values in tuned), strict=True)
                axes.errorbar(
                    [e for e, _ in tuned],
                    means,
                    yerr=np.nan_to_num(halves),
                    color="#777777",
                    marker="P",
                    linestyle=":",
                    capsize=4,
                    label="TEM, best law, trained embeddings",
                )
        for text, values, style in baselines:
            if values:
                mean, half = interval(values)
                axes.axhline(mean, color="black", linestyle=style, linewidth=1.3, label=text)
                if not np.isnan(half):
                    axes.axhspan(mean - half, mean + half, color="black", alpha=0.12, linewidth=0)
        axes.axhline(0.5, color="grey", linestyle=":", linewidth=1)
        axes.set_xscale("log")
        axes.set_xticks(epsilons, [f"{e:g}" for e in epsilons])
        axes.minorticks_off()
        axes.set_xlabel("epsilon (per unit of Euclidean distance, log scale)", fontsize=12)
        axes.set_ylabel(label, fontsize=12)
        axes.tick_params(labelsize=11)
        axes.grid(alpha=0.25)
        if name == "membership":
            low, high = axes.get_ylim()
            axes.set_ylim(min(low, 0.47), max(high, 0.6))
        trials = max((row["trial"] for row in rows), default=-1) + 1
        several = (
            f"mean and 95 % interval over up to {trials} trials" if trials > 1 else "one trial"
        )
        axes.set_title(f"IMDB, {several}", fontsize=12)
        axes.legend(
            fontsize=10, ncol=2, loc="upper center", bbox_to_anchor=(0.5, -0.13), frameon=False
        )
        figure.tight_layout()
        for suffix in ("png", "svg"):
            figure.savefig(folder / f"{name}.{suffix}")
        pyplot.close(figure)


def main(
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Folder with imdb/*.jsonl.gz; without it the set is downloaded."),
    ] = None,
    vectors: Annotated[
        Path | None, typer.Option(help="A file of public word vectors, commonest words first.")
    ] = None,
    index: Annotated[
        Path | None, typer.Option(help="An index of public vectors, instead of --vectors.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for tables, figures and cells.")] = Path(
        "imdb-results"
    ),
    epsilons: Annotated[str, typer.Option(help="Comma-separated.")] = "2,3,4,6,8",
    trials: Annotated[int, typer.Option(help="New halves and new draws each.")] = 5,
    tuned_trials: Annotated[
        int, typer.Option(help="Trials that also train the embeddings, which is slow.")
    ] = 2,
    hnsw_reviews: Annotated[
        int, typer.Option(help="Training reviews on which Madlib's searches are compared.")
    ] = 1_000,
    workers: Annotated[int, typer.Option(help="Processes.")] = 2,
    minutes: Annotated[
        float, typer.Option(help="Start no cell after so many minutes; run again to go on.")
    ] = 1e6,
    choose: Annotated[
        bool,
        typer.Option("--choose", help="Print the validation by which scales are chosen, and stop."),
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="4,000 reviews, 8,000 words, 2 trials: some minutes.")
    ] = False,
) -> None:
    """Measure Figure 1 and write its table and figures."""

    def progress(text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)

    try:
        wanted = [float(part) for part in ("2,4,8" if quick else epsilons).split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"epsilons are numbers with commas between them, such as 2,3,4; got {epsilons!r}."
        ) from None
    if quick:
        trials, tuned_trials, hnsw_reviews = 2, 1, 200
        out = out / "quick"
    work, cells_in = out / "work", out / "cells"
    for folder in (work, cells_in):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        for package in ("torch", "sklearn", "matplotlib", "datasets"):
            needs(package, "recipes")
        if index is None:
            if vectors is None:
                raise TextprivError("give --vectors FILE or --index FOLDER.")
            index = work / "vectors.idx"
            if not index.exists():
                progress("building the index")
                vocabulary = textpriv.Vocabulary.load(vectors, limit=8_000 if quick else None)
                textpriv.Index.build(vocabulary).save(index)
        tables_of = textpriv.Index.load(index)
        reviews = work / "reviews.npz"
        prepare(data_dir, tables_of, reviews, 4_000 if quick else None, progress)
        setting = Setting(str(index), str(reviews), str(work))
        # Rates are calibrated once, before the workers start.
        for epsilon in wanted:
            progress(f"best law at epsilon {epsilon:g}")
            mechanism_of(BEST, tables_of, epsilon)
    except TextprivError as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    if choose:
        print(validation(setting, wanted, trials))
        return
    cells = plan(wanted, trials, hnsw_reviews, tuned_trials)
    rows = run(cells, setting, cells_in, workers, progress, minutes)
    write_csv(rows, out / "table.csv")
    text = tables(rows, wanted)
    (out / "table.md").write_text(text, encoding="utf-8")
    figures(rows, wanted, out)
    print(text)
    if len(rows) < len(cells):
        progress(f"{len(cells) - len(rows)} of {len(cells)} cells are left; run again to go on.")


if __name__ == "__main__":
    typer.run(main)
