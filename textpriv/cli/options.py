"""Options that several commands share: one declaration each, in groups.

A command that takes a group has one option for each of its fields; ``textpriv.cli.app`` sees to that.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from textpriv.cli.messages import console, say
from textpriv.errors import TextprivError
from textpriv.files import lost_by
from textpriv.mechanisms import mechanism_names

if TYPE_CHECKING:
    from textpriv.engines.settings import PrivatizerSettings
    from textpriv.index.index import Index
    from textpriv.mechanisms.base import Mechanism

COLUMN = "column:"  # in --detect, before the column of spans that records bring themselves


class Options:
    """A group of options: each annotated attribute is one, with its default or :func:`option`."""

    def __init__(self, **given: Any) -> None:
        vars(self).update(given)


def option(*names: str, default: Any = None, **more: Any) -> Any:
    """Declare an option of a group, as ``typer.Option`` does. Hidden ones are shown by ``--help-all``."""
    return typer.Option(default, *names, **more)


def flag(name: str, help: str, **more: Any) -> Any:
    """Declare an option without a value."""
    return typer.Option(False, name, help=help, **more)


rare = functools.partial(option, hidden=True)


def read_number(given: str | float) -> float:
    """Read a number; what was given is quoted, since it is a setting and no text."""
    try:
        return float(given)
    except ValueError:
        raise typer.BadParameter(
            f"{given!r} is not a number. Give one above 0, such as 6"
        ) from None


def read_pairs(given: str) -> dict[str, float]:
    """Read ``NAME=NUMBER,NAME=NUMBER``, each name once."""
    parts = [part.partition("=") for part in given.split(",")]
    named = {name.strip(): value.strip() for name, _, value in parts}
    if len(named) < len(parts) or not all(named) or not all(named.values()):
        raise typer.BadParameter(f"{given!r} is not NAME=NUMBER,NAME=NUMBER with different names")
    return {name: read_number(value) for name, value in named.items()}


def _read_epsilon(given: str | float) -> float | dict[str, float]:
    is_pairs = isinstance(given, str) and "=" in given
    return read_pairs(str(given)) if is_pairs else read_number(given)


def _read_setting(given: str) -> tuple[str, Any]:
    name, separator, value = given.partition("=")
    if not (name.isidentifier() and separator):
        raise typer.BadParameter(f"--option takes NAME=VALUE; got {given!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


IndexFolder = Annotated[
    str | None,
    typer.Option(
        "--index", metavar="DIR", help="Folder made by 'textpriv index', or built-in English."
    ),
]
Recovery = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        help="In place of epsilon: the largest share of content words that an attacker may recover, such as 0.1.",
    ),
]
Context = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Public texts like yours, to also try an attacker who reads words in context. Never the private texts.",
    ),
]
TextColumn = Annotated[str, typer.Option(help="Field or column that contains the text.")]
FileFormat = Annotated[
    Literal["jsonl", "csv", "tsv", "text", "parquet"] | None,
    typer.Option(help="File format, if the name does not tell."),
]
Force = Annotated[bool, typer.Option("--force", help="Replace the output if it exists.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]


class MechanismOptions(Options):
    """Which mechanism is used, over which index, at how much privacy."""

    index: IndexFolder = None
    epsilon: Any = option(
        "--epsilon",
        "-e",
        "--levels",
        parser=_read_epsilon,
        metavar="NUMBER",
        help="Privacy parameter: smaller is more private. Required, or --recovery. Of a hierarchy also the largest odds by "
        "level: --levels synonyms=3,any=3000.",
    )
    recovery: Recovery = None
    mechanism: str | None = option(
        metavar="NAME",
        autocompletion=lambda: [*mechanism_names()],
        help=f"How words are replaced: {', '.join(mechanism_names())}, or a registered name such as mine.Gauss.v1. Default: "
        "contextual with the built-in English words, else tem.",
    )
    prior: str | None = rare(
        help="How often each word is drawn: zipf, uniform, counts (of the index), or a file of 'word count' lines."
    )
    option: list[str] | None = rare(
        metavar="NAME=VALUE", help="Another setting of the mechanism, such as gamma=2."
    )

    @property
    def index_name(self) -> str:
        """The folder, or the name of the built-in index."""
        from textpriv.index.builtin import ENGLISH

        return self.index or ENGLISH

    def open_index(self) -> Index:
        """Open the index."""
        from textpriv.index.builtin import open_index

        return open_index(self.index_name)

    @property
    def mechanism_name(self) -> str:
        """The mechanism that was named, or the default: contextual over the built-in English words, else TEM."""
        from textpriv.index.builtin import ENGLISH

        has_settings = self.prior or self.option or isinstance(self.epsilon, Mapping)
        if self.mechanism is None and self.index_name == ENGLISH and not has_settings:
            return "contextual"
        return self.mechanism or "tem"

    @property
    def registered(self) -> str:
        """The registered name of the mechanism."""
        from textpriv.mechanisms import registry

        short = mechanism_names()
        found = short.get(self.mechanism_name.removesuffix("-tem"), self.mechanism_name)
        if found not in registry:
            raise typer.BadParameter(
                f"no mechanism is named {self.mechanism_name!r}. There are {', '.join(short)}, and registered names",
                param_hint="--mechanism",
            )
        return found

    @property
    def given(self) -> dict[str, Any]:
        """Settings of the mechanism besides the amount of privacy; refuse those that it does not take."""
        from textpriv.mechanisms import registry

        found = {} if self.prior is None else {"prior": self.prior}
        found |= dict(map(_read_setting, self.option or ()))
        takes = inspect.signature(registry.get(self.registered)).parameters
        levels = ["levels"] if isinstance(self.epsilon, Mapping) else []
        for name in (*found, *levels):
            if name not in takes:
                raise typer.BadParameter(
                    f"the mechanism {self.mechanism_name} has no setting {name}. It has {', '.join(takes)}"
                )
        return found

    def settings(self) -> dict[str, Any]:
        """Return all keyword arguments of the registered mechanism."""
        given = self.given
        if self.epsilon is not None and self.recovery is not None:
            raise typer.BadParameter("give --epsilon or --recovery, not both")
        if self.recovery is not None:
            return {"epsilon": self._epsilon_of_recovery, **given}
        if self.epsilon is None:
            from textpriv.mechanisms import NO_DEFAULT

            raise typer.BadParameter(NO_DEFAULT, param_hint="--recovery")
        return {"levels" if isinstance(self.epsilon, Mapping) else "epsilon": self.epsilon, **given}

    @functools.cached_property
    def _epsilon_of_recovery(self) -> float:
        """The epsilon of a recovery rate, printed with the odds that it allows."""
        from textpriv.guarantees.epsilon import choose_epsilon
        from textpriv.mechanisms import registry

        index = self.open_index()
        with console().status("looking for the epsilon (a minute for 25,000 words)"):
            found = choose_epsilon(
                index, recovery=self.recovery, mechanism=self.registered, **self.given
            )
        epsilon = float(f"{found.epsilon * (1 - 5e-4):.4g}")  # a bound is rounded down
        made = registry.get(self.registered)(epsilon=epsilon, **self.given)(index)
        share = f"recovers at most {self.recovery:.3g} of content words."
        if found.standard_error:
            share = (
                f"recovers an estimated {found.value:.1%} of content words (standard error {found.standard_error:.1%}; "
                f"wanted: at most {self.recovery:.3g}), measured on words drawn from general English."
            )
        say(
            f"epsilon {epsilon:g}: an attacker who sees single words {share} {made.statement.typical_odds}"
        )
        return epsilon

    def build(self) -> Mechanism:
        """Return the mechanism over its index."""
        from textpriv.mechanisms import registry

        made: Mechanism = registry.get(self.registered)(**self.settings())(self.open_index())
        return made


_Action = Literal["sample", "mask", "drop", "keep"]
_CLASSES = ("unknown", "number", "punctuation", "space", "stopword", "case")


class ReleaseOptions(MechanismOptions):
    """With which settings texts are made private."""

    detect: list[str] | None = option(
        metavar="DETECTOR",
        help="Find names, dates, numbers and the like: patterns, presidio, spacy, spacy:PIPELINE, or column:NAME with given "
        "spans. Repeat for several.",
    )
    policy: str | None = option(
        help="How detected spans are replaced: chat (the default), notes, tickets, or a TOML file."
    )
    language: str | None = rare(metavar="CODE", help="Language of the texts.")
    unknown: _Action = rare(default="sample", help="Words outside the vocabulary.")
    number: _Action = rare(default="sample", help="Numbers.")
    punctuation: _Action = rare(default="keep", help="Punctuation.")
    space: _Action = rare(default="keep", help="Line breaks and runs of spaces.")
    stopword: _Action = rare(default="sample", help="Words such as 'the'.")
    case: Literal["lower", "keep"] = rare(default="lower", help="Lower-case words for the look-up.")

    @property
    def index_name(self) -> str:
        """The folder, or the name of the index that is built in for the language."""
        from textpriv.index.builtin import BUILTIN

        return self.index or f"{BUILTIN}{self.language or 'en'}"

    def release(self, *, labels: bool = False, **more: Any) -> PrivatizerSettings:
        """Return the settings from which an engine builds a privatizer; ``labels`` may come with records."""
        from textpriv.engines.settings import PrivatizerSettings

        if not labels and any(each.startswith(COLUMN) for each in self.detect or ()):
            raise typer.BadParameter("--detect column:NAME is for privatize")

        return PrivatizerSettings(
            index=self.index_name,
            language=self.language,
            mechanism=self.registered,
            options=self.settings(),
            policy={name: getattr(self, name) for name in _CLASSES},
            **self._spans(),
            **more,
        )

    def _spans(self) -> dict[str, Any]:
        if self.detect is None:
            if self.policy is not None:
                raise typer.BadParameter("--policy needs detected spans: add --detect patterns")
            return {}
        from textpriv.spans.policy import SpanPolicy

        detectors = (each for each in self.detect if not each.startswith(COLUMN))
        return {"spans": SpanPolicy.of(self.policy or "chat").to_dict(), "detect": tuple(detectors)}


def refuse_lost(out: str | Path, name: str, read: Iterable[str | Path | None]) -> None:
    """Refuse an output that would be written over a file that the command reads."""
    lost = lost_by([out], [each for each in read if each is not None])
    if lost is not None:
        raise typer.BadParameter(f"{name} would be written over {lost}, which is read")


def read_text(file: Path) -> str:
    """Read a text file; an error names the file and quotes nothing."""
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise TextprivError(f"{file} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise TextprivError(f"{file} is not UTF-8 text.") from None


def public_texts(context: str | None, text_column: str) -> list[str] | None:
    """Read the public texts of ``--context``."""
    if context is None:
        return None
    from textpriv.corpus import read_records

    return [text for batch in read_records(context, None, text_column) for text in batch.texts]
