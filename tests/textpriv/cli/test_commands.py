"""Commands: exit codes, what goes to which stream, and that no message quotes a text."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys

import numpy as np
import pytest

import textpriv
from textpriv.guarantees.epsilon import choose_epsilon
from textpriv.index import Index
from textpriv.mechanisms import registry
from textpriv.statement import odds_in_words

from .conftest import SECRET, WORDS

ODDS = "synonyms=3,kind=30,any=3000"


@pytest.fixture
def privatize(run, folder):
    def call(source, target, *more, **options):
        given = ("--index", folder, "--epsilon", 6, *more)
        return run("privatize", source, target, *given, **options)

    return call


@pytest.mark.parametrize(("epsilon", "warns"), [(9, True), (0.5, False)])
def test_privatize_by_epsilon_tells_how_many_words_stay(
    run, folder, texts, tmp_path, epsilon, warns
):
    result = run("privatize", texts, tmp_path / "out.txt", "--index", folder, "--epsilon", epsilon)
    assert result.exit_code == 0
    assert "of content words stay as they are" in result.stderr.replace("\n", " ")
    assert ("most of the text can be read" in result.stderr) == warns


# index


def test_index_says_what_it_made(run, vectors, tmp_path):
    result = run("index", vectors, tmp_path / "a.idx", "--limit", 100, "--json")
    told = json.loads(result.stdout)
    assert (told["words"], told["dimensions"], result.exit_code) == (100, 6, 0)
    assert len(Index.load(tmp_path / "a.idx")) == 100


def test_index_replaces_an_index_with_force_and_nothing_else(
    run, failed, vectors, folder, tmp_path
):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "a.txt").write_text("a thesis")
    assert "--force" in failed(run("index", vectors, folder))
    foreign = run("index", vectors, tmp_path / "thesis", "--force")
    assert "an index folder only" in failed(foreign)
    assert "which is read" in failed(run("index", folder / "words.json", folder, "--force"), 2)
    assert (tmp_path / "thesis" / "a.txt").read_text() == "a thesis"


def test_index_leaves_nothing_behind_after_bad_vectors(run, failed, tmp_path):
    (tmp_path / "a.txt").write_text(f"{SECRET} is no vector\n")
    failed(run("index", tmp_path / "a.txt", tmp_path / "a.idx"))
    assert not (tmp_path / "a.idx").exists()


def test_index_reads_a_hierarchy_from_a_file(run, tmp_path):
    (tmp_path / "icd.tsv").write_text(
        "word\tchapter/block\nj45\tlung/low\nj46\tlung/low\nj0\tlung/up\ni1\theart/a\n"
    )
    done = run("index", tmp_path / "icd.tsv", tmp_path / "icd", "--hierarchy", "file", "--json")
    assert json.loads(done.stdout)["levels"] == ["block", "chapter", "any"]


def test_index_refuses_groups_without_meaning(run, failed, vectors, tmp_path):
    for groups, said in (("a", "NAME=NUMBER"), ("a=2,a=3", "names")):
        assert said in failed(run("index", vectors, tmp_path / "a", "--groups", groups), 2)
    half = run("index", vectors, tmp_path / "a", "--groups", "a=2.5")
    assert "whole number of groups" in failed(half)


def test_index_counts_a_language_model_for_contextual(run, failed, vectors, texts, tmp_path):
    public = tmp_path / "public.jsonl"
    rng = np.random.default_rng(5)
    rows = [" ".join(rng.choice(WORDS[:150], 20)) + "." for _ in range(60)]
    public.write_text("".join(json.dumps({"body": row}) + "\n" for row in rows))
    given = ("--text", public, "--text-column", "body", "--language", "de")
    assert "neither model nor axes" in failed(
        run("index", vectors, tmp_path / "t", *given, "--groups", "a=5"), 2
    )
    assert run("index", vectors, tmp_path / "a.idx", *given).exit_code == 0
    index = Index.load(tmp_path / "a.idx")
    assert index.model.probability(0) > 5 * index.model.probability(160)
    out = tmp_path / "out.txt"
    more = ("--index", tmp_path / "a.idx", "--recovery", 0.3, "--mechanism", "contextual")
    done = run("privatize", texts, out, *more, "--json")
    assert json.loads(done.stdout)["statement"]["mechanism"].startswith("ContextualTEM")
    assert "the index's language model" in done.stderr
    (tmp_path / "a.idx" / "model.npz").unlink()
    assert "model.npz is damaged (it is missing" in failed(
        run("privatize", texts, out, *more, "--force")
    )


def test_index_lists_public_sets_by_language(run, failed):
    rows = run("index", "--list", "--language", "de").stdout.splitlines()[1:]
    assert {row.split()[0] for row in rows} == {"de"}
    assert "MIT" in run("index", "--list").stdout
    assert "fasttext:cc.qq.300" in failed(run("index", "--list", "--language", "qq"), 2)


# privatize


def test_privatize_writes_words_of_the_vocabulary(privatize, texts, tmp_path):
    result = privatize(texts, tmp_path / "out.txt")
    assert (result.exit_code, result.stdout) == (0, "")
    first, second = (tmp_path / "out.txt").read_text().splitlines()
    words = first.removesuffix(".").split() + second.split()
    assert (len(words), {*words} <= {*WORDS}) == (71, True)
    assert "2 documents" in result.stderr
    assert "not protected" in result.stderr


def test_copied_columns_are_named_in_warning_and_statement(privatize, tmp_path):
    with (tmp_path / "a.csv").open("w", newline="") as out:
        csv.writer(out).writerows([("who", "review"), (SECRET, WORDS[0])])
    given = (tmp_path / "a.csv", tmp_path / "b.csv", "--text-column", "review")
    result = privatize(*given)
    assert "copied unchanged: who" in result.stderr
    assert "other columns, released as written: who" in result.stderr
    assert SECRET not in result.stderr
    assert SECRET in (tmp_path / "b.csv").read_text()


def test_privatize_reads_input_and_writes_output_streams(privatize, texts):
    result = privatize("-", "-", input=texts.read_text())
    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 2)


def test_a_seed_repeats_the_output_with_a_warning(privatize, texts, tmp_path):
    for name in ("a.txt", "b.txt"):
        assert "Do not release" in privatize(texts, tmp_path / name, "--seed", 1).stderr
    assert (tmp_path / "a.txt").read_text() == (tmp_path / "b.txt").read_text()


def test_a_policy_for_persons_without_authors_is_refused_before_anything_is_read(
    privatize, tmp_path
):
    (tmp_path / "a.txt").write_text("call 415 555 2671\n")
    given = ("--detect", "patterns", "--policy", "notes")
    result = privatize(tmp_path / "a.txt", tmp_path / "b.txt", *given)
    assert result.exit_code == 1
    assert "--author COLUMN" in result.stderr
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.txt"]


def test_detected_spans_are_masked_by_the_chat_policy(privatize, tmp_path):
    (tmp_path / "a.txt").write_text(f"{WORDS[0]} a@example.org\n")
    result = privatize(tmp_path / "a.txt", tmp_path / "b.txt", "--detect", "patterns")
    assert result.exit_code == 0, result.stderr
    assert "[EMAIL]" in (tmp_path / "b.txt").read_text()


def test_an_own_mechanism_is_used_by_its_registered_name(run, folder, texts, tmp_path, own_name):
    given = ("--index", folder, "--epsilon", 2, "--mechanism", own_name, "--json")
    done = run("privatize", texts, tmp_path / "out.txt", *given)
    assert json.loads(done.stdout)["statement"]["mechanism"].startswith("TEM")
    compared = run(
        "choose", "--index", folder, "--recovery", 0.3, "--mechanism", own_name, "--json"
    )
    assert own_name in {each["mechanism"] for each in json.loads(compared.stdout)["candidates"]}
    page = ("report", "--output", tmp_path / "a.html")
    for command in (page, ("explain", WORDS[0]), ("certify",)):
        assert run(*command, *given[:6]).exit_code == 0, command


@pytest.fixture
def own_name():
    import catalogue

    name = "mine.Gauss.v1"
    registry.register(name, func=registry.get("textpriv.TEM.v1"))
    yield name
    del catalogue.REGISTRY[(*registry.namespace, name)]


def test_settings_reach_the_mechanism_that_takes_them(privatize, failed, texts, tmp_path):
    told = privatize(
        texts, tmp_path / "a.txt", "--option", "gamma=2", "--prior", "uniform", "--json"
    )
    assert "prior uniform, gamma 2" in json.loads(told.stdout)["statement"]["mechanism"]
    refused = privatize(texts, tmp_path / "b.txt", "--option", "search=exact")
    assert "has no setting search" in failed(refused, 2)
    unknown = privatize(texts, tmp_path / "b.txt", "--mechanism", "magic")
    assert all(word in failed(unknown) for word in ("'magic'", "tem", "madlib"))


@pytest.fixture
def capped():
    """A mechanism from elsewhere that does not check its setting."""
    import catalogue

    name = "mine.Capped.v1"
    plain = registry.get("textpriv.TEM.v1")

    def configure(epsilon, cap=5.0):
        def make(index):
            made = plain(epsilon=epsilon)(index)
            made.sample_documents = lambda ids, *_: np.minimum(ids, cap)
            return made

        return make

    registry.register(name, func=configure)
    yield name
    del catalogue.REGISTRY[(*registry.namespace, name)]


@pytest.mark.parametrize("amount", [("--epsilon", 6), ("--recovery", 0.3)])
def test_a_bad_value_of_an_outside_option_is_named_in_short(
    run, failed, folder, texts, tmp_path, capped, amount
):
    given = ("--index", folder, "--mechanism", capped, *amount, "--option", "cap=abc")
    said = failed(run("privatize", texts, tmp_path / "b.txt", *given), 2)
    assert all(part in said for part in (capped, "--option cap=abc", "Error"))
    assert [each.name for each in tmp_path.iterdir()] == ["in.txt"]


def test_policy_options_reach_the_policy(privatize, texts, tmp_path):
    privatize(texts, tmp_path / "out.txt", "--unknown", "drop")
    assert len((tmp_path / "out.txt").read_text().splitlines()[1].split()) == 40


def test_a_recovery_stands_for_an_epsilon_that_is_printed(run, folder, texts, tmp_path):
    given = ("--index", folder, "--recovery", 0.3, "--json")
    result = run("privatize", texts, tmp_path / "out.txt", *given)
    statement = json.loads(result.stdout)["statement"]
    assert 0 < statement["epsilon"] <= textpriv.epsilon_for(Index.load(folder), recovery=0.3)
    assert f"epsilon {statement['epsilon']:g}" in result.stderr
    assert statement["figures"]["reference_loss"] > 0


# Failures


@pytest.mark.parametrize(
    "more",
    [
        ("--epsilon", "much"),
        (),
        ("--epsilon", 6, "--recovery", 0.1),
        ("--recovery", 10),
        ("--epsilon", 6, "--format", "xml"),
        ("--epsilon", 6, "--policy", "chat"),
        ("--epsilon", 6, "--ledger", "a.db"),
        ("--epsilon", 6, "--author-limit", 3),
        ("--epsilon", 6, "--seed", 1, "--key", "a.key"),
        ("--epsilon", 6, "--option", "gamma"),
        ("--levels", "any=3"),
        ("--epsilon", 6, "--no-such-option"),
    ],
)
def test_wrong_usage_ends_with_2_and_writes_nothing(run, failed, texts, folder, tmp_path, more):
    failed(run("privatize", texts, tmp_path / "out.txt", "--index", folder, *more), 2)
    assert [each.name for each in tmp_path.iterdir()] == ["in.txt"]


def test_json_and_texts_do_not_share_standard_output(privatize, failed, texts):
    failed(privatize(texts, "-", "--json"), 2)


@pytest.mark.parametrize(
    ("name", "content", "target", "expected"),
    [
        ("a.docx", b"zanzibar", "b.docx", "--format"),
        ("a.txt", b"zanzibar", "a.txt", "be written over"),
        ("a.txt", b"zanzibar", "none/b.txt", "folder does not exist"),
        ("a.txt", b"fine\nzanzibar \xff\n", "b.txt", "line 2"),
        ("a.txt.gz", b"zanzibar", "b.txt", "damaged"),
        ("a.csv", b"zanzibar,body\nx,y\n", "b.csv", "--text-column"),
        ("a.jsonl", b'{"text":["zanzibar"]}\n', "b.jsonl", "expected a text"),
        ("none.txt", None, "b.txt", "Check the name"),
    ],
)
def test_a_bad_file_is_named_without_its_content(
    privatize, failed, tmp_path, name, content, target, expected
):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    before = sorted(tmp_path.iterdir())
    assert expected in failed(privatize(tmp_path / name, tmp_path / target))
    assert sorted(tmp_path.iterdir()) == before


def test_a_missing_index_is_named(run, failed, texts, tmp_path):
    given = ("--index", tmp_path / "none.idx", "--epsilon", 6)
    assert "none.idx" in failed(run("privatize", texts, tmp_path / "b.txt", *given))


def test_without_an_epsilon_a_recovery_is_proposed(run, failed):
    for command in (("privatize", "-", "-"), ("explain", "movie"), ("certify",)):
        result = run(*command, input=f"{SECRET}\n")
        said = failed(result, 2)
        assert "no default" in said
        assert "recovery of 0.1" in said


def test_an_interrupt_ends_with_130(privatize, texts, tmp_path, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("textpriv.corpus.run_corpus", interrupted)
    result = privatize(texts, tmp_path / "b.txt")
    assert (result.exit_code, "Interrupted" in result.stderr) == (130, True)


def test_a_reader_that_goes_away_ends_the_run_with_a_line(folder, tmp_path):
    # More than a pipe holds.
    (tmp_path / "a.txt").write_text(f"{' '.join(WORDS)}\n" * 100)
    command = [sys.executable, "-m", "textpriv", "privatize", tmp_path / "a.txt", "-"]
    more = ["--index", folder, "-e", "6"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([*command, *more], **pipes) as process:
        process.stdout.read(1)
        process.stdout.close()
        told = b"error: Standard output was closed before all was written.\n"
        assert (process.stderr.read(), process.wait()) == (told, 1)


# explain


def test_explain_and_certify_are_about_what_privatize_draws_by(run):
    explained = json.loads(run("explain", "film", "-e", 2, "--json").stdout)
    assert explained["statement"]["mechanism"].startswith("TEM (epsilon 2, prior uniform")
    certified = json.loads(run("certify", "-e", 2, "--json").stdout)
    assert certified["mechanism"].startswith("TEM(epsilon=2.0, prior='uniform'")


def test_explain_shows_the_likeliest_outputs(run, folder):
    told = json.loads(run("explain", WORDS[3], "--index", folder, "-e", 6, "--json").stdout)
    mechanism = textpriv.TEM(Index.load(folder), epsilon=6.0)
    assert told["keep_probability"] == pytest.approx(np.exp(mechanism.log_prob(WORDS[3])[3]))
    found = [(each["word"], each["probability"], each["distance"]) for each in told["outputs"]]
    assert found == mechanism.explain(WORDS[3], n=10)


def test_explain_compares_two_words_by_their_distance(run, folder):
    index = Index.load(folder)
    given = (WORDS[3], WORDS[7], "--index", folder, "-e", 2)
    told = json.loads(run("explain", *given, "--json").stdout)
    assert told["distance"] == index.distance(3, 7)
    odds = odds_in_words(textpriv.TEM(index, epsilon=2.0).statement.loss_at(told["distance"]))
    assert f"at most {odds}" in run("explain", *given).stdout


def test_explain_compares_two_documents(run, folder, tmp_path):
    for name, words in (("a.txt", WORDS[:4]), ("b.txt", WORDS[1:5])):
        (tmp_path / name).write_text(" ".join(words))
    files = ("--documents", tmp_path / "a.txt", tmp_path / "b.txt")
    result = run("explain", *files, "--index", folder, "-e", 2)
    assert result.exit_code == 0, result.stderr
    assert "The documents differ in 4 words" in result.stdout
    assert "as private as they are" in result.stderr


def test_explain_shows_the_groups_of_a_word(run, tree):
    shown = run("explain", "bana", "--index", tree, "--levels", ODDS).stdout
    assert re.search(rf"any: {len(WORDS)} words.*3,000", shown.replace("\n", " "))


def test_explain_does_not_repeat_an_unknown_word(run, failed, folder):
    for words in ((SECRET,), (SECRET, WORDS[0]), (WORDS[0], SECRET)):
        said = failed(run("explain", *words, "--index", folder, "-e", 6))
        assert f"{len(WORDS)} words lacks this word" in said
    upper = run("explain", WORDS[0].upper(), "--index", folder, "-e", 6)
    assert "lower case" in failed(upper)


def test_explain_takes_one_or_two_words(run, failed, folder):
    for words in ((), WORDS[:3]):
        failed(run("explain", *words, "--index", folder, "--epsilon", 6), 2)


# certify


def test_certify_prints_the_constant(run, folder):
    told = json.loads(run("certify", "--index", folder, "-e", 3, "--json").stdout)
    assert told["rho"] == textpriv.certify(textpriv.TEM(Index.load(folder), epsilon=3.0)).rho
    assert told["holds"]
    shown = run("certify", "--index", folder, "--epsilon", 3)
    assert shown.stdout.startswith("THE CLAIM HOLDS")


def test_certify_ends_with_1_only_for_a_refuted_claim(run, failed, folder, tmp_path, monkeypatch):
    missing = run("certify", "--index", tmp_path / "none.idx", "--epsilon", 3)
    failed(missing, 2)
    monkeypatch.setattr("textpriv.guarantees.certificate.Certificate.holds", False, raising=False)
    real = textpriv.certify

    def refuted(*given, **named):
        found = real(*given, **named)
        object.__setattr__(found, "holds", False)
        return found

    monkeypatch.setattr("textpriv.guarantees.certificate.certify", refuted)
    result = run("certify", "--index", folder, "--epsilon", 3)
    assert (result.exit_code, "DOES NOT HOLD" in result.stdout) == (1, True)


def test_certify_attacks_by_draws_and_says_what_is_unseen(run):
    result = run("certify", "--audit", "--mechanism", "tem", "--epsilon", 2)
    assert result.exit_code == 0, result.stderr
    assert "What this could not have seen:" in result.stdout


def test_an_attack_that_refutes_ends_with_1(run, monkeypatch):
    from textpriv.guarantees.audit import AuditReport, Check

    refuted = AuditReport("tem", 2.0, (Check("ratio", "line", False, "a witness"),))
    monkeypatch.setattr("textpriv.guarantees.audit.audit", lambda *_, **__: refuted)
    result = run("certify", "--audit", "--epsilon", 2)
    assert (result.exit_code, "a witness" in result.stdout) == (1, True)


def test_an_attack_with_wrong_settings_is_no_refutation(run, failed):
    for more in (("--option", "gamma=-1"), ("--mechanism", "none"), ("--epsilon", -3)):
        amount = () if "--epsilon" in more else ("--epsilon", 2)
        failed(run("certify", "--audit", *amount, *more), 2)


# demo and doctor


def test_demo_shows_three_recoveries_and_commands_that_run(run):
    shown = run("demo", env={"COLUMNS": "160"}).stdout
    index = Index.builtin("en")
    for wanted in (0.05, 0.1, 0.2):
        found = choose_epsilon(index, recovery=wanted)
        assert f"{found.value:.1%}" in shown
        assert f"{found.epsilon:.3g}" in shown
    first, second = (line.strip() for line in shown.split("Next:")[1].strip().splitlines())
    _, text, rest = first.split('"')
    done = run(*rest.replace("| textpriv ", "").split(), input=f"{text}\n")
    assert done.stdout.endswith(".\n")
    assert "pain stays" in run(*second.split()[1:]).stdout


def test_doctor_tries_what_is_required_and_lists_extras(run, monkeypatch):
    told = json.loads(run("doctor", "--json").stdout)
    assert told["sound"]
    assert {"package", "index", "presidio"} <= {each["name"] for each in told["checks"]}
    monkeypatch.setattr("textpriv.cli.start.installed", lambda name: None)
    assert "pip install" in run("doctor").stdout


def test_doctor_draws_from_a_tree(run, tree):
    result = run("doctor", "--index", tree)
    assert result.exit_code == 0
    assert "a text was drawn" in result.stdout


def test_doctor_ends_with_1_if_something_required_is_broken(run, folder, monkeypatch):
    def broken(*given, **named):
        raise RuntimeError("no kernel")

    monkeypatch.setattr("textpriv.privatizer.Privatizer.privatize", broken)
    result = run("doctor", "--index", folder)
    assert (result.exit_code, "no kernel" in result.stdout) == (1, True)


def test_detect_auto_takes_the_best_that_is_installed_and_says_which(
    run, texts, folder, tmp_path, monkeypatch
):
    pytest.importorskip("phonenumbers")
    import spacy

    given = ("--index", folder, "--epsilon", 3, "--detect", "auto", "--policy", "chat", "--force")
    result = run("privatize", texts, tmp_path / "out.txt", *given)
    assert result.exit_code == 0
    assert "--detect auto: names and patterns\n" in result.stderr
    assert "no spaCy pipeline that finds names is installed" in result.stderr
    (names,) = [
        each
        for each in json.loads(run("doctor", "--json").stdout)["checks"]
        if each["name"] == "names"
    ]
    assert names["status"] == "absent"
    for size in ("sm", "lg"):
        nlp = spacy.blank("en", meta={"name": f"tiny_{size}"})
        nlp.add_pipe("entity_ruler").add_patterns([{"label": "PERSON", "pattern": SECRET}])
        nlp.to_disk(tmp_path / f"en_tiny_{size}")
        (tmp_path / f"en_tiny_{size}" / "__init__.py").write_text(
            "from pathlib import Path\nfrom spacy.util import load_model_from_path\n"
            "def load(**more): return load_model_from_path(Path(__file__).parent, **more)\n"
        )
    monkeypatch.syspath_prepend(tmp_path)
    installed = ["en_tiny_sm", "en_tiny_lg"]
    monkeypatch.setattr(spacy.util, "get_installed_models", lambda: installed)
    monkeypatch.setattr(spacy.util, "is_package", lambda name: name in installed)
    result = run("privatize", texts, tmp_path / "out.txt", *given)
    assert result.exit_code == 0, result.stderr
    assert "--detect auto: spacy:en_tiny_lg and patterns\n" in result.stderr
    assert "[PERSON]" in (tmp_path / "out.txt").read_text()
    found = json.loads(run("doctor", "--json").stdout)["checks"][-1]["found"]
    assert found == "for --detect auto: spacy:en_tiny_lg, spacy:en_tiny_sm"


def test_index_names_the_list_of_the_language_as_it_is_written(run, tmp_path):
    lines = [f"{word} {number} .5\n" for number, word in enumerate(["die", "haus", "will"])]
    (tmp_path / "de.txt").write_text("".join(lines))
    told = run("index", tmp_path / "de.txt", tmp_path / "de.idx", "--language", "de").stderr
    assert "spaCy's stop words of 'de'" in " ".join(told.split())
