"""The options of the spaCy forms, and how a config block becomes them."""

# No `from __future__ import annotations`: spaCy's config system reads the types of the fields.

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

import spacy

from textpriv.errors import MechanismError
from textpriv.mechanisms import NO_DEFAULT, default_mechanism
from textpriv.mechanisms import registry as mechanism_registry
from textpriv.tokenization.policy import TokenPolicy

__all__ = ["READER_NAME", "TOKENIZER_NAME", "PipelineOptions", "takes_options"]

TOKENIZER_NAME = "textpriv.PrivateTokenizer.v1"
READER_NAME = "textpriv.PrivateCorpus.v1"

# A config names a mechanism as {"@textpriv_mechanisms": ...}; spaCy looks for an attribute of its registry.
setattr(spacy.registry, "textpriv_mechanisms", mechanism_registry)  # noqa: B010


@dataclass(frozen=True)
class PipelineOptions:
    """The settings of a spaCy form, as a config gives them.

    Attributes
    ----------
    index
        An index folder; None for the built-in index of the pipeline's language, or if a saved pipeline brings its own.
    epsilon
        Per unit of the index's distance, for ContextualTEM over the built-in English words, else for TEM; or None, and a
        mechanism. There is no default: the user chooses it.
    mechanism
        Index -> mechanism, such as ``textpriv.mechanisms.registry.get("textpriv.TEM.v1")(epsilon=6.0)``.
    policy
        Fields of `TokenPolicy` that differ from its defaults.
    seed
        None: fresh randomness for every document. A number makes the output a function of seed and text, for experiments.
    run_key
        Path of a file of 32 secret bytes (`textpriv.run_key`), or None. With it a text is drawn once, in all runs. Equal
        texts then come out equal, which the statement names. Only the path is saved, never the key.
    save_raw_words
        Whether the pipeline may be saved with words in its vocabulary that were never released.
    carry
        Annotations of raw documents that private ones keep, and that the statement names as not protected: ``"cats"`` and
        ``"ents"``. The tokenizer carries nothing.
    spans
        The policy of typed spans: "notes", "tickets", "chat", the path of a TOML file, or a dict. For the component the
        entities of raw documents are spans, too.
    detect
        Detectors whose spans are added: "patterns", "presidio", "spacy:PIPELINE".

    Raises
    ------
    MechanismError
        For an epsilon and a mechanism, a seed and a run key, or options of spans that exclude each other.
    """

    index: str | os.PathLike[str] | None = None
    epsilon: float | None = None
    mechanism: Callable[[Any], Any] | None = None
    policy: dict[str, str] = field(default_factory=dict)
    seed: int | None = None
    run_key: str | os.PathLike[str] | None = None
    save_raw_words: bool = False
    carry: Sequence[str] = ()
    spans: str | dict[str, Any] | None = None
    detect: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.mechanism is not None and self.epsilon is not None:
            raise MechanismError(
                "Give an epsilon (for TEM) or a mechanism, which has an epsilon of its own, not both."
            )
        if self.seed is not None and self.run_key is not None:
            raise MechanismError("Give a seed (for experiments) or a run key, not both.")
        if self.spans is not None and "ents" in self.carry:
            raise MechanismError(
                'With spans the entities of a private document are its typed spans: leave "ents" out of carry.'
            )
        if self.detect and self.spans is None:
            raise MechanismError(
                'Detectors need a policy for the spans they find: give "spans", such as "chat".'
            )

    @property
    def is_named(self) -> bool:
        """Whether a text is drawn under a key that follows from it."""
        return self.seed is not None or self.run_key is not None

    @property
    def token_policy(self) -> TokenPolicy:
        """The policy of tokens."""
        return TokenPolicy.from_dict(self.policy)

    def make_mechanism(self, language: str) -> Callable[[Any], Any]:
        """Return the function from an index to the mechanism.

        Raises
        ------
        MechanismError
            Without an epsilon and a mechanism.
        """
        if self.mechanism is not None:
            return self.mechanism
        if self.epsilon is None:
            raise MechanismError(
                f'textpriv needs "epsilon" in its config: {NO_DEFAULT} For another mechanism give "mechanism", such as '
                '{"@textpriv_mechanisms": "textpriv.Madlib.v1", "epsilon": 60.0}.'
            )
        return partial(default_mechanism, epsilon=self.epsilon)

    def secret(self) -> bytes | None:
        """Read the run key, if there is one.

        Raises
        ------
        MechanismError
            If its file is missing.
        """
        if self.run_key is None:
            return None
        if not Path(self.run_key).is_file():
            raise MechanismError(
                f"textpriv found no run key at {self.run_key}. Make one, which only you can read: "
                'python -c "from textpriv.run_key import RunKey; '
                f"RunKey.open('{self.run_key}').keep()\". Or set run_key to null: then every text is resampled."
            )
        from textpriv.run_key import read_run_key

        return read_run_key(self.run_key)

    def typed_spans(self, language: str) -> Mapping[str, Any]:
        """The arguments of a privatizer for typed spans."""
        if self.spans is None:
            return {}
        from textpriv.spans.detectors import make_detector
        from textpriv.spans.policy import SpanPolicy

        detectors = [make_detector(name, language) for name in self.detect]
        return {"spans": SpanPolicy.of(self.spans), "detector": detectors}


def takes_options(*left_out: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a factory that takes ``**given`` the signature of `PipelineOptions`, which spaCy checks a config by."""

    def signed(function: Callable[..., Any]) -> Callable[..., Any]:
        own = list(inspect.signature(function).parameters.values())[:-1]
        keyword = inspect.Parameter.KEYWORD_ONLY
        options = [
            inspect.Parameter(each.name, keyword, default=default, annotation=each.type)
            for each, default in zip(fields(PipelineOptions), _defaults(), strict=True)
            if each.name not in left_out
        ]
        function.__signature__ = inspect.Signature([*own, *options])  # type: ignore[attr-defined]
        return function

    return signed


def _defaults() -> list[Any]:
    """The default of each option, in JSON types."""
    usual = PipelineOptions()
    values = (getattr(usual, each.name) for each in fields(PipelineOptions))
    return [list(value) if isinstance(value, tuple) else value for value in values]


DEFAULTS = dict(zip((each.name for each in fields(PipelineOptions)), _defaults(), strict=True))
