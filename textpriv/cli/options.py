"""Options that commands share: one declaration each, in groups that a command takes as one argument.

A group is a dataclass whose fields are options; ``with_groups`` shows them on the command line. What a command does
with them stands in its own file.
"""

from __future__ import annotations

import functools
import inspect
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer
from typer.core import TyperCommand

from textpriv.errors import IndexFolderError, TextprivError
from textpriv.files import lost_by
from textpriv.mechanisms import mechanism_names

if TYPE_CHECKING:
    from textpriv.engines.batch import PrivatizerSettings
    from textpriv.mechanisms.base import Mechanism

_LOOKED_AT = 1 << 22  # bytes of a file, to see whose it is

# All that are installed: short names, and what each is called in the registry, which knows the options that it takes.
SHORT_NAMES = mechanism_names()


class Command(TyperCommand):
    """A command that takes an option once, unless the option is one of several values.

    The parser below takes the last of two: of two text columns one would be released raw, and of two epsilons the larger
    one might count. Paragraphs of its help are as wide as the terminal, and not as the source.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        paragraphs = (self.help or "").split("\n\n")
        self.help = "\n\n".join(" ".join(each.split("\n")) for each in paragraphs)

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


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter of a command that is a dataclass by one option for each of its fields."""
    given = inspect.signature(command, eval_str=True).parameters.values()
    groups = {each.name: each.annotation for each in given if _is_group(each.annotation)}
    parameters: list[inspect.Parameter] = []
    for each in given:
        own = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
        parameters += _options_of(each.annotation) if each.name in groups else own

    @functools.wraps(command)
    def run(**options: Any) -> None:
        made = {name: _filled(group, options) for name, group in groups.items()}
        command(**options, **made)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _is_group(annotation: Any) -> bool:
    return isinstance(annotation, type) and is_dataclass(annotation)


def _options_of(group: Any) -> list[inspect.Parameter]:
    """The options of a group and of the groups in it; under the group's ``panel`` of the help, where it has one."""
    hints = get_type_hints(group, include_extras=True)
    options: list[inspect.Parameter] = []
    for field in fields(group):
        kind = hints[field.name]
        if _is_group(kind):
            options += _options_of(kind)
            continue
        if hasattr(group, "panel"):
            kind.__metadata__[0].rich_help_panel = group.panel
        kwargs = {"default": field.default, "annotation": kind}
        options.append(inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, **kwargs))
    return options


def _filled(group: Any, options: dict[str, Any]) -> Any:
    """A group with its part of the options, which is taken out of them."""
    hints = get_type_hints(group, include_extras=True)
    return group(
        **{
            name: _filled(hints[name], options) if _is_group(hints[name]) else options.pop(name)
            for name in (field.name for field in fields(group))
        }
    )


def read_number(given: str | float) -> float:
    """Read a number of the command line; what came is quoted, since it is a setting and no text."""
    try:
        return float(given)
    except ValueError:
        raise typer.BadParameter(f"{given!r} is no number; give one above 0, such as 6") from None


