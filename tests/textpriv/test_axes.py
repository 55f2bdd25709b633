"""An index with axes in every form: it is used like any other, and each recovery is that of its domain."""

from __future__ import annotations

import json
import pickle
import re

import numpy as np
import pytest
import spacy
from engine_runs import WORDS
from small_indexes import learned
from typer.testing import CliRunner

import textpriv
from textpriv import TEM, Index, choose, epsilon_for
from textpriv.cli.app import app
from textpriv.engines.batch import BatchRelease
from textpriv.engines.columns import Columns
from textpriv.errors import TextprivError
from textpriv.evaluation import compare
from textpriv.evaluation.comparison import Documents, Task
from textpriv.evaluation.distribution import OutputDistribution
from textpriv.evaluation.recovery import word_recovery
from textpriv.run_key import RunKey
from textpriv.settings import PrivatizerSettings
from textpriv.vocabulary import Vocabulary
from textpriv.web.playground import Playground, Settings
from textpriv.web.report import report_page

DOMAIN = "in the domain, an attacker"


@pytest.fixture(scope="module")
def index() -> Index:
    return learned(WORDS)


@pytest.fixture(scope="module")
def folder(index, tmp_path_factory):
    path = tmp_path_factory.mktemp("axes") / "own.idx"
    index.save(path)
    return path


@pytest.fixture(autouse=True)
def small(monkeypatch, tmp_path):
    monkeypatch.setattr("textpriv.guarantees.epsilon.cache_folder", lambda: tmp_path / "records")
    monkeypatch.setattr("textpriv.evaluation.best_attacker._READ", 500)


def run(*arguments) -> tuple[str, str]:
    """Run a command; return what it prints and what it says, each in one line."""
    done = CliRunner().invoke(app, [str(each) for each in arguments])
    assert done.exit_code == 0, done.stderr
    return done.stdout, " ".join(done.stderr.split())


def recovered(mechanism: TEM, frequency: np.ndarray) -> float:
    """Return the attacker's rate on content words, from the whole matrix."""
    law = np.exp([mechanism.log_prob(word) for word in range(len(frequency))])
    written = frequency * mechanism.index.vocabulary.is_content
    return (law * written[:, None]).max(axis=0).sum() / written.sum()


def in_domain(mechanism: TEM) -> float:
    """Return the rate in the domain, which differs from that of general English."""
    index = mechanism.index
    own, zipf = index.axes.frequency, index.vocabulary.prior_weights("zipf")
    found, general = recovered(mechanism, own), recovered(mechanism, zipf)
    assert abs(found / general - 1) > 0.01
    return found


def test_explain_and_certify_set_the_recovery_of_the_domain(folder):
    given = ("--index", folder, "--recovery", 0.3, "--json")
    epsilon = epsilon_for(Index.load(folder), recovery=0.3)
    for command in (("explain", WORDS[0]), ("certify",)):
        printed, told = run(*command, *given)
        assert DOMAIN in told
        assert json.loads(printed)["epsilon"] == epsilon
    assert json.loads(printed)["holds"]


def test_choose_compares_by_the_recovery_of_the_domain(index, folder):
    printed, _ = run("choose", "--index", folder, "--recovery", 0.3, "--json")
    for each in json.loads(printed)["candidates"]:
        mechanism = TEM(index, each["epsilon"], prior=each["prior"])
        assert each["recovered"] == pytest.approx(in_domain(mechanism), rel=1e-4)
        assert each["recovered"] <= 0.3
    assert choose(index, recovery=0.3).best.epsilon == epsilon_for(index, recovery=0.3)


def test_compare_weighs_words_as_the_domain_does(index):
    documents = Documents.read([" ".join(WORDS[:9])] * 4, ["a", "b"] * 2, index.vocabulary)
    rows = compare({"own": TEM(index, 2.0)}, Task(documents, documents), recovery=[0.3], draws=1)
    row = rows[rows["mechanism"] == "own"].iloc[0]
    assert row["alone"] == pytest.approx(in_domain(TEM(index, row["epsilon"])), rel=1e-4)
    plain = TEM(Index.build(index.vocabulary, k=16), 2.0)
    with pytest.raises(TextprivError, match="different texts"):
        compare({"own": TEM(index, 2.0), "plain": plain}, Task(documents, documents))


