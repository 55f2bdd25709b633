"""The report and the playground in Chromium: no errors, no requests, readable at any width and in the dark."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from browser import PROGRAM, Browser
from small_synthesis import public

import textpriv
from textpriv.index import Index
from textpriv.vocabulary import Vocabulary
from textpriv.web.report import report_page
from textpriv.web.words import words_page

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium on this machine")

PLAIN = "good bad fine film book song actor scene music story page letter number night week month".split()
HOSTILE = "</script><img src=x onerror=console.error(1)>"
WORDS = [*PLAIN, HOSTILE]
TEXT = "A good film, <img src=x onerror=console.error(2)> & 7 bad songs!\nIt is a fine book."


# The least contrast between a text and what stands behind it, by the formula of WCAG 2.2.
CONTRAST = """
(() => {
  const parse = (c) => { const m = c.match(/[\\d.]+/g).map(Number); return m.length < 4 ? [...m, 1] : m; };
  const over = (a, b) => [0, 1, 2].map((i) => a[i] * a[3] + b[i] * (1 - a[3])).concat(1);
  const behind = (e) => {
    const all = [];
    for (; e; e = e.parentElement) all.push(parse(getComputedStyle(e).backgroundColor));
    return all.reverse().reduce((under, top) => over(top, under), [255, 255, 255, 1]);
  };
  const light = (c) => {
    const [r, g, b] = c.slice(0, 3).map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  let worst = [99, ""];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement;
    if (!walk.currentNode.textContent.trim() || !e.getClientRects().length || e.closest("svg, script, style")) continue;
    const ground = behind(e), ink = over(parse(getComputedStyle(e).color), ground);
    const [a, b] = [light(ground), light(ink)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < worst[0]) worst = [ratio, walk.currentNode.textContent.trim().slice(0, 40)];
  }
  return worst;
})()
"""


WIDEST = "Math.max(...[...document.querySelectorAll('table, svg, p, li')].map((e) => e.getBoundingClientRect().right))"


def is_readable(browser, width):
    """Whether nothing is cut off at a width, the page has an end, and every text stands out."""
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate("document.documentElement.scrollHeight") <= 12_000
    assert browser.evaluate(WIDEST) <= width
    ratio, where = browser.evaluate(CONTRAST)
    assert ratio >= 4.5, where
    return True


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    made = Browser(tmp_path_factory.mktemp("profile"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def mechanism():
    vectors = np.random.default_rng(3).normal(size=(len(WORDS), 6))
    return textpriv.TEM(Index.build(Vocabulary(WORDS, vectors), "euclidean", k=8), epsilon=2.0)


@pytest.fixture(scope="module")
def report(mechanism, tmp_path_factory):
    page = report_page(textpriv.Privatizer(mechanism), certificate=textpriv.certify(mechanism))
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page, encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def playground(mechanism):
    """The address of a playground that runs while these tests do."""
    uvicorn = pytest.importorskip("uvicorn")

    from textpriv.web.playground import Playground
    from textpriv.web.server import application, bind

    listening = bind(0)
    config = uvicorn.Config(
        application(Playground(mechanism.index)), lifespan="off", log_level="critical", ws="none"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
    server.should_exit = True
    thread.join(10)
    listening.close()


widths_and_schemes = pytest.mark.parametrize(
    ("width", "scheme"), [(1280, "light"), (1280, "dark"), (420, "light"), (420, "dark")]
)


def test_these_tests_would_see_an_error_and_a_request(browser, tmp_path):
    page = tmp_path / "bad.html"
    page.write_text(
        "<img src='http://127.0.0.1:9/x.png'><script>console.error('no'); null.x;</script>"
    )
    browser.open(page.as_uri())
    methods = {each["method"] for each in browser.complaints()}
    assert {"Runtime.consoleAPICalled", "Runtime.exceptionThrown"} <= methods
    assert "http://127.0.0.1:9/x.png" in browser.requests()


# The report


def test_the_report_opens_without_a_complaint_and_without_a_request(browser, report):
    browser.open(report)
    assert browser.evaluate("document.getElementById('outputs').children.length") > 1
    assert browser.complaints() == []
    assert browser.requests() == [report]


def test_a_typed_word_shows_its_law(browser, report, mechanism):
    browser.open(report)
    for word in ("song", "night"):
        browser.type("word", word)
        number = mechanism.index.vocabulary.id(word)
        law = np.exp(mechanism.log_prob(number))
        shown = browser.evaluate(
            "[...document.querySelectorAll('#outputs tr')].map((r) => [...r.cells].map((c) => c.textContent))"
        )
        order = np.argsort(-law, kind="stable")[: len(shown)]
        assert [row[0] for row in shown] == [WORDS[i] for i in order]
        assert [float(row[2]) for row in shown] == pytest.approx(law[order], abs=1e-4)
        answer = browser.evaluate("document.getElementById('answer').textContent")
        assert answer == f"“{word}” stays as it is with probability {law[number]:.4f}."
        rest = float(browser.evaluate("document.getElementById('rest').textContent"))
        assert rest == pytest.approx(max(0.0, 1 - law[order].sum()), abs=2e-3)
    assert browser.complaints() == []


def test_a_word_that_is_not_there_is_told_and_hostile_ones_stay_text(browser, report):
    browser.open(report)
    browser.type("word", "<img src=x onerror=console.error(3)>")
    assert "is not among the" in browser.evaluate("document.getElementById('answer').textContent")
    assert browser.evaluate("document.getElementById('law').hidden")
    browser.type("word", HOSTILE)
    assert HOSTILE in browser.evaluate("document.getElementById('answer').textContent")
    assert browser.evaluate("document.images.length") == 0
    assert browser.complaints() == []
    assert browser.requests() == [report]


@widths_and_schemes
def test_the_report_is_readable(browser, report, width, scheme):
    browser.open(report, width, scheme)
    browser.evaluate(
        "document.querySelectorAll('details').forEach((each) => { each.open = true; })"
    )
    assert is_readable(browser, width)


def test_what_can_be_used_or_seen_has_a_name_for_screen_readers(browser, report):
    browser.open(report)
    browser.command("Accessibility.enable")
    nodes = browser.command("Accessibility.getFullAXTree")["nodes"]
    wanted = {"button", "textbox", "combobox", "image", "link", "region", "graphics-document"}
    named = [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in nodes
        if node.get("role", {}).get("value") in wanted and not node["ignored"]
    ]
    assert {"button", "combobox", "image"} <= {role for role, _ in named}
    assert all(name for _, name in named)


# The words of a measurement


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    side = public()
    synthesizer = textpriv.TextSynthesizer(
        8.0, 1e-5, ["unhappy", "happy"], index=side.index, model=side.model
    )
    synthesizer.fit(["a dull bad film", "good music was fine"] * 2000, ["unhappy", "happy"] * 2000)
    path = tmp_path_factory.mktemp("page") / "words.html"
    path.write_text(words_page(synthesizer, seed=1), encoding="utf-8")
    return path.as_uri()


@widths_and_schemes
def test_the_page_of_words_is_readable(browser, words, width, scheme):
    browser.open(words, width, scheme)
    assert is_readable(browser, width)
    shown = browser.evaluate("document.body.innerText")
    assert all(f" {each}" in shown or f"\n{each}" in shown for each in ("dull", "good", "happy"))
    assert browser.complaints() == []
    assert browser.requests() == [words]


# The playground


def test_the_playground_shows_the_private_text_and_what_it_is_worth(browser, playground):
    browser.open(playground)
    browser.type("text", TEXT)
    browser.until("document.getElementById('output').textContent.includes('&')")
    shown = browser.evaluate("document.getElementById('output').innerText").split()
    assert shown
    assert browser.evaluate("document.querySelectorAll('#output .token').length") >= 15
    assert "drawn 1 time on" in browser.evaluate("document.getElementById('draws').textContent")
    browser.evaluate("document.getElementById('again').click()")
    browser.until("document.getElementById('draws').textContent.includes('drawn 2 times')")
    assert browser.evaluate("document.images.length") == 0
    assert browser.complaints() == []
    assert {url.removeprefix(playground) for url in browser.requests()} == {"", "api/privatize"}


def test_moving_epsilon_draws_at_the_new_one(browser, playground):
    browser.open(playground)
    browser.until("document.getElementById('draws').textContent.includes('1 time')")
    move = "s.value = 100; s.dispatchEvent(new Event('input'));"
    browser.evaluate(f"(() => {{ const s = document.getElementById('slide'); {move} }})()")
    value = browser.evaluate("document.getElementById('epsilon').value")
    browser.until(
        f"document.getElementById('status').textContent.includes('epsilon ' + Number({value}))"
    )
    assert browser.complaints() == []


def test_a_word_is_explained_on_the_page(browser, playground):
    browser.open(playground)
    browser.type("word", "song")
    browser.press("Enter", 13)
    browser.evaluate("document.getElementById('word-form').requestSubmit()")
    browser.until("document.getElementById('word-answer').textContent.startsWith('“song” stays')")
    assert browser.evaluate("document.getElementById('outputs').children.length") == 10
    assert browser.complaints() == []


@widths_and_schemes
def test_the_playground_is_readable(browser, playground, width, scheme):
    browser.open(playground, width, scheme)
    browser.type("text", TEXT)
    browser.evaluate("document.getElementById('mark').click()")
    browser.until("document.getElementById('draws').textContent !== ''")
    assert is_readable(browser, width)
