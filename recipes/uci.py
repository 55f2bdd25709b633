"""Private rankings and metrics on public tables: every algorithm and other packages on the same splits and bounds.

``auc``: test AUC over epsilon, on the UCI sets and on tables of the KEEL collection that nothing was chosen on.
``features``: test AUC of ``auto`` with and without ``PublicFeatures``, and of DP-EBM, on the large sets.
``distances``: accuracy of 5 nearest neighbours under ``PrivateMetricLearner`` and the identity. Run

    python recipes/uci.py auc --data-dir DATA --out uci

Without ``--data-dir`` the sets that ship with scikit-learn are used and no network is needed; ``--online`` fetches the
UCI sets. Every cell that is done is kept in OUT/cells.jsonl, so a run that was stopped goes on where it was. Tables are
printed and written as CSV and Markdown. Records are replaced one for one, features scaled by public bounds, delta is
1e-5.
"""

from __future__ import annotations

import csv
import json
import math
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Annotated, Any

import data
import keel
import numpy as np
import typer
from numpy.typing import NDArray

from pairwise import Pointwise

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Cell = dict[str, Any]

Task = tuple[str, str, "str | None", int, tuple[float, ...]]

app = typer.Typer(add_completion=False)

PEER_SCRIPT = Path(__file__).with_name("ranking_peers.py")

DELTA = 1e-5
EPSILONS = (0.5, 1.0, 2.0, 4.0)
SETS = ("pima", "debrecen", "debrecen_steps", "breast_cancer", "adult", "bank")
SHIPPED = ("breast_cancer", "digits")
LARGE = 20_000  # records from which on only what is quick is tried

KEEL = "keel: "
PLAIN = "logistic regression, non-private"
AUTO = "auto"
BENT = "auto, PublicFeatures"
FREE = "auto, epsilon infinite"
IDENTITY = "identity metric"
METRIC = "PrivateMetricLearner"
DRAWS = 5  # of the noise of auto on one split of a UCI set

EVERY: dict[str, dict[str, Any]] = {
    AUTO: {},
    "pointwise, features as they are": {"algorithm": Pointwise(scale_share=0.0)},
    **{
        name: {"algorithm": name}
        for name in ("gradient", "statistics", "sgd-output", "ftrl", "offpairstrc", "onpairstrc")
    },
}
# Those that compare all records, or are far behind: on the first splits of small tables only.
SLOW = ("sgd-output", "ftrl", "offpairstrc", "onpairstrc")
# What other packages need in an environment of their own; with "here", on top of what is installed here.
PEERS: dict[str, tuple[bool, tuple[str, ...]]] = {
    "adassp": (True, ()),
    "diffprivlib": (False, ("diffprivlib==0.6.6", "scikit-learn<1.7")),
    "interpret": (False, ("interpret-core==0.7.3",)),
    "opacus": (True, ("opacus==1.6.0", "opt_einsum>=3.3")),
}
FEW_SPLITS = 5
FEWEST = 5  # values of an interval; by two, Student's t reaches ±4 around an AUC of .55
KEEL_SPLITS, MORE_SPLITS = 2, 10  # of KEEL tables; more for auto and DP-EBM


def table(name: str, source: str | None) -> tuple[Array, Labels]:
    """Return records of norm at most 1 by public bounds, and classes; ``source`` is a folder, ``online`` or None."""
    if name.startswith(KEEL):
        return keel.table(name.removeprefix(KEEL), Path(str(source)))
    if name == "digits":
        from sklearn.datasets import load_digits

        X, y = load_digits(return_X_y=True)
        # 64 pixels of 0..16: at most 16·√64.
        return X / 128.0, y.astype(np.int64)
    folder = None if source in (None, "online") else source
    if name == "debrecen_steps":
        return debrecen_steps(folder)
    X, y, _ = data.features(getattr(data, name)(folder))
    # Each original column adds at most 1 to the squared norm, one-hot or not.
    return X / math.sqrt(len(data.SETS[name].columns)), y


