"""The meaning of the columns of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from textpriv.errors import CorpusError

if TYPE_CHECKING:
    from textpriv.settings import PrivatizerSettings


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
