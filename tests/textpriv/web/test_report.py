"""The report: what it says is what the library says, it loads nothing, and no word on it is markup."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import stat
from html.parser import HTMLParser

import numpy as np
import pytest
from typer.testing import CliRunner

import textpriv
from textpriv.cli.app import app
from textpriv.evaluation.best_attacker import BestAttacker, PublicText
from textpriv.evaluation.recovery import exposure, word_recovery
from textpriv.guarantees.epsilon import keep_share
from textpriv.index import Index
from textpriv.mechanisms.base import Mechanism
from textpriv.spans.detectors import RegexDetector
from textpriv.spans.mechanisms.surrogates import Mask
from textpriv.spans.policy import SpanPolicy
from textpriv.statement import at_least, at_most, odds_in_words
from textpriv.vocabulary import Vocabulary
from textpriv.web.report import report_page, write_page

PLAIN = "good bad fine film book song actor scene music story word page john maria cancer night week day".split()
HOSTILE = ["</script><script>alert(1)</script>", "<b>&amp;", "\"'><img src=x onerror=alert(1)>"]
WORDS = PLAIN + HOSTILE
VOID = {"meta", "link", "input", "br", "img", "line", "circle"}
# Of the field, not of the reader.
JARGON = (
    r"nats|metric|prior\b|\blaw|Bayes|zCDP|rho|truncat|Lipschitz|lone|running words|fingerprint"
)


class Page(HTMLParser):
    """What a page holds: its tags in order, its text, and whether its tags close in order."""

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
    return Index.build(Vocabulary(WORDS, vectors), "euclidean", k=8)


@pytest.fixture(scope="module")
def mechanism(index):
    return textpriv.TEM(index, epsilon=2.0)


@pytest.fixture(scope="module")
def source(mechanism) -> str:
    certificate = textpriv.certify(mechanism)
    return report_page(textpriv.Privatizer(mechanism), certificate=certificate)


@pytest.fixture(scope="module")
def page(source) -> Page:
    return Page(source)


@pytest.fixture(scope="module")
def folder(index, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "small.idx"
    index.save(path)
    return path


def data_of(source):
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', source, re.S)
    return json.loads(found[1])


def percent(share):
    return f"{at_most(100 * share, 2)} %"


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


# What it says


def test_the_first_screen_says_what_stays_and_what_is_recovered(index):
    mechanism = textpriv.TEM(index, epsilon=1.0)
    text = PublicText.read([" ".join(index.vocabulary.words)] * 5, index)
    source = report_page(textpriv.Privatizer(mechanism), public_text=text)
    first = Page(source[: source.index('id="sample"')]).text
    alone, is_content = word_recovery(mechanism), index.vocabulary.is_content
    attacker = BestAttacker(index.vocabulary.prior_weights("zipf"), is_content, text)
    stays, _ = keep_share(mechanism, 200)
    assert f"{stays:.0%}".replace("%", " %") in first
    assert percent(alone.content) in first
    assert percent(attacker.reader(mechanism)[0]) in first
    assert "None was tried" in Page(report_page(textpriv.Privatizer(mechanism))).text


def test_the_first_screen_has_no_jargon(source):
    first = Page(source[: source.index('id="guarantee"')]).text
    assert not re.search(JARGON, first), first


def test_the_first_screen_says_how_often_names_stay(source, mechanism):
    first = Page(source[: source.index('id="sample"')]).text
    names = exposure(mechanism, word_recovery(mechanism).guess)[0]
    name, keep, _ = names.most[0]
    half = sorted(names.keep)[len(names.keep) // 2]
    assert (
        f"stay in {at_least(100 * half, 2)} % of texts or more, “{name}” in {percent(keep)}"
        in first
    )
    assert "find them first" in first


def test_the_lists_show_the_names_that_stay_most(page, mechanism):
    lists = exposure(mechanism, word_recovery(mechanism).guess)
    for each in lists:
        for word, keep, guessed in each.most:
            assert f"{word}{percent(keep)}{percent(guessed)}" in page.text.replace("% ", "%")


def test_the_worst_words_are_weighted_by_frequency(page, mechanism):
    alone, is_content = word_recovery(mechanism), mechanism.index.vocabulary.is_content
    weight = alone.by_word * mechanism.index.vocabulary.prior_weights("zipf") * is_content
    order = [WORDS[i] for i in np.argsort(-weight, kind="stable")[: int(is_content.sum())]]
    shown = page.text[page.text.index("recovered most often") : page.text.index("What is guar")]
    places = [shown.index(f"{word} ") for word in order]
    assert places == sorted(places)


def test_every_word_to_look_up_has_its_mechanisms_outputs(source, mechanism):
    data = data_of(source)
    assert {entry["word"] for entry in data["words"]} == {*WORDS}
    for entry in data["words"]:
        outputs = mechanism.explain(entry["word"], n=10)
        shown = [(data["vocabulary"][place], chance) for place, chance, _ in entry["outputs"]]
        assert [word for word, _ in shown] == [word for word, _, _ in outputs]
        assert [p for _, p in shown] == pytest.approx([p for _, p, _ in outputs], rel=6e-4)


def test_the_statement_and_the_odds_are_shown_in_full(page, mechanism):
    statement = textpriv.Privatizer(mechanism).statement
    for each in (*statement.not_protected, *statement.assumptions, *statement.notes):
        assert each in page.text
    assert "✓ bound proved" in page.text
    diameter = mechanism.statement.loss_at(mechanism.index.diameter_bound)
    assert odds_in_words(diameter) in page.text


def test_an_unproved_mechanism_says_so(index):
    seeded = textpriv.Privatizer(textpriv.TEM(index, epsilon=2.0), seed=1)
    assert "✗ not proved" in Page(report_page(seeded)).text


def test_the_sample_is_public_and_has_a_legend(page, source):
    assert "Original (made up)" in page.text
    assert 'title="kept: punctuation"' in source
    assert "drawn, stayed the same" in page.text


def test_the_certificate_is_shown(page):
    assert "✓ the claim holds" in page.text


def test_a_certificate_from_a_search_says_that_it_refutes_nothing(index):
    mechanism = textpriv.Madlib(index, epsilon=2.0)
    found = textpriv.certify(mechanism)
    page = Page(report_page(textpriv.Privatizer(mechanism), certificate=found))
    assert "nothing refutes the claim" in page.text
    assert "the claim holds" not in page.text


def test_a_mechanism_that_reads_its_context_says_where_its_shares_are(index, page):
    contextual = report_page(textpriv.Privatizer(textpriv.ContextualTEM(index, epsilon=2.0)))
    assert Page(contextual).text.count("of a document") >= 2
    assert "start of a document" not in page.text


def test_a_mechanism_without_a_closed_form_is_drawn_and_says_so(index):
    madlib = textpriv.Madlib(index, epsilon=5.0, search="exact")
    pages = [report_page(textpriv.Privatizer(madlib)) for _ in range(2)]
    assert "a share of 1,000 draws" in Page(pages[0]).text
    assert data_of(pages[0]) == data_of(pages[1])
    for entry in data_of(pages[0])["words"]:
        assert sum(chance for _, chance, _ in entry["outputs"]) <= 1 + 1e-9


class Other(Mechanism):
    """A mechanism of another package with the exponential form."""

    name = "Other"

    def __init__(self, index, epsilon):
        super().__init__(index, epsilon)
        self._own = textpriv.TEM(index, epsilon)
        self.log_prob, self.sample_documents = self._own.log_prob, self._own.sample_documents

    def exponential_decay(self):
        return self._own.exponential_decay()

    def log_prob(self, word):
        raise NotImplementedError

    def sample_documents(self, ids, offsets, streams):
        raise NotImplementedError

    @property
    def statement(self):
        return self._own.statement


def test_a_mechanism_of_others_has_the_chart_of_tem(index, source):
    page = report_page(textpriv.Privatizer(Other(index, 2.0)))
    charts = [re.search(r'<svg class="chart".*?</svg>', each, re.S)[0] for each in (page, source)]
    assert charts[0] == charts[1]


def test_kinds_of_spans_are_shown_with_how_they_are_replaced(mechanism):
    detector = RegexDetector({"PERSON": "John Miller"})
    plan = {"spans": SpanPolicy({"PERSON": Mask("PERSON")}), "detector": detector}
    source = report_page(textpriv.Privatizer(mechanism, **plan))
    assert 'title="typed span: PERSON"' in source
    assert "PERSONmask of PERSON. Privacy loss: none." in Page(source).text
    assert not Page(source).crossed


# A page that can be trusted


def test_the_page_loads_nothing(source, page):
    assert not page.all("img") + page.all("iframe")
    assert [link["href"] for link in page.all("link")] == ["data:,"]
    assert all("src" not in script for script in page.all("script"))
    assert all(anchor["href"].startswith("#") for anchor in page.all("a"))
    style = re.search(r"<style>(.*?)</style>", source, re.S)[1]
    assert not re.search(r"url\(|@import", style)


def test_the_policy_in_its_head_allows_its_own_script_only(source, page):
    policy = next(m["content"] for m in page.all("meta") if "http-equiv" in m)
    script = re.search(r"<script>(.*?)</script>\s*</body>", source, re.S)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "connect-src 'none'" in policy


def test_hostile_words_are_text_and_never_markup(source, page):
    assert len(page.all("script")) == 2  # data, and the page's own
    assert "alert(1)</script>" not in source
    assert {*HOSTILE} <= {option["value"] for option in page.all("option")}
    assert not any("onerror" in attributes for _, attributes in page.tags)


def test_tags_close_and_references_have_their_aim(page):
    assert page.crossed + page.open == []
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in page.tags:
        aims = [(attributes.get("href") or "").removeprefix("#")]
        for kind in ("for", "list", "aria-labelledby", "aria-describedby"):
            aims += (attributes.get(kind) or "").split()
        assert {aim for aim in aims if aim and not aim.startswith("data:")} <= {*ids}


def test_headings_go_down_one_step_at_a_time(page):
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h[1-6]", tag)]
    assert (levels[0], levels.count(1)) == (1, 1)
    assert all(after <= before + 1 for before, after in zip(levels, levels[1:], strict=False))


def test_a_chart_puts_points_where_they_belong(source, mechanism):
    svg = re.search(r'<svg class="chart".*?</svg>', source, re.S)[0]
    points = [tuple(map(float, each.split(","))) for each in re.findall(r"[\d.]+,[\d.]+", svg)]
    assert [x for x, _ in points[::6]] == [66, 345, 624]
    for (_, y), octaves in zip(points, np.arange(-3, 3.5, 0.5), strict=True):
        share = keep_share(mechanism.at_epsilon(mechanism.epsilon * 2.0**octaves), 200)[0]
        assert y == pytest.approx(274 - 234 * share, abs=0.06)
    assert 'cx="{:.1f}" cy="{:.1f}"'.format(*points[6]) in svg


# Files and the command


def test_a_page_that_cannot_be_written_leaves_nothing_behind(tmp_path):
    write_page("x", tmp_path / "a.html")
    assert stat.S_IMODE((tmp_path / "a.html").stat().st_mode) & 0o600 == 0o600
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="taken"):
        write_page("x", tmp_path / "taken")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.html", "taken"]


def test_the_command_writes_a_small_page_and_replaces_with_force(folder, tmp_path):
    out = tmp_path / "report.html"
    given = ("report", "--index", folder, "--epsilon", 2, "--output", out)
    assert run(*given).exit_code == 0
    assert out.stat().st_size < 3_000_000
    assert "the claim holds" in out.read_text()
    out.write_text("a thesis")
    refused = run(*given)
    assert (refused.exit_code, out.read_text()) == (1, "a thesis")
    assert run(*given, "--force").exit_code == 0


@pytest.mark.parametrize("option", ["--context", "--prior", "--policy"])
def test_the_command_writes_no_page_over_what_it_reads(folder, tmp_path, option):
    read = tmp_path / "in.toml"
    read.write_text('[kinds.PERSON]\nmethod = "mask"\n')
    detect = ("--detect", "patterns") if option == "--policy" else ()
    for output in (read, folder / "words.json"):
        before = output.read_bytes()
        given = ("--index", folder, "-e", 2, option, read, *detect, "--force", "--output", output)
        result = run("report", *given)
        assert result.exit_code == 2
        assert "--output would be written over" in result.stderr
        assert output.read_bytes() == before
