"""Hook of mkdocs: reference pages get what the packages say of themselves, at the marks ``<!-- generated: NAME -->``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from typer.main import get_command

import textpriv
from textpriv.cli.app import app

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
_WITH_INHERITED = ("Index", "PrivateAUCClassifier", "PrivateMetricLearner", "DPPMetricLearner")
_MARK = re.compile(r"^<!-- generated: (\w+) -->$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return a page with its marks replaced."""
    return _MARK.sub(lambda mark: "\n".join(_PARTS[mark[1]](mark[1])), markdown)


def public_names(package: str) -> list[str]:
    """Return the names that a package exports, in the order of the alphabet."""
    stub = (ROOT / package / "__init__.pyi").read_text(encoding="utf-8")
    return sorted(re.findall(r"^from .*import \w+ as (\w+)$", stub, re.MULTILINE), key=str.lower)


def _names(package: str) -> Iterator[str]:
    for name in public_names(package):
        own = "\n    options:\n      inherited_members: true" if name in _WITH_INHERITED else ""
        yield f"::: {package}.{name}{own}"


def _commands(_: str) -> Iterator[str]:
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        said, _, example = command.help.partition("**Example:** ")
        yield f"## textpriv {name}\n\n{_cell(said, ' ')}\n\n```text\n{example.strip()}\n```\n"
        yield "| option | what it is |\n|---|---|"
        for each in command.params:
            if each.name not in ("help", "help_all"):
                yield f"| `{_written(each)}` | {_cell(each.help or '', '<br>')}{_values(each)} |"
        yield ""


def _written(option: Any) -> str:
    """How an option or argument is written on the command line."""
    names = [] if option.opts[0] == option.name else [", ".join(option.opts)]
    number = {int: "N", float: "X"}.get(_kind(option), "")
    return " ".join([*names, option.metavar or number]).strip()


def _kind(option: Any) -> Any:
    """The type of an option's value; None with a typer that does not say."""
    return getattr(getattr(option, "type_descriptor", None), "annotation", None)


def _values(option: Any) -> str:
    """The values that an option may have, if they are few, and its default."""
    choices = get_args(_kind(option))
    few = [each for each in choices if isinstance(each, str)]
    said = f" One of {', '.join(few)}." if few else ""
    default = option.default if isinstance(option.default, int | float | str) else None
    return said if default in (None, False, "") else f"{said} Default: {default}."


def _cell(text: str, between: str) -> str:
    return text.replace("|", "\\|").replace("\n\n", between).replace("\n", " ").strip()


def _extras(_: str) -> Iterator[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    yield "| extra | installs |\n|---|---|"
    for name, packages in project["optional-dependencies"].items():
        yield f"| `{name}` | {', '.join(re.split(r'[<>=; ]', each)[0] for each in packages)} |"


def _changelog(_: str) -> Iterator[str]:
    yield (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").partition("\n")[2]


def _statement(_: str) -> Iterator[str]:
    index = textpriv.Index.builtin("en")
    mechanism = textpriv.TEM(index, textpriv.epsilon_for(index, recovery=0.1))
    yield "| | |\n|---|---|"
    for heading, lines in textpriv.Privatizer(mechanism).statement.table:
        yield f"| {heading} | {_cell('<br>'.join(lines), '')} |"


_PARTS = {
    "textpriv": _names,
    "pairwise": _names,
    "commands": _commands,
    "extras": _extras,
    "changelog": _changelog,
    "statement": _statement,
}
