"""The options of the spaCy forms, and how a config block becomes them."""

# No `from __future__ import annotations`: spaCy's config system reads the types of the fields.

import inspect
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import spacy

from textpriv.errors import MechanismError
from textpriv.mechanisms import find_mechanism, protection
from textpriv.mechanisms import registry as mechanism_registry
from textpriv.run_key import read_run_key

if TYPE_CHECKING:
    from textpriv.privatizer import Privatizer

TOKENIZER_NAME = "textpriv.PrivateTokenizer.v1"
READER_NAME = "textpriv.PrivateCorpus.v1"

# A config names a mechanism as {"@textpriv_mechanisms": ...}; spaCy looks for an attribute of its registry.
setattr(spacy.registry, "textpriv_mechanisms", mechanism_registry)  # noqa: B010


@dataclass(frozen=True, kw_only=True)
class PipelineOptions:
    """The settings of a spaCy form, as a config gives them. Give an epsilon, a recovery or a mechanism with its own epsilon.

    Attributes
    ----------
    index
        An index folder, or "builtin:en"; None for the built-in index of the pipeline's language. A saved pipeline brings
        its own.
    epsilon, recovery
        As for :func:`textpriv.privatize`.
    mechanism
        A name as on the command line, such as "tem", with an epsilon or a recovery. Or a block
        ``{"@textpriv_mechanisms": "textpriv.TEM.v1", "epsilon": 3.3}``, which brings its epsilon. None for the default
        mechanism of the index.
    policy
        Fields of `TokenPolicy` that differ from its defaults.
    seed
        None: fresh randomness for every document. A number makes the output a function of seed and text, for experiments.
    run_key
        Path of a file of 32 secret bytes (`textpriv.run_key`), or None. With it a text is drawn once, in all runs. Equal
        texts then come out equal, which the statement names. Only the path is saved, never the key.
    spans
        The policy of typed spans: "notes", "tickets", "chat", the path of a TOML file, or a dict such as
        ``{"preset": "chat", "labels": {"PATIENT": "PERSON"}}``. For the component the entities of raw documents are spans,
        too.
    detect
        Detectors whose spans are added, as on the command line: "auto", "patterns", "presidio", "spacy:PIPELINE".
    """

    index: str | os.PathLike[str] | None = None
    epsilon: float | None = None
    recovery: float | None = None
    mechanism: Callable[[Any], Any] | str | None = None
    policy: dict[str, str] | None = None
    seed: int | None = None
    run_key: str | os.PathLike[str] | None = None
    spans: str | dict[str, Any] | None = None
    detect: Sequence[str] = ()

    def __post_init__(self) -> None:
        made = self.mechanism if callable(self.mechanism) else None
        amounts = {"recovery": self.recovery, "epsilon": self.epsilon}
        protection("The config of textpriv", **amounts, mechanism=made)
        for name, value in amounts.items():
            most = 1 if name == "recovery" else math.inf
            if value is not None and not (isinstance(value, Real) and 0 < value < most):
                raise MechanismError(f"{name} is a number above 0 and below {most}; got {value!r}.")
        if isinstance(self.mechanism, str):
            find_mechanism(self.mechanism)
        if isinstance(self.detect, str):
            raise MechanismError(f"detect takes a list, such as [{self.detect!r}].")
        if self.seed is not None and self.run_key is not None:
            raise MechanismError("Give a seed (for experiments) or a run key, not both.")

    def privatizer(self, index: Any, language: str) -> "Privatizer":
        """Make the privatizer over an index."""
        from textpriv.settings import PrivatizerSettings
        from textpriv.spans.detectors import best_detectors

        if self.run_key is not None and not Path(self.run_key).is_file():
            raise MechanismError(
                f"textpriv found no run key at {Path(self.run_key).absolute()}. Name its place, or set run_key to null, "
                "which draws every text again: spacy.load(FOLDER, config={'components.textpriv.run_key': None}), or "
                "'nlp.tokenizer.run_key' for the strict tokenizer. Make a first key "
                f"by python -c \"from textpriv.run_key import RunKey; RunKey.open('{self.run_key}').keep()\"."
            )
        best = best_detectors(language) if "auto" in self.detect else ()
        amounts = {"epsilon": self.epsilon, "recovery": self.recovery}
        privatizer = PrivatizerSettings(
            mechanism=self.mechanism,
            options={name: value for name, value in amounts.items() if value is not None},
            policy=self.policy or {},
            seed=self.seed,
            run_key=None if self.run_key is None else read_run_key(self.run_key),
            language=language,
            spans=self.spans,
            detect=[name for name in dict.fromkeys([*best, *self.detect]) if name != "auto"],
        ).build(index)
        if privatizer.spans is not None and privatizer.spans.policy.needs_person:
            raise MechanismError(
                "This policy of spans draws once for each person, and a spaCy pipeline does not know whose text it reads. "
                'Use "tickets" or "chat", or textpriv.Privatizer with DocumentName(name, author).'
            )
        return privatizer


def takes_options(factory: Callable[..., Any]) -> Callable[..., Any]:
    """Give a factory that takes ``**options`` the signature of `PipelineOptions`, which spaCy checks a config by."""
    # Resolved: spaCy up to 3.8.2 at least cannot read annotations as text.
    *own, _ = inspect.signature(factory, eval_str=True).parameters.values()
    options = inspect.signature(PipelineOptions).parameters.values()
    factory.__signature__ = inspect.Signature([*own, *options])  # type: ignore[attr-defined]
    return factory