def debrecen_steps(folder: str | None) -> tuple[Array, Labels]:
    """Return Debrecen with its nested counts as differences, a public change of coordinates.

    By the set's description ma_1 to ma_6 count one thing at rising levels of confidence, so each contains the next. What
    tells the classes apart are their differences, which are small beside what the counts share: a direction of little
    variance, which noise of one size in all directions hides. A count of 100 that falls in five steps falls by 20 a step.
    """
    dataset = data.debrecen(folder)
    X, y, names = data.features(dataset)
    frame = dataset.to_pandas()
    for i in range(1, 6):
        step = frame[f"ma_{i}"].to_numpy() - frame[f"ma_{i + 1}"].to_numpy()
        X[:, names.index(f"ma_{i}")] = np.clip(step / 10.0 - 1.0, -1.0, 1.0)
    return X / math.sqrt(X.shape[1]), y


def split(name: str, source: str | None, seed: int) -> tuple[Array, Labels, Array, Labels]:
    """Return a random 80/20 split: training records and labels, then those of the test."""
    X, y = table(name, source)
    if name == "digits":
        y = y % 2
    order = np.random.default_rng(seed).permutation(len(X))
    held = len(X) // 5
    test, train = order[:held], order[held:]
    return X[train], y[train], X[test], y[test]


def numbers_of(name: str, source: str | None, columns: int) -> NDArray[np.bool_]:
    """Return which columns of a table are numbers and no categories, by its public description, shape (columns,)."""
    found = np.ones(columns, dtype=bool)
    if name in data.SETS and name != "breast_cancer":
        names = data.SETS[name].columns
        _, _, shown = data.features(
            getattr(data, name)(None if source in (None, "online") else source)
        )
        found[:] = [each in names and isinstance(names[each], data.Number) for each in shown]
    return found


