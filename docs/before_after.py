"""Draw ``docs/before-after.svg``: a made-up ticket under each protection, through the calls that users make.

Run it with ``python docs/before_after.py``. The draws of words and texts are seeded. The noise of new records never is, so
they differ a little each time. Marked words are harmless for made-up texts only.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from html import escape
from pathlib import Path

import textpriv
from textpriv.spans.detectors import PatternDetector, WordsDetector
from textpriv.spans.policy import SpanPolicy
from textpriv.vocabulary.builtin import FIRST_NAMES

TICKET = "Laura here. I was charged twice on 3 March and the invoice is wrong. Priyanka promised a refund."
PRIVATE = re.compile(r"Laura|3 March|Priyanka")
SAID = {
    "billing": (
        *("i was charged twice this month", "the invoice shows the wrong price"),
        *("my refund has not been paid", "the bank says the payment failed"),
        *("i want my money back for this order", "you took the fee from my card"),
    ),
    "delivery": (
        *("my package has not arrived yet", "the driver left the box at the wrong door"),
        *("the order was sent to my old address", "the shipment is late by a week"),
        *("the box was empty when it arrived", "i am still waiting for the delivery"),
    ),
}
ENDS = (". please call me.", ". can you check this?", ". what should i do now?", ".")
WIDTH, LINE, LEFT, LETTERS = 560, 23, 20, 54
DRAWN = 1_000  # new tickets, of which the picture shows the three that say most
Piece = tuple[str, str]  # a text, and how it is shown


def marked(text: str, pattern: re.Pattern[str], how: str) -> list[Piece]:
    """Return the words of a text; those that match are shown in one way."""
    found = [match.span() for match in pattern.finditer(text)]
    return [
        (word.group(), how if any(a < word.end() and word.start() < b for a, b in found) else "")
        for word in re.finditer(r"\S+", text)
    ]


def lines(pieces: list[Piece]) -> list[list[Piece]]:
    """Break words into lines."""
    out: list[list[Piece]] = [[]]
    for piece in pieces:
        if sum(len(word) + 1 for word, _ in [*out[-1], piece]) > LETTERS:
            out.append([])
        out[-1].append(piece)
    return out


def synthesizer() -> textpriv.TextSynthesizer:
    """Measure 4,000 made-up tickets."""
    chosen, tickets, labels = random.Random(0), [], []  # noqa: S311 - no secret
    for _ in range(4000):
        labels.append(chosen.choice(sorted(SAID)))
        parts = chosen.sample(SAID[labels[-1]], 2)
        tickets.append(" and ".join(parts) + chosen.choice(ENDS))
    return textpriv.TextSynthesizer(epsilon=1, classes=sorted(SAID)).fit(tickets, labels)


def blocks() -> list[tuple[str, list[list[Piece]]]]:
    """Return titles and lines of the picture."""
    index = textpriv.Index.builtin("en")
    mechanism = textpriv.TEM(index, textpriv.epsilon_for(index, recovery=0.1))
    chat, detectors = SpanPolicy.preset("chat"), [PatternDetector(), WordsDetector(FIRST_NAMES)]
    alone = SpanPolicy(chat.mechanisms, undetected="pass what the detector misses")
    masked, private = (
        textpriv.Privatizer(mechanism, seed=3, spans=policy, detector=detectors).privatize(TICKET)
        for policy in (alone, chat)
    )
    known = {word.strip(".").lower() for word in masked.split()}
    changed = [
        (word, "" if word.strip(".").lower() in known else "changed") for word in private.split()
    ]
    made = synthesizer()
    words = made.words(top=5)
    top = {label: list(words[words.label == label].word) for label in SAID}
    telling = re.compile(rf"\b({'|'.join(word for each in top.values() for word in each)})\b", re.I)
    drawn = made.sample(DRAWN, random_state=0)
    records = [
        line
        for label, count in (("billing", 2), ("delivery", 1))
        for text in plainest(drawn.text[drawn.label == label], top[label], count)
        for line in lines([(f"{label}:", "title"), *marked(text, telling, "telling")])
    ]
    found = [
        lines([(f"{label}:", "title"), *((word, "telling") for word in top[label])])
        for label in SAID
    ]
    return [
        ("A ticket", lines(marked(TICKET, PRIVATE, "private"))),
        ("A detector alone: it misses a name", lines(marked(masked, PRIVATE, "private"))),
        ("The same detector, then textpriv privatize", lines(changed)),
        ("textpriv synthesize: 3 new tickets from 4,000", records),
        ("and the words that set their classes apart", [line for each in found for line in each]),
    ]


def plainest(texts: Iterable[str], telling: list[str], count: int) -> list[str]:
    """Return the texts of two lines or less that have most words of their class and repeat few."""
    found = {
        text: re.findall(r"\w+", text.lower()) for text in texts if len(text) < 2 * LETTERS - 20
    }
    once = [text for text, words in found.items() if len(words) < 1.25 * len(set(words))]
    return sorted(once, key=lambda text: -len({*telling} & {*found[text]}))[:count]


def main() -> None:
    """Draw and write the picture."""
    rows, y = [], 12
    for title, block in blocks():
        y += LINE
        rows.append(f'<text class="title" x="{LEFT}" y="{y}">{escape(title)}</text>')
        for line in block:
            y += LINE
            spans = " ".join(
                f'<tspan class="{how}">{escape(word)}</tspan>' if how else escape(word)
                for word, how in line
            )
            rows.append(f'<text xml:space="preserve" x="{LEFT}" y="{y}">{spans}</text>')
        y += LINE // 2
    height = y + 10
    svg = f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"
 role="img" aria-label="A ticket, what a detector alone leaves of it, its private version, and new tickets">
<style>
text {{ font: 16px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #1f2328 }}
.title {{ font-weight: 700; fill: #59636e }}
.private {{ font-weight: 700; fill: #cf222e }}
.changed {{ fill: #0550ae }}
.telling {{ font-weight: 700; fill: #116329 }}
rect {{ fill: #ffffff; stroke: #d1d9e0 }}
@media (prefers-color-scheme: dark) {{
text {{ fill: #f0f6fc }} .title {{ fill: #9198a1 }} .private {{ fill: #ff7b72 }} .changed {{ fill: #79c0ff }}
.telling {{ fill: #56d364 }} rect {{ fill: #0d1117; stroke: #3d444d }}
}}
</style>
<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>
{chr(10).join(rows)}
</svg>
"""
    Path(__file__).with_name("before-after.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
