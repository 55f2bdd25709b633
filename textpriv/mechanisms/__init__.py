"""Mechanisms, one a file, and the registry by which pipelines and commands find them.

A registered function takes a mechanism's settings and returns a callable that makes the mechanism over an index. Other
distributions add theirs by the entry point group ``textpriv_mechanisms``. No mechanism is imported here, since every
spaCy pipeline of the environment imports this registry. The default is in ``mechanisms/default.py``.
"""

from __future__ import annotations

import re
from importlib.metadata import entry_points
from typing import Any

import catalogue

from textpriv.errors import MechanismError
from textpriv.mechanisms.default import default_name

__all__ = ["default_name", "find_mechanism", "make_mechanism", "mechanism_names", "registry"]
registry = catalogue.create("textpriv", "mechanisms", entry_points=True)


def __dir__() -> list[str]:
    return __all__


def mechanism_names() -> dict[str, str]:
    """Registered names of all mechanisms by their short names; nothing is imported.

    ``"mypackage.TreeTEM.v2"`` is called ``"tree"``: the class in words without TEM, in its newest version. A class of this
    library comes before others of its name.
    """
    own = {name[-1] for name in catalogue.REGISTRY if name[:-1] == registry.namespace}
    registered = own | {entry.name for entry in entry_points(group=registry.entry_point_namespace)}
    names: dict[str, str] = {}
    # The last one stays: this library's, and .v10 behind .v2.
    for name in sorted(registered, key=lambda each: (each.startswith("textpriv."), len(each))):
        kind = re.sub(r"\.v\d+$", "", name).rpartition(".")[2]
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", kind.removesuffix("TEM") or kind).lower()
        names[words] = name
    return dict(sorted(names.items(), key=lambda each: (each[0] != "tem", each[0])))


def find_mechanism(name: str) -> Any:
    """The function that is registered under a name, or under the name that a short one stands for."""
    short = mechanism_names()
    registered = short.get(name.removesuffix("-tem"), name)
    if registered not in registry:
        raise MechanismError(
            f"no mechanism is registered as {name!r}: the package that brings it must be installed here. Known are "
            f"{', '.join(short)}."
        )
    return registry.get(registered)


def make_mechanism(index: Any, mechanism: Any = None, **settings: Any) -> Any:
    """Make the mechanism of a name, or by a function of the index, over an index; by default that of the index."""
    if callable(mechanism):
        return mechanism(index, **settings)
    return find_mechanism(mechanism or default_name(index))(**settings)(index)


def protection(form: str, **given: Any) -> dict[str, Any]:
    """Return the one amount of protection that is given; refuse none and several."""
    amounts = {name: value for name, value in given.items() if value is not None}
    if not amounts:
        raise MechanismError(
            f"{form}: say how much protection you want, which has no default. A recovery of 0.1 means: an attacker who "
            "guesses word by word recovers at most 10 % of content words. Or give an epsilon, if you know which."
        )
    if len(amounts) > 1:
        raise MechanismError(f"{form} takes exactly one of {', '.join(given)}.")
    return amounts
