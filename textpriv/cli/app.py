"""The ``textpriv`` command: results on standard output, everything else on standard error.

Exit codes: 0 done, 1 the job failed, 2 wrong usage, 3 done with records left out, 130 interrupted. Commands import heavy
packages when they run, so ``--help`` answers at once.
"""

from __future__ import annotations

import functools
import inspect
from collections import Counter
from collections.abc import Callable
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand

from textpriv.cli.build import index
from textpriv.cli.choose import choose
from textpriv.cli.decode import decode
from textpriv.cli.demo import demo
from textpriv.cli.doctor import doctor
from textpriv.cli.inspect import certify, explain
from textpriv.cli.messages import as_job
from textpriv.cli.options import Options
from textpriv.cli.pages import playground, report
from textpriv.cli.privatize import privatize

app = typer.Typer(
    help="Make text private, with a proved metric-differential-privacy guarantee.\n\n"
    "Start with: textpriv demo",
    no_args_is_help=True,
    rich_markup_mode="rich",
    # A traceback with local variables would print private text.
    pretty_exceptions_enable=False,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"textpriv {version('textpriv')}")
        raise typer.Exit


@app.callback()
def _textpriv(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    pass


def _show_all(ctx: typer.Context, wanted: bool) -> None:
    """Print the help with every option."""
    if not wanted:
        return
    hidden = [each for each in ctx.command.params if getattr(each, "hidden", False)]
    for each in hidden:
        each.hidden = False  # type: ignore[attr-defined]
    typer.echo(ctx.get_help())
    for each in hidden:
        each.hidden = True  # type: ignore[attr-defined]
    raise typer.Exit


_HelpAll = Annotated[
    bool,
    typer.Option(
        "--help-all", callback=_show_all, is_eager=True, help="Show every option and exit."
    ),
]


class Command(TyperCommand):
    """A command that refuses an option given twice.

    The parser takes the last of two values: of two text columns one would be released raw.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # The help is as wide as the terminal, not as the source.
        paragraphs = (self.help or "").split("\n\n")
        self.help = "\n\n".join(" ".join(each.split("\n")) for each in paragraphs)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse an option given twice, then parse."""
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
    groups: dict[str, list[str]] = {}
    kinds: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    for each in inspect.signature(command, eval_str=True).parameters.values():
        if not (inspect.isclass(each.annotation) and issubclass(each.annotation, Options)):
            parameters.append(each.replace(kind=each.KEYWORD_ONLY))
            continue
        hints = get_type_hints(each.annotation, include_extras=True)
        groups[each.name], kinds[each.name] = [*hints], each.annotation
        for name, kind in hints.items():
            default = getattr(each.annotation, name)
            one = inspect.Parameter(name, each.KEYWORD_ONLY, default=default, annotation=kind)
            parameters.append(one)

    if any(getattr(each.default, "hidden", False) for each in parameters):
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters.append(inspect.Parameter("help_all", kind, default=False, annotation=_HelpAll))

    @functools.wraps(command)
    def run(*, help_all: bool = False, **options: Any) -> None:
        for group, names in groups.items():
            options[group] = kinds[group](**{name: options.pop(name) for name in names})
        command(**options)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


_BUILDING = (demo, index, choose, privatize)
_LOOKING = (explain, certify, report, playground, decode, doctor)
for _command in (*_BUILDING, *_LOOKING):
    # Of these, 1 is a finding: a claim that does not hold, an installation that does not work.
    _failed = 2 if _command in (certify, doctor) else 1
    app.command(cls=Command)(as_job(with_groups(_command), failed=_failed))


def main() -> None:
    """Run the command line."""
    import gc
    import signal

    def end(number: int, frame: object) -> None:
        # An exception, so that half-written files are removed.
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, end)
    try:
        app()
    finally:
        gc.freeze()  # the interpreter would look through all objects before it ends
