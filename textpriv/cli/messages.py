"""Print messages on standard error and JSON on standard output, and turn errors into exit codes.

No message contains a private text.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import typer

from textpriv.errors import TextprivError

if TYPE_CHECKING:
    from rich.console import Console

FAILED, SKIPPED, INTERRUPTED = 1, 3, 130  # exit codes; the parser ends with 2

_REMEDIES = {
    errno.ENOENT: "Check the name, and that its folder exists.",
    errno.EACCES: "Check its permissions, or name another place.",
    errno.EISDIR: "It is a folder; name a file.",
    errno.ENOTDIR: "A part of the path is a file; name a folder there.",
    errno.ENOSPC: "The disk is full: make room, or name another place.",
    errno.EEXIST: "Choose another name, or remove it first.",
}


def console() -> Console:
    """Return the console of standard error."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def say(message: str, label: str = "", style: str = "") -> None:
    """Print a message on standard error, without line breaks of its own."""
    from rich.text import Text

    console().print(Text.assemble((label, style), message), soft_wrap=True)


def warn(message: str) -> None:
    """Print a warning on standard error."""
    say(message, "warning: ", "yellow")


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON object on standard output."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows in aligned columns on standard output, the header first."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())


def as_job(command: Callable[..., None], *, failed: int = FAILED) -> Callable[..., None]:
    """Turn errors of a command into a message and an exit code.

    Parameters
    ----------
    command : callable
    failed : int
        Exit code of a command that could not do its work. Another one than 1 where 1 is a finding.
    """

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning
                command(*args, **kwargs)
        except BrokenPipeError:
            # The reader has gone, as "| head" does. Python would complain again when it flushes at exit.
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(failed) from None
        except (TextprivError, OSError) as error:
            say(describe(error), "error: ", "bold red")
            raise typer.Exit(failed) from None
        except KeyboardInterrupt:
            say("\nInterrupted. No output file was written.")
            raise typer.Exit(INTERRUPTED) from None

    return run


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    warn(str(message))


def describe(error: Exception) -> str:
    """Return an error as a sentence that names the file and what to do."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error) or type(error).__name__
    named = "" if error.filename is None else f": {error.filename}"
    remedy = _REMEDIES.get(error.errno or 0, "Check that it can be used, and try again.")
    return f"{error.strerror}{named}. {remedy}"