def auc_cells(
    name: str, source: str | None, seed: int, epsilons: tuple[float, ...]
) -> Iterator[Cell]:
    """Yield the test AUC of every algorithm on one split."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    from pairwise import PrivateAUCClassifier

    X, y, Z, z = split(name, source, seed)
    plain = LogisticRegression(C=1000.0, max_iter=5000).fit(X, y)
    yield {
        "method": PLAIN,
        "epsilon": None,
        "score": roc_auc_score(z, plain.decision_function(Z)),
    }

    def score(epsilon: float, method: str, draw: int = 0) -> float:
        # A threshold is not part of an AUC: this is what the ranking alone can have.
        learner = PrivateAUCClassifier(
            epsilon, DELTA, classes=[0, 1], threshold_share=0.0, random_state=seed + 1000 * draw
        )
        learner.set_params(**EVERY[method]).fit(X, y)
        return float(roc_auc_score(z, learner.decision_function(Z)))

    yield {"method": FREE, "epsilon": None, "score": score(math.inf, AUTO)}
    collected = name.startswith(KEEL)
    few = len(X) > LARGE or seed >= (1 if collected else FEW_SPLITS)
    for epsilon in epsilons:
        for method in EVERY:
            if few and method in SLOW:
                continue
            if collected and seed >= KEEL_SPLITS and method != AUTO:
                continue
            draws = DRAWS if method == AUTO and not collected else 1
            value = float(np.mean([score(epsilon, method, k) for k in range(draws)]))
            yield {"method": method, "epsilon": epsilon, "score": value}


def feature_cells(
    name: str, source: str | None, seed: int, epsilons: tuple[float, ...]
) -> Iterator[Cell]:
    """Yield the test AUC of ``auto`` on one split, on the numbers of a table as they are and with ``PublicFeatures``."""
    from sklearn.metrics import roc_auc_score

    from pairwise import PrivateAUCClassifier, PublicFeatures

    X, y, Z, z = split(name, source, seed)
    numbers = numbers_of(name, source, X.shape[1])
    largest, others = float(np.abs(X).max()), int((~numbers).sum())
    for epsilon in epsilons:
        for method, waves in ((AUTO, 0), (BENT, None)):
            features = PublicFeatures(
                -largest, largest, waves=waves, epsilon=epsilon, delta=DELTA, beside=others
            ).fit(X[:, numbers])
            shown, tested = (
                np.hstack([features.transform(table[:, numbers]), table[:, ~numbers] / largest])
                for table in (X, Z)
            )
            # Each original column adds at most 1 to the squared norm, and so does each wave.
            norm = math.sqrt(largest**-2 + 2 * features.waves_ * numbers.sum())
            learner = PrivateAUCClassifier(
                epsilon,
                DELTA,
                data_norm=norm,
                classes=[0, 1],
                threshold_share=0.0,
                random_state=seed,
            ).fit(shown, y)
            score = float(roc_auc_score(z, learner.decision_function(tested)))
            yield {"method": method, "epsilon": epsilon, "score": score}


def neighbours(A: Array, classes: Labels, B: Array, k: int = 5) -> Labels:
    """Return the commonest class among the k nearest rows of A for each row of B."""
    A32, B32 = A.astype(np.float32), B.astype(np.float32)
    squares = np.einsum("ij,ij->i", A32, A32)
    count = int(classes.max()) + 1
    found = np.empty(len(B), dtype=np.int64)
    for start in range(0, len(B), 256):
        part = B32[start : start + 256]
        near = np.argpartition(squares - 2.0 * (part @ A32.T), k, axis=1)[:, :k]
        votes = np.zeros((len(part), count))
        np.add.at(votes, (np.arange(len(part))[:, None], classes[near]), 1.0)
        found[start : start + 256] = votes.argmax(axis=1)
    return found


def distance_cells(
    name: str, source: str | None, seed: int, epsilons: tuple[float, ...]
) -> Iterator[Cell]:
    """Yield the accuracy of 5 nearest neighbours under the private metric and the identity on one split of a table."""
    from pairwise import PrivateMetricLearner

    if name.startswith(KEEL):
        X, y = keel.table(name.removeprefix(KEEL), Path(str(source)), classes=True)
    else:
        X, y = table(name, source)
    order = np.random.default_rng(seed).permutation(len(X))
    test, train = np.split(order, [len(X) // 5])

    def cell(method: str, epsilon: float | None, W: Array) -> Cell:
        score = float((neighbours(X[train] @ W.T, y[train], X[test] @ W.T) == y[test]).mean())
        return {"method": method, "epsilon": epsilon, "score": score}

    yield cell(IDENTITY, None, np.eye(X.shape[1]))
    for epsilon in epsilons:
        learner = PrivateMetricLearner(
            epsilon, DELTA, None, classes=np.unique(y), random_state=seed
        )
        yield cell(METRIC, epsilon, learner.fit(X[train], y[train]).components_)


EXPERIMENTS = {"auc": auc_cells, "features": feature_cells, "distances": distance_cells}


def work(
    experiment: str, name: str, source: str | None, seed: int, epsilons: tuple[float, ...]
) -> list[Cell]:
    """Return all cells of one split; runs in a worker process."""
    cells = EXPERIMENTS[experiment](name, source, seed, epsilons)
    return [{"experiment": experiment, "set": name, "seed": seed, **cell} for cell in cells]


def run(
    tasks: list[tuple[str, str, str | None, int, tuple[float, ...]]], out: Path, jobs: int
) -> list[Cell]:
    """Run what is not done yet, in processes, keeping each split as it ends; return all cells of the tasks."""
    from rich.console import Console
    from rich.progress import Progress

    out.mkdir(parents=True, exist_ok=True)
    kept = out / "cells.jsonl"
    done: dict[str, list[Cell]] = {}
    if kept.exists():
        for line in kept.read_text(encoding="utf-8").splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue  # a line that was cut off when a run was stopped
            done[entry["task"]] = entry["cells"]

    def key(task: tuple[str, str, str | None, int, tuple[float, ...]]) -> str:
        return json.dumps([task[0], task[1], task[3], list(task[4])])

    missing = [task for task in tasks if key(task) not in done]
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with Progress(console=Console(stderr=True), disable=not missing) as progress:
        bar = progress.add_task("splits", total=len(tasks), completed=len(tasks) - len(missing))
        if missing:
            context = multiprocessing.get_context("spawn")
            with (
                ProcessPoolExecutor(min(jobs, len(missing)), mp_context=context) as pool,
                kept.open("a", encoding="utf-8") as file,
            ):
                if not _ends_a_line(kept):
                    file.write("\n")
                futures = {pool.submit(work, *task): task for task in missing}
                for future in as_completed(futures):
                    task = futures[future]
                    done[key(task)] = future.result()
                    file.write(json.dumps({"task": key(task), "cells": done[key(task)]}) + "\n")
                    file.flush()
                    progress.advance(bar)
    return [cell for task in tasks for cell in done[key(task)]]


def peer_python(package: str, folder: Path) -> Path:
    """Return the Python of an environment that holds a package for private classification, made at the first use."""
    import site

    here, needed = PEERS[package]
    if not needed:
        return Path(sys.executable)
    environment = folder / f"env-{package}"
    python = environment / "bin" / "python"
    if not (environment / "done").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(environment)], check=True)  # noqa: S603
        more = []
        if here:
            (own,) = environment.glob("lib/python*/site-packages")
            (own / "here.pth").write_text("\n".join(site.getsitepackages()), encoding="utf-8")
            more = ["--no-deps"]
        subprocess.run([str(python), "-m", "pip", "install", "-q", *more, *needed], check=True)  # noqa: S603
        (environment / "done").touch()
    return python


def peer_cells(
    tasks: list[Task], out: Path, jobs: int, packages: Iterable[str] = PEERS
) -> list[Cell]:
    """Return the cells of other packages on the splits of the tasks, kept in a file of OUT."""
    tasks = [task for task in tasks if task[1].startswith(KEEL) or task[3] < FEW_SPLITS]
    asked = [[task[1], task[3], list(task[4])] for task in tasks]
    experiment = tasks[0][0]
    kept = out / f"peers-{experiment}.json"
    if kept.exists():
        found = json.loads(kept.read_text(encoding="utf-8"))
        if found["asked"] == asked:
            return list(found["cells"])
    cells: list[Cell] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for place, (_, table_name, source, seed, epsilons) in enumerate(tasks):
            X, y, Z, z = split(table_name, source, seed)
            path = folder / f"{place:05d}.npz"
            np.savez(path, X=X, y=y, Z=Z, z=z, epsilons=np.array(epsilons), seed=seed)
        running: list[tuple[str, subprocess.Popen[bytes]]] = []
        for package in packages:
            command = [str(peer_python(package, out)), str(PEER_SCRIPT), package, str(folder)]
            answer = folder / f"{package}.json"
            running.append((package, subprocess.Popen([*command, str(answer)])))  # noqa: S603
            if jobs == 1:
                running[-1][1].wait()
        for package, process in running:
            if process.wait():
                raise typer.Exit(1)
            for cell in json.loads((folder / f"{package}.json").read_text(encoding="utf-8")):
                _, table_name, _, seed, _ = tasks[int(cell.pop("split"))]
                cells.append({"experiment": experiment, "set": table_name, "seed": seed, **cell})
    kept.write_text(json.dumps({"asked": asked, "cells": cells}), encoding="utf-8")
    return cells


def over_tables(cells: list[Cell], peers: list[Cell]) -> str:
    """Return the table of means over all KEEL tables, and how far ``auto`` is from the best algorithm and the best peer."""
    here = [c for c in (*cells, *peers) if c["set"].startswith(KEEL)]
    names = list(dict.fromkeys(c["set"] for c in here))
    epsilons = sorted({c["epsilon"] for c in here if c["epsilon"] is not None})
    scores: dict[tuple[str, float | None, str], list[float]] = defaultdict(list)
    for c in here:
        scores[c["method"], c["epsilon"], c["set"]].append(c["score"])
    guarantees = {c["method"]: c["guarantee"] for c in peers}

    def means(method: str, epsilon: float | None) -> Array:
        return np.array([np.mean(scores[method, epsilon, name]) for name in names])

    def row(label: str, of: Callable[[float], str], free: str = "") -> str:
        return f"| {label} | {free} | " + " | ".join(of(e) for e in epsilons) + " |"

    lines = [
        f"### Mean test AUC over {len(names)} tables of the KEEL collection that nothing was chosen on",
        "",
        f"At most {MORE_SPLITS} splits for auto and DP-EBM, {KEEL_SPLITS} for all others.",
        "",
        "| method | no epsilon | " + " | ".join(f"epsilon {e:g}" for e in epsilons) + " |",
        "|---" * (len(epsilons) + 2) + "|",
    ]
    for method in (PLAIN, FREE):
        lines.append(row(method, lambda _: "", f"{means(method, None).mean():.3f}"))
    others = [method for method in EVERY if method != AUTO]
    for method in (AUTO, *others, *guarantees):
        lines.append(row(method, lambda e, m=method: f"{means(m, e).mean():.3f}"))  # type: ignore[misc]
    for label, group in (("the best other algorithm", others), ("the best peer", list(guarantees))):
        if not group:
            continue

        def apart(epsilon: float, group: list[str] = group) -> str:
            best = max(group, key=lambda m: means(m, epsilon).mean())
            mean, half = interval(means(AUTO, epsilon) - means(best, epsilon))
            return f"{shown(mean, half, '+')} ({best})"

        lines.append(row(f"auto less {label}", apart))
    lines += ["", "Guarantees of other packages, by their own account at the largest epsilon:", ""]
    lines += [f"- {method}: {guarantee}" for method, guarantee in guarantees.items()]
    return "\n".join([*lines, "", ""])


def distances_over_tables(cells: list[Cell]) -> str:
    """Return the mean accuracy over tables in percent, and how far the private metric is above the identity."""
    epsilons = sorted({c["epsilon"] for c in cells if c["epsilon"] is not None})
    scores: dict[tuple[str, float | None], dict[str, list[float]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for c in cells:
        scores[c["method"], c["epsilon"]][c["set"]].append(c["score"])
    tables = list(dict.fromkeys(c["set"] for c in cells))

    def means(method: str, epsilon: float | None) -> Array:
        return 100 * np.array([np.mean(scores[method, epsilon][name]) for name in tables])

    identity = means(IDENTITY, None)
    rows = {
        IDENTITY: [f"{identity.mean():.1f}"] * len(epsilons),
        METRIC: [f"{means(METRIC, e).mean():.1f}" for e in epsilons],
        "difference": [shown(*interval(means(METRIC, e) - identity), sign="+") for e in epsilons],
    }
    lines = [
        f"### Mean accuracy (%) of 5 nearest neighbours over {len(tables)} tables",
        "",
        "| distance |" + "".join(f" epsilon {e:g} |" for e in epsilons),
        "|---" * (len(epsilons) + 1) + "|",
        *(f"| {name} | " + " | ".join(row) + " |" for name, row in rows.items()),
    ]
    return "\n".join([*lines, "", ""])


def _ends_a_line(path: Path) -> bool:
    content = path.read_bytes()
    return not content or content.endswith(b"\n")


def interval(values: Iterable[float]) -> tuple[float, float]:
    """Return the mean and half the width of its 95 % interval by Student's t, NaN of fewer than five values."""
    from scipy.stats import t

    numbers = np.array(list(values), dtype=np.float64)
    if len(numbers) < FEWEST:
        return float(numbers.mean()), math.nan
    half = t.ppf(0.975, len(numbers) - 1) * numbers.std(ddof=1) / math.sqrt(len(numbers))
    return float(numbers.mean()), float(half)


