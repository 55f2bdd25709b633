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
from inspect import Parameter
from typing import Any, get_type_hints

import typer
from typer.core import TyperCommand

from textpriv import __version__
from textpriv.cli.answers import certify, choose, explain, report
from textpriv.cli.build import index
from textpriv.cli.messages import FAILED, exit_codes
from textpriv.cli.options import OptionGroup, flag
from textpriv.cli.privatize import decode, privatize
from textpriv.cli.start import demo, doctor, playground
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
    """A command that ends with the exit codes above, and refuses an option given twice.

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

    def invoke(self, ctx: Any) -> Any:
        # Of these two, 1 is a finding: a claim that does not hold, an installation that does not work.
        with exit_codes(2 if self.name in ("certify", "doctor") else FAILED):
            return super().invoke(ctx)


def _with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter that is a group by one option for each of its fields."""
    groups: dict[str, Any] = {}
    parameters: list[Parameter] = []
    for each in inspect.signature(command, eval_str=True).parameters.values():
        fields = {each.name: (each.default, each.annotation)}
        if inspect.isclass(each.annotation) and issubclass(each.annotation, OptionGroup):
            group = groups[each.name] = each.annotation
            fields = {
                name: (getattr(group, name), kind) for name, kind in get_type_hints(group).items()
            }
        for name, (default, kind) in fields.items():
            parameters.append(
                Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            )
    if any(getattr(each.default, "hidden", False) for each in parameters):
        every = flag("--help-all", "Show every option.", callback=_show_all, is_eager=True)
        parameters.append(
            Parameter("help_all", Parameter.KEYWORD_ONLY, default=every, annotation=bool)
        )

    @functools.wraps(command)
    def run(*, help_all: bool = False, **options: Any) -> None:
        for name, group in groups.items():
            options[name] = group(**{each: options.pop(each) for each in get_type_hints(group)})
        command(**options)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


for _command in (
    *(demo, index, choose, privatize, synthesize, explain, certify),
    *(report, playground, decode, doctor),
):
    app.command(cls=_Command)(_with_groups(_command))


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
