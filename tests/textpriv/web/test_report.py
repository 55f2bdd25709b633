"""The report: what it says is what the mechanism says, it loads nothing, and raw text stays out unless asked for."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import stat
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pytest
from typer.testing import CliRunner

import textpriv
from textpriv.cli.app import app
from textpriv.errors import TextprivError
from textpriv.evaluation.best_attacker import BestAttacker, PublicText
from textpriv.evaluation.deniability import deniability
from textpriv.evaluation.leaks import leak_report
from textpriv.evaluation.recovery import hidden_words, word_recovery
from textpriv.index import Index
from textpriv.spans.detectors import RegexDetector
from textpriv.spans.laws.mask import Mask
from textpriv.spans.laws.numbers import Number
from textpriv.spans.policy import UNDETECTED_PASS, SpanPolicy
from textpriv.statement import at_most
from textpriv.vocabulary import Vocabulary
from textpriv.web.charts import Chart, Line
from textpriv.web.report import WordLaws, report_page, write_page

PLAIN = "good bad fine film book song actor scene music story word page letter number night day week month".split()
HOSTILE = ["</script><script>alert(1)</script>", "<b>&amp;", "\"'><img src=x onerror=alert(1)>"]
WORDS = PLAIN + HOSTILE
SECRET = "zanzibar"
TEXT = f"A good film, <i>{SECRET}</i> & 7 bad songs!"
VOID = {"meta", "link", "input", "br", "img", "line", "circle"}


class Page(HTMLParser):
    """What a page holds: its tags in order, its texts, and whether its tags close in order."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.crossed: list[str] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.crossed.append(tag)

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("script", "style"):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def index() -> Index:
    vectors = np.random.default_rng(3).normal(size=(len(WORDS), 6))
    return Index.build(Vocabulary(WORDS, vectors), k=8)


@pytest.fixture(scope="module")
def mechanism(index):
    return textpriv.TEM(index, epsilon=2.0)


@pytest.fixture(scope="module")
def source(mechanism) -> str:
    return report_page(
        mechanism,
        words=len(WORDS),
        more=HOSTILE,
        certificate=textpriv.certify(mechanism),
        privatizer=textpriv.Privatizer(mechanism),
    )


@pytest.fixture(scope="module")
def private_source(mechanism) -> str:
    privatizer = textpriv.Privatizer(mechanism, textpriv.TokenPolicy(number="mask"))
    leaks = leak_report([TEXT], privatizer)
    return report_page(mechanism, words=5, privatizer=privatizer, leaks=leaks, texts=[TEXT])