def shown(mean: float, half: float, sign: str = "") -> str:
    """Return a mean with its interval, or alone where there is none."""
    return f"{mean:{sign}.3f}" + ("" if math.isnan(half) else f"±{half:.3f}")


def write_csv(cells: list[Cell], path: Path) -> None:
    """Write one line per set, method and epsilon: mean, half width of the 95 % interval, number of splits."""
    groups: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for cell in cells:
        groups[cell["set"], cell["method"], cell["epsilon"]].append(cell["score"])
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["set", "method", "epsilon", "mean", "half_width_95", "splits"])
        for group, scores in groups.items():
            mean, half = interval(scores)
            writer.writerow([*group, f"{mean:.5f}", f"{half:.5f}", len(scores)])


def markdown(cells: list[Cell], better: str) -> str:
    """Return one table per set: methods by epsilon; what has no epsilon is in the first column of numbers."""
    lines: list[str] = []
    for name in dict.fromkeys(cell["set"] for cell in cells):
        here = [cell for cell in cells if cell["set"] == name]
        epsilons = sorted({c["epsilon"] for c in here if c["epsilon"] is not None})
        splits = len({cell["seed"] for cell in here})
        lines += [
            f"### {name} ({splits} splits, {better} ± half width of the 95 % interval)",
            "",
            "| method | no epsilon | " + " | ".join(f"epsilon {e:g}" for e in epsilons) + " |",
            "|---" * (len(epsilons) + 2) + "|",
        ]
        scores: dict[tuple[str, float | None], list[float]] = defaultdict(list)
        for cell in here:
            scores[cell["method"], cell["epsilon"]].append(cell["score"])
        for method in dict.fromkeys(cell["method"] for cell in here):
            row = [
                shown(*interval(scores[method, epsilon])) if (method, epsilon) in scores else ""
                for epsilon in (None, *epsilons)
            ]
            lines.append("| " + " | ".join([method, *row]) + " |")
        lines.append("")
    return "\n".join([*lines, ""])


