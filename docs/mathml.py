"""Hook of mkdocs: formulas of the pages become MathML when the site is built, which shows offline and without a script."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from latex2mathml.converter import convert

_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
_LONG = 40  # characters of the source


def on_page_content(html: str, **_: Any) -> str:
    """Return a page's content with each formula as MathML."""
    return _FORMULA.sub(_mathml, html)


def _mathml(match: re.Match[str]) -> str:
    source = unescape(match[3])
    if match[2] == "[":
        return f'<div class="formula">{convert(source, display="block")}</div>'
    # A formula is not broken into lines, so that a long one scrolls where the page is narrow.
    kind = "formula long" if len(source) > _LONG else "formula"
    return f'<span class="{kind}">{convert(source)}</span>'
