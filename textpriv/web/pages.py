"""What pages are made of: templates that escape every text, a policy under which a page loads nothing, and a line chart."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

from textpriv import __version__
from textpriv.statement import at_least, at_most

SAMPLE = (
    "John Miller, 34, was admitted with chest pain on 12 March. He was given insulin and went home on Friday. "
    "His sister Maria lives in Boston."
)

_WIDTH, _HEIGHT = 640, 330
_LEFT, _RIGHT, _TOP, _BOTTOM = 66, _WIDTH - 16, 40, _HEIGHT - 56


def asset(name: str) -> str:
    """Return a style sheet or script of this folder."""
    return files(__package__).joinpath("templates").joinpath(name).read_text(encoding="utf-8")


def content_policy(script: str, connect: str = "'none'") -> str:
    """Return a Content-Security-Policy under which a page runs one script, known by its hash, and loads nothing.

    Parameters
    ----------
    script : str
        Source of the one inline script.
    connect : str
        Where the script may send requests.
    """
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'"
    )


def fill(template: str, **content: Any) -> str:
    """Fill a template; every text is escaped, and a missing name is an error."""
    given = {"version": __version__, "style": asset("style.css"), **content}
    rounded = {"at_most": at_most, "at_least": at_least}
    return _environment().get_template(template).render(**given, **rounded)


@cache
def _environment() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("textpriv", "web/templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@dataclass(frozen=True)
class Chart:
    """Shares in [0, 1] over a logarithmic x axis.

    Attributes
    ----------
    title, description : str
        For screen readers: what is drawn, and what it shows.
    x_label, y_label : str
    x : sequence of float
        Increasing, above 0.
    y : sequence of float
    mark : (float, float, str)
        A point (x, y) and the words beside it.
    """

    title: str
    description: str
    x_label: str
    y_label: str
    x: Sequence[float]
    y: Sequence[float]
    mark: tuple[float, float, str]

    def svg(self) -> str:
        """Return one SVG element that scales to the width of the page."""
        return (
            f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-labelledby="chart-title chart-text">'
            f'<title id="chart-title">{escape(self.title)}</title>'
            f'<desc id="chart-text">{escape(self.description)}</desc>{"".join(self._parts())}</svg>'
        )

    def _across(self, x: float) -> float:
        return _LEFT + math.log(x / self.x[0]) / math.log(self.x[-1] / self.x[0]) * (_RIGHT - _LEFT)

    @staticmethod
    def _up(y: float) -> float:
        return _BOTTOM - min(y, 1.0) * (_BOTTOM - _TOP)

    def _parts(self) -> Iterable[str]:
        for step in range(6):
            y = self._up(step / 5)
            yield f'<line class="grid" x1="{_LEFT}" x2="{_RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            yield f'<text x="{_LEFT - 8}" y="{y + 5:.1f}" text-anchor="end">{20 * step} %</text>'
        for value in self.x[::2]:
            x = self._across(value)
            yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_BOTTOM}" y2="{_BOTTOM + 5}"/>'
            yield f'<text x="{x:.1f}" y="{_BOTTOM + 23}" text-anchor="middle">{value:.3g}</text>'
        middle = (_LEFT + _RIGHT) // 2
        yield f'<text x="{middle}" y="{_HEIGHT - 6}" text-anchor="middle">{escape(self.x_label)}</text>'
        yield f'<text x="4" y="18">{escape(self.y_label)}</text>'
        pairs = zip(self.x, self.y, strict=True)
        points = " ".join(f"{self._across(x):.1f},{self._up(y):.1f}" for x, y in pairs)
        yield f'<polyline class="line" points="{points}"/>'
        x, y, words = self.mark
        across, up = self._across(x), self._up(y)
        yield f'<line class="now" x1="{across:.1f}" x2="{across:.1f}" y1="{_TOP}" y2="{_BOTTOM}"/>'
        yield f'<circle class="now" cx="{across:.1f}" cy="{up:.1f}" r="5"/>'
        beside = f'x="{across - 10:.1f}" y="{max(up - 10, _TOP + 12):.1f}" text-anchor="end"'
        yield f'<text class="mark" {beside}>{escape(words)}</text>'
