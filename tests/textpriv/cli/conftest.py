"""A small index that the commands open."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from textpriv.cli.app import app

SECRET = "zanzibar"
WORDS = ["".join(parts) for parts in itertools.product("bdfgklm", "aeiou", "nrst", "ao")]


def invoke(*arguments, **options):
    options.setdefault("prog_name", "textpriv")
    return CliRunner().invoke(app, [str(argument) for argument in arguments], **options)


@pytest.fixture(scope="session")
def run():
    return invoke


@pytest.fixture(scope="session")
def vectors(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("vectors") / "vectors.txt"
    rows = np.random.default_rng(0).normal(size=(len(WORDS), 6))
    lines = (f"{w} {' '.join(f'{x:.4f}' for x in r)}" for w, r in zip(WORDS, rows, strict=True))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="session")
def folder(vectors) -> Path:
    out = vectors.with_name("small.idx")
    result = invoke("index", vectors, out)
    assert result.exit_code == 0, result.stderr
    return out


@pytest.fixture(scope="session")
def tree(vectors) -> Path:
    out = vectors.with_name("small.tree")
    result = invoke("index", vectors, out, "--groups", "synonyms=60,kind=12")
    assert result.exit_code == 0, result.stderr
    return out


@pytest.fixture
def texts(tmp_path) -> Path:
    path = tmp_path / "in.txt"
    path.write_text(f"{' '.join(WORDS[:30])}.\n{' '.join(WORDS[50:90])} {SECRET}\n")
    return path


@pytest.fixture
def failed():
    """Check that a command failed with a message, without a traceback and without a text."""

    def check(result, code=1):
        assert result.exit_code == code, result.output
        assert "Traceback" not in result.output
        assert SECRET not in result.output
        if code == 1:
            assert result.stderr.startswith("error: ")
            assert result.stdout == ""
        return " ".join(result.stderr.replace("│", " ").split())

    return check
