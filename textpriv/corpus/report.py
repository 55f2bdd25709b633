"""The report of a run and its progress events: counts of documents, tokens and unprotected columns, no text.

Written while parts are finished; what is in a part is decided in ``corpus.parts``.
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from textpriv import stores
from textpriv.corpus.checkpoint import Entry
from textpriv.corpus.job import Plan
from textpriv.corpus.records import Batch, CorpusReader, is_stream
from textpriv.statement import PrivacyStatement

__all__ = ["CorpusReport", "Progress", "Tally", "add_names", "besides", "other_columns"]

_LOG = logging.getLogger("textpriv")
_LOGGED_SECONDS = 10.0  # between two lines of a log
# Most names of other columns that are reported; JSON may have a new one in every record.
_NAMES = 1000
_NAMES_OF_FILES = (
    "the names of files and folders, released as they are, and how many documents stand in each"
)
_FORM = "the form of the files: the order and types of columns, delimiters and line endings"
_LEFT_OUT = "how many bad records were left out, and for which reasons"
_OWNERS = "what an option has kept beside the output, which is as private as the texts: {}"


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    Attributes
    ----------
    documents, tokens : int
        Released so far.
    fraction : float or None
        Share of the input that was read, in [0, 1]; None if unknown.
    resumed : int
        Tokens among them that an earlier, interrupted run has released.
    """

    documents: int
    tokens: int
    fraction: float | None
    resumed: int = 0


@dataclass(frozen=True)
class CorpusReport:
    """What one run did. Counts only; nothing is derived from the texts beyond what was released.

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
    seconds
        Wall time.
    files
        Files written.
    quarantine
        The quarantine, a file of bad records; None if there are none.
    resumed
        Documents that an earlier, interrupted run had finished.
    unmatched
        Patterns of the rule for columns, other than ``*``, that no other column has matched: mistyped ones, perhaps. Empty
        for a run that was complete before.
    besides
        What passes besides texts and columns, as the statement says it.
    """

    documents: int
    tokens: Mapping[str, int]
    skipped: Mapping[str, int]
    unprotected: tuple[str, ...]
    seconds: float
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
        return {
            "documents": self.documents,
            "tokens": dict(self.tokens),
            "skipped": dict(self.skipped),
            "unprotected": list(self.unprotected),
            "seconds": round(self.seconds, 3),
            "files": self.files,
            "quarantine": self.quarantine,
            "resumed": self.resumed,
            "unmatched": list(self.unmatched),
        }


def besides(plan: Plan, skipped: Mapping[str, int], has_quarantine: bool) -> tuple[str, ...]:
    """What passes of an input besides texts and columns, by a run's plan and which bad records it has left out."""
    kept = []
    if has_quarantine:
        kept.append("bad records as they were")
    if plan.has_offsets:
        kept.append("where spans stood in the raw texts")
    return (
        *([_NAMES_OF_FILES] if plan.is_folder else []),
        *([_FORM] if plan.format != "text" else []),
        *([_LEFT_OUT] if skipped else []),
        *([_OWNERS.format(" and ".join(kept))] if kept else []),
    )


class Tally:
    """The counts of a run under way, and its progress events."""

    def __init__(
        self,
        plan: Plan,
        on_progress: Callable[[Progress], None] | None,
        on_unprotected: Callable[[tuple[str, ...]], None] | None,
    ) -> None:
        self._plan = plan
        self._on_progress = on_progress
        self._on_unprotected = on_unprotected
        # Bytes of the input before each file, and of all of it.
        self._sizes = [0, *accumulate(_size(path) for _, path in plan.files)]
        self.documents = 0
        self.tokens: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.unprotected: dict[str, None] = {}
        self._matched: set[str] = set()
        self._has_warned = False
        self._logged = time.monotonic()
        self.resumed = 0

    def add_columns(self, reader: CorpusReader, rows: Any) -> None:
        """Count the names of the other columns, and report those of the first record that has any."""
        for names in other_columns(reader, rows, self._plan.partitions):
            passing = [name for name in names if self._plan.rule.passes(name)]
            self._add_columns(passing, self._plan.rule.matched(names))

    def _add_columns(self, passing: Sequence[str], matched: Sequence[str]) -> None:
        if passing and not self._has_warned and self._on_unprotected is not None:
            self._has_warned = True
            self._on_unprotected(tuple(passing))
        add_names(self.unprotected, passing)
        self._matched.update(matched)

    def add_entry(self, entry: Entry) -> None:
        """Count what an earlier run has finished, or another process."""
        self._add_columns(entry.unprotected, entry.matched)
        self.documents += entry.documents
        self.tokens.update(entry.tokens)
        self.skipped.update(entry.skipped)

    def add_batch(
        self, file: int, reader: CorpusReader, batch: Batch, tokens: Counter[str]
    ) -> None:
        """Count a batch."""
        self.documents += len(batch.texts)
        self.tokens.update(tokens)
        self.skipped.update(bad.reason for bad in batch.bad)
        part, total = reader.fraction, self._sizes[-1]
        if part is None or not total:
            self.report_progress(None)
        else:
            before, end = self._sizes[file], self._sizes[file + 1]
            self.report_progress((before + part * (end - before)) / total)

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

    def report(self, seconds: float, quarantine: str | None = None, **more: Any) -> CorpusReport:
        """The report of the run."""
        skipped = sum(self.skipped.values())
        _LOG.info("done: %d documents, %d skipped, %.1f s", self.documents, skipped, seconds)
        return CorpusReport(
            documents=self.documents,
            tokens=dict(self.tokens),
            skipped=dict(self.skipped),
            unprotected=tuple(self.unprotected),
            seconds=seconds,
            quarantine=quarantine,
            besides=besides(self._plan, self.skipped, quarantine is not None),
            unmatched=tuple(p for p in self._plan.rule.patterns if p not in self._matched),
            **more,
        )


def other_columns(
    reader: CorpusReader, rows: Any, partitions: Sequence[str]
) -> Iterator[list[str]]:
    """Yield the names of the other columns: those of each JSON record that has new ones, else of the file.

    The rows are those of a batch, or none. Columns by which folders are partitioned come with the first of them.
    """
    known = set(reader.text_columns)
    for names in rows if reader.format == "jsonl" else [reader.columns]:
        columns = dict.fromkeys([*partitions, *names])
        partitions = ()
        if not known.issuperset(columns):
            known.update(columns)
            yield [name for name in columns if name not in reader.text_columns]


def add_names(known: dict[str, None], names: Iterable[str]) -> None:
    """Remember names in the order in which they first appear, but not endlessly many."""
    for name in names:
        if len(known) < _NAMES:
            known[name] = None


def _size(path: str) -> int:
    try:
        if is_stream(path):
            return 0
        with stores.opened(path) as file:
            return file.seek(0, os.SEEK_END)
    except OSError:
        return 0