@pytest.fixture(scope="module")
def folder(index, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "small.idx"
    index.save(path)
    return path


def data_of(source):
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', source, re.S)
    return json.loads(found[1])


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


# What it says


def test_every_shipped_law_is_the_mechanisms_to_four_digits(source, mechanism):
    data = data_of(source)
    assert {entry["word"] for entry in data["words"]} >= set(HOSTILE)
    words = mechanism.index.vocabulary
    for entry in data["words"]:
        law = np.exp(mechanism.log_prob(entry["word"]))
        own = words.id(entry["word"])
        assert entry["keep"] == pytest.approx(law[own], rel=6e-4)
        distances = mechanism.distances(own)
        for place, probability, distance in entry["outputs"]:
            other = words.id(data["vocabulary"][place])
            assert probability == pytest.approx(law[other], rel=6e-4)
            assert distance == pytest.approx(distances[other], rel=6e-4, abs=1e-9)


def test_the_outputs_of_a_word_are_its_likeliest_in_order(source, mechanism):
    for entry in data_of(source)["words"]:
        shown = [probability for _, probability, _ in entry["outputs"]]
        best = np.sort(np.exp(mechanism.log_prob(entry["word"])))[::-1][: len(shown)]
        assert shown == pytest.approx(best, rel=6e-4)


def test_a_words_curve_is_its_keep_probability_at_each_epsilon(source, index):
    data = data_of(source)
    entry = data["words"][0]
    own = index.vocabulary.id(entry["word"])
    for epsilon, value in zip(data["epsilons"], entry["curve"], strict=True):
        other = textpriv.TEM(index, epsilon=2.0 * 2 ** round(np.log2(epsilon / 2.0), 6))
        assert value == pytest.approx(np.exp(other.log_prob(own)[own]), rel=1e-3)


def test_the_numbers_over_epsilon_are_those_of_deniability(source, index):
    table = re.findall(
        r'<tr><th scope="row">([\d.]+)</th><td class="number">([\d.]+)</td><td class="number">([\d.,]+)</td>',
        source,
    )
    assert len(table) == 13
    for epsilon, keep, distinct in table:
        found = deniability(textpriv.TEM(index, epsilon=float(epsilon)), sample=200, draws=1000)
        assert float(keep) == pytest.approx(found.sample.mean(found.keep), rel=5e-3, abs=1e-4)
        assert float(distinct.replace(",", "")) == pytest.approx(
            found.sample.mean(found.distinct), rel=5e-3, abs=0.06
        )


def test_means_over_a_sample_of_the_words_are_shown_as_such(index, mechanism):
    few = Page(report_page(mechanism, words=3)).text
    assert "sample of" not in few  # of so few words all are looked at
    rng = np.random.default_rng(0)
    words = textpriv.Vocabulary([f"w{n}" for n in range(300)], rng.normal(size=(300, 4)))
    many = textpriv.TEM(textpriv.Index.build(words, hnsw=False), epsilon=2.0)
    found = deniability(many, sample=200, draws=1000)
    shown = " ".join(Page(report_page(many, words=3)).text.split())
    error = float(found.sample.standard_error(found.keep))
    assert (
        f"a fixed public sample of 200 was looked at, here and in the charts and their table, so that means are {error:.1g}"
        in shown
    )


def test_the_current_point_is_marked_where_the_mechanism_is(source, mechanism):
    found = deniability(mechanism, sample=200, draws=1000)
    keep = float(found.sample.mean(found.keep))
    assert f"here: {keep:.2f}" in source
    assert f"here: {found.sample.mean(found.distinct):,.0f}" in source


def test_the_statement_stands_there_in_full(source, mechanism):
    text = Page(source).text
    statement = textpriv.Privatizer(mechanism).statement
    for each in (*statement.not_protected, *statement.assumptions, *statement.notes):
        assert each in text
    assert "odds of at most exp(2 x d)" in text
    assert "✓ proved" in text


def test_the_first_screen_says_what_the_best_attackers_get_with_the_worst_protected_words(index):
    mechanism = textpriv.TEM(index, epsilon=1.0)
    documents = [np.arange(len(index), dtype=np.int32)] * 5
    text = PublicText.of(documents, len(index))
    shown = Page(report_page(mechanism, words=5, public_text=text)).text
    first = shown[: shown.index("✓ proved")]
    common = len(index) // 4
    alone = word_recovery(mechanism, common=common)
    attacker = BestAttacker(index.vocabulary.prior_weights("zipf"), "content", text, common)
    for share in (alone.everything, alone.content, attacker.in_context(mechanism)[0]):
        assert f"{at_most(100 * share, 3)} %" in first
    for word, share in alone.worst():
        assert " ".join(f"{word}{at_most(100 * share, 3)} %".split()) in first
    assert "was not tried here" in Page(report_page(mechanism, words=5)).text


def test_an_unproved_mechanism_says_so(index):
    seeded = textpriv.Privatizer(textpriv.TEM(index, epsilon=2.0), seed=1)
    text = Page(report_page(seeded.mechanism, words=3, privatizer=seeded)).text
    assert "✗ not proved" in text
    assert "NO PROVED GUARANTEE" in text


def test_the_certificate_and_a_ledgers_totals_are_shown(source, mechanism):
    certificate = textpriv.certify(mechanism)
    assert certificate.in_words(certificate.rho) in source
    from textpriv.ledger import Spent

    spent = Spent(3, 4, 1234, 56.5, {"angular": 12.5})
    text = Page(report_page(mechanism, words=3, ledger=spent)).text
    assert "1,234" in text
    assert "12.5 under angular" in text
    assert "56.5 nats" in text
    assert "Nothing on this page was computed from private text" not in text


def test_a_mechanism_without_a_law_is_estimated_and_says_so(index):
    page = report_page(textpriv.Madlib(index, epsilon=5.0, search="exact"), words=4)
    text = Page(page).text
    assert "each probability is a share of 1,000 draws" in text
    assert "cannot be computed for other epsilons" in text
    assert not data_of(page)["exact"]


def test_estimated_laws_are_relative_frequencies_of_the_same_public_draws(index):
    mechanism = textpriv.Madlib(index, epsilon=5.0, search="exact")
    first, again = (WordLaws.of(mechanism, [0, 1], outputs=len(WORDS)) for _ in range(2))
    assert first.outputs == again.outputs
    for outputs in first.outputs:
        assert sum(probability for _, probability, _ in outputs) == pytest.approx(1.0)


def test_at_another_rate_the_point_is_this_mechanisms_and_the_curve_the_published_ones(index):
    mechanism = textpriv.TEM(index, epsilon=2.0)
    page = report_page(mechanism, words=3)
    assert "at its calibrated rate" in Page(page).text
    found = deniability(mechanism, sample=200, draws=1000)
    assert f"here: {float(found.sample.mean(found.keep)):.2f}" in page
    half = deniability(textpriv.TEM(index, epsilon=2.0), sample=200, draws=1000)
    assert f'<td class="number">{float(half.sample.mean(half.keep)):.4f}</td>' in page


# A page that can be trusted


@pytest.mark.parametrize("name", ["source", "private_source"])
def test_the_page_loads_nothing(name, request):
    page = Page(request.getfixturevalue(name))
    assert not page.all("img")
    assert not page.all("iframe")
    assert [link["href"] for link in page.all("link")] == ["data:,"]
    assert all("src" not in script for script in page.all("script"))
    assert all(anchor["href"].startswith("#") for anchor in page.all("a"))
    style = re.search(r"<style>(.*?)</style>", request.getfixturevalue(name), re.S)[1]
    assert "url(" not in style
    assert "@import" not in style


def test_the_policy_in_its_head_lets_it_run_its_own_script_only(source):
    policy = next(
        meta["content"]
        for meta in Page(source).all("meta")
        if meta.get("http-equiv") == "Content-Security-Policy"
    )
    script = re.search(r"<script>(.*?)</script>\s*</body>", source, re.S)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "connect-src 'none'" in policy


def test_hostile_words_are_text_and_never_markup(source):
    page = Page(source)
    # Data, and the page's own script: the words have added none.
    assert len(page.all("script")) == 2
    assert "alert(1)</script>" not in source
    offered = [option["value"] for option in page.all("option")]
    assert set(HOSTILE) <= set(offered)
    assert not any("onerror" in attributes for _, attributes in page.tags)


def test_raw_text_is_escaped_where_it_is_shown(private_source):
    assert "<i>" not in private_source
    assert TEXT in unescape(private_source)


@pytest.mark.parametrize("name", ["source", "private_source"])
def test_tags_close_in_order_and_ids_are_unique(name, request):
    page = Page(request.getfixturevalue(name))
    assert page.crossed == []
    assert page.open == []
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("name", ["source", "private_source"])
def test_every_reference_inside_the_page_has_its_aim(name, request):
    page = Page(request.getfixturevalue(name))
    ids = {attributes.get("id") for _, attributes in page.tags}
    for _, attributes in page.tags:
        aims = [(attributes.get("href") or "").removeprefix("#")]
        for kind in ("for", "list", "aria-labelledby", "aria-describedby"):
            aims += (attributes.get(kind) or "").split()
        assert {aim for aim in aims if aim and not aim.startswith("data:")} <= ids


def test_headings_go_down_one_step_at_a_time(source):
    levels = [int(tag[1]) for tag, _ in Page(source).tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(levels, levels[1:], strict=False))


def test_what_is_read_aloud_has_a_name(source):
    page = Page(source)
    labelled = {label.get("for") for label in page.all("label")}
    assert {each["id"] for each in page.all("input")} <= labelled
    for chart in page.all("svg"):
        assert chart["role"] == "img"
        assert chart["aria-labelledby"]
    assert all("scope" in cell for cell in page.all("th"))
    assert page.all("html")[0]["lang"] == "en"


# Raw text


def test_without_a_corpus_nothing_says_private(source):
    assert "Private page" not in source
    assert "Nothing on this page was computed from private text" in source


def test_a_page_with_samples_has_banners_and_shows_both_sides(private_source):
    page = Page(private_source)
    assert page.text.count("Private page.") == 1
    assert "Never publish this section" in page.text
    assert page.all("title")
    assert "<title>PRIVATE: " in private_source
    assert SECRET in page.text
    assert "Private: " in page.text


def test_counts_alone_show_no_raw_word(mechanism):
    privatizer = textpriv.Privatizer(mechanism)
    page = report_page(
        mechanism, words=3, privatizer=privatizer, leaks=leak_report([TEXT], privatizer)
    )
    assert SECRET not in page
    assert "Private page." in page


def test_the_private_side_marks_what_was_drawn_masked_and_kept(private_source):
    side = private_source.split('class="private-text"')[1].split("</article>")[0]
    assert 'title="masked"' in side
    assert 'title="kept: punctuation"' in side
    assert 'title="drawn"' in side or 'title="drawn, and come out as it went in"' in side


@pytest.fixture(scope="module")
def with_spans(mechanism):
    laws = {"PERSON": Mask("PERSON"), "NUMBER": Number(0.5, 0, 9, kind="NUMBER")}
    detector = RegexDetector({"NUMBER": r"\d+", "PERSON": SECRET, "TEAM": "songs"})
    return textpriv.Privatizer(mechanism, spans=SpanPolicy(laws), detector=detector)


def section_of(source, name):
    return " ".join(unescape(source[source.index(f'id="{name}"') :].split("</section>")[0]).split())


def test_a_policy_of_spans_is_shown_by_kind_and_counted_with_a_corpus_alone(mechanism, with_spans):
    public = section_of(report_page(mechanism, words=5, privatizer=with_spans), "spans")
    assert "two-sided geometric noise on a grid of numbers" in public
    assert "24.5 %; 62.3 % at the ends of the range" in public
    assert "found" not in public
    leaks = leak_report([TEXT, TEXT], with_spans)
    page = report_page(mechanism, words=5, privatizer=with_spans, leaks=leaks)
    counted = re.sub(r"<[^>]*>", " ", section_of(page, "spans"))
    for row in ("kind found drawn no law", "PERSON 2 2 0", "NUMBER 2 2 0", "TEAM 2 0 2"):
        assert row in " ".join(counted.split())
    assert SECRET not in page
    assert not Page(page).crossed


def test_words_are_told_by_how_well_they_are_hidden(mechanism, with_spans, source):
    bands = hidden_words(
        word_recovery(mechanism, common=len(WORDS) // 4),
        mechanism.index.vocabulary.prior_weights("zipf"),
    )
    for page in (source, report_page(mechanism, words=5, privatizer=with_spans)):
        section = section_of(page, "missed")
        assert ("What a detector would miss" in section) == (page is not source)
        for band in bands:
            assert f'<td class="number">{band.words:,}</td>' in section
            assert ", ".join(band.examples) in section
    counted = report_page(
        mechanism, words=5, leaks=leak_report([TEXT], with_spans), privatizer=with_spans
    )
    assert section_of(counted, "missed").count('<td class="number">') == 3 * len(bands) + 3


def test_a_page_of_a_policy_by_which_words_pass_says_nothing_of_hidden_words(mechanism):
    spans = SpanPolicy({"PERSON": Mask("PERSON")}, undetected=UNDETECTED_PASS)
    page = report_page(mechanism, words=5, privatizer=textpriv.Privatizer(mechanism, spans=spans))
    assert "everything the detector misses" in page
    assert 'id="missed"' not in page
    assert "drawn word by word" not in page


def test_a_sample_shows_its_typed_spans(mechanism, with_spans):
    page = report_page(mechanism, words=5, privatizer=with_spans, texts=[TEXT])
    assert re.search(r'title="typed span: PERSON"[^>]*>\[PERSON\]<', page)
    assert 'title="typed span: NUMBER"' in page


def test_samples_need_a_privatizer(mechanism):
    with pytest.raises(TextprivError, match="pass privatizer="):
        report_page(mechanism, words=3, texts=["a"])


@pytest.mark.parametrize("words", [1, 0, -3, True, 2.5])
def test_too_few_words_are_refused(mechanism, words):
    with pytest.raises(TextprivError, match="from 2 up"):
        report_page(mechanism, words=words)


# Charts


def test_a_chart_puts_its_ends_and_its_mark_where_they_belong():
    svg = Chart(
        "t", "d", "x", "y", [1.0, 10.0, 100.0], [Line("l", [0.0, 0.5, 1.0])], 1.0, (10.0, 0.5, "m")
    ).svg()
    area = {
        name: float(value)
        for name, value in re.findall(r'data-(left|right|top|bottom)="([\d.]+)"', svg)
    }
    points = [
        tuple(map(float, pair.split(",")))
        for pair in re.search(r'class="line l0" points="([^"]*)"', svg)[1].split()
    ]
    middle = ((area["left"] + area["right"]) / 2, (area["top"] + area["bottom"]) / 2)
    assert points == [(area["left"], area["bottom"]), middle, (area["right"], area["top"])]
    assert f'cx="{middle[0]:.1f}" cy="{middle[1]:.1f}"' in svg


def test_a_chart_escapes_its_words():
    svg = Chart("<t>", "d & d", "<x>", "<y>", [1.0, 2.0], [Line("l", [0.0, 1.0])], 1.0).svg()
    assert "<t>" not in svg
    assert "&lt;t&gt;" in svg
    assert "d &amp; d" in svg


# Files and the command


def test_a_private_page_can_be_read_by_its_owner_alone(tmp_path):
    for name, private in (("a.html", True), ("b.html", False)):
        write_page("x", tmp_path / name, private=private)
    assert stat.S_IMODE((tmp_path / "a.html").stat().st_mode) == 0o600
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE((tmp_path / "b.html").stat().st_mode) == 0o666 & ~mask
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.html", "b.html"]


def test_a_page_that_cannot_be_written_leaves_nothing_behind(tmp_path):
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="taken"):
        write_page("x", tmp_path / "taken", private=True)
    assert [each.name for each in tmp_path.iterdir()] == ["taken"]


def test_the_command_writes_a_page_below_three_megabytes(folder, tmp_path):
    out = tmp_path / "report.html"
    result = run("report", folder, "--epsilon", 2, "--output", out, "--words", 10)
    assert result.exit_code == 0, result.stderr
    assert str(out) in result.stdout
    assert out.stat().st_size < 3_000_000
    assert "the claim holds" in out.read_text()


def test_the_command_shows_raw_text_only_on_request(folder, tmp_path):
    corpus = tmp_path / "in.txt"
    corpus.write_text(TEXT + "\n" + "another song\n")
    out = tmp_path / "report.html"
    given = [
        "report",
        folder,
        "-e",
        2,
        "-o",
        out,
        "--words",
        5,
        "--no-certificate",
        "--corpus",
        corpus,
    ]
    counted = run(*given)
    assert counted.exit_code == 0, counted.stderr
    assert SECRET not in out.read_text()
    assert "as private as the text itself" in counted.stderr
    shown = run(*given, "--show-private-sample", 1)
    assert SECRET in out.read_text()
    assert "another song" not in out.read_text()
    assert SECRET not in shown.output
    assert stat.S_IMODE(out.stat().st_mode) == 0o600


@pytest.mark.parametrize("option", ["--corpus", "--context", "--ledger"])
def test_the_command_writes_no_page_over_what_it_reads(folder, tmp_path, option):
    read = tmp_path / "in.txt"
    read.write_text(TEXT)
    (tmp_path / "link.txt").hardlink_to(read)
    for output in (read, tmp_path / "link.txt"):
        result = run("report", folder, "--epsilon", 2, option, read, "--output", output)
        assert result.exit_code == 2
        assert "--output would be written over" in result.stderr
        assert read.read_text() == TEXT


@pytest.mark.parametrize("option", ["--prior", "--policy"])
def test_the_command_writes_no_page_over_its_settings_or_its_index(folder, tmp_path, option):
    read = tmp_path / "in.toml"
    read.write_text('[kinds.PERSON]\nlaw = "mask"\n')
    detect = ("--detect", "patterns") if option == "--policy" else ()
    for output in (read, folder / "words.json"):
        before = output.read_bytes()
        result = run("report", folder, "-e", 2, option, read, *detect, "--output", output)
        assert result.exit_code == 2
        assert "--output would be written over" in result.stderr
        assert output.read_bytes() == before


def test_the_command_replaces_a_report_and_no_other_file(folder, tmp_path):
    output = tmp_path / "page.html"
    for _ in range(2):
        assert run("report", folder, "-e", 2, "-o", output, "--no-certificate").exit_code == 0
    output.write_text("a thesis")
    result = run("report", folder, "-e", 2, "-o", output, "--no-certificate")
    assert result.exit_code == 1
    assert "was not made by this command" in result.stderr
    assert output.read_text() == "a thesis"


def test_the_command_refuses_a_sample_without_a_corpus(folder, tmp_path):
    result = run("report", folder, "-e", 2, "-o", tmp_path / "a.html", "--show-private-sample", 1)
    assert result.exit_code == 2
    assert "--corpus" in result.stderr


def test_the_command_makes_no_ledger(folder, tmp_path):
    result = run(
        "report", folder, "-e", 2, "-o", tmp_path / "a.html", "--ledger", tmp_path / "none"
    )
    assert result.exit_code == 1
    assert result.stderr.startswith("error: there is no ledger at ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.real_data
def test_the_page_of_real_vectors_is_below_three_megabytes(real_data):
    vectors = next((real_data / "embeddings").glob("imdb*.bin.gz"), None)
    if vectors is None:
        pytest.skip("no IMDB vectors among the real data")
    vocabulary = Vocabulary.load(str(vectors), limit=5000)
    mechanism = textpriv.TEM(Index.build(vocabulary, k=32, hnsw=False), epsilon=6.0)
    page = report_page(mechanism, words=200)
    assert len(page.encode()) < 3_000_000
    assert len(data_of(page)["words"]) == 200