Data = Annotated[Path | None, typer.Option(help="Folder with uci/*.csv.gz; see data.py.")]
Out = Annotated[Path, typer.Option(help="Folder for tables and finished cells.")]
Splits = Annotated[int, typer.Option(min=1, help="Random 80/20 splits.")]
Jobs = Annotated[int, typer.Option(min=1, help="Processes at a time.")]
Online = Annotated[bool, typer.Option("--online", help="Fetch the UCI sets.")]
Sets = Annotated[str | None, typer.Option(help="Names of sets, by commas.")]


def _tasks(
    experiment: str,
    sets: tuple[str, ...],
    chosen: str | None,
    source: str | None,
    splits: int,
    epsilons: tuple[float, ...],
) -> list[tuple[str, str, str | None, int, tuple[float, ...]]]:
    if source is None:
        sets = SHIPPED
    if chosen:
        sets = tuple(chosen.split(","))
        names = (*data.SETS, "debrecen_steps", "digits")
        unknown = [name for name in sets if name not in names]
        if unknown:
            known = ", ".join(names)
            raise typer.BadParameter(f"no set is called {unknown[0]!r}; known are {known}.")
    try:
        for name in sets:
            table(name, source)
    except (data.DataUnavailable, data.MalformedData) as error:
        raise typer.BadParameter(str(error)) from error
    return [(experiment, name, source, seed, epsilons) for seed in range(splits) for name in sets]