def test_the_attacker_of_the_playground_knows_the_domain(index):
    playground = Playground(index, 0.5)
    mechanism = TEM(index, playground.epsilon)
    law = np.exp([mechanism.log_prob(word) for word in range(len(index))])
    guess = (law * index.axes.frequency[:, None]).argmax(axis=0)
    assert np.array_equal(playground._guess(Settings(playground.epsilon)).result(60), guess)
    assert "label of a text" in " ".join(
        playground.privatize("bana", Settings(2.0))["not_protected"]
    )
    playground.close()


def test_a_report_shows_the_recovery_of_the_domain(index, folder, tmp_path):
    mechanism = TEM(index, 2.0)
    page = report_page(textpriv.Privatizer(mechanism))
    assert shown_in(page) == pytest.approx(100 * in_domain(mechanism), rel=0.01)
    out = tmp_path / "report.html"
    assert DOMAIN in run("report", "--index", folder, "--recovery", 0.3, "--output", out)[1]
    assert shown_in(out.read_text()) == pytest.approx(30, rel=0.01)


def shown_in(page: str) -> float:
    """Return the percentage of content words that a report says are recovered word by word."""
    return float(re.search("<b>([0-9.]+)[^<]*</b>[^<]* of content words", page)[1])


def test_attacks_on_single_words_know_the_domain(index):
    mechanism = TEM(index, 2.0)
    assert word_recovery(mechanism).content == pytest.approx(in_domain(mechanism))
    names = ["john", "mary", *WORDS]
    mechanism = TEM(learned(names), 2.0)
    frequency = mechanism.index.axes.frequency
    guess, _ = OutputDistribution(mechanism).likeliest(frequency)
    assert np.array_equal(word_recovery(mechanism).guess, guess)


def test_decoding_is_tried_on_words_of_the_domain(tmp_path):
    index = learned(Vocabulary.builtin("en").words[:300])
    index.save(tmp_path / "own.idx")
    (tmp_path / "in.txt").write_text("the film was good")
    given = ("--index", tmp_path / "own.idx", "--epsilon", 1, "--json")
    printed, _ = run("decode", tmp_path / "in.txt", tmp_path / "out.txt", *given)
    keep = np.exp([TEM(index, 1.0).log_prob(word)[word] for word in range(len(index))])
    zipf = index.vocabulary.prior_weights("zipf")
    assert abs(keep @ index.axes.frequency - keep @ zipf) > 0.2
    measured = json.loads(printed)["recovery"]["kept"]
    assert measured == pytest.approx(keep @ index.axes.frequency, abs=0.1)


@pytest.mark.parametrize("form", ["component", "tokenizer"])
def test_spacy_forms_are_saved_and_sent_with_axes(form, folder, tmp_path):
    nlp = spacy.blank("en")
    config = {"index": str(folder), "recovery": 0.3, "seed": 7}
    if form == "component":
        nlp.add_pipe("textpriv", config=config)
    else:
        nlp.tokenizer = textpriv.pipeline.components.PrivateTokenizer(nlp, **config)
    text = " ".join(WORDS[:40])
    expected, stated = private_of(nlp, text)
    nlp.to_disk(tmp_path / "saved")
    for again in (spacy.load(tmp_path / "saved"), pickle.loads(pickle.dumps(nlp))):
        assert private_of(again, text) == (expected, stated)
    assert stated["epsilon"] == epsilon_for(Index.load(folder), recovery=0.3)
    assert "the label of a text (neg, pos)" in " ".join(stated["not_protected"])
    assert (
        tmp_path / "saved" / form.replace("component", "textpriv") / "index" / "axes.npy"
    ).exists()


def private_of(nlp, text):
    doc = nlp(text)
    return doc.text, doc._.textpriv["statement"]


def test_a_command_writes_what_an_engine_and_workers_release(folder, tmp_path):
    texts = [" ".join(WORDS[at : at + 20]) for at in range(40)]
    names = [f"{at}" for at in range(40)]
    rows = ({"id": name, "text": text} for name, text in zip(names, texts, strict=True))
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    key = RunKey.open(tmp_path / "run.key")
    key.keep()
    settings = PrivatizerSettings(str(folder), options={"epsilon": 2.0}, run_key=key.secret)
    released = BatchRelease(settings.build(), Columns("text", "id"))
    import pyarrow as pa

    (batch,) = pa.table({"id": names, "text": texts}).to_batches()
    expected = released(batch)["text"].to_pylist()
    for workers in (1, 2):
        out = tmp_path / f"{workers}.jsonl"
        more = ("--index", folder, "--epsilon", 2, "--key", key.path, "--document", "id")
        run("privatize", tmp_path / "in.jsonl", out, *more, "--workers", workers)
        assert [json.loads(row)["text"] for row in out.read_text().splitlines()] == expected
