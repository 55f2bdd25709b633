"""Options that commands share: their names, types and help, and how they become settings.

One declaration each. What a command does with them stands in ``cli.app``.
"""

from __future__ import annotations

import inspect
from collections import Counter
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from textpriv.mechanisms import mechanism_names


class _Rate(str, Enum):
    HALF = "half"
    CALIBRATED = "calibrated"
    BEST = "best"


class _Search(str, Enum):
    EXACT = "exact"
    HNSW = "hnsw"


class _Format(str, Enum):
    JSONL = "jsonl"
    CSV = "csv"
    TEXT = "text"
    PARQUET = "parquet"


class _Action(str, Enum):
    SAMPLE = "sample"
    MASK = "mask"
    DROP = "drop"
    KEEP = "keep"


class _Case(str, Enum):
    LOWER = "lower"
    KEEP = "keep"


class _OnError(str, Enum):
    FAIL = "fail"
    SKIP = "skip"
    QUARANTINE = "quarantine"


class _Engine(str, Enum):
    LOCAL = "local"
    SPARK = "spark"
    RAY = "ray"


# All that are installed: short names, and what each is called in the registry, which knows the options that it takes.
_NAMES = mechanism_names()


class _Command(TyperCommand):
    """A command that takes an option once, unless the option is one of several values.

    The parser below takes the last of two: of two text columns one would be released raw, and of two epsilons the larger
    one might count.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse an option given twice, then parse as always."""
        if not ctx.resilient_parsing:  # completion looks at half a line
            _, _, given = self.make_parser(ctx).parse_args(args=list(args))
            for option, times in Counter(given).items():
                if times > 1 and not (getattr(option, "multiple", False) or option.is_eager):
                    raise typer.BadParameter(
                        "given more than once: say which one is meant",
                        ctx,
                        param_hint=option.opts[0],
                    )
        return super().parse_args(ctx, args)


def _number(given: str | float) -> float:
    """Read a number of the command line; what came is quoted, since it is a setting and no text."""
    try:
        return float(given)
    except ValueError:
        raise typer.BadParameter(f"{given!r} is no number; give one above 0, such as 6") from None


_Epsilon = Annotated[
    float,
    typer.Option(
        "--epsilon",
        "-e",
        parser=_number,
        metavar="NUMBER",
        help="Privacy parameter, per unit of the vectors' distance. Smaller is more private.",
        show_default=False,
    ),
]


def _mechanism(given: str) -> str:
    """Read the name of a mechanism, short or registered; return the registered one."""
    name = _NAMES.get(given, given)
    if name not in _NAMES.values():
        raise typer.BadParameter(f"{given!r} is none of {', '.join(_NAMES)}")
    return name


_MechanismOption = Annotated[
    str,
    typer.Option(
        parser=_mechanism,
        metavar=f"[{'|'.join(_NAMES)}]",
        autocompletion=lambda: [*_NAMES],
        help="How a word is replaced.",
    ),
]
_Prior = Annotated[
    str | None,
    typer.Option(
        help="All but permute-and-flip: how often each word is used in public text: zipf (by rank, the "
        "default of all but balanced), uniform (as published), counts (stored in the index), or a file of "
        "'word count' lines.",
        show_default=False,
    ),
]
_Gamma = Annotated[
    float | None,
    typer.Option(
        help="All but madlib: distance beyond which all words count alike.", show_default=False
    ),
]
_Beta = Annotated[
    float | None,
    typer.Option(
        help="tem with --prior uniform, permute-and-flip: chance of leaving gamma, from which gamma "
        "follows (default 0.001).",
        show_default=False,
    ),
]
_RateOption = Annotated[
    _Rate | None,
    typer.Option(
        help="tem: how the exponent follows from epsilon: half of it (the default), calibrated (the most "
        "that these vectors allow), or best (which also moves the prior). Computed once for an index.",
        show_default=False,
    ),
]
_Share = Annotated[
    float | None,
    typer.Option(
        help="smoothed: the exponent as a share of epsilon, from 0.5 to below 1 (default 0.6).",
        show_default=False,
    ),
]
_SearchOption = Annotated[
    _Search | None,
    typer.Option(help="madlib: how the nearest word is found (default hnsw).", show_default=False),
]
_Projection = Annotated[
    int | None,
    typer.Option(
        help="madlib: dimensions to project the vectors to first.", min=1, show_default=False
    ),
]
_Folder = Annotated[
    Path,
    typer.Argument(metavar="DIR", help="Folder made by 'textpriv index'.", show_default=False),
]
_IndexFolder = Annotated[
    Path, typer.Option("--index", help="Folder made by 'textpriv index'.", show_default=False)
]
_Unknown = Annotated[_Action, typer.Option(help="Words outside the vocabulary.")]
_Number = Annotated[_Action, typer.Option(help="Numbers.")]
_Punctuation = Annotated[_Action, typer.Option(help="Punctuation.")]
_Space = Annotated[_Action, typer.Option(help="Line breaks and runs of spaces.")]
_Stopword = Annotated[_Action, typer.Option(help="Words such as 'the'.")]
_CaseOption = Annotated[_Case, typer.Option(help="Lower-case words before the look-up.")]
_Device = Annotated[
    str,
    typer.Option(
        help="Where distances of many pairs are computed: cpu, or a CUDA device of torch such as cuda.",
    ),
]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]


def _given(mechanism: str, **options: Any) -> dict[str, Any]:
    """Return the options that were given; one that the registered mechanism does not take is a usage error."""
    given = {name: value for name, value in options.items() if value is not None}
    if not given:
        return {}
    from textpriv.mechanisms import registry

    takes = {
        name: inspect.signature(registry.get(name)).parameters
        for name in {mechanism, *(own for own in _NAMES.values() if own.startswith("textpriv."))}
    }
    short = {name: short for short, name in _NAMES.items()}
    for name in given:
        if name not in takes[mechanism]:
            owners = " or ".join(
                own for own, each in _NAMES.items() if each in takes and name in takes[each]
            )
            raise typer.BadParameter(
                f"--{name} belongs to --mechanism {owners}, not to {short[mechanism]}: leave it out, or choose another"
            )
    return {
        name: value.value if isinstance(value, Enum) else value for name, value in given.items()
    }


def _policy(
    unknown: _Action,
    number: _Action,
    punctuation: _Action,
    space: _Action,
    stopword: _Action,
    case: _Case,
) -> dict[str, str]:
    """Return the settings of a TokenPolicy."""
    return {
        "unknown": unknown.value,
        "number": number.value,
        "punctuation": punctuation.value,
        "space": space.value,
        "stopword": stopword.value,
        "case": case.value,
    }
