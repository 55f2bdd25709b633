"""What every engine is told: the settings from which a process builds a Privatizer, and what columns mean."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from textpriv.errors import CorpusError

if TYPE_CHECKING:
    from textpriv.privatizer import Privatizer


@dataclass(frozen=True)
class PrivatizerSettings:
    """An index path and plain values from which a process builds a Privatizer.

    Attributes
    ----------
    index
        Path of a saved index folder, which each process maps into memory; "builtin:en" is the built-in index.
    mechanism
        Registered name, such as ``"textpriv.TEM.v1"``, or the short one of the commands, such as ``"tem"``. Default: that
        of the index, as in :func:`textpriv.privatize`.
    options
        The mechanism's arguments, such as ``{"epsilon": 6.0}`` (epsilon in units of 1/distance).
    policy
        Fields of TokenPolicy; those left out keep their defaults.
    seed
        For experiments only; None for secret randomness.
    run_key
        32 random bytes that every process shares. Not used with a ledger.
    key_file
        Path of a run key that each process reads for itself, in place of ``run_key``: the settings then hold no secret.
    ledger, limits
        Path of the ledger that counts every document, and its limits, as in :class:`textpriv.ledger.Ledger`.
    language
        spaCy's code of the language whose rules tokenize the texts; None for that of the index.
    spans
        The policy of typed spans, as :meth:`textpriv.spans.policy.SpanPolicy.from_dict` reads it; None for words alone.
    detect
        Names of the detectors, as :func:`textpriv.spans.detectors.make_detector` knows them.
    """

    index: str = "builtin:en"
    mechanism: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    policy: Mapping[str, str] = field(default_factory=dict)
    seed: int | None = None
    run_key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    key_file: str | None = None
    ledger: str | None = None
    limits: Mapping[str, float] = field(default_factory=dict)
    language: str | None = None
    spans: Mapping[str, Any] | None = None
    detect: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.key_file is not None:
            object.__setattr__(self, "run_key", b"")

    def build(self) -> Privatizer:
        """Load the index and build the Privatizer."""
        from textpriv.index.builtin import open_index
        from textpriv.mechanisms import default_name, find_mechanism
        from textpriv.privatizer import Privatizer
        from textpriv.tokenization.policy import TokenPolicy

        index = open_index(self.index)
        name = self.mechanism or default_name(index)
        mechanism = find_mechanism(name)(**self.options)(index)
        more: dict[str, Any] = {"language": self.language, "seed": self.seed}
        if self.spans is not None:
            from textpriv.spans.detectors import make_detector
            from textpriv.spans.policy import SpanPolicy

            language = self.language or mechanism.index.language or "en"
            more["spans"] = SpanPolicy.from_dict(self.spans)
            more["detector"] = [make_detector(name, language) for name in self.detect]
        if self.ledger is not None:
            from textpriv.ledger import Ledger

            more["ledger"] = Ledger(self.ledger, **self.limits)
        elif self.seed is None:
            more["run_key"] = self.secret()
        return Privatizer(mechanism, TokenPolicy.from_dict(dict(self.policy)), **more)

    def secret(self) -> bytes:
        """Return the run key itself."""
        if self.key_file is None:
            return self.run_key
        from textpriv.run_key import read_run_key

        return read_run_key(self.key_file)


@dataclass(frozen=True)
class Columns:
    """Meaning of the columns of a table.

    Attributes
    ----------
    text_column
        The texts, as a name or several.
    document_column
        The name of each document, from which its randomness follows, all different; text or whole numbers. Without one a
        document goes by its own text and its number among equal ones.
    author_column
        The name of each document's author: for a ledger, and for spans that are replaced the same way for a person.
    labels_column
        The spans of each text that are known already (:func:`textpriv.spans.span.read_labels`). The column is left out of
        what is released; with one column of texts only.
    null
        A null text is kept (``"keep"``), refused (``"fail"``) or becomes an empty text (``"empty"``).

    Raises
    ------
    CorpusError
        If a text is to be its own name, since equal texts would come out equal, or if the columns do not fit together.
    """

    text_column: str | Sequence[str] = "text"
    document_column: str | None = None
    author_column: str | None = None
    labels_column: str | None = None
    null: str = "keep"

    def __post_init__(self) -> None:
        if not self.texts or len(set(self.texts)) < len(self.texts):
            raise CorpusError("Name each column of texts once.")
        if twice := {*self.texts} & {*self.others}:
            raise CorpusError(
                f"{twice.pop()!r} contains the texts, so it cannot name documents or authors, nor hold labels. Name "
                "another column."
            )
        if self.labels_column is not None and len(self.texts) > 1:
            raise CorpusError("Labels are offsets in one text: release several columns one by one.")
        if self.null not in ("keep", "fail", "empty"):
            raise CorpusError(f"null must be keep, fail or empty; found {self.null!r}.")

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns of texts."""
        return (self.text_column,) if isinstance(self.text_column, str) else (*self.text_column,)

    @property
    def others(self) -> tuple[str | None, str | None, str | None]:
        """The columns of names, of authors and of labels."""
        return self.document_column, self.author_column, self.labels_column

    def check(self, names: Sequence[str]) -> None:
        """Refuse the columns of a table where one that is needed is not there once."""
        for name in (*self.texts, *self.others):
            if name is not None and (count := list(names).count(name)) != 1:
                raise CorpusError(
                    f"expected one column named {name!r}, found {count} among {len(names)} columns. Name yours."
                )

    @classmethod
    def on_machines(cls, settings: PrivatizerSettings, **columns: Any) -> Columns:
        """Return the columns of a table whose rows several machines release, in no order: documents need names."""
        if settings.ledger is not None:
            raise CorpusError("A ledger counts on one machine: use a run key.")
        made = cls(**columns)
        if made.document_column is None:
            raise CorpusError("The rows have no order: name documents with document_column=.")
        return made
