"""Private pairwise learning: metric learning and AUC maximisation under differential privacy.

The public names are in ``__init__.pyi``, where type checkers read them. Each is loaded when it is first used (the pattern of
SPEC 1), so that importing the package does not import scikit-learn. Of ``textpriv``, in the same distribution, only
statements, the random stream and the hints of errors are used.
"""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

from textpriv.errors import how_to_install

_MODULE_OF = {
    alias.name: f"{__name__}.{node.module}"
    for node in ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}
__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == __name__:
            raise
        raise ImportError(
            f"pairwise.{name} needs packages that are not installed: {how_to_install('pairwise')}.",
            name=error.name,
        ) from None
    return value


def __dir__() -> list[str]:
    return list(__all__)