def _source(data_dir: Path | None, online: bool) -> str | None:
    return str(data_dir) if data_dir is not None else "online" if online else None


def _packed(out: Path) -> str:
    out.mkdir(parents=True, exist_ok=True)
    try:
        return str(keel.fetch(out))
    except keel.Unavailable as error:
        raise typer.BadParameter(str(error)) from error


@app.command()
def auc(
    data_dir: Data = None,
    out: Out = Path("uci"),
    splits: Splits = 20,
    jobs: Jobs = 2,
    online: Online = False,
    sets: Sets = None,
    others: Annotated[
        bool, typer.Option("--others/--no-others", help="Also KEEL tables and other packages.")
    ] = True,
) -> None:
    """Print the test AUC of all algorithms over epsilon."""
    source = _source(data_dir, online)
    tasks = _tasks("auc", SETS, sets, source, splits, EPSILONS)
    wide: list[Task] = []
    others = others and sets is None
    if others:
        packed = _packed(out)
        wide = [
            ("auc", KEEL + name, packed, seed, EPSILONS)
            for seed in range(min(splits, MORE_SPLITS))
            for name in keel.SHOWN_ON
        ]
    found = run([*wide, *tasks], out, jobs)
    first = [task for task in wide if task[3] < KEEL_SPLITS]
    more = [("more", *task[1:]) for task in wide if task[3] >= KEEL_SPLITS]
    peers = peer_cells([*tasks, *first], out, jobs) if others else []
    peers += peer_cells(more, out, jobs, ("interpret",)) if more else []
    shown = [cell for cell in (*found, *peers) if not cell["set"].startswith(KEEL)]
    report = markdown(shown, "mean test AUC")
    if others:
        report += over_tables(found, peers)
        write_csv([c for c in (*found, *peers) if c["set"].startswith(KEEL)], out / "keel.csv")
    (out / "auc.md").write_text(report, encoding="utf-8")
    write_csv(shown, out / "auc.csv")
    print(report)


