"""Resume: what a run compares with what earlier runs have left, and what it then does."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textpriv.corpus import stores
from textpriv.corpus.checkpoint import Checkpoint
from textpriv.corpus.options import RunOptions
from textpriv.corpus.plan import Plan, refuse_taken
from textpriv.corpus.stores import is_stream
from textpriv.errors import CorpusError
from textpriv.files import is_url, local_path, sha256_file
from textpriv.mechanisms.base import checksum

if TYPE_CHECKING:
    from textpriv.privatizer import Privatizer

_ENDS = 64 * 1024  # bytes of an input at a URL, at either end, by which it is known again


class State(Enum):
    """What a run into files does, by what earlier runs have left."""

    NEW = auto()  # nothing is there that goes on; what --force replaces goes
    EXTEND = auto()  # a finished folder, by shards that are new in the input
    RESUME = auto()  # after the last part that is finished
    PUBLISH = auto()  # again: the output of the interrupted run may be visible
    DONE = auto()  # the output is there and nothing has changed


@dataclass(frozen=True)
class Start:
    """Where a run begins."""

    state: State
    plan: Plan  # its files are in the order in which earlier runs have made them
    job: Mapping[str, str]  # as of job_of; empty if no run draws the same words again
    before: Mapping[str, Any]  # the manifest of a finished output that is added to, or nothing
    made: int  # how many files that has, which come first in the plan


def decide(
    plan: Plan, privatizer: Privatizer, folder: Checkpoint, known: Callable[[str], Any]
) -> Start:
    """Decide what to do by what is on the disk; refuse what may not be replaced or continued.

    Nothing is changed here. ``known`` is :func:`known_by`, with a memory for a run that compares several jobs.
    """
    options = plan.options
    manifest = _manifest(plan.target) if stores.is_taken(plan.target) else {}
    names = [file["name"] for file in manifest.get("files", ())]
    if options.rotates:
        present = {file.name for file in plan.files}
        names = [name for name in names if name in present]
    begun, started = folder.begun
    started = started if options.resume else []
    plan = plan.in_order([*names, *started])

    def job(like: Mapping[str, str], files: int | None = None) -> dict[str, str]:
        return job_of(plan.first(files), privatizer, like, known)

    if started and begun == job(begun or {}, len(started)):
        plan = plan.first(len(started))
    made_by = manifest.get("job") or {}
    before, made = {}, 0
    if options.resume and made_by and made_by == job(made_by, len(names)):
        before, made = manifest, len(names)
        if made == len(plan.files):
            return Start(State.DONE, plan, made_by, before, made)
    # Whether a run with these settings draws the same words again, so that it can be continued.
    sources = options.key, privatizer.ledger, privatizer.seed
    repeats = sources.count(None) < len(sources) and not is_stream(plan.files[0].path)
    own = job(begun or (made_by if before else {})) if repeats else {}
    state = State.EXTEND if before else State.NEW
    if _is_continued(folder, own, options):
        if (folder.path / "publishing").exists():
            return Start(State.PUBLISH, plan, own, before, made)
        state = State.RESUME
    if before:
        for file in plan.files[made:]:
            refuse_taken(f"{plan.target}/{file.name}")
    elif not options.overwrite or plan.is_folder:
        changed = _changed(made_by, job(made_by)) if made_by and own else ""
        refuse_taken(plan.target, changed and f", made otherwise ({changed})")
    return Start(state, plan, own, before, made)


def job_of(
    plan: Plan, privatizer: Privatizer, like: Mapping[str, str], known: Callable[[str], Any]
) -> dict[str, str]:
    """Return keyed hashes of everything that decides the output, by what to call it, to be compared with another job.

    A job that is not made like another has a salt of its own, so that two manifests do not show what is equal.
    """
    options, ledger, domain = plan.options, privatizer.ledger, privatizer.mechanism.index.domain
    secret = f"seed {privatizer.seed}".encode() if ledger is None else bytes(ledger.mark)
    secret = secret if options.key is None else options.key.secret
    salt = like.get("salt") or secrets.token_hex(8)
    own = hashlib.blake2b(secret, salt=bytes.fromhex(salt), person=b"textpriv-job").digest()

    def mark(value: Any) -> str:
        content = json.dumps(value, default=str).encode()
        return hashlib.blake2b(content, key=own, digest_size=16).hexdigest()

    compression = None if plan.is_folder else plan.files[0].compression
    inputs = {f"input {file.name}".rstrip(): file.path for file in plan.files}
    items = {
        "key": "key",
        "epsilon": privatizer.statement.epsilon,
        "mechanism": type(privatizer.mechanism).__name__,
        "settings": privatizer.fingerprint.hex(),
        "domain": None if domain is None else checksum(domain),
        "format": [plan.format, compression, options.encoding],
        "columns": [options.read, options.labels_column, asdict(options.columns)],
        "bad records": options.on_error,
        "part": options.part_records,
        **{name: known(path) for name, path in inputs.items()},
    }
    # Of shards that rotate, what is gone from the input counts as it was.
    names = [name for name in like if name.startswith("input ")] if options.rotates else []
    gone = {name: like[name] for name in names if name not in inputs}
    return {"salt": salt, **{name: mark(value) for name, value in items.items()}, **gone}


def known_by(path: str) -> Any:
    """Return by what an input file is known: its SHA-256, or at a URL, which is slow to read, its size and both ends."""
    if not is_url(path):
        return sha256_file(Path(path))
    with stores.opened(path) as opened:
        first, size = opened.read(_ENDS), opened.seek(0, os.SEEK_END)
        opened.seek(max(0, size - _ENDS))
        return [size, first.hex(), opened.read(_ENDS).hex()]


def _manifest(target: str) -> dict[str, Any]:
    """Return the manifest beside an output; empty if there is none."""
    name = f"{target if is_url(target) else local_path(target)}.manifest.json"
    with contextlib.suppress(OSError, ValueError, TypeError), stores.opened(name) as file:
        return dict(json.load(file))
    return {}


def _is_continued(folder: Checkpoint, job: Mapping[str, Any], options: RunOptions) -> bool:
    """Return whether the run goes on in a folder."""
    if not os.path.lexists(folder.path):
        return False
    if (before := folder.begun[0]) is None:
        raise CorpusError(f"{folder.path} has no job file of a run. Move it away.")
    if before and not options.overwrite:
        if not options.resume:
            left = f"An earlier run was interrupted and left {folder.path}."
            raise CorpusError(f"{left} Continue it with --resume, or begin again with --force.")
        if changed := _changed(before, job):
            raise CorpusError(
                f"The run in {folder.path} was begun otherwise ({changed}). Another release of the same texts adds to their "
                "privacy loss. Give --resume the same input, settings and key, or begin again with --force."
            )
    return options.resume and before == job


def _changed(before: Mapping[str, Any], job: Mapping[str, Any]) -> str:
    """Name what differs between two jobs, if anything."""
    if before.get("key") != job.get("key"):
        return "changed: key or seed, or the key was destroyed"
    found = [name for name in {**before, **job} if before.get(name) != job.get(name)]
    named = [name for name in found if name != "settings"] or found
    more = f" and {len(named) - 5:,} more" if len(named) > 5 else ""
    return f"changed: {', '.join(named[:5])}{more}" if named else ""
