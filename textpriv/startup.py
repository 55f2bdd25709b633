"""How a command begins and ends: large packages without parts that it never uses, and an end without taking everything down.

Without these a command does the same, half a second later. They change what the whole process finds loaded, so only commands
and worker processes may call them, never the library.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import sys
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

__all__ = ["leave", "load_numba_alone", "load_spacy_alone"]


def load_spacy_alone() -> None:
    """Import spaCy as if torch were not there, and without its commands: who only cuts text needs neither."""
    if "torch" in sys.modules or "spacy" in sys.modules:
        return
    # spaCy's own face takes one function from its commands, and with it what they need to download and to train.
    commands = ModuleType("spacy.cli.info")
    commands.info = _spacy_info  # type: ignore[attr-defined]
    with _found_as("torch", None), _found_as("spacy.cli.info", commands):
        importlib.import_module("spacy")


def _spacy_info(*args: Any, **kwargs: Any) -> Any:
    """What spaCy's own function of this name answers."""
    return importlib.import_module("spacy.cli.info").info(*args, **kwargs)


def load_numba_alone() -> None:
    """Import what numba calls compiled functions with, as if SciPy had no linear algebra.

    Numba loads it to ask whether it is there, and uses the answer for correlations alone. Code that calls it still finds it.
    """
    if "scipy.linalg" not in sys.modules:
        with _found_as("scipy.linalg", None), contextlib.suppress(ImportError):
            importlib.import_module("numba.np.arraymath")


@contextlib.contextmanager
def _found_as(name: str, module: ModuleType | None) -> Iterator[None]:
    """Have an import find this under a name, or nothing; whoever needs the real one later finds it."""
    sys.modules[name] = module  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[name]


def leave(code: int) -> None:
    """End this process when its work is done: whoever asked to be told is told, but nothing is taken down.

    Returns where only Python's own end will do: beside a thread to be waited for, or if what was printed cannot be written.
    """
    if any(
        not thread.daemon and thread is not threading.main_thread()
        for thread in threading.enumerate()
    ):
        return
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            return
    os._exit(code)
