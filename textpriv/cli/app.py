"""The ``textpriv`` command: results on standard output, everything else on standard error.

Exit codes: 0 done, 1 the job failed, 2 wrong usage, 3 done with records left out, 130 interrupted. Commands import heavy
packages when they run, so ``--help`` answers at once.
"""

from __future__ import annotations

import copy
import functools
import gc
import inspect
import signal
from collections import Counter
from collections.abc import Callable
from typing import Any, get_type_hints

import typer
from typer.core import TyperCommand

from textpriv import __version__
from textpriv.cli.answers import certify, choose, explain
from textpriv.cli.build import index
from textpriv.cli.messages import as_job
from textpriv.cli.options import OptionGroup, flag
from textpriv.cli.pages import playground, report
from textpriv.cli.privatize import decode, privatize
from textpriv.cli.start import demo, doctor
from textpriv.cli.synthesize import synthesize

app = typer.Typer(
    help="Make text private: replace each word with a randomly drawn one, under a proven guarantee.\n\n"
    "Start with: textpriv demo",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    # A traceback with local variables would print private text.
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"textpriv {__version__}")
        raise typer.Exit


@app.callback()
def _textpriv(
    version: bool = flag("--version", "Print the version.", callback=_show_version, is_eager=True),
) -> None:
    pass


def _show_all(ctx: typer.Context, wanted: bool) -> None:
    if wanted:
        shown: Any = copy.copy(ctx.command)
        shown.params = [copy.copy(each) for each in shown.params]
        for each in shown.params:
            each.hidden = False
        typer.echo(shown.get_help(ctx))
        raise typer.Exit


class _Command(TyperCommand):
    """A command that refuses an option given twice.

    The parser takes the last of two values: of two text columns one would be released raw.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:  # completion parses half a line
            _, _, given = self.make_parser(ctx).parse_args(args=list(args))
            for option, times in Counter(given).items():
                if times > 1 and not (getattr(option, "multiple", False) or option.is_eager):
                    raise typer.BadParameter(
                        "given more than once: give it once", ctx, param_hint=option.opts[0]
                    )
        return super().parse_args(ctx, args)


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter that is a group by one option for each of its fields."""
    groups: dict[str, tuple[Any, list[str]]] = {}
    found: list[tuple[str, Any, Any]] = []
    for each in inspect.signature(command, eval_str=True).parameters.values():
        group = each.annotation
        if inspect.isclass(group) and issubclass(group, OptionGroup):
            hints = get_type_hints(group)
            groups[each.name] = group, [*hints]
            found += [(name, getattr(group, name), kind) for name, kind in hints.items()]
        else:
            found.append((each.name, each.default, each.annotation))
    if any(getattr(default, "hidden", False) for _, default, _ in found):
        every = flag("--help-all", "Show every option.", callback=_show_all, is_eager=True)
        found.append(("help_all", every, bool))
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, default, kind in found
    ]

    @functools.wraps(command)
    def run(*, help_all: bool = False, **options: Any) -> None:
        for group, (kind, names) in groups.items():
            options[group] = kind(**{name: options.pop(name) for name in names})
        command(**options)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


_COMMANDS = (
    *(demo, index, choose, privatize, synthesize, explain, certify),
    *(report, playground, decode, doctor),
)
for _command in _COMMANDS:
    # Of these, 1 is a finding: a claim that does not hold, an installation that does not work.
    _failed = 2 if _command in (certify, doctor) else 1
    app.command(cls=_Command)(as_job(with_groups(_command), _failed))


def main() -> None:
    """Run the command line."""

    def end(number: int, frame: object) -> None:
        # An exception, so that half-written files are removed.
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, end)
    try:
        app()
    finally:
        gc.freeze()  # the interpreter would look through all objects before it ends
