"""Private text: every released word is drawn by a mechanism with a proved metric-differential-privacy guarantee.

The public names stand in ``__init__.pyi``, where type checkers read them; each is loaded when it is first used (the pattern
of SPEC 1), so that importing the package stays fast.
"""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.1.0"

# From each public name to the module that it is taken from; None for a module of the package itself.
_SOURCE = {
    alias.name: node.module
    for node in ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}
__all__ = sorted({*_SOURCE, "__version__"})


def __getattr__(name: str) -> Any:
    if name not in _SOURCE:
        raise AttributeError(f"module 'textpriv' has no attribute {name!r}")
    source = _SOURCE[name]
    module = import_module(f"textpriv.{source or name}")
    value = globals()[name] = getattr(module, name) if source else module
    return value


def __dir__() -> list[str]:
    return list(__all__)
