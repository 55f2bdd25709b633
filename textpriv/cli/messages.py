"""Print messages and progress on standard error, results on standard output, and turn errors into exit codes.

No message contains a private text.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import typer

from textpriv.errors import TextprivError

if TYPE_CHECKING:
    from rich.status import Status

    from textpriv.corpus.report import Progress

# Whether all that a command says is written as events, one JSON object a line.
events: ContextVar[bool] = ContextVar("events", default=False)
# Whether only warnings and errors are said.
quiet: ContextVar[bool] = ContextVar("quiet", default=False)

FAILED, SKIPPED, INTERRUPTED = 1, 3, 130  # exit codes; the parser ends with 2
_EVENT_SECONDS = 1.0  # at most one event in this time
_REMEDIES = {
    errno.ENOENT: "Check the name, and that its folder exists.",
    errno.EACCES: "Check its permissions, or name another place.",
    errno.EFBIG: "A limit on the size of files is set (ulimit -f): raise it, or name another place.",
    errno.ENOSPC: "The disk is full: make room, or name another place.",
}


def say(message: str, label: str = "", color: str | None = None) -> None:
    """Print a message on standard error."""
    if quiet.get() and not label:
        return
    if events.get():
        write_event(label.removesuffix(": ") or "message", text=message)
        return
    typer.echo(typer.style(label, fg=color) + message, err=True)


def warn(message: object) -> None:
    """Print a warning on standard error."""
    say(str(message), "warning: ", "yellow")


def warn_left_out(skipped: Mapping[str, int]) -> None:
    """Print how many records were left out, by reason."""
    if skipped:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in skipped.items())
        warn(f"left out: {reasons}")


def waiting(what: str) -> Status:
    """Show on a terminal what is waited for, while a block runs."""
    from rich.console import Console

    return Console(stderr=True).status(what)


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON object on standard output."""
    print(json.dumps(value, ensure_ascii=False), flush=True)


def refuse_mixed(target: str, as_json: bool) -> None:
    """Refuse an output of texts on standard output beside a JSON object."""
    if as_json and target == "-":
        raise typer.BadParameter("--json and the texts cannot share standard output: name a file")


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows in aligned columns on standard output, the header first."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())


def write_event(event: str, **values: object) -> None:
    """Write one line of JSON on standard error."""
    print(json.dumps({"event": event, **values}, ensure_ascii=False), file=sys.stderr, flush=True)


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
        last, seconds, share = now, now - started, progress.fraction
        # Without tokens of the run that is continued, which took none of these seconds.
        rate = (progress.tokens - progress.resumed) / seconds if seconds > 0 else 0.0
        left = progress.tokens * (1 / share - 1) / rate if share and rate else None
        if as_json:
            write_event(
                "progress",
                documents=progress.documents,
                tokens=progress.tokens,
                fraction=share and round(share, 6),
                seconds=round(seconds, 3),
                tokens_per_second=round(rate),
                seconds_left=left and round(left, 1),
            )
            return
        told = [] if share is None else [f"{share:.0%}"]
        told.append(f"{progress.documents:,} documents")
        told += [f"{rate:,.0f} tokens/s"] if progress.tokens else []
        told += [] if left is None else [f"{left:.0f} s left"]
        print(f"\r{', '.join(told):<79}\r", end="", file=sys.stderr, flush=True)

    return show


@contextlib.contextmanager
def exit_codes(failed: int = FAILED) -> Iterator[None]:
    """Turn errors of a block into a message and an exit code, ``failed`` if it could not do its work."""
    events.set(False)
    quiet.set(False)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: warn(message)
            yield
    except typer.Exit:
        raise
    except BrokenPipeError:
        # The reader has gone, as "| head" does. Python would complain again when it flushes at exit.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _say_failed("BrokenPipeError", "Standard output was closed before all was written.")
        raise typer.Exit(failed) from None
    except (TextprivError, OSError, UnicodeDecodeError) as error:
        _say_failed(type(error).__name__, describe(error))
        raise typer.Exit(failed) from None
    except KeyboardInterrupt:
        if events.get():
            _say_failed("KeyboardInterrupt", "Interrupted.")
        else:
            say("\nInterrupted. No output file was written.")
        raise typer.Exit(INTERRUPTED) from None
    except BaseException as error:
        # A signal, wrong usage, or a mistake of ours, whose message may quote anything.
        if events.get():
            said = str(error) if isinstance(error, typer.BadParameter) else ""
            said = "Ended by a signal." if isinstance(error, SystemExit) else said
            _say_failed(type(error).__name__, said)
        raise


def _say_failed(kind: str, message: str) -> None:
    if events.get():
        write_event("failed", kind=kind, error=message)
    else:
        say(message, "error: ", "red")


def describe(error: Exception) -> str:
    """Return an error as a sentence that names the file and what to do."""
    if isinstance(error, UnicodeDecodeError):
        return "A file that was read is not UTF-8 text."
    if not isinstance(error, OSError) or not error.strerror:
        return str(error) or type(error).__name__
    named = "" if error.filename is None else f": {error.filename}"
    return f"{error.strerror}{named}. {_REMEDIES.get(error.errno or 0, '')}".rstrip()