@app.command()
def features(
    data_dir: Data = None,
    out: Out = Path("uci"),
    splits: Splits = 5,
    jobs: Jobs = 2,
    online: Online = False,
    sets: Sets = None,
    others: Annotated[bool, typer.Option("--others/--no-others", help="Also DP-EBM.")] = True,
) -> None:
    """Print the test AUC of auto with and without PublicFeatures, and of DP-EBM, on the large sets."""
    source = _source(data_dir, online)
    tasks = _tasks("features", ("adult", "bank"), sets, source, splits, (1.0, 4.0))
    cells = run(tasks, out, jobs)
    if others:
        cells += peer_cells(tasks, out, jobs, ("interpret",))
    report = markdown(cells, "mean test AUC")
    (out / "features.md").write_text(report, encoding="utf-8")
    write_csv(cells, out / "features.csv")
    print(report)


@app.command()
def distances(
    out: Out = Path("uci"),
    splits: Splits = 1,
    jobs: Jobs = 2,
    sets: Sets = None,
    chosen: Annotated[
        bool, typer.Option("--chosen", help="The tables that the metric was chosen on.")
    ] = False,
) -> None:
    """Print the accuracy of 5 nearest neighbours under the private metric, over KEEL tables or the sets given."""
    tasks: list[Task]
    if sets:
        tasks = _tasks("distances", (), sets, None, splits, EPSILONS)
    else:
        packed = _packed(out)
        tasks = [
            ("distances", KEEL + name, packed, seed, EPSILONS)
            for seed in range(splits)
            for name in (keel.CHOSEN_ON if chosen else keel.SHOWN_ON)
        ]
    cells = run(tasks, out, jobs)
    report = distances_over_tables(cells)
    name = "distances-chosen" if chosen else "distances"
    (out / f"{name}.md").write_text(report, encoding="utf-8")
    write_csv(cells, out / f"{name}.csv")
    print(report)


if __name__ == "__main__":
    app()
