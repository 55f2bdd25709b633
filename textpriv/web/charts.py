"""Line charts as inline SVG, drawn from data with the page's own colours.

Here stand axes, lines, bands and the marked point of one chart, as text. Styling is by CSS class, so one chart serves a
light page, a dark page and a printed one. Which figures are drawn is decided in ``textpriv.web.report``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Chart", "Line"]

_WIDTH, _HEIGHT = 640, 330
_LEFT, _RIGHT, _TOP, _BOTTOM = 66, 16, 40, 56


@dataclass(frozen=True)
class Line:
    """One line of a chart.

    Attributes
    ----------
    name : str
    values : sequence of float
        One for each x of the chart.
    low, high : sequence of float, optional
        Edges of a band about the line.
    """

    name: str
    values: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


@dataclass(frozen=True)
class Chart:
    """A chart over a logarithmic x axis, with a linear y axis from 0.

    Attributes
    ----------
    title, description : str
        For screen readers: what is drawn, and what it shows.
    x_label, y_label : str
    x : sequence of float
        Increasing, above 0.
    lines : sequence of Line
    top : float
        Upper end of the y axis.
    mark : (float, float, str), optional
        A point (x, y) and the words beside it.
    name : str
        Id of the element; a script may add lines to it by the attributes ``data-*`` of its plot area.
    """

    title: str
    description: str
    x_label: str
    y_label: str
    x: Sequence[float]
    lines: Sequence[Line]
    top: float
    mark: tuple[float, float, str] | None = None
    name: str = "chart"

    def svg(self) -> str:
        """Return the chart as one SVG element that scales to the width of the page."""
        parts = [self._axes()]
        for number, line in enumerate(self.lines):
            if len(line.low):
                edge = [*zip(self.x, line.high, strict=True)]
                edge += [*zip(self.x, line.low, strict=True)][::-1]
                parts.append(f'<polygon class="band b{number}" points="{self._points(edge)}"/>')
            points = self._points(zip(self.x, line.values, strict=True))
            parts.append(f'<polyline class="line l{number}" points="{points}"/>')
        parts.append('<polyline class="line chosen" points=""/>')
        if self.mark is not None:
            parts.append(self._mark(*self.mark))
        return (
            f'<svg class="chart" id="{escape(self.name)}" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
            f'aria-labelledby="{escape(self.name)}-title {escape(self.name)}-text" '
            f'data-left="{_LEFT}" data-right="{_WIDTH - _RIGHT}" data-top="{_TOP}" data-bottom="{_HEIGHT - _BOTTOM}" '
            f'data-from="{self.x[0]:.6g}" data-to="{self.x[-1]:.6g}" data-height="{self.top:.6g}">'
            f'<title id="{escape(self.name)}-title">{escape(self.title)}</title>'
            f'<desc id="{escape(self.name)}-text">{escape(self.description)}</desc>'
            + "".join(parts)
            + "</svg>"
        )

    def _across(self, x: float) -> float:
        share = math.log(x / self.x[0]) / math.log(self.x[-1] / self.x[0])
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def _up(self, y: float) -> float:
        return _HEIGHT - _BOTTOM - min(y / self.top, 1.0) * (_HEIGHT - _BOTTOM - _TOP)

    def _points(self, pairs: object) -> str:
        return " ".join(f"{self._across(x):.1f},{self._up(y):.1f}" for x, y in pairs)  # type: ignore[attr-defined]

    def _axes(self) -> str:
        bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
        parts = []
        for step in range(6):
            value = self.top * step / 5
            y = self._up(value)
            parts.append(
                f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
            )
            parts.append(
                f'<text class="tick" x="{_LEFT - 8}" y="{y + 5:.1f}" text-anchor="end">{_number(value)}</text>'
            )
        for value in _ticks(self.x[0], self.x[-1]):
            x = self._across(value)
            parts.append(
                f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 5}"/>'
                f'<text class="tick" x="{x:.1f}" y="{bottom + 23}" text-anchor="middle">{value:g}</text>'
            )
        middle = (_LEFT + right) / 2
        parts.append(
            f'<text class="label" x="{middle:.0f}" y="{_HEIGHT - 6}" text-anchor="middle">{escape(self.x_label)}</text>'
            f'<text class="label" x="4" y="18">{escape(self.y_label)}</text>'
        )
        return "".join(parts)

    def _mark(self, x: float, y: float, words: str) -> str:
        across, up = self._across(x), self._up(y)
        # The words stand where the line does not go: left of a rising one, right of a falling one.
        line = self.lines[0].values
        side, anchor = (-10, "end") if line[-1] > line[0] else (10, "start")
        return (
            f'<line class="now" x1="{across:.1f}" x2="{across:.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}"/>'
            f'<circle class="now" cx="{across:.1f}" cy="{up:.1f}" r="5"/>'
            f'<text class="mark" x="{across + side:.1f}" y="{max(up - 10, _TOP + 12):.1f}" '
            f'text-anchor="{anchor}">{escape(words)}</text>'
        )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers between two ends of a logarithmic axis: 1, 2, 5 and their tenfolds, or fewer over many decades."""
    decades = math.log10(high / low)
    digits = (1.0, 2.0, 5.0) if decades < 3 else (1.0,)
    first = math.floor(math.log10(low))
    values = [digit * 10.0**power for power in range(first, first + 12) for digit in digits]
    return [value for value in values if low <= value * (1 + 1e-9) and value <= high * (1 + 1e-9)]
