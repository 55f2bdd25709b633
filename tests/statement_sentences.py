"""Every sentence that a statement can print, read from the source of both packages.

A statement's sentences stand in the source as text: as arguments of the calls that make or extend a statement, in the
constants and functions that those arguments name, and in ``paragraph``. They are gathered from there, so that a new one is
found without being drawn, fitted or released first. What is computed stands as {} in a sentence.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import textpriv

ROOT = Path(textpriv.__file__).resolve().parents[1]
FIELDS = ("assumptions", "not_protected", "notes", "further", "public", "unit")
# Arguments of the same names there belong to figures of attacks and to certificates.
OTHERS = ("textpriv/evaluation", "textpriv/guarantees/certificate.py")
REFERENCE = re.compile(
    r"mechanisms\.md |\d"
)  # a proof by its section is a reference and no sentence
# Functions whose whole text is a statement's: what paragraph() prints, and the ledger's own sentence.
WHOLE = {
    "textpriv/statement.py": ("paragraph", "typical_odds", "document_line"),
    "pairwise/statement.py": ("paragraph",),
    "textpriv/tokenization/policy.py": ("not_protected", "notes"),
    "textpriv/pipeline/annotations.py": ("not_protected",),
    "textpriv/ledger/ledger.py": ("statement",),
    "pairwise/noise/randomness.py": ("note",),
}


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def template(node: ast.expr) -> str | None:
    """The text of a string, with {} for what is computed; None for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.sub(r"\{\w+\}", "{}", node.value)  # filled in by str.format
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = template(node.left), template(node.right)
        return None if left is None or right is None else left + right
    return None


class Module:
    """Where names of a module lead."""

    def __init__(self, file: Path) -> None:
        self.file, self.tree = file, parsed(file)
        self.named: dict[str, list[ast.AST]] = {}
        self.imported: dict[str, Path] = {}
        for node in ast.walk(self.tree):
            targets: list[ast.expr] = []
            if isinstance(node, ast.Assign):
                targets = node.targets
            elif isinstance(node, ast.AnnAssign | ast.AugAssign):
                targets = [node.target]
            for target in [
                *targets,
                *(each for pair in targets if isinstance(pair, ast.Tuple) for each in pair.elts),
            ]:
                if isinstance(target, ast.Name) and node.value is not None:
                    self.named.setdefault(target.id, []).append(node.value)
            if isinstance(node, ast.FunctionDef):
                self.named.setdefault(node.name, []).append(node)
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "append"
                and isinstance(node.func.value, ast.Name)
            ):
                self.named.setdefault(node.func.value.id, []).extend(node.args)
            if isinstance(node, ast.ImportFrom) and node.module:
                folder = ROOT / Path(*node.module.split("."))
                source = folder.with_suffix(".py")
                if source.is_file() and source.name != "bounds.py":  # numbers, no sentences
                    self.imported.update({alias.name: source for alias in node.names})
                elif file.parent != folder and (folder / "__init__.py").is_file():
                    passed_on = module_of(folder / "__init__.py").imported
                    names = [alias.name for alias in node.names if alias.name in passed_on]
                    self.imported.update({name: passed_on[name] for name in names})

    def texts(self, node: ast.AST, seen: set[tuple[Path, str]]) -> Iterator[str]:
        """Sentences in a node and in what it names."""
        if isinstance(node, ast.FunctionDef):
            for child in node.body[1 if ast.get_docstring(node) else 0 :]:
                yield from self.texts(child, seen)
            return
        if isinstance(node, ast.Raise | ast.Compare):
            return
        if isinstance(node, ast.Subscript):
            yield from self.texts(node.value, seen)
            return
        found = template(node) if isinstance(node, ast.expr) else None
        if found is not None:
            yield found
            return
        name = (
            node.id
            if isinstance(node, ast.Name)
            else node.attr
            if isinstance(node, ast.Attribute)
            else None
        )
        if name is not None:
            if (self.file, name) not in seen:
                seen.add((self.file, name))
                if name in self.imported and isinstance(node, ast.Name):
                    yield from module_of(self.imported[name]).texts(node, seen)
                for value in self.named.get(name, ()):
                    yield from self.texts(value, seen)
            if isinstance(node, ast.Attribute):
                yield from self.texts(node.value, seen)
            return
        if isinstance(node, ast.Call):
            lists: list[ast.AST] = [each.value for each in node.keywords if each.arg in FIELDS]
            if lists:  # a statement or what becomes one: its title and its proof are no sentences
                for child in lists:
                    yield from self.texts(child, seen)
                return
        for child in ast.iter_child_nodes(node):
            yield from self.texts(child, seen)


@cache
def module_of(file: Path) -> Module:
    return Module(file)


def sentences(package: str) -> dict[str, set[str]]:
    """Each sentence of a package's statements, and the files it stands in."""
    found: dict[str, set[str]] = {}
    for file in sorted((ROOT / package).rglob("*.py")):
        where = str(file.relative_to(ROOT))
        source = file.read_text(encoding="utf-8")
        if where.startswith(OTHERS) or not (
            where in WHOLE or any(word in source for word in (*FIELDS[:3], "_stated("))
        ):
            continue
        module = module_of(file)
        nodes: list[ast.AST] = []
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call):
                nodes += [each.value for each in node.keywords if each.arg in FIELDS]
                if name_of(node) == "_stated":
                    nodes += node.args[2:]
            if isinstance(node, ast.FunctionDef) and node.name in WHOLE.get(where, ()):
                nodes.append(node)
        for node in nodes:
            for text in module.texts(node, set()):
                if REFERENCE.match(text):
                    continue
                if text.startswith(("SELECT ", "INSERT ", "UPDATE ")):
                    continue
                if len(text.split()) > 2 and "\n" not in text:
                    found.setdefault(text, set()).add(where)
    return found


def name_of(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


if __name__ == "__main__":
    for package in ("textpriv", "pairwise"):
        for text, files in sorted(sentences(package).items()):
            print(package, sorted(files), repr(text))
