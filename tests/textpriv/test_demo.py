"""The demo: its samples, how it chooses epsilon, and what it shows."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
from rich.console import Console

from textpriv import demo
from textpriv.errors import TextprivError
from textpriv.index import Index
from textpriv.vocabulary import Vocabulary


@pytest.fixture
def vocabulary(demo_vocabulary) -> Vocabulary:
    return demo_vocabulary


def _index(vocabulary: Vocabulary, scale: float = 1.0) -> Index:
    random = np.random.default_rng(0).normal(size=(400, 8)) * scale
    return Index.build(Vocabulary(vocabulary.words[:400], random), k=32, hnsw=False)


def test_training_is_repeatable(vocabulary):
    again = demo.train_vocabulary(epochs=1)
    assert again.words == vocabulary.words
    assert np.array_equal(again.vectors, vocabulary.vectors)


def test_every_sample_word_is_in_the_vocabulary(vocabulary):
    words = re.findall(r"\w+", " ".join(demo.SAMPLES).lower())
    assert [word for word in words if word not in vocabulary] == []


def test_more_kept_words_need_a_larger_epsilon(vocabulary):
    index = _index(vocabulary)
    few, half, most = (demo.choose_epsilon(index, share) for share in (0.15, 0.5, 0.9))
    assert few < half < most


def test_epsilon_follows_the_scale_of_the_vectors(vocabulary):
    one, ten = (demo.choose_epsilon(_index(vocabulary, scale), 0.5) for scale in (1.0, 10.0))
    assert one == pytest.approx(10 * ten, rel=0.05)


def test_the_demo_shows_three_levels_from_changed_to_kept(vocabulary, monkeypatch, capsys):
    monkeypatch.setattr(demo, "train_vocabulary", lambda: vocabulary)
    shown = io.StringIO()
    demo.run_demo(Console(file=shown, width=100))
    text = shown.getvalue()
    kept = [int(share) for share in re.findall(r"(\d+)% of the words kept", text)]
    epsilons = [float(value) for value in re.findall(r"epsilon ([\d.e+]+):", text)]
    assert len(kept) == 3
    assert kept == sorted(kept)
    assert epsilons == sorted(epsilons)
    assert "textpriv privatize" in text
    assert "training small word vectors" in capsys.readouterr().err


def test_the_index_can_be_kept_to_go_on_with(vocabulary, monkeypatch, tmp_path):
    monkeypatch.setattr(demo, "train_vocabulary", lambda: vocabulary)
    shown = io.StringIO()
    demo.run_demo(Console(file=shown, width=100), save=tmp_path / "demo.idx")
    assert Index.load(tmp_path / "demo.idx").vocabulary.words == vocabulary.words
    assert "textpriv explain" in shown.getvalue()


def test_a_folder_that_is_there_is_refused_before_the_training(monkeypatch, tmp_path):
    monkeypatch.setattr(demo, "train_vocabulary", lambda: pytest.fail("trained"))
    with pytest.raises(TextprivError, match="is there already"):
        demo.run_demo(Console(file=io.StringIO()), save=tmp_path)
