"""``textpriv doctor``: try whether this installation works, and say which extras are installed."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import typer

from textpriv.cli.messages import print_json, print_table
from textpriv.cli.options import Json

_EXTRAS = {
    "hnswlib": ("hnsw", "Madlib's default search"),
    "phonenumbers": ("spans", "--detect patterns"),
    "presidio_analyzer": ("presidio", "--detect presidio: names"),
    "starlette": ("playground", "textpriv playground"),
    "pyspark": ("spark", "--engine spark"),
    "ray": ("ray", "--engine ray"),
    "fsspec": ("stores", "object stores"),
    "sklearn": ("pairwise", "the package pairwise"),
}


def _packages() -> str:
    """Compare installed packages with what this one requires."""
    from packaging.requirements import Requirement

    for line in metadata.requires("textpriv") or []:
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            version = metadata.version(requirement.name)
            if not requirement.specifier.contains(version, prereleases=True):
                raise RuntimeError(f"{requirement.name} {version} is not {requirement.specifier}")
    return f"textpriv {metadata.version('textpriv')} on Python {sys.version.split()[0]}"


def _spacy() -> str:
    """Look for this package's entry points, and for trained pipelines."""
    import spacy.util

    factories = {point.name for point in metadata.entry_points(group="spacy_factories")}
    if "textpriv" not in factories:
        raise RuntimeError("spaCy does not see this package's entry points")
    pipelines = ", ".join(sorted(spacy.util.get_installed_models()))
    return f"{spacy.__version__}; trained pipelines: {pipelines or 'none (none is needed)'}"


def _mechanism() -> str:
    """Index, draw and certify six words."""
    import numpy as np

    from textpriv.guarantees.certificate import certify
    from textpriv.index.index import Index
    from textpriv.mechanisms.tem import TEM
    from textpriv.privatizer import Privatizer
    from textpriv.vocabulary.vocabulary import Vocabulary

    words = ["good", "bad", "fine", "film", "book", "song"]
    vectors = np.random.default_rng(0).normal(size=(6, 4))
    mechanism = TEM(Index.build(Vocabulary(words, vectors)), epsilon=2.0)
    if not set(Privatizer(mechanism).privatize("good bad film").split()) <= set(words):
        raise RuntimeError("an output is not in the vocabulary")
    if not certify(mechanism).holds:
        raise RuntimeError("the certificate of a small mechanism does not hold")
    return "six words indexed, drawn and certified"


def _folders() -> str:
    """Look whether compiled code and indexes can be kept."""
    from textpriv.files import cache_folder

    compiled = Path(os.environ.get("NUMBA_CACHE_DIR") or Path(__file__).parents[1])
    kept = cache_folder()
    kept.mkdir(parents=True, exist_ok=True)
    for folder, name in ((compiled, "NUMBA_CACHE_DIR"), (kept, "TEXTPRIV_CACHE_DIR")):
        if not os.access(folder, os.W_OK):
            return f"warning: {folder} cannot be written, so each start is slow. Set {name}"
    return f"{kept}, {shutil.disk_usage(kept).free / 2**30:.0f} GiB free"


_REQUIRED: dict[str, Callable[[], str]] = {
    "packages": _packages,
    "spaCy": _spacy,
    "mechanism": _mechanism,
    "folders": _folders,
}


def doctor(as_json: Json = False) -> None:
    """Check this installation, and list the extras that are installed.

    Ends with 1 if something required does not work.

    [bold]Example:[/bold] textpriv doctor
    """
    from textpriv.errors import how_to_install

    rows, broken = [], False
    for name, look in _REQUIRED.items():
        try:
            rows.append((name, "ok", look()))
        except Exception as error:  # whatever is broken in another package is a finding
            broken = True
            rows.append((name, "BROKEN", f"{type(error).__name__}: {error}. Install again."))
    for package, (extra, use) in _EXTRAS.items():
        found = find_spec(package) is not None
        missing = "" if found else f". {how_to_install(extra)}"
        rows.append((extra, "installed" if found else "absent", f"for {use}{missing}"))
    if as_json:
        checks = [dict(zip(("name", "status", "found"), row, strict=True)) for row in rows]
        print_json({"sound": not broken, "checks": checks})
    else:
        print_table([("check", "result", "found"), *rows])
    if broken:
        raise typer.Exit(1)
