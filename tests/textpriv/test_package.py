"""The package loads fast, shows what it promises, and its modules know only what lies below them."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import pairwise
import textpriv
import textpriv.evaluation
from textpriv import mechanisms

ROOT = Path(textpriv.__file__).resolve().parent
HEAVY = ("spacy", "gensim", "numba", "torch", "pyarrow", "scipy", "rich", "typer", "hnswlib")

# Who may import whom: a unit may import what stands in later groups, and nothing of its own group or of earlier ones.
ORDER = (
    {"__main__"},
    {"cli"},
    {"web", "corpus"},
    {"engines", "pipeline"},
    {"settings"},
    {"guarantees"},
    {"evaluation", "synthesis"},
    {"privatizer"},
    {"spans"},
    {"ledger"},
    {"tokenization"},
    {"mechanisms"},
    {"index"},
    {"language"},
    {"vocabulary"},
    {"statement", "randomness", "run_key"},
    {"files"},
    {"errors"},
)


def imported(file: Path) -> set[str]:
    """Full names of the modules that a file imports anywhere, also inside functions and for type checking."""
    package = file.resolve().relative_to(ROOT.parent).with_suffix("").parts
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            found.add(module)
            found.update(f"{module}.{alias.name}" for alias in node.names)
    return found


def files_of(name: str) -> list[Path]:
    module = ROOT / f"{name}.py"
    return [module] if module.exists() else sorted((ROOT / name).rglob("*.py"))


def of_textpriv(name: str) -> set[str]:
    """First parts, below the package, of what a module or folder of it imports."""
    modules = {path.stem if path.is_file() else path.name for path in ROOT.iterdir()}
    names = {module for file in files_of(name) for module in imported(file)}
    parts = {module.split(".")[1] for module in names if module.startswith("textpriv.")}
    return (parts & modules) - {name}


def outside(*roots: Path) -> set[str]:
    return {
        module.split(".")[0]
        for root in roots
        for file in ([root] if root.is_file() else root.rglob("*.py"))
        for module in imported(file)
    }


def test_import_loads_no_heavy_package():
    code = "import sys, json, textpriv; print(json.dumps(sorted(sys.modules)))"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True
    )
    assert not set(json.loads(answer.stdout)) & set(HEAVY)


def test_the_first_private_text_waits_for_no_package_that_it_does_not_use():
    code = (
        "import sys, json, spacy, numba; before = set(sys.modules)\n"
        "import textpriv; textpriv.privatize('a text', epsilon=3.4)\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True
    )
    loaded = {".".join(name.split(".")[:2]) for name in json.loads(answer.stdout)}
    # numba itself loads scipy.linalg, and with an older scipy also scipy.sparse, to open what it compiled before.
    parts_of_scipy = {"scipy.optimize", "scipy.stats"}
    # Nor for what other packages have registered with spaCy, as Presidio's analyzer has.
    others = {"pandas", "sklearn", "dp_accounting", "networkx", "presidio_analyzer"}
    assert not {name.split(".")[0] for name in loaded} & others
    assert not loaded & {*HEAVY, *parts_of_scipy} - {"scipy"}


@pytest.mark.alone
def test_import_takes_less_than_one_and_a_half_times_that_of_spacy():
    def seconds(name):
        code = (
            f"import time; t = time.perf_counter(); import {name}; print(time.perf_counter() - t)"
        )
        run = [sys.executable, "-c", code]
        return float(subprocess.run(run, capture_output=True, check=True, text=True).stdout)

    # What disturbs one comparison does not disturb three.
    assert any(seconds("textpriv") < 1.5 * seconds("spacy") for _ in range(3))


def test_evaluation_loads_no_learning_library_until_it_is_used():
    code = "import sys, json, textpriv.evaluation; print(json.dumps(sorted(sys.modules)))"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True
    )
    assert not set(json.loads(answer.stdout)) & {"torch", "sklearn", "transformers"}


@pytest.mark.parametrize("name", textpriv.__all__)
def test_every_public_name_resolves(name):
    assert getattr(textpriv, name) is not None


def test_dir_lists_the_public_names():
    for module in (textpriv, textpriv.evaluation, mechanisms, pairwise):
        assert dir(module) == sorted(module.__all__)


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        textpriv.Nonsense  # noqa: B018


def test_every_module_and_folder_has_its_place_in_the_order():
    units = {path.stem for path in ROOT.glob("*.py")} | {
        path.parent.name for path in ROOT.glob("*/__init__.py")
    }
    assert units - {"__init__"} == set().union(*ORDER)


@pytest.mark.parametrize("level", range(len(ORDER)))
def test_a_unit_imports_only_what_stands_after_it(level):
    lower = set().union(*ORDER[level + 1 :])
    for name in ORDER[level]:
        assert of_textpriv(name) <= lower, name


def test_mechanisms_and_what_lies_below_know_no_text_library():
    lower = [ROOT / "index", ROOT / "randomness.py"]
    assert not outside(ROOT / "mechanisms", *lower) & {"spacy", "gensim", "pyarrow"}


def test_pairwise_knows_statements_randomness_errors_and_ledger():
    modules = set().union(*map(imported, (ROOT.parent / "pairwise").rglob("*.py")))
    known = {".".join(name.split(".")[:2]) for name in modules if name.startswith("textpriv")}
    assert known == {f"textpriv.{name}" for name in ("statement", "randomness", "errors", "ledger")}


def test_only_synthesis_knows_pairwise_and_of_it_noise_and_accounting():
    rest = [path for path in ROOT.iterdir() if path.suffix == ".py" or path.is_dir()]
    assert "pairwise" not in outside(*(path for path in rest if path.name != "synthesis"))
    modules = set().union(*map(imported, files_of("synthesis")))
    used = {module.split(".")[1] for module in modules if module.startswith("pairwise.")}
    assert used == {"accounting", "noise"}


def test_synthesis_needs_no_learning_or_accounting_library():
    code = (
        "import sys, json\n"
        "import textpriv; textpriv.TextSynthesizer(1.0).fit(['a text', 'one more'])\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True
    )
    assert not set(json.loads(answer.stdout)) & {"sklearn", "dp_accounting", "pandas"}
