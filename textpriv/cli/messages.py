"""What commands say: messages on standard error, JSON on standard output, and exit codes for what goes wrong.

No command stands here, and never a private text.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from textpriv.errors import TextprivError

if TYPE_CHECKING:
    from rich.console import Console


_INTERRUPTED = 130


def console() -> Console:
    """Return the console of standard error."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def say(message: str, label: str = "", style: str = "") -> None:
    """Print a message on standard error; a long one is never cut at a terminal's width."""
    from rich.text import Text

    console().print(Text.assemble((label, style), message), soft_wrap=True)


def warn(message: str) -> None:
    """Print a warning on standard error."""
    say(message, "warning: ", "yellow")


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON object on standard output."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
    sys.stdout.flush()


@contextlib.contextmanager
def _warnings_as_messages() -> Iterator[None]:
    """Show the library's warnings as one line each, without the source line that raised them."""
    shown: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if str(message) not in shown:
            shown.add(str(message))
            warn(str(message))

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


_Function = TypeVar("_Function", bound=Callable[..., None])


def as_job(command: _Function, *, trouble: int = 1) -> _Function:
    """Turn what can go wrong in a command into a message and an exit code.

    ``trouble`` is that of a command that could not do its work: another one than 1 where 1 is a finding.
    """

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            with _warnings_as_messages():
                command(*args, **kwargs)
        except BrokenPipeError:
            # The reader of our output has gone (as "| head" does). Python would complain once more
            # at exit, when it flushes; so there is nothing left to flush.
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(trouble) from None
        except (TextprivError, OSError) as error:
            say(describe(error), "error: ", "bold red")
            raise typer.Exit(trouble) from None
        except KeyboardInterrupt:
            say("\ninterrupted; no output file was written")
            raise typer.Exit(_INTERRUPTED) from None

    return run  # type: ignore[return-value]


def describe(error: Exception) -> str:
    """Return an error as a sentence that names the file and what to do."""
    if isinstance(error, OSError) and error.strerror:
        remedy = _REMEDIES.get(error.errno or 0, "Check that it can be used, and try again.")
        if error.filename is not None:
            return f"{error.strerror}: {error.filename}. {remedy}"
        if error.errno in _REMEDIES:  # a write to an open file names none
            return f"{error.strerror}. {remedy}"
    return str(error) or type(error).__name__


_REMEDIES = {
    errno.ENOENT: "Check the name, and that its folder exists.",
    errno.EACCES: "Check who may read or write it, or name another place.",
    errno.EISDIR: "It is a folder; name a file.",
    errno.ENOTDIR: "A part of the path is a file; name a folder there.",
    errno.ENOSPC: "The disk is full: make room, or name another place.",
    errno.EEXIST: "Choose another name, or remove it first.",
}
