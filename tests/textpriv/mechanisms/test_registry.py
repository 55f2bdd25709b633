"""A mechanism that another package registers, in one file with one entry point, is found by all that uses mechanisms."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import catalogue
import numpy as np
import pytest
from typer.testing import CliRunner

from textpriv.cli.app import app
from textpriv.evaluation import Documents, Task, compare
from textpriv.index import Index
from textpriv.mechanisms import find_mechanism, mechanism_names, registry
from textpriv.vocabulary.vocabulary import Vocabulary

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "new_mechanism.py"

# In a process of its own, which looks for entry points as a user's does.
USES = """
import json, sys
from typer.testing import CliRunner
from textpriv.cli.app import app
from textpriv.index import Index
from textpriv.web.playground import Playground, Settings

folder, text, out, page = sys.argv[1:]
found, asked = {}, ["--epsilon", "2", "--mechanism", "randomized-response"]
for command in (
    ["privatize", text, out, "--index", folder, *asked, "--seed", "1", "--json"],
    ["report", "--index", folder, *asked, "--output", page],
    ["certify", "--audit", *asked, "--json"],
):
    result = CliRunner().invoke(app, command)
    found[command[0]] = [result.exit_code, result.output[-300:]]
playground = Playground(Index.load(folder))
settings = Settings.read({"epsilon": 2.0, "mechanism": "randomized-response"})
found["playground"] = "randomized-response" in playground.mechanisms
found["drawn by"] = type(playground.prepare(settings).mechanism).__module__
print(json.dumps(found))
"""


def test_a_mechanism_of_another_package_is_found_by_commands_playground_report_and_audit(
    tmp_path, index_of
):
    package = tmp_path / "site"
    facts = package / "other_mechanisms-1.0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: other-mechanisms\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(
        "[textpriv_mechanisms]\nother.RandomizedResponse.v1 = other_mechanisms:configure\n"
    )
    source = EXAMPLE.read_text().replace("@registry.register(", "# @registry.register(")
    (package / "other_mechanisms.py").write_text(source)
    index_of(np.random.default_rng(0).normal(size=(12, 3))).save(tmp_path / "w.idx")
    (tmp_path / "a.txt").write_text("w1 w2\nw3\n")
    code = f"import sys; sys.path.insert(0, {str(package)!r})\n" + USES
    given = [tmp_path / name for name in ("w.idx", "a.txt", "b.txt", "page.html")]
    answer = subprocess.run(
        [sys.executable, "-c", code, *map(str, given)], capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout.splitlines()[-1])
    assert [found[command][0] for command in ("privatize", "report", "certify")] == [0, 0, 0], found
    assert found["playground"]
    assert found["drawn by"] == "other_mechanisms"
    assert "RandomizedResponse" in (tmp_path / "page.html").read_text()


CONTEXT = """

class Reading(RandomizedResponse):
    reads_context = True

    def sample_documents(self, ids, offsets, streams):
        # Symbols, such as a comma, are given too and come out as they are.
        return np.where(ids < UNKNOWN, ids, super().sample_documents(np.maximum(ids, UNKNOWN), offsets, streams))

    def emissions(self, released, words):
        table = np.exp([self.log_prob(i) for i in (*range(len(self.index)), UNKNOWN)])
        return table[words, released[released >= 0][:, None]]


def reading(epsilon):
    return lambda index: Reading(index, epsilon)
"""


@pytest.mark.parametrize("name", ["other.RandomizedResponse.v1", "other.Reading.v1"])
def test_an_outside_mechanism_works_in_commands_and_compare(tmp_path, monkeypatch, name):
    made = {"__name__": "other"}
    exec(
        EXAMPLE.read_text().replace("@registry.register(", "# @registry.register(") + CONTEXT, made
    )
    make = made["reading" if "Reading" in name else "configure"]
    registry.register(name, func=make)
    monkeypatch.setenv("TEXTPRIV_CACHE_DIR", str(tmp_path / "cache"))
    words = Vocabulary.builtin("en").words[300:340]
    vectors = np.random.default_rng(0).normal(size=(40, 3))
    index = Index.build(Vocabulary(words, vectors, language="en"), "euclidean", k=8)
    index.save(tmp_path / "w.idx")
    given = ["--index", str(tmp_path / "w.idx"), "--mechanism", name, "--recovery", "0.6"]
    try:
        for command in (
            ["choose"],
            ["explain", words[0]],
            ["certify"],
            ["report", "--output", str(tmp_path / "page.html")],
        ):
            result = CliRunner().invoke(app, [*command, *given])
            assert result.exit_code == 0, (command, result.output)
            assert "no epsilon gives" not in result.output, command
        labels = [0, 1] * 10
        texts = [" ".join(words[20 * label : 20 * label + 9]) for label in labels]
        documents = Documents.read(texts, labels, index.vocabulary)
        task = Task(documents, documents)
        rows = compare([make(1.0)(index)], task, recovery=[0.6], draws=1)
        assert np.isfinite(rows["accuracy"].iloc[-1])
    finally:
        del catalogue.REGISTRY[(*registry.namespace, name)]


@pytest.fixture
def registered():
    """Register some names for a while."""
    names = []

    def register(name):
        registry.register(name, func=lambda epsilon: None)
        names.append((*registry.namespace, name))

    yield register
    for name in names:
        del catalogue.REGISTRY[name]


def test_the_newest_version_has_the_short_name(registered):
    registered("other.NoisyTEM.v2")
    registered("other.NoisyTEM.v10")
    assert mechanism_names()["noisy"] == "other.NoisyTEM.v10"


def test_a_class_of_another_package_does_not_take_a_short_name_of_this_library(registered):
    registered("other.Madlib.v7")
    assert mechanism_names()["madlib"] == "textpriv.Madlib.v1"
    assert find_mechanism("other.Madlib.v7")(epsilon=1.0) is None
