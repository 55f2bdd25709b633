"""The curve of what comes with the package: its documents can be learned from, and its rows meet what they say."""

from __future__ import annotations

import numpy as np
import pytest
from typer.testing import CliRunner

import textpriv
from textpriv.cli.app import app
from textpriv.cli.bench import _TITLE, drawn
from textpriv.cli.options import refuse_foreign
from textpriv.evaluation import bench
from textpriv.evaluation.recovery import word_recovery
from textpriv.vocabulary.builtin import read_builtin

SIZE = 400


@pytest.fixture(scope="module")
def vocabulary():
    whole = read_builtin("en")
    return textpriv.Vocabulary(whole.words[:SIZE], whole.vectors[:SIZE])


def test_made_documents_are_the_same_every_time_and_tell_their_subjects_apart(vocabulary):
    task, again = (bench.made_task(vocabulary, 600) for _ in range(2))
    np.testing.assert_array_equal(task.train.ids, again.train.ids)
    np.testing.assert_array_equal(task.test.labels, again.test.labels)
    assert bench.clear_accuracy(task) > task.guessing + 0.15


def test_every_row_of_the_curve_is_at_the_success_of_the_attacker_that_it_names(
    vocabulary, monkeypatch
):
    task = bench.made_task(vocabulary, 120)
    made = bench.laws(vocabulary)
    chosen = {name: made[name] for name in ("TEM as published", "tree, Zipf prior")}
    monkeypatch.setattr(bench, "laws", lambda _: chosen)
    rows = list(bench.curve(vocabulary, task, (0.1, 0.3), 2))
    assert [(row.law, row.share) for row in rows] == [(n, s) for n in chosen for s in (0.1, 0.3)]
    for row in rows:
        found = word_recovery(chosen[row.law](row.epsilon), "zipf")
        assert found.content == pytest.approx(row.share, rel=0.05)
        assert found.everything == pytest.approx(row.everything, rel=1e-6)
        assert row.low <= row.accuracy <= row.high


def test_the_command_draws_over_a_figure_of_its_own_and_over_no_other_file(tmp_path):
    row = bench.Row(
        law="TEM", share=0.1, everything=0.2, epsilon=1, accuracy=0.5, low=0.4, high=0.6
    )
    figure = tmp_path / "figure.svg"
    figure.write_text(drawn([row, row._replace(share=0.2)], 0.7))
    refuse_foreign(figure, _TITLE)
    figure.write_text("a thesis")
    result = CliRunner().invoke(app, ["bench", "--quick", "--output", str(figure)])
    assert result.exit_code == 1
    assert "was not made by this command" in result.stderr
    assert figure.read_text() == "a thesis"
