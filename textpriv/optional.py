"""Packages that only some uses need: imported when used, and named with their extra when missing."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from textpriv.errors import TextprivError

__all__ = ["installed", "needs"]


def installed(package: str) -> bool:
    """Whether an optional package is here; it is not imported."""
    return find_spec(package) is not None


def needs(module: str, extra: str = "pairwise") -> Any:
    """Import a module of an optional package.

    Parameters
    ----------
    module : str
        Full name, such as "sklearn.base".
    extra : str
        The extra of this distribution that brings it.

    Raises
    ------
    TextprivError
        If the package is not installed; says how to get it.
    """
    package = module.split(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != package:
            raise
        raise TextprivError(
            f"this needs {package}; install it with: pip install 'textpriv[{extra}]'."
        ) from error
