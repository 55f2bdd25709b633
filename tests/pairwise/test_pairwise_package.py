"""How the modules of the package depend on each other."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import pairwise

ROOT = Path(pairwise.__file__).resolve().parent
MODULES = {path.stem: path for path in ROOT.glob("*.py") if path.stem != "__init__"}
# What draws, adds up or bounds knows nothing of the learners; these are what a learner may not be known by.
FACES = {
    "auc",
    "metric",
    "dpp",
    "streaming",
    "perturbation",
    "estimator",
    "mahalanobis",
    "mail",
    "retrieval",
    "service",
}
FOUNDATIONS = (
    "errors",
    "statement",
    "clipping",
    "domains",
    "losses",
    "noise",
    "accounting",
    "graph",
    "gradient",
    "giga",
    "sgd",
)


def imports_of(name: str) -> set[str]:
    """Modules of the package that a module imports, inside functions too, but not for type checking alone."""
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
    typed = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node not in typed:
            module = node.module or ""
            if module == "pairwise":
                found.update(alias.name for alias in node.names)
            elif module.startswith("pairwise."):
                found.add(module.split(".")[1])
    return found & set(MODULES)


def test_arrows_between_modules_run_one_way():
    # Raises CycleError, which names the circle.
    order = list(TopologicalSorter({name: imports_of(name) for name in MODULES}).static_order())
    assert set(order) == set(MODULES)


@pytest.mark.parametrize("name", FOUNDATIONS)
def test_foundations_know_no_learner(name):
    assert not imports_of(name) & FACES


def test_every_module_says_what_lives_there():
    for path in ROOT.glob("*.py"):
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        assert text, path.name
        assert len(text.split()) > 15, path.name


# For each module of retrieval all that it may import of the package.
RETRIEVAL = {
    "retrieval": {"errors"},
    "smlq": {"errors"},
    "service": {"errors"},
    "subset": {"accounting", "errors", "noise", "retrieval", "statement"},
    "mail_published": {"errors", "noise", "retrieval", "smlq"},
    "private_projection": {
        "accounting",
        "clipping",
        "errors",
        "estimator",
        "noise",
        "statement",
    },
}


@pytest.mark.parametrize("name", sorted(RETRIEVAL))
def test_modules_of_retrieval_import_only_what_lies_below_them(name):
    assert imports_of(name) <= RETRIEVAL[name]
