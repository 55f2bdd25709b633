"""How the modules of the package depend on each other."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import pairwise
import pairwise.errors

ROOT = Path(pairwise.__file__).resolve().parent
# Who may import whom: a unit may import what stands in later groups, and nothing of its own group or of earlier ones.
ORDER = (
    {"estimators"},
    {"algorithms"},
    {"retrieval"},
    {"pairs"},
    {"noise"},
    {"plan"},
    {"accounting"},
    {"statement"},
    {"errors"},
)


def files_of(name: str) -> list[Path]:
    module = ROOT / f"{name}.py"
    return [module] if module.exists() else sorted((ROOT / name).rglob("*.py"))


def imports_of(name: str) -> set[str]:
    """Units of the package that a unit imports, inside functions too."""
    found = set()
    for file in files_of(name):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                modules = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            else:
                continue
            found.update(m.split(".")[1] for m in modules if m.startswith("pairwise."))
    return found & set().union(*ORDER) - {name}


def test_every_module_and_folder_has_its_place_in_the_order():
    units = {path.stem for path in ROOT.glob("*.py")} | {
        path.parent.name for path in ROOT.glob("*/__init__.py")
    }
    assert units - {"__init__"} == set().union(*ORDER)


@pytest.mark.parametrize("level", range(len(ORDER)))
def test_a_unit_imports_only_what_stands_after_it(level):
    lower = set().union(*ORDER[level + 1 :])
    for name in ORDER[level]:
        assert imports_of(name) <= lower, name


def modules_inside(folder: str) -> dict[str, set[str]]:
    """What each module of a folder imports of the same folder."""
    found = {}
    for file in (ROOT / folder).rglob("*.py"):
        if file.stem == "__init__":
            continue
        name = ".".join(file.relative_to(ROOT.parent).with_suffix("").parts)
        text = file.read_text(encoding="utf-8")
        nodes = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.ImportFrom) and n.module]
        found[name] = {n.module for n in nodes if n.module.startswith(f"pairwise.{folder}.")}
    return found


@pytest.mark.parametrize("folder", sorted(path.parent.name for path in ROOT.glob("*/__init__.py")))
def test_arrows_inside_a_folder_run_one_way(folder):
    # Raises CycleError, which names the circle.
    list(TopologicalSorter(modules_inside(folder)).static_order())


def test_every_module_says_what_lives_there():
    for path in ROOT.rglob("*.py"):
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        assert text, path.name
        if path.stem != "__init__":
            assert len(text.split()) > 15, path.name


def test_without_its_extra_the_package_says_which_to_install():
    program = "import sys; sys.modules['sklearn'] = None; from pairwise import PrivateLDA"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT.parent,
    )
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: pairwise.PrivateLDA needs the package sklearn")
    assert "'textpriv[pairwise]'" in last
    with pytest.raises(AttributeError, match="no attribute 'PrivateNothing'"):
        getattr(pairwise, "PrivateNothing")  # noqa: B009


@pytest.mark.parametrize("name", pairwise.errors.__all__)
def test_every_error_ends_in_error_and_is_found_under_its_name_of_before(name):
    error = getattr(pairwise.errors, name)
    assert name.endswith("Error")
    assert issubclass(error, pairwise.PairwiseError)
    old = getattr(pairwise.errors, name.removesuffix("Error"), error)
    assert old is error
