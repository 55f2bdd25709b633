"""``textpriv synthesize --ledger``: every author pays once for each measurement, before any noise is drawn."""

from __future__ import annotations

import json

import pytest

from pairwise.noise.release import PlannedRelease
from textpriv.ledger import Ledger
from textpriv.synthesis import generator

AUTHORS = ("zanzibar", "quiverneth", "obadiah")


@pytest.fixture(autouse=True)
def small_draws(monkeypatch):
    monkeypatch.setattr(generator, "_MATCHED", 40)


@pytest.fixture
def account(tmp_path):
    return tmp_path / "ledger"


@pytest.fixture
def spent(account):
    """Return what each author has spent, in rho."""
    return lambda: [Ledger(account).spent(author=name).rho for name in AUTHORS]


@pytest.fixture
def synthesize(run, demo_index, tmp_path, account):
    """Run the command over records of three authors."""
    given = [{"text": "A good film.", "by": AUTHORS[number % 3]} for number in range(30)]
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in given))

    def call(*options, ledger=True):
        more = ["--author", "by", "--index", demo_index, "--records", "5", "--epsilon", "1"]
        more += ["--ledger", account] if ledger else []
        return run("synthesize", source, tmp_path / "out.jsonl", *more, *options)

    return call


@pytest.fixture
def killed(synthesize, monkeypatch):
    """Leave what a run leaves that ends as soon as texts are drawn."""

    def call(**options):
        def end(*arguments):
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(generator.Generator, "texts", end)
            assert synthesize(**options).exit_code == 1

    return call


def test_statement_and_manifest_say_what_was_charged(synthesize, spent, tmp_path):
    done = synthesize()
    assert done.exit_code == 0, done.stderr
    manifest = json.loads((tmp_path / "out.jsonl.manifest.json").read_text())
    (note,) = [each for each in manifest["statement"]["notes"] if "ledger" in each]
    assert float(note.split()[3]) == pytest.approx(spent()[0], rel=1e-4)
    assert "A ledger charged" in " ".join(done.stderr.split())
    assert len(set(spent())) == 1


def test_a_run_that_ends_between_charge_and_noise_stays_charged(
    synthesize, spent, monkeypatch, tmp_path
):
    def end(*arguments):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(PlannedRelease, "release", end)
    assert synthesize().exit_code == 1
    assert all(spent())
    assert sorted(each.name for each in tmp_path.iterdir()) == ["in.jsonl", "ledger"]


def test_a_run_that_goes_on_from_its_sums_is_charged_once(synthesize, killed, spent):
    killed()
    before = spent()
    done = synthesize()
    assert "Nothing is measured again" in done.stderr
    assert all(before)
    assert spent() == before


def test_a_second_measurement_is_charged_again(synthesize, spent):
    synthesize()
    once = spent()
    assert synthesize("--force").exit_code == 0
    assert spent() == [2 * each for each in once]


def test_sums_that_no_ledger_charged_are_not_gone_on_from(synthesize, killed, spent):
    killed(ledger=False)
    done = synthesize()
    assert done.exit_code == 1
    assert "changed: ledger" in done.stderr
    assert spent() == [0, 0, 0]


def test_an_author_over_the_limit_stops_the_run_and_is_not_named(
    synthesize, spent, monkeypatch, tmp_path
):
    monkeypatch.setattr(PlannedRelease, "release", lambda *_: pytest.fail("measured"))
    Ledger(tmp_path / "ledger").charge_authors([b"szanzibar"], 1.0)
    done = synthesize("--author-rho-limit", "1")
    assert done.exit_code == 1
    assert "1 of 3 authors would pass the limit of 1 rho" in " ".join(done.stderr.split())
    assert not any(name in done.output for name in AUTHORS)
    assert spent() == [1, 0, 0]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["in.jsonl", "ledger"]


def test_a_limit_that_is_reached_exactly_is_kept(synthesize, spent):
    synthesize()
    limit = str(2 * spent()[0])
    assert synthesize("--force", "--author-rho-limit", limit).exit_code == 0
    assert synthesize("--force", "--author-rho-limit", limit).exit_code == 1


def test_words_and_measurements_share_an_authors_account(
    run, demo_index, synthesize, spent, account, tmp_path
):
    words = tmp_path / "words.jsonl"
    words.write_text(json.dumps({"text": "A good film.", "id": 1, "by": AUTHORS[0]}) + "\n")
    named = ["--document", "id", "--author", "by", "--ledger", account]
    done = run("privatize", words, tmp_path / "w.jsonl", "--index", demo_index, "-e", "1", *named)
    assert done.exit_code == 0, done.stderr
    before = spent()[0]
    synthesize()
    assert spent()[0] == pytest.approx(before + spent()[1])
    assert before > 0


def test_an_output_never_replaces_the_ledger(synthesize, account, spent):
    synthesize()
    assert synthesize("--force", "--model", account).exit_code == 1
    assert all(spent())


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--ledger", "l"], "add --author"),
        (["--author", "by", "--author-rho-limit", "1"], "add --ledger"),
    ],
)
def test_options_of_the_ledger_that_mean_nothing_are_usage_errors(run, tmp_path, options, told):
    source = tmp_path / "in.jsonl"
    source.write_text('{"text": "A good film.", "by": 1}\n')
    done = run("synthesize", source, tmp_path / "out.jsonl", "--epsilon", "1", *options)
    assert done.exit_code == 2
    assert told in " ".join(done.stderr.replace("│", " ").split())


def test_an_author_named_by_a_number_has_one_account(run, demo_index, tmp_path, account):
    rows = [{"text": text, "by": 7} for text in ("A good film.", "A bad film.")]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = ("--author", "by", "--index", demo_index, "--epsilon", "1", "--ledger", account)
    source = tmp_path / "in.jsonl"
    done = run("synthesize", source, tmp_path / "out.jsonl", "--records", "2", *given)
    assert done.exit_code == 0, done.stderr
    assert Ledger(account).spent(author="7").rho > 0
    limited = (*given, "--document", "text", "--author-limit", "9")
    again = run("privatize", source, tmp_path / "words.jsonl", *limited)
    assert again.exit_code == 1
