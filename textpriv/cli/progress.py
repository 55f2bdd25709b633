"""Show how far a run is: a line for people, lines of JSON for programs."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from textpriv.corpus.report import Progress

_EVENT_SECONDS = 1.0  # at most one event in this time


def write_event(event: str, **values: object) -> None:
    """Write one line of JSON on standard error."""
    sys.stderr.write(json.dumps({"event": event, **values}, ensure_ascii=False) + "\n")
    sys.stderr.flush()


def shown_progress(as_json: bool) -> Callable[[Progress], None] | None:
    """Return a function that shows progress on standard error; None if nobody watches."""
    if not (as_json or sys.stderr.isatty()):
        return None
    started = time.monotonic()
    last = started - _EVENT_SECONDS

    def show(progress: Progress) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < _EVENT_SECONDS:
            return
        last = now
        seconds, fraction = now - started, progress.fraction
        # Without tokens of the run that is continued, which took none of these seconds.
        rate = (progress.tokens - progress.resumed) / seconds if seconds > 0 else 0.0
        left = progress.tokens * (1 / fraction - 1) / rate if fraction and rate else None
        if as_json:
            write_event(
                "progress",
                documents=progress.documents,
                tokens=progress.tokens,
                fraction=None if fraction is None else round(fraction, 6),
                seconds=round(seconds, 3),
                tokens_per_second=round(rate),
                seconds_left=None if left is None else round(left, 1),
            )
            return
        share = "" if fraction is None else f"{fraction:.0%}, "
        rest = "" if left is None else f", {left:.0f} s left"
        told = f"{share}{progress.documents:,} documents, {rate:,.0f} tokens/s{rest}"
        sys.stderr.write(f"\r{told:<79}\r")
        sys.stderr.flush()

    return show