def read_text(file: Path) -> str:
    """Read a file of text; an error names the file and nothing of what is in it."""
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise TextprivError(f"{file} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise TextprivError(f"{file} is not UTF-8 text.") from None


def read_epsilon(given: str | float) -> float | dict[str, float]:
    """Read an epsilon, or the odds of the levels of a tree, such as ``synonyms=3,kind=30,any=3000``."""
    if not isinstance(given, str) or "=" not in given:
        return read_number(given)
    return {name: read_number(odds) for name, odds in read_pairs(given).items()}


def read_pairs(given: str) -> dict[str, str]:
    """Read ``NAME=NUMBER,NAME=NUMBER``, each name once."""
    parts = [part.partition("=") for part in given.split(",")]
    named = {name.strip(): value.strip() for name, _, value in parts}
    if len(named) < len(parts) or not all(named) or not all(named.values()):
        raise typer.BadParameter(f"{given!r} is not NAME=NUMBER,NAME=NUMBER with different names")
    return named


def _read_mechanism(given: str) -> str:
    """Read the name of a mechanism, short or registered; return the registered one."""
    name = SHORT_NAMES.get(given.removesuffix("-tem"), given)
    if name not in SHORT_NAMES.values():
        raise typer.BadParameter(f"{given!r} is none of {', '.join(SHORT_NAMES)}")
    return name


def _short_names() -> list[str]:
    return [*SHORT_NAMES]


Epsilon = Annotated[
    Any,
    typer.Option(
        "--epsilon",
        "-e",
        "--levels",
        parser=read_epsilon,
        metavar="NUMBER",
        help="Privacy parameter, per unit of the vectors' distance; required. Smaller is more private. Without a "
        "number you are shown what some of them mean. With a tree also the largest odds by level: "
        "--levels synonyms=3,kind=30,any=3000.",
    ),
]
_FOLDER = "Folder made by 'textpriv index'. Without it, the built-in index of English words."
Folder = Annotated[str | None, typer.Argument(metavar="[DIR]", help=_FOLDER)]
IndexFolder = Annotated[str | None, typer.Option("--index", help=_FOLDER)]
TextLanguage = Annotated[
    str | None,
    typer.Option(
        "--language",
        metavar="CODE",
        help="Language of the texts, by whose rules they are tokenized, such as de. Default: that of the index.",
    ),
]
VectorLanguage = Annotated[
    str | None,
    typer.Option(
        "--language",
        metavar="CODE",
        help="Language of the words, such as de, where SOURCE does not say; texts are tokenized by its rules.",
    ),
]
FileFormat = Literal["jsonl", "csv", "tsv", "text", "parquet"]
Search = Literal["exact", "hnsw"]
NewFolder = Annotated[Path, typer.Argument(help="Folder to make.")]
Metric = Annotated[str, typer.Option(help="Distance between vectors.")]
Limit = Annotated[int | None, typer.Option(help="Take only the first words of SOURCE.", min=1)]
Force = Annotated[bool, typer.Option("--force", help="Replace OUT if it exists.")]
ForceFile = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Replace the file OUT, and those beside it; never what is read, nor a folder.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]


@dataclass(frozen=True, kw_only=True)
class MechanismOptions:
    """Which mechanism, and the settings that not all of them take."""

    mechanism: Annotated[
        str,
        typer.Option(
            parser=_read_mechanism,
            metavar=f"[{'|'.join(SHORT_NAMES)}]",
            autocompletion=_short_names,
            help="How a word is replaced.",
        ),
    ] = "tem"
    prior: Annotated[
        str | None,
        typer.Option(
            help="tem, tree: how often each word is used in public text: zipf (by rank, the default of tem), uniform (as "
            "published), counts (stored in the index), or a file of 'word count' lines; tree: full (the default), which "
            "spends the whole budget."
        ),
    ] = None
    gamma: Annotated[
        float | None,
        typer.Option(help="tem: distance beyond which all words count alike."),
    ] = None
    beta: Annotated[
        float | None,
        typer.Option(
            help="tem with --prior uniform: chance of leaving gamma, from which gamma follows (default 0.001)."
        ),
    ] = None
    search: Annotated[
        Search | None,
        typer.Option(
            help="madlib: how the nearest word is found (default hnsw, which needs the extra of that name)."
        ),
    ] = None
    projection: Annotated[
        int | None, typer.Option(help="madlib: dimensions to project the vectors to first.", min=1)
    ] = None

    def settings(self, epsilon: float | Mapping[str, float]) -> dict[str, Any]:
        """Return epsilon, or levels in place of it, and what else was given; what is not taken is a usage error."""
        if isinstance(epsilon, Mapping):
            return {"levels": dict(epsilon), **self._given(levels=epsilon)}
        return {"epsilon": epsilon, **self._given()}

    def _given(self, **more: Any) -> dict[str, Any]:
        given = more | {
            field.name: value
            for field in fields(self)[1:]
            if (value := getattr(self, field.name)) is not None
        }
        if not given:
            return {}
        from textpriv.mechanisms import registry

        ours = {name for name in SHORT_NAMES.values() if name.startswith("textpriv.")}
        takes = {
            name: inspect.signature(registry.get(name)).parameters
            for name in {self.mechanism, *ours}
        }
        for name in given:
            if name not in takes[self.mechanism]:
                owners = [
                    short
                    for short, each in SHORT_NAMES.items()
                    if each in takes and name in takes[each]
                ]
                short = next(s for s, each in SHORT_NAMES.items() if each == self.mechanism)
                raise typer.BadParameter(
                    f"--{name} belongs to --mechanism {' or '.join(owners)}, not to {short}: leave it out, or choose another"
                )
        return given

    def build(self, epsilon: float | Mapping[str, float] | None, index: str) -> Mechanism:
        """Return the mechanism over an index that is named."""
        from textpriv.index.builtin import open_index
        from textpriv.mechanisms import registry

        settings = self.settings(required(epsilon, index))
        return registry.get(self.mechanism)(**settings)(open_index(index))


