"""The leak report counts what a policy leaves visible, draws nothing unasked, and marks what is private."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from textpriv.cli.app import app
from textpriv.errors import SpanError, TextprivError
from textpriv.evaluation.leaks import PRIVATE, leak_report
from textpriv.index import Index
from textpriv.mechanisms import TEM, Madlib
from textpriv.privatizer import Privatizer
from textpriv.spans.detectors import RegexDetector
from textpriv.spans.laws.dates import Date
from textpriv.spans.laws.mask import Mask
from textpriv.spans.policy import UNDETECTED_PASS, SpanPolicy
from textpriv.tokenization.policy import ACTIONS, CLASSES, TokenPolicy
from textpriv.vocabulary import Vocabulary

WORDS = ["the", "film", "good", "bad", "seven", "actor", "scene", "was", "very"]
SECRET = "zanzibar"
# the/was: stop words; film, good: words; seven, 12: numbers; zanzibar: unknown; "!" and ",": punctuation; line break: space.
TEXT = f"The film was good, seven {SECRET}\n\n12!"
COUNTS = {"word": 2, "stopword": 2, "unknown": 1, "number": 2, "punctuation": 2, "space": 1}


@pytest.fixture(scope="module")
def index() -> Index:
    vectors = np.random.default_rng(0).normal(size=(len(WORDS), 3))
    return Index.build(Vocabulary(WORDS, vectors), hnsw=False)


def privatizer(index, epsilon=3.0, **policy) -> Privatizer:
    return Privatizer(TEM(index, epsilon), TokenPolicy(**policy))


def test_every_token_is_counted_in_its_class(index):
    report = leak_report([TEXT, TEXT, ""], privatizer(index))
    assert report.classes == {name: 2 * count for name, count in COUNTS.items()}
    assert (report.documents, report.tokens) == (3, 20)


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("name", CLASSES)
def test_classes_do_not_depend_on_what_is_done_with_them(index, name, action):
    report = leak_report([TEXT], privatizer(index, **{name: action}))
    assert report.classes == COUNTS


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("name", CLASSES)
def test_released_counts_are_those_of_the_release(index, name, action):
    private = privatizer(index, **{name: action})
    report = leak_report([TEXT], private)
    (released,) = private.release(private.read(TEXT))
    by = report.by_release
    assert by["sampled"] == released.counts.get("sampled", 0)
    assert by["masked"] == released.counts.get("masked", 0)
    assert by["kept"] == sum(released.counts.get(each, 0) for each in CLASSES)
    assert by["dropped"] == report.tokens - len(released)


def test_case_decides_which_words_are_known(index):
    report = leak_report(["Film film"], privatizer(index, case="keep"))
    assert (report.classes["word"], report.classes["unknown"]) == (1, 1)


def test_what_is_visible_is_what_the_statement_does_not_protect(index):
    private = privatizer(index, number="keep", unknown="mask")
    assert leak_report([TEXT], private).visible == private.statement.not_protected


def test_nothing_is_drawn_unless_asked_for(index, monkeypatch):
    def drawn(*_, **__):
        raise AssertionError("a token was drawn")

    monkeypatch.setattr(TEM, "sample_documents", drawn)
    report = leak_report([TEXT], privatizer(index))
    assert report.unchanged is None
    assert "unchanged" not in report.to_dict()


def test_the_share_of_unchanged_words_is_that_of_the_law(index):
    mechanism = TEM(index, 2.0)
    report = leak_report(["film"] * 20_000, Privatizer(mechanism), compare=True)
    keep = float(np.exp(mechanism.log_prob("film")[index.vocabulary.id("film")]))
    # Fresh randomness: 6 standard deviations, a false alarm in 5e8 runs.
    assert abs(report.unchanged - keep) < 6 * np.sqrt(keep * (1 - keep) / 20_000)


def test_only_sampled_tokens_are_compared(index):
    private = privatizer(index, epsilon=1e4, unknown="keep", number="keep")
    assert leak_report([TEXT], private, compare=True).unchanged == 1.0
    # The unknown word and the number 12 are sampled now, and cannot come out as they are.
    assert leak_report([TEXT], privatizer(index, epsilon=1e4), compare=True).unchanged == 5 / 7


def test_madlib_can_be_compared(index):
    private = Privatizer(Madlib(index, 1e6, search="exact"))
    assert leak_report(["film good"], private, compare=True).unchanged == 1.0


def test_the_report_is_marked_private_and_quotes_nothing(index):
    report = leak_report([TEXT], privatizer(index), compare=True)
    content = report.to_dict()
    assert content["note"] == content["unchanged"]["note"] == PRIVATE
    assert PRIVATE in report.table()
    assert SECRET not in json.dumps(content) + report.table() + repr(report)


def test_an_empty_corpus_has_a_report(index):
    report = leak_report([], privatizer(index), compare=True)
    assert (report.tokens, report.unchanged) == (0, 0.0)
    assert report.to_dict()["classes"]["word"]["share"] == 0.0


def test_something_else_than_text_is_refused_by_position(index):
    with pytest.raises(TextprivError, match="document 1 is of type int"):
        leak_report([TEXT, 3], privatizer(index))
    with pytest.raises(TextprivError, match="several texts"):
        leak_report(TEXT, privatizer(index))


# Typed spans

SPANS = "The film of 2021-03-04, seven, was good: ask 7 or Ann."
DETECTOR = RegexDetector(
    {"DATE": r"\d{4}-\d\d-\d\d|seven", "NUMBER": r"\d+", "PERSON": "Ann", "TEAM": "Ann|film"}
)
LAWS = {
    "DATE": Date(0.1, "2020-01-01", "2022-01-01"),
    "NUMBER": Mask("NUMBER"),
    "PERSON": Mask("PERSON"),
}


def with_spans(index, **policy):
    return Privatizer(TEM(index, 3.0), spans=SpanPolicy(LAWS, **policy), detector=DETECTOR)


def test_spans_are_counted_by_kind_and_what_becomes_of_them(index):
    report = leak_report([SPANS, "the film"], with_spans(index, labels={"WHO": "PERSON"}))
    assert report.spans == {
        ("DATE", "drawn"): 1,
        ("DATE", "unreadable"): 1,
        ("NUMBER", "covered"): 3,
        ("NUMBER", "drawn"): 1,
        ("PERSON", "drawn"): 1,
        ("TEAM", "no law"): 3,
    }
    released = with_spans(index).release(with_spans(index).read_batch([SPANS]))
    drawn = {name: count for (name, what), count in report.spans.items() if what == "drawn"}
    assert drawn == {
        name.removeprefix("span "): count
        for name, count in released[0].counts.items()
        if name.startswith("span ")
    }


def test_tokens_of_drawn_spans_are_of_no_class_and_words_are_counted_one_by_one(index):
    report = leak_report([SPANS], with_spans(index))
    # the film of , seven , was good : ask or .
    assert report.tokens == 12
    assert report.classes["punctuation"] == 4
    assert report.classes["number"] == 1
    counts = dict(zip([*WORDS, "others"], report.word_counts.tolist(), strict=True))
    assert counts == dict.fromkeys(WORDS, 0) | {
        "the": 1,
        "film": 1,
        "seven": 1,
        "was": 1,
        "good": 1,
        "others": 3,
    }


def test_where_words_pass_all_that_no_law_draws_is_said_to_be_kept(index):
    report = leak_report([SPANS], with_spans(index, undetected=UNDETECTED_PASS))
    assert set(report.released.values()) == {"kept"}
    assert report.spans["DATE", "masked"] == 1
    assert report.spans["TEAM", "masked"] + report.spans["TEAM", "covered"] == 2
    assert report.word_counts.sum() == 0


def test_a_detector_that_fails_is_named_with_its_document(index):
    class Broken:
        def detect(self, texts):
            return [[], [(0, 99, "DATE")]]

        def fingerprint(self):
            return "broken"

    broken = Privatizer(TEM(index, 3.0), spans=SpanPolicy(LAWS), detector=Broken())
    with pytest.raises(SpanError, match="document 1"):
        leak_report(["the", "film"], broken)


# The command


@pytest.fixture
def files(index, tmp_path):
    index.save(tmp_path / "a.idx")
    (tmp_path / "in.jsonl").write_text(json.dumps({"text": TEXT}) + "\n")
    return [str(tmp_path / "in.jsonl"), "--index", str(tmp_path / "a.idx"), "--epsilon", "6"]


def test_the_command_prints_the_table(files):
    result = CliRunner().invoke(app, ["leaks", *files, "--number", "keep"])
    assert result.exit_code == 0, result.output
    assert "numbers, released in lower case" in result.stdout
    assert "stay as they are" not in result.stdout
    assert "private as the text" in result.stderr
    assert SECRET not in result.output


def test_the_command_prints_json_and_compares_on_request(files):
    result = CliRunner().invoke(app, ["leaks", *files, "--json", "--compare"])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert {name: each["tokens"] for name, each in told["classes"].items()} == COUNTS
    assert 0 <= told["unchanged"]["share"] <= 1


def test_the_command_counts_spans(files):
    result = CliRunner().invoke(
        app, ["leaks", *files, "--detect", "patterns", "--policy", "tickets"]
    )
    assert result.exit_code == 0, result.output
    assert re.search(r"^NUMBER +drawn +1$", result.stdout, re.MULTILINE)


def test_the_command_names_a_missing_file(files, tmp_path):
    result = CliRunner().invoke(app, ["leaks", str(tmp_path / "none.txt"), *files[1:]])
    assert result.exit_code == 1
    assert "none.txt" in result.stderr
