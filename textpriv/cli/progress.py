"""How far a run over a corpus is: a bar for people, lines of JSON for programs, nothing where nobody watches.

What is counted comes from ``corpus``; what a command prints when it is done is in ``cli``.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from textpriv.corpus.report import Progress

__all__ = ["shown_progress", "write_event"]

_EVENT_SECONDS = 1.0  # at most one event in this time


@contextlib.contextmanager
def shown_progress(console: Console, events: bool) -> Iterator[Callable[[Progress], None] | None]:
    """Yield what shows the progress.

    Parameters
    ----------
    console : Console
        Where people look; nothing is shown if it is no terminal.
    events : bool
        Write lines of JSON on standard error instead, whoever reads it.
    """
    if events:
        yield _events()
    elif not console.is_terminal:
        yield None
    else:
        with _bar(console) as show:
            yield show


def write_event(event: str, **values: object) -> None:
    """Write one line of JSON on standard error."""
    sys.stderr.write(json.dumps({"event": event, **values}, ensure_ascii=False) + "\n")
    sys.stderr.flush()


def _events() -> Callable[[Progress], None]:
    started = time.monotonic()
    last = started - _EVENT_SECONDS

    def show(progress: Progress) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < _EVENT_SECONDS:
            return
        last = now
        seconds, fraction = now - started, progress.fraction
        # What this run has done, of which alone the seconds tell.
        tokens = progress.tokens - progress.resumed
        share = fraction * tokens / progress.tokens if fraction and progress.tokens else 0.0
        write_event(
            "progress",
            documents=progress.documents,
            tokens=progress.tokens,
            fraction=None if fraction is None else round(fraction, 6),
            seconds=round(seconds, 3),
            tokens_per_second=round(tokens / seconds) if seconds > 0 else None,
            seconds_left=round(seconds * (1 - fraction) / share, 1) if fraction and share else None,
        )

    return show


@contextlib.contextmanager
def _bar(console: Console) -> Iterator[Callable[[Progress], None]]:
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("privatizing"),
        BarColumn(),
        TextColumn("{task.fields[documents]:,} documents, {task.fields[tokens]:,} tokens"),
        TextColumn("{task.fields[rate]:,.0f} tokens/s"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    started = time.monotonic()
    # Drawn when there is news, not by a thread: a process with threads cannot be forked safely.
    with Bar(*columns, console=console, transient=True, auto_refresh=False) as bar:
        task = bar.add_task("privatizing", total=None, documents=0, tokens=0, rate=0.0)

        def show(progress: Progress) -> None:
            seconds = time.monotonic() - started
            tokens = progress.tokens - progress.resumed
            counts: dict[str, Any] = {
                "documents": progress.documents,
                "tokens": progress.tokens,
                "rate": tokens / seconds if seconds > 0 else 0.0,
            }
            if progress.fraction is None:
                bar.update(task, refresh=True, **counts)
            else:
                bar.update(task, total=1.0, completed=progress.fraction, refresh=True, **counts)

        yield show
