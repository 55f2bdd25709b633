"""Hook of mkdocs: what the packages say of themselves, at marks ``<!-- generated: NAME -->`` and on pages of names."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from inspect import isclass, isroutine
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType
from typing import Any, get_args

from mkdocs.structure.files import File, Files
from typer.main import get_command

import textpriv
from textpriv.cli.app import app

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
_WITH_INHERITED = ("Index", "PrivateAUCClassifier", "PrivateMetricLearner", "DPPMetricLearner")
_COMMANDS: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
_MARK = re.compile(r"^<!-- generated: (\w+)(.*?) -->$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(?<!<pre>)<code>[^<]*--[^<]*</code>")
_OPTION = re.compile(r"--[^\s<]+")
_ROLE = re.compile(r":(?:func|meth|class|attr|mod):(?=\s*<)")


def on_files(files: Files, config: Any) -> Files:
    """Add a page for each name of the tables."""
    for page in sorted((ROOT / "docs/reference").glob("*.md")):
        for kind, names in _MARK.findall(page.read_text(encoding="utf-8")):
            for name in names.split() if kind == "names" else ():
                text = "\n".join(_page(name, page.name))
                files.append(File.generated(config, f"reference/{name}.md", content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return a page with its marks replaced."""
    return _MARK.sub(lambda mark: "\n".join(_PARTS[mark[1]](mark[2])), markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Return a page without the roles of docstrings, and with options in text that are not broken after their dashes."""
    html = _ROLE.sub("", html)
    return _CODE.sub(lambda code: _OPTION.sub(r'<span class="whole">\g<0></span>', code[0]), html)


def _page(name: str, table: str) -> Iterator[str]:
    """The page of a name, which leads back to the table."""
    yield f"---\ntitle: {name}\n---\n\n[Reference: {table[:-3]}]({table})\n"
    yield f"::: {name}\n    options:\n      heading_level: 1\n      summary: true"
    if name.rpartition(".")[2] in _WITH_INHERITED:
        yield "      inherited_members: true"


def _names(names: str) -> Iterator[str]:
    """A table of names, each with the first line of its docstring."""
    yield "| name | what it is |\n|---|---|"
    for name in names.split():
        found = resolve_name(name)
        said = _cell(re.sub(r":\w+:", "", (found.__doc__ or "").partition("\n")[0]), " ")
        said = said.replace("``", "`")
        if isinstance(found, ModuleType):
            own = {each: getattr(found, each) for each in found.__all__}
            members = [each for each in own if isclass(own[each]) or isroutine(own[each])]
            said += f" {', '.join(f'[`{each}`][{name}.{each}]' for each in members)}"
        yield f"| [`{name.partition('.')[2]}`]({name}.md) | {said} |"


def _index(names: str) -> Iterator[str]:
    """A table of commands, each with the first sentence of its help."""
    yield "| command | does |\n|---|---|"
    for name in names.split():
        said = _COMMANDS[name].help.partition("\n\n")[0]
        yield f"| [`textpriv {name}`](#textpriv-{name}) | {_cell(said, ' ')} |"


def _commands(_: str) -> Iterator[str]:
    for name, command in _COMMANDS.items():
        said, _, example = command.help.partition("**Example:** ")
        yield f"## textpriv {name}\n\n{_cell(said, ' ')}\n\n```text\n{example.strip()}\n```\n"
        yield "| option | what it is |\n|---|---|"
        for each in command.params:
            if each.name not in ("help", "help_all"):
                rare = " *Rare.*" if getattr(each, "hidden", False) else ""
                yield f"| `{_written(each)}` | {_cell(each.help or '', '<br>')}{_values(each)}{rare} |"
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
    "names": _names,
    "index": _index,
    "commands": _commands,
    "extras": _extras,
    "changelog": _changelog,
    "statement": _statement,
}
