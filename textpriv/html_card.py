"""HTML cards: how an index, a certificate and a statement show themselves in a notebook.

Here stands only the layout: a title, a verdict, rows of names and values, lists of sentences, all of them escaped. What
they say is each object's own. Colours are the notebook's, so that a card is readable on light and on dark ground.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["card"]

_GOOD, _BAD = "#2e7d32", "#c62828"


def card(
    title: str,
    rows: Iterable[tuple[str, str]],
    *,
    verdict: str = "",
    good: bool = True,
    lists: Iterable[tuple[str, Sequence[str]]] = (),
) -> str:
    """Return one object as an HTML element.

    Parameters
    ----------
    title : str
    rows : iterable of (str, str)
        Names and values; an empty value leaves its row out.
    verdict : str
        A few words beside the title, such as "proved".
    good : bool
        Whether the verdict is good news. It is told by a sign too, not by the colour alone.
    lists : iterable of (str, sequence of str)
        Headings with sentences below them; an empty list is left out.

    Examples
    --------
    >>> "&lt;b&gt;" in card("A card", [("word", "<b>")])
    True
    """
    badge = ""
    if verdict:
        colour, sign = (_GOOD, "✓") if good else (_BAD, "✗")
        badge = (
            f'<span style="margin-left:.7em;padding:.1em .6em;border-radius:1em;font-size:.85em;color:#fff;'
            f'background:{colour}">{sign} {escape(verdict)}</span>'
        )
    cells = "".join(
        f'<tr><th scope="row" style="text-align:left;font-weight:normal;opacity:.75;white-space:nowrap;'
        f'vertical-align:top;padding:.1em 1.2em .1em 0">{escape(name)}</th>'
        f'<td style="text-align:left;padding:.1em 0;overflow-wrap:anywhere">{escape(value)}</td></tr>'
        for name, value in rows
        if value
    )
    more = "".join(
        f'<p style="margin:.6em 0 .1em;opacity:.75">{escape(heading)}</p>'
        f'<ul style="margin:0;padding-left:1.4em">{"".join(f"<li>{escape(each)}</li>" for each in sentences)}</ul>'
        for heading, sentences in lists
        if sentences
    )
    return (
        '<div style="border:1px solid rgba(128,128,128,.4);border-radius:.5em;padding:.7em 1em;margin:.3em 0;'
        'max-width:56em;line-height:1.45">'
        f'<p style="margin:0 0 .4em"><strong>{escape(title)}</strong>{badge}</p>'
        f'<table style="border-collapse:collapse;background:none">{cells}</table>{more}</div>'
    )
