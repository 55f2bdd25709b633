"""Report of a run and its progress events: counts of documents and tokens, and names of columns; no text."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any

from textpriv.corpus import stores
from textpriv.corpus.folder import Entry
from textpriv.corpus.records import is_stream
from textpriv.corpus.release import Plan
from textpriv.statement import PrivacyStatement

__all__ = ["CorpusReport", "Progress", "Tally"]

_LOG = logging.getLogger("textpriv")
_LOGGED_SECONDS = 10.0  # between two lines of a log
_NAMES = 1000  # most names of other columns that are reported


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    Attributes
    ----------
    documents, tokens : int
        Written so far, also by the run that is continued.
    fraction : float or None
        Share of the input whose records are written, in [0, 1]; None if unknown.
    resumed : int
        Tokens that the run before has written.
    """

    documents: int
    tokens: int
    fraction: float | None
    resumed: int = 0


@dataclass(frozen=True)
class CorpusReport:
    """Counts of a run; nothing is derived from the texts beyond what was released.

    Attributes
    ----------
    documents
        Records written.
    tokens
        Tokens by class, as released.
    skipped
        Bad records left out, by reason.
    unprotected
        Names of the other columns, which pass through as they are; the first 1,000 of them.
    nulls
        Null texts that are kept.
    seconds
        Wall time.
    files
        Files of the output.
    quarantine
        The file of bad records; None if there are none.
    resumed
        Documents that an earlier run had finished.
    unmatched
        Patterns of the rule for columns that no column has matched: mistyped ones, perhaps.
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
    unmatched: tuple[str, ...] = ()
    besides: tuple[str, ...] = ()

    def stated(self, statement: PrivacyStatement) -> PrivacyStatement:
        """Return the statement of a privatizer for what this run released: all else that passes is named, too."""
        return statement.with_columns(self.unprotected).extended(not_protected=self.besides)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        content = asdict(self)
        del content["besides"]
        return {**content, "seconds": round(self.seconds, 3)}


class Tally:
    """The counts of a run under way, and its progress events."""

    def __init__(self, plan: Plan, on_progress: Callable[[Progress], None] | None) -> None:
        self._plan = plan
        self._on_progress = on_progress
        # Bytes of the input before each file, and of all of it.
        self._sizes = [0, *accumulate(_size(path) for _, path in plan.files)]
        self.documents = self.nulls = self.resumed = 0
        self.tokens: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.unprotected: dict[str, None] = {}
        self._matched: set[str] = set()
        self._logged = time.monotonic()

    def add(self, entry: Entry) -> None:
        """Count a finished part, or a batch that was written."""
        self.documents += entry.documents
        self.nulls += entry.nulls
        self.tokens.update(entry.tokens)
        self.skipped.update(entry.skipped)
        self.add_names(entry.unprotected)
        self._matched.update(entry.matched)

    def add_names(self, names: Collection[str]) -> None:
        """Remember names in the order in which they first appear, but not endlessly many."""
        for name in names:
            if len(self.unprotected) < _NAMES:
                self.unprotected[name] = None

    def fraction_of(self, file: int, part: float | None) -> float | None:
        """Return the share of the input before a place in a file."""
        if part is None or not self._sizes[-1]:
            return None
        before, end = self._sizes[file], self._sizes[file + 1]
        return (before + part * (end - before)) / self._sizes[-1]

    def report_progress(self, fraction: float | None) -> None:
        """Report how far the run is."""
        if time.monotonic() - self._logged >= _LOGGED_SECONDS:
            self._logged = time.monotonic()
            part = "" if fraction is None else f", {fraction:.0%} of the input"
            _LOG.info("%d documents released%s", self.documents, part)
        if self._on_progress is not None:
            done = None if fraction is None else min(1.0, fraction)
            tokens = sum(self.tokens.values())
            self._on_progress(Progress(self.documents, tokens, done, self.resumed))

    def report(self, **more: Any) -> CorpusReport:
        """Return the report of the run."""
        skipped, quarantine = sum(self.skipped.values()), more.get("quarantine")
        _LOG.info("done: %d documents, %d skipped", self.documents, skipped)
        return CorpusReport(
            documents=self.documents,
            tokens=dict(self.tokens),
            skipped=dict(self.skipped),
            unprotected=tuple(self.unprotected),
            nulls=self.nulls,
            besides=self._besides(quarantine is not None),
            unmatched=tuple(p for p in self._plan.rule.patterns if p not in self._matched),
            **more,
        )

    def _besides(self, has_quarantine: bool) -> tuple[str, ...]:
        kept = []
        if has_quarantine:
            kept.append("bad records as they were")
        if self._plan.has_offsets:
            kept.append("where spans stood in the raw texts")
        lines = {
            "the names of files and folders, released as they are, and how many documents stand in "
            "each": self._plan.is_folder,
            "the form of the files: the order and types of columns, delimiters and line "
            "endings": self._plan.format != "text",
            "how many bad records were left out, and for which reasons": self.skipped,
            f"which records have no text: {self.nulls:,} null texts stay null": self.nulls,
            "what an option has kept beside the output, which is as private as the texts: "
            + " and ".join(kept): kept,
        }
        return tuple(line for line, is_said in lines.items() if is_said)


def _size(path: str) -> int:
    try:
        if is_stream(path):
            return 0
        with stores.opened(path) as file:
            return file.seek(0, os.SEEK_END)
    except OSError:
        return 0
