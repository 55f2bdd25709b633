"""Packages that only some uses need: imported when used, and named with their extra when missing."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec
from typing import Any

from textpriv.errors import TextprivError

__all__ = ["how_to_install", "installed", "needs"]


def installed(package: str) -> bool:
    """Whether an optional package is here; it is not imported."""
    return find_spec(package) is not None


def how_to_install(extra: str) -> str:
    """The command that installs an extra: by its packages, since an index need not have this distribution."""
    try:
        listed = [each.split(";") for each in requires("textpriv") or () if ";" in each]
    except PackageNotFoundError:
        listed = []
    packages = [f"'{name.strip()}'" for name, when in listed if f'"{extra}"' in when]
    if not packages:
        return f"pip install 'textpriv[{extra}]'"
    return f"pip install {' '.join(packages)} (the extra 'textpriv[{extra}]')"


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
            f"this needs {package}; install it with: {how_to_install(extra)}."
        ) from error
