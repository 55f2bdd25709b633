"""Options that several commands share: one declaration each, in groups.

A command that takes a group has one option for each of its fields; ``textpriv.cli.app`` sees to that.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

import typer

from textpriv.cli.messages import say, waiting, warn
from textpriv.errors import MechanismError, TextprivError
from textpriv.files import lost_by
from textpriv.mechanisms import find_mechanism, make_mechanism, mechanism_names, protection
from textpriv.mechanisms.default import default_name
from textpriv.tokenization.policy import TOKEN_CLASSES, TokenPolicy

if TYPE_CHECKING:
    from textpriv.index.index import Index
    from textpriv.mechanisms.base import Mechanism
    from textpriv.settings import PrivatizerSettings

COLUMN = "column:"  # in --detect, before the column of spans that records bring themselves


class OptionGroup(SimpleNamespace):
    """A group of options: each annotated attribute is one, with its default or :func:`option`."""


def option(*names: str, default: Any = None, **more: Any) -> Any:
    """Declare an option of a group, as ``typer.Option`` does. Hidden ones are shown by ``--help-all``."""
    return typer.Option(default, *names, **more)


def flag(name: str, help: str, **more: Any) -> Any:
    """Declare an option without a value."""
    return typer.Option(False, name, help=help, **more)


rare = functools.partial(option, hidden=True)


def read_pairs(given: str) -> dict[str, float]:
    """Read ``NAME=NUMBER,NAME=NUMBER``, each name once."""
    parts = [part.partition("=") for part in given.split(",")]
    try:
        named = {name.strip(): int(v) if v.isdecimal() else float(v) for name, _, v in parts}
    except ValueError:
        named = {}
    if len(named) < len(parts) or not all(named):
        raise typer.BadParameter(f"{given!r} is not NAME=NUMBER,NAME=NUMBER with different names")
    return named


def _read_setting(given: str) -> tuple[str, Any]:
    name, separator, value = given.partition("=")
    if not (name.isidentifier() and separator):
        raise typer.BadParameter(f"--option takes NAME=VALUE; got {given!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _known_format(name: str | None) -> str | None:
    if name is not None:
        from textpriv.corpus.formats import FORMATS

        if name not in FORMATS:
            raise typer.BadParameter(f"expected one of {', '.join(FORMATS)}")
    return name


INDEX = option(
    metavar="DIR", help="Folder made by 'textpriv index'. Default: the built-in English words."
)
RECOVERY = option(
    min=0,
    max=1,
    metavar="SHARE",
    help="Largest share of content words that an attacker may recover; 0.1 is recommended. This sets epsilon.",
)
RECOVERY_ON = rare(
    metavar="FILE",
    help="Public texts like yours, whose words --recovery is about. Never the private texts. Default: general English.",
)
CONTEXT = option(
    metavar="FILE",
    help="Public texts like yours, to also try an attacker who reads words in context. Never the private texts.",
)
TEXT_COLUMN = option(default="text", help="Field or column that contains the text.")
FORMAT = option(
    callback=_known_format,
    metavar="NAME",
    help="File format, if the file name does not show it, such as jsonl or text.",
)
FORCE = flag("--force", "Replace the output if it exists.")
JSON = flag("--json", "Print one JSON object on standard output.")


class RunningOptions(OptionGroup):
    """How files are read, and where the work is done: fields of RunOptions."""

    format: str | None = FORMAT
    encoding: str | None = rare(metavar="NAME", help="Encoding of the input, such as latin-1.")
    workers: int = option(default=1, help="Number of worker processes.", min=1)
    engine: Literal["local", "spark", "ray"] = rare(default="local", help="Where the work is done.")
    address: str | None = rare("--address", "--master", help="Spark master or Ray cluster.")


class MechanismOptions(OptionGroup):
    """Which mechanism is used, over which index, at how much privacy."""

    chosen = None  # what was found for a recovery, after :meth:`mechanism_options`
    index: str | None = INDEX
    epsilon: float | None = option(
        "--epsilon", "-e", help="Privacy parameter: smaller is more private. Instead of --recovery."
    )
    recovery: float | None = RECOVERY
    recovery_on: str | None = RECOVERY_ON
    levels: Any = rare(
        parser=read_pairs,
        metavar="NAME=NUMBER,...",
        help="For a hierarchy, instead of epsilon: the largest odds at each level, such as synonyms=3,any=3000.",
    )
    mechanism: str | None = option(
        metavar="NAME",
        autocompletion=lambda: [*mechanism_names()],
        help=f"How words are replaced: {', '.join(mechanism_names())}, or a registered name such as mine.Gauss.v1. Default: "
        "tree over a hierarchy, else tem. contextual reads best, and classifiers learn least from it.",
    )
    prior: str | None = rare(
        help="How often each word is drawn: zipf, uniform, counts (of the index), or a file of 'word count' lines."
    )
    option: list[str] | None = rare(
        metavar="NAME=VALUE", help="Another setting of the mechanism, such as gamma=2."
    )

    @property
    def index_name(self) -> str:
        """The folder, or the name of the index that is built in for the language."""
        return self.index or f"builtin:{getattr(self, 'language', None) or 'en'}"

    @property
    def mechanism_name(self) -> str:
        """The mechanism that was named, or the default of the index."""
        return self.mechanism or default_name(self.opened)

    @functools.cached_property
    def opened(self) -> Index:
        """The index."""
        from textpriv.index.builtin import open_index

        return in_domain(open_index(self.index_name), self.recovery_on)

    def refuse_private(self, source: list[str]) -> None:
        """Refuse private texts as those of the domain, before an epsilon is chosen for them."""
        from textpriv.corpus.plan import refuse_private

        refuse_private(source, [] if self.recovery_on is None else [self.recovery_on])

    def mechanism_options(self) -> dict[str, Any]:
        """Return all keyword arguments of the mechanism, with the epsilon of a recovery; refuse those it does not take."""
        amounts = {"epsilon": self.epsilon, "recovery": self.recovery, "levels": self.levels}
        try:
            settings = protection("textpriv", **amounts)
        except MechanismError as error:
            raise typer.BadParameter(str(error)) from None
        if self.recovery_on is not None and self.recovery is None:
            raise typer.BadParameter("--recovery-on needs --recovery")
        settings |= {} if self.prior is None else {"prior": self.prior}
        settings |= dict(map(_read_setting, self.option or ()))
        takes = {*inspect.signature(find_mechanism(self.mechanism_name)).parameters}
        takes |= set() if self.recovery is None else {"recovery"}
        for name in settings:
            if name not in takes:
                raise typer.BadParameter(f"{self.mechanism_name} has no setting {name}")
        if self.option:
            self._try(settings)
        if self.recovery is None:
            return settings
        from textpriv.evaluation.best_attacker import attackers_in_words
        from textpriv.guarantees.epsilon import with_epsilon

        index = self.opened
        with waiting("looking for the epsilon (a minute for 25,000 words)"):
            settings, chosen = with_epsilon(index, self.mechanism_name, settings)
        assert chosen is not None
        self.chosen = chosen
        told = attackers_in_words(*chosen.rates)
        text = "text of the index's language model" if index.model else "words of general English"
        if index.domain is not None:
            text, told = "words of the domain", f"in the domain, {told}"
            if chosen.general is not None:
                told += f" In general English, guessing recovers {chosen.general:.1%}."
        say(f"epsilon {chosen.epsilon:g}: {told} Estimates: on {text}.")
        return settings

    def _try(self, settings: dict[str, Any]) -> None:
        """Draw a word and look at its distribution: a mechanism from elsewhere may not check its settings itself."""
        from textpriv.randomness import Stream

        tried = dict(settings)
        if tried.pop("recovery", None) is not None:
            tried["epsilon"] = 1.0
        try:
            made = make_mechanism(self.opened, self.mechanism_name, **tried)
            made.sample([0], Stream())
            _ = made.has_log_prob and made.log_prob(0)
        except TextprivError:
            raise
        except Exception as error:
            given = " ".join(f"--option {each}" for each in self.option or ())
            raise typer.BadParameter(
                f"{self.mechanism_name} fails with {given} ({type(error).__name__}). Give it other values"
            ) from None

    def build(self) -> Mechanism:
        """Return the mechanism over its index."""
        made: Mechanism = make_mechanism(
            self.opened, self.mechanism_name, **self.mechanism_options()
        )
        return made


_Action = Literal["sample", "mask", "drop", "keep"]


def _of_class(name: str) -> Any:
    """Declare the option of a token class."""
    several = TOKEN_CLASSES[name].several
    return rare(default=getattr(TokenPolicy, name), help=f"{several[0].upper()}{several[1:]}.")


class ReleaseOptions(MechanismOptions):
    """With which settings texts are made private."""

    detect: list[str] | None = option(
        metavar="DETECTOR",
        help="Find dates and numbers (patterns, presidio), names too (names, spacy:PIPELINE, words:FILE), "
        "your own kinds (regex:KIND=PATTERN), or the best installed (auto). column:NAME reads spans from a "
        "column. Repeat for several.",
    )
    policy: str | None = option(
        help="How detected spans are replaced: chat (the default), notes, tickets, or a TOML file."
    )
    language: str | None = rare(metavar="CODE", help="Language of the texts.")
    unknown: _Action = _of_class("unknown")
    number: _Action = _of_class("number")
    punctuation: _Action = _of_class("punctuation")
    space: _Action = _of_class("space")
    stopword: _Action = _of_class("stopword")
    case: Literal["lower", "keep"] = rare(default="lower", help="Lower-case words for the look-up.")

    @property
    def read(self) -> list[str]:
        """Files that no output may replace."""
        return list(filter(None, [self.policy, self.recovery_on]))

    def privatizer_settings(self, *, labels: bool = False, **more: Any) -> PrivatizerSettings:
        """Return the settings from which an engine builds a privatizer; ``labels`` may come with records."""
        from textpriv.settings import PrivatizerSettings
        from textpriv.spans.policy import SpanPolicy

        detectors = tuple(each for each in self.detect or () if not each.startswith(COLUMN))
        if self.detect is None and self.policy is not None:
            raise typer.BadParameter("--policy needs detected spans: add --detect patterns")
        if len(detectors) < len(self.detect or ()) and not labels:
            raise typer.BadParameter("--detect column:NAME is for privatize")
        if "auto" in detectors:
            detectors = _best_of_all(detectors, self.language or "en")
        if self.detect is not None:
            more["spans"] = SpanPolicy.of(self.policy or "chat").to_dict()
        return PrivatizerSettings(
            index=self.index_name,
            language=self.language,
            mechanism=self.mechanism_name,
            options=self.mechanism_options(),
            policy={name: getattr(self, name) for name in (*TOKEN_CLASSES, "case")},
            detect=detectors,
            **more,
        )


def _best_of_all(given: tuple[str, ...], language: str) -> tuple[str, ...]:
    """Replace "auto" by the best detectors that are installed, and say which."""
    from textpriv.spans.detectors import best_detectors

    best = best_detectors(language)
    say(f"--detect auto: {' and '.join(best)}")
    if not best[0].startswith("spacy:"):
        found = "common American names are found" if "names" in best else "names are not found"
        warn(
            f"no spaCy pipeline that finds names is installed: {found}, others are replaced as words. To find more: "
            "python -m spacy download en_core_web_sm"
        )
    return tuple(dict.fromkeys([*best, *(each for each in given if each != "auto")]))


def refuse_lost(out: Path, name: str, read: Iterable[str | Path | None]) -> None:
    """Refuse an output that would be written over a file that the command reads."""
    lost = lost_by([out], filter(None, read))
    if lost is not None:
        raise typer.BadParameter(f"{name} would be written over {lost}, which is read")


def in_domain(index: Index, public: str | None) -> Index:
    """Return an index for recovery rates about the texts of ``--recovery-on``."""
    texts = public_texts(public)
    return index if texts is None else index.in_domain(texts)


def public_texts(context: str | None, text_column: str = "text") -> list[str] | None:
    """Read public texts from a file."""
    if context is None:
        return None
    from textpriv.corpus import read_records

    return [text for batch in read_records(context, None, text_column) for text in batch.texts]
