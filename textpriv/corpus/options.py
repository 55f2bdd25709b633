"""The options of a run over a corpus, checked before anything is read or made."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from textpriv.corpus.stores import is_stream
from textpriv.engines.columns import Columns
from textpriv.errors import CorpusError
from textpriv.settings import PrivatizerSettings

if TYPE_CHECKING:
    from textpriv.corpus.report import Progress
    from textpriv.privatizer import Privatizer
    from textpriv.run_key import RunKey


class ColumnError(CorpusError):
    """A column that is new late, or a pattern that matches none: the run cannot go on under its rule."""


@dataclass(frozen=True)
class ColumnRule:
    """Which columns beside the texts pass through; those that do are not protected.

    Attributes
    ----------
    keep
        Patterns (``*`` and ``?``) of the names that pass; None for all.
    drop
        Patterns of the names that do not, also where ``keep`` has them. A pattern of either that matches no column is an
        error.

    A column that first appears after the first 1,000 records ends the run, unless ``keep`` or ``drop`` has it.
    """

    keep: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()

    def passes(self, name: str) -> bool:
        """Return whether a column of this name passes."""
        return not _matches(self.drop, name) and (self.keep is None or _matches(self.keep, name))

    def refuses_late(self, name: str) -> bool:
        """Return whether a column of this name ends the run when it first appears late."""
        return self.keep is None and not _matches(self.drop, name)

    def check(self, names: Collection[str]) -> None:
        """Refuse a pattern that matches none of the names: a mistyped one of ``drop`` would release its column."""
        for pattern in (*(self.keep or ()), *self.drop):
            if pattern != "*" and not any(fnmatch.fnmatchcase(name, pattern) for name in names):
                found = ", ".join(sorted(names)[:10])
                raise ColumnError(
                    f"no column matches {pattern!r} of --keep or --drop; found {found}."
                )


@lru_cache(maxsize=4096)
def _matches(patterns: tuple[str, ...], name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


@dataclass(frozen=True, kw_only=True)
class RunOptions(Columns):
    """Options of a run over a corpus. It is a Columns, which has ``texts``, ``read`` and ``record``.

    Attributes
    ----------
    text_column, document_column, author_column, labels_column
        As in :class:`textpriv.engines.columns.Columns`. A repeated name is a bad record, but with a ledger a version.
    columns
        Which other columns pass through; all of them by default. They are not protected.
    format
        Of both ends; None goes by the extensions.
    encoding
        Of the lines of an input, by its name in Python; None is UTF-8, in which every output is written.
    rotates
        Finished shards may be gone from the input when a folder is continued. Documents then need names.
    on_error
        ``"fail"``, ``"skip"`` or ``"quarantine"``: at a bad record stop, leave it out and count it, or also write it to
        ``target.quarantine.jsonl`` (mode 0600, raw text).
    key
        The run key of ``privatizer``, kept in a file. A run with a key, a seed or a ledger can be continued.
    resume, overwrite
        Continue a run; replace an output file, or a run under other settings. A folder is never replaced.
    settings
        From which other processes build ``privatizer``; required for several workers and for Spark and Ray.
    workers, engine, address
        Processes; ``"local"``, ``"spark"`` or ``"ray"``; the Spark master or the Ray cluster, None for one on this machine.
    batch_size, part_records
        Records that are released at a time, and after which they are safe on the disk. A batch also closes at 4 MiB.
    on_progress, on_unprotected
        Called with each step; with names of columns that pass, at the first records that have them.
    """

    columns: ColumnRule = field(default_factory=ColumnRule)
    format: str | None = None
    encoding: str | None = None
    rotates: bool = False
    on_error: str = "fail"
    key: RunKey | None = None
    resume: bool = False
    overwrite: bool = False
    settings: PrivatizerSettings | None = None
    workers: int = 1
    engine: str = "local"
    address: str | None = None
    batch_size: int = 500
    part_records: int = 5_000
    on_progress: Callable[[Progress], None] | None = None
    on_unprotected: Callable[[tuple[str, ...]], None] | None = None

    @property
    def shared(self) -> RunOptions:
        """The options that travel to other processes: without the run key and what is called in this one."""
        return replace(self, key=None, on_progress=None, on_unprotected=None)

    def writes(self, name: str) -> bool:
        """Return whether a column is in the output: one of texts, or one that passes."""
        return name in self.texts or (name != self.labels_column and self.columns.passes(name))

    def check_run(self, privatizer: Privatizer, sources: Sequence[str], target: str) -> None:
        """Refuse options that this privatizer, or these ends, cannot have."""
        has_ledger = privatizer.ledger is not None
        if self.engine not in ("local", "spark", "ray"):
            raise CorpusError(f"engine must be local, spark or ray; found {self.engine!r}.")
        if self.rotates and self.document_column is None:
            # Equal texts would be numbered from the first again, and come out equal.
            raise CorpusError("An input that rotates needs named documents: give document_column.")
        if (self.workers > 1 or self.engine != "local") and self.settings is None:
            raise CorpusError("More than one worker needs settings=PrivatizerSettings(...).")
        if (self.author_column or has_ledger) and self.document_column is None:
            raise CorpusError("A ledger and authors need named documents: give a document_column.")
        if has_ledger and self.engine != "local":
            raise CorpusError("A ledger counts on one machine: use the local engine.")
        repeats = self.key is not None or has_ledger or privatizer.seed is not None
        if self.resume and not repeats:
            raise CorpusError("A run can be continued only with a run key, a seed or a ledger.")
        ends = [name for name in (*sources, target) if is_stream(name)]
        is_known = ends == sources and self.document_column is not None
        if ends and (self.resume or self.engine != "local" or (self.key and not is_known)):
            raise CorpusError(
                "A stream passes only once, without key, --resume or engine. Name files."
            )