def refuse_existing(out: Path, force: bool, *read: str | Path | None) -> None:
    """Refuse a folder that is there and is not to be replaced, or holds what is read: before the long work, not after it."""
    from textpriv.index.folder import META

    refuse_lost(out, "OUT", *read)
    if out.exists() and not force:
        raise IndexFolderError(f"{out} exists. Choose another folder, or replace it with --force.")
    if out.exists() and not (out / META).is_file():
        raise IndexFolderError(
            f"{out} is not an index folder, and nothing else is replaced. Choose another name."
        )


def refuse_lost(out: str | Path, name: str, *read: str | Path | None) -> None:
    """Refuse an output that would be written over a file that the command reads."""
    lost = lost_by([out], [each for each in read if each is not None])
    if lost is not None:
        raise typer.BadParameter(
            f"{name} would be written over {lost}, which is read: name another file"
        )


def refuse_foreign(out: Path, mark: str) -> None:
    """Refuse to replace a file that is not empty and lacks what all files have that a command makes."""
    if out.is_dir():
        raise TextprivError(f"{out} is a folder. Name a file.")
    if not out.exists():
        return
    with out.open("rb") as file:
        found = file.read(_LOOKED_AT)
    if found and mark.encode() not in found:
        raise TextprivError(
            f"{out} exists and was not made by this command. Name another file, or remove it first."
        )


def required(
    epsilon: float | Mapping[str, float] | None, index: str
) -> float | Mapping[str, float]:
    """Return the epsilon that was given; without one, say what some of them mean on this index."""
    if epsilon is not None:
        return epsilon
    from textpriv.amounts import explain_missing

    raise typer.BadParameter(explain_missing(index), param_hint="--epsilon")


def index_name(given: str | None, language: str | None = None) -> str:
    """Return the name of an index: the folder that was given, or that of the one that is built in for a language."""
    from textpriv.index.builtin import BUILTIN, ENGLISH

    if given is not None:
        return given
    return ENGLISH if language is None else f"{BUILTIN}{language}"


Action = Literal["sample", "mask", "drop", "keep"]


@dataclass(frozen=True, kw_only=True)
class PolicyOptions:
    """What happens to each class of tokens."""

    unknown: Annotated[
        Literal["sample", "nearest", "mask", "drop", "keep"],
        typer.Option(
            help="Words outside the vocabulary; nearest: drawn as the word that a misspelling or inflection stands for."
        ),
    ] = "sample"
    number: Annotated[Action, typer.Option(help="Numbers.")] = "sample"
    punctuation: Annotated[Action, typer.Option(help="Punctuation.")] = "keep"
    space: Annotated[Action, typer.Option(help="Line breaks and runs of spaces.")] = "keep"
    stopword: Annotated[Action, typer.Option(help="Words such as 'the'.")] = "sample"
    case: Annotated[
        Literal["lower", "keep"], typer.Option(help="Lower-case words before the look-up.")
    ] = "lower"


@dataclass(frozen=True, kw_only=True)
class ReleaseOptions:
    """By which settings texts are made private."""

    index: IndexFolder = None
    epsilon: Epsilon = None
    law: MechanismOptions
    policy: PolicyOptions
    language: TextLanguage = None

    @property
    def index_name(self) -> str:
        """The name of the index."""
        return index_name(self.index, self.language)

    def settings(self, **more: Any) -> PrivatizerSettings:
        """Return what an engine builds a privatizer from, with some more of its fields."""
        from textpriv.engines.batch import PrivatizerSettings

        return PrivatizerSettings(
            index=self.index_name,
            language=self.language,
            mechanism=self.law.mechanism,
            options=self.law.settings(required(self.epsilon, self.index_name)),
            policy=vars(self.policy),
            **more,
        )
