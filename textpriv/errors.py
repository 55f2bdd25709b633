"""The errors a user can meet, and the one about a missing optional package. No message quotes a private text."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec
from pathlib import Path
from typing import Any


class TextprivError(ValueError):
    """Base class of errors about what the user gave; the message says what to do."""


class VocabularyError(TextprivError):
    """Words, vectors or a prior that cannot form a vocabulary."""


class IndexFolderError(TextprivError):
    """An index folder that is missing, truncated, altered, too new, or built otherwise than asked."""


class MechanismError(TextprivError):
    """A parameter for which the mechanism has no guarantee or no meaning."""


class WrongIndexError(MechanismError):
    """A tree for a mechanism over vectors, or vectors for one over a tree."""


class OutOfReachError(MechanismError):
    """A protection that no epsilon gives under some settings; the message says what they reach."""


class PolicyError(TextprivError):
    """A token policy with an unknown class or action."""


class RawTextError(TextprivError):
    """A spaCy pipeline that would pass raw words on: saved with it, or as if they were private."""


class CorpusError(TextprivError):
    """A corpus file or record that cannot be read or written."""


class DocumentError(TextprivError):
    """Something about one of several documents."""

    position: int | None = None  # of the document among those that were given together
    refused: Collection[int] = ()  # the positions of all that are over a limit

    def named(self, name: str) -> DocumentError:
        """Return the same error with the name of the document before it."""
        return type(self)(f"{name}: {self}")


@contextmanager
def at_position(position: int) -> Iterator[None]:
    """Give an error about a document its position."""
    try:
        yield
    except DocumentError as error:
        error.position = position
        raise


class SpanError(DocumentError):
    """Spans of a text, a detector or a policy of spans that cannot be used."""


class LedgerError(DocumentError):
    """A ledger that cannot be used, or a release that it cannot count."""


class LimitError(LedgerError):
    """A release that would pass a limit; it was neither drawn nor counted."""


def installed(package: str) -> bool:
    """Whether an optional package is installed; it is not imported."""
    return find_spec(package) is not None


def how_to_install(extra: str) -> str:
    """The command that installs the packages of an extra; it works wherever textpriv came from."""
    packages = " ".join(f"'{each}'" for each in _packages(extra))
    if not packages:
        return f"pip install '.[{extra}]' in a clone of the repository"
    return f"pip install {packages} (the extra {extra!r})"


def _packages(extra: str) -> Iterator[str]:
    """Yield the packages of an extra, and of the extras that it names."""
    try:
        listed = [each.split(";") for each in requires("textpriv") or () if ";" in each]
    except PackageNotFoundError:
        return
    for name, when in listed:
        if f'"{extra}"' in when:
            own, _, more = name.strip().rstrip("]").partition("[")
            for each in more.split(",") if own == "textpriv" else ():
                yield from _packages(each)
            if own != "textpriv":
                yield name.strip()


def lazy_names(package: str, file: str, extra: str = "") -> tuple[Callable[[str], Any], list[str]]:
    """Return ``__getattr__`` and ``__all__`` of a package by its stub: a name is loaded when it is first used (SPEC 1).

    An error of a package that is missing names the extra that brings it.
    """
    stub = ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8")).body
    froms = [node for node in stub if isinstance(node, ast.ImportFrom)]
    source = {alias.name: node.module for node in froms for alias in node.names}

    def load(name: str) -> Any:
        if name not in source:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        within = source[name]
        try:
            module = import_module(f"{package}.{within or name}")
        except ModuleNotFoundError as error:
            if not extra or error.name is None or error.name.split(".")[0] == package:
                raise
            raise ImportError(
                f"{package}.{name} needs packages that are not installed: {how_to_install(extra)}.",
                name=error.name,
            ) from None
        value = getattr(module, name) if within else module
        setattr(sys.modules[package], name, value)
        return value

    return load, sorted(source)


def needs(module: str, extra: str = "pairwise") -> Any:
    """Import a module of an optional package by its full name; the error names the extra that brings it."""
    package = module.split(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != package:
            raise
        raise TextprivError(
            f"this needs {package}; install it with: {how_to_install(extra)}."
        ) from error
