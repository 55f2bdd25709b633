"""Draw ``docs/before-after.svg``: a public sample and its private versions at two recovery rates.

Run it with ``python docs/before_after.py``. The draws are seeded so that the picture stays the same; changed words are
marked, which is harmless for a public sample only.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from textwrap import wrap

import spacy

import textpriv
from textpriv.cli.start import SAMPLES
from textpriv.guarantees.epsilon import epsilon_for

WIDTH, LINE, LEFT = 860, 24, 28


def private_words(sample: str, privatizer: textpriv.Privatizer) -> list[tuple[str, bool]]:
    """Return the private tokens with the blank that follows them, and whether each differs from the original."""
    (released,) = privatizer.release(privatizer.read(sample), ["sample"])
    originals = [token.lower_ for token in spacy.blank("en").tokenizer(sample)]
    return [
        (word + (" " if space else ""), word != original)
        for word, space, original in zip(released.words, released.spaces, originals, strict=True)
    ]


def lines(words: list[tuple[str, bool]], width: int = 84) -> list[list[tuple[str, bool]]]:
    """Break tokens into lines of at most ``width`` characters."""
    out: list[list[tuple[str, bool]]] = [[]]
    held = 0
    for word, changed in words:
        if held + len(word.rstrip()) > width:
            out.append([])
            held = 0
        out[-1].append((word, changed))
        held += len(word)
    return out


def main() -> None:
    """Draw and write the picture."""
    index = textpriv.Index.builtin("en")
    sample = SAMPLES["review"]
    blocks: list[tuple[str, list[list[tuple[str, bool]]]]] = [
        ("original", [[(line, False)] for line in wrap(sample, 84)])
    ]
    for recovery in (0.2, 0.1):
        epsilon = epsilon_for(index, recovery=recovery)
        privatizer = textpriv.Privatizer(textpriv.TEM(index, epsilon), seed=3)
        title = (
            f"--recovery {recovery}: an attacker recovers at most {recovery:.0%} of content words"
        )
        blocks.append((title, lines(private_words(sample, privatizer))))
    rows, y = [], 18
    for title, block in blocks:
        y += LINE
        rows.append(f'<text class="title" x="{LEFT}" y="{y}">{escape(title)}</text>')
        for line in block:
            y += LINE
            spans = "".join(
                f'<tspan class="{"changed" if changed else "same"}">{escape(word)}</tspan>'
                for word, changed in line
            )
            rows.append(f'<text xml:space="preserve" x="{LEFT}" y="{y}">{spans}</text>')
        y += LINE // 2
    height = y + 14
    svg = f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"
 role="img" aria-label="A review and its private versions at two recovery rates">
<style>
text {{ font: 15px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #1f2328 }}
.title {{ font-weight: 700; fill: #59636e }}
.changed {{ fill: #0550ae; font-weight: 700 }}
rect {{ fill: #ffffff; stroke: #d1d9e0 }}
@media (prefers-color-scheme: dark) {{
text {{ fill: #f0f6fc }} .title {{ fill: #9198a1 }} .changed {{ fill: #79c0ff }} rect {{ fill: #0d1117; stroke: #3d444d }}
}}
</style>
<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>
{chr(10).join(rows)}
</svg>
"""
    Path(__file__).with_name("before-after.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
