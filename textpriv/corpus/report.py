"""Report of a run and its progress events: counts of documents and tokens, and names of columns; no text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from textpriv.corpus.plan import Plan
from textpriv.statement import PrivacyStatement

_NAMES = 1000  # most names of other columns, or of records over a limit, that are remembered


@dataclass
class Counts:
    """Counts of a batch, a part or a run, and the names of the other columns, whether they pass or not."""

    documents: int = 0
    nulls: int = 0
    tokens: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    columns: list[str] = field(default_factory=list)
    end: float = 0.0  # share of the file before the end of the batch or part that was added last
    refused: list[str] = field(default_factory=list)  # records over a limit of the ledger

    def add(self, other: Counts) -> None:
        """Add the counts of a batch or a part."""
        self.documents += other.documents
        self.nulls += other.nulls
        self.tokens.update(other.tokens)
        self.skipped.update(other.skipped)
        self.end = other.end
        self.refused = [*self.refused, *other.refused][:_NAMES]
        # In the order in which they first appear, but not endlessly many.
        self.columns = list(dict.fromkeys([*self.columns, *other.columns]))[:_NAMES]


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    documents: int  # written so far, also by the run that is continued
    tokens: int
    fraction: float | None  # of the input, by the bytes of its files; None if unknown
    resumed: int = 0  # tokens that the run before has written


@dataclass(frozen=True)
class CorpusReport:
    """Counts of a run; nothing is derived from the texts beyond what was released.

    Attributes
    ----------
    documents, nulls, files
        Records written, null texts among them, and files.
    tokens, skipped
        Tokens by class, as released, and bad records left out, by reason.
    unprotected, refused
        The first 1,000 names of copied columns, and records that were left out, over a limit of the ledger.
    seconds, quarantine, resumed
        Wall time, the file of bad records, and documents that an earlier run had finished.
    besides
        What passes besides texts and columns, as the statement says it.
    """

    documents: int
    tokens: Mapping[str, int]
    skipped: Mapping[str, int]
    unprotected: tuple[str, ...]
    nulls: int = 0
    seconds: float = 0.0
    files: int = 1
    quarantine: str | None = None
    resumed: int = 0
    refused: tuple[str, ...] = ()
    besides: tuple[str, ...] = ()

    @classmethod
    def of(cls, plan: Plan, counts: Counts, quarantine: str | None, resumed: int) -> CorpusReport:
        """Make the report of a run that is done."""
        lines = {
            "the names of files and folders, released as they are, and how many documents stand in each": plan.is_folder,
            "the form of the files: the order and types of columns, delimiters and line endings": plan.format
            != "text",
            "how many bad records were left out, and for which reasons": counts.skipped,
            f"which records have no text: {counts.nulls:,} null texts stay null": counts.nulls,
            "what an option has kept beside the output, which is as private as the texts: bad records as they "
            "were": quarantine,
        }
        return cls(
            documents=counts.documents,
            tokens=dict(counts.tokens),
            skipped=dict(counts.skipped),
            unprotected=tuple(filter(plan.options.writes, counts.columns)),
            nulls=counts.nulls,
            files=len(plan.files),
            quarantine=quarantine,
            resumed=resumed,
            refused=tuple(counts.refused),
            besides=tuple(line for line, is_said in lines.items() if is_said),
        )

    def stated(self, statement: PrivacyStatement) -> PrivacyStatement:
        """Return the statement of a privatizer for what this run released: all else that passes is named, too."""
        return statement.with_columns(self.unprotected).extended(not_protected=self.besides)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        content = asdict(self)
        del content["besides"]
        return {**content, "seconds": round(self.seconds, 3)}
