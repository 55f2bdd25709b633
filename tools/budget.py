"""Print the size of the project beside its budget; exit with 1 where a budget is exceeded.

Run it with ``python tools/budget.py``. Lines of single folders are a guide: what counts is their sum.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]

FOLDERS = {  # about so many lines of each folder of textpriv
    "vocabulary": 930,
    "index": 1_570,
    "mechanisms": 2_110,
    "language": 575,
    "tokenization": 585,
    "spans": 2_430,
    "pipeline": 970,
    "corpus": 2_875,
    "engines": 1_000,
    "ledger": 680,
    "guarantees": 1_570,
    "evaluation": 1_610,
    "web": 840,
    "cli": 1_910,
}
CENTRAL = ("settings", "privatizer", "statement", "randomness", "run_key", "errors")


class Row(NamedTuple):
    """One line of the table: something that is counted, how much of it there is, and the most there may be."""

    name: str
    found: int
    most: int
    where: str = ""

    @property
    def is_exceeded(self) -> bool:
        """Whether there is too much; folders are indented and only a guide."""
        return self.found > self.most and not self.name.startswith(" ")


def lines_of(*folders: str, pattern: str = "*.py") -> int:
    """Count all lines of the files below some folders."""
    return sum(
        len(path.read_text(encoding="utf-8").splitlines())
        for folder in folders
        for path in (ROOT / folder).rglob(pattern)
    )


def words_of(*pages: Path) -> int:
    """Count the words of Markdown pages."""
    return sum(len(page.read_text(encoding="utf-8").split()) for page in pages)


def modules() -> list[Path]:
    """List the modules of both packages that hold more than a docstring."""
    files = [path for name in ("textpriv", "pairwise") for path in (ROOT / name).rglob("*.py")]
    return [path for path in files if len(path.read_text(encoding="utf-8").splitlines()) > 1]


def definitions() -> Iterator[tuple[str, ast.AST]]:
    """Yield every class and function of both packages, with its place."""
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{path.relative_to(ROOT)}:{node.name}", node


def body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count the lines of a function without decorators and docstring."""
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    if ast.get_docstring(node, clean=False) is not None:
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count the parameters of a function, without ``self`` and ``cls``."""
    given = [each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return len([name for name in given if name not in ("self", "cls")])


def public_names(package: str) -> int:
    """Count the names that a package exports."""
    stub = (ROOT / package / "__init__.pyi").read_text(encoding="utf-8")
    return len(re.findall(r"^from .* import \w+ as \w+$", stub, re.MULTILINE))


def commands() -> int:
    """Count the commands of ``textpriv``."""
    from typer.main import get_command

    from textpriv.cli.app import app

    return len(get_command(app).commands)  # type: ignore[attr-defined]


def largest(kind: str) -> Row:
    """Find the longest module, function or class, or the function with most parameters."""
    if kind == "module":
        sizes = [(lines_of_file(path), str(path.relative_to(ROOT))) for path in modules()]
        return Row("lines of a module", *_most(sizes, 500))
    sizes = []
    for place, node in definitions():
        if isinstance(node, ast.ClassDef):
            if kind == "class":
                sizes.append(((node.end_lineno or 0) - node.lineno + 1, place))
        elif kind == "function":
            sizes.append((body_lines(node), place))  # type: ignore[arg-type]
        elif kind == "parameters" and is_public(node):
            sizes.append((parameters(node), place))  # type: ignore[arg-type]
    names = {
        "function": ("lines of a function", 60),
        "class": ("lines of a class", 300),
        "parameters": ("parameters of a public function", 8),
    }
    name, most = names[kind]
    return Row(name, *_most(sizes, most))


def is_public(node: ast.AST) -> bool:
    """Whether a function is a constructor, or public and not compiled."""
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    compiled = any("njit" in ast.unparse(each) for each in node.decorator_list)
    return not compiled and (node.name == "__init__" or not node.name.startswith("_"))


def lines_of_file(path: Path) -> int:
    """Count the lines of one file."""
    return len(path.read_text(encoding="utf-8").splitlines())


def _most(sizes: list[tuple[int, str]], most: int) -> tuple[int, int, str]:
    over = sorted((size for size in sizes if size[0] > most), reverse=True)
    found, where = max(sizes)
    return found, most, ", ".join(f"{place} ({size})" for size, place in over) or where


def rows() -> list[Row]:
    """Measure everything that has a budget."""
    docs = [page for page in (ROOT / "docs").rglob("*.md") if page.name != "mechanisms.md"]
    own = [ROOT / "textpriv" / f"{name}.py" for name in CENTRAL]
    return [
        Row("textpriv, lines", lines_of("textpriv") - lines_of("textpriv/synthesis"), 21_100),
        *(Row(f"  {name}/", lines_of(f"textpriv/{name}"), most) for name, most in FOLDERS.items()),
        Row("textpriv/synthesis, lines", lines_of("textpriv/synthesis"), 1_800),
        Row("  settings.py to errors.py", sum(map(lines_of_file, own)), 1_370),
        Row("pairwise, lines", lines_of("pairwise"), 7_060),
        Row("modules", len(modules()), 161),
        *map(largest, ("module", "function", "class", "parameters")),
        Row("tests, lines", lines_of("tests"), 26_700),
        Row("recipes, lines", lines_of("recipes"), 5_000),
        Row("documentation, words", words_of(*docs), 30_000),
        Row("README, lines", lines_of_file(ROOT / "README.md"), 150),
        Row("commands of textpriv", commands(), 11),
        Row("public names of textpriv", public_names("textpriv"), 24),
        Row("public names of pairwise", public_names("pairwise"), 22),
    ]


def main() -> int:
    """Print the table; return 1 where a budget is exceeded."""
    table = rows()
    for row in table:
        over = "  over" if row.found > row.most else ""
        print(f"{row.name:<32} {row.found:>7,} of {row.most:>7,}{over}  {row.where}".rstrip())
    return int(any(row.is_exceeded for row in table))


if __name__ == "__main__":
    sys.exit(main())
