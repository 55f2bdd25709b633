"""The meaning of the columns of a table, and a record of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from textpriv.errors import CorpusError

if TYPE_CHECKING:
    from textpriv.settings import PrivatizerSettings


class Record(NamedTuple):
    """All that decides the release of one record."""

    texts: Sequence[Any]  # one for each column of texts; None where there is none
    name: Any = None
    author: Any = None
    labels: Any = None
    # Of a record without a name: the number of each text among the equal ones of its column, from 1.
    numbers: Sequence[int] = ()


@dataclass(frozen=True)
class Columns:
    """Meaning of the columns of a table.

    Attributes
    ----------
    text_column
        The texts, as a name or several. A null text stays null.
    document_column
        The name of each document, from which its randomness follows, all different; text or whole numbers. Without one a
        document goes by its own text and its number among equal ones.
    author_column
        The name of each document's author: for a ledger, and for spans that are replaced the same way for a person.
    labels_column
        The spans of each text that are known already (:func:`textpriv.spans.span.read_labels`). The column is left out of
        what is released; with one column of texts only.

    Raises
    ------
    CorpusError
        If a text is to be its own name, since equal texts would come out equal, or if the columns do not fit together.
    """

    text_column: str | Sequence[str] = "text"
    document_column: str | None = None
    author_column: str | None = None
    labels_column: str | None = None

    def __post_init__(self) -> None:
        if not self.texts or len(set(self.texts)) < len(self.texts):
            raise CorpusError("Name each column of texts once.")
        if twice := {*self.texts} & {self.document_column, self.author_column, self.labels_column}:
            raise CorpusError(
                f"{twice.pop()!r} contains texts: it cannot name documents or authors."
            )
        if self.labels_column is not None and len(self.texts) > 1:
            raise CorpusError("Labels are offsets in one text: release several columns one by one.")

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns of texts."""
        return (self.text_column,) if isinstance(self.text_column, str) else (*self.text_column,)

    @property
    def read(self) -> tuple[str, ...]:
        """The columns that are read: those of texts, names, authors and labels."""
        others = self.document_column, self.author_column, self.labels_column
        return (*self.texts, *filter(None, others))

    def check(self, names: Collection[str], of: str = "") -> None:
        """Refuse the columns ``of`` a table where one that is read is not there once."""
        for name in self.read:
            if (count := list(names).count(name)) != 1:
                raise CorpusError(
                    f"{of}expected one column named {name!r}, found {count} among {len(names)}. Name yours (--text-column)."
                )

    def record(self, values: Mapping[Any, Any]) -> Record:
        """Return a record, given the values of the columns that are read."""
        name, author = values.get(self.document_column), values.get(self.author_column)
        texts = [values[column] for column in self.texts]
        return Record(texts, name, author, values.get(self.labels_column))

    def records(
        self, read: Callable[[str], Sequence[Any]], numbers: Iterable[Sequence[int]] | None = None
    ) -> list[Record]:
        """Return the records of a table, given a function that reads a column by its name, and their numbers."""
        rows = zip(*map(read, self.read), strict=True)
        records = [self.record(dict(zip(self.read, values, strict=True))) for values in rows]
        if numbers is None:
            return records
        return [each._replace(numbers=own) for each, own in zip(records, numbers, strict=True)]

    @classmethod
    def on_machines(cls, settings: PrivatizerSettings, **columns: Any) -> Columns:
        """Return the columns of a table whose rows several machines release, in no order: documents need names."""
        if settings.ledger is not None:
            raise CorpusError("A ledger counts on one machine: use a run key.")
        made = cls(**columns)
        if made.document_column is None:
            raise CorpusError("The rows have no order: name documents with document_column=.")
        return made
