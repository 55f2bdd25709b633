"""Epsilons that were searched for, each bound to its question: those that come with the package, and the user's own.

The user's are JSON files in the cache folder. An index folder holds none: whoever hands one on could name an epsilon that
protects less than was asked for.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from textpriv.files import atomic_write, cache_folder
from textpriv.vocabulary.builtin import read_manifest

__all__ = ["find_record", "keep_record"]


def find_record(binding: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what was recorded for exactly this binding, or None; a damaged file is ignored, with a warning."""
    file, bound = _named(binding)
    for entry in read_manifest("en")["records"]:
        if entry["binding"] == bound:
            return dict(entry["content"])
    if not file.is_file():
        return None
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        entry = json.loads(file.read_bytes())
        if entry["binding"] == bound:
            return dict(entry["content"])
    warnings.warn(f"{file} is damaged and is computed again.", stacklevel=3)
    return None


def keep_record(binding: Mapping[str, Any], content: dict[str, Any]) -> None:
    """Record something for a binding, if the cache folder can be written."""
    file, bound = _named(binding)
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(file) as out:
            out.write(json.dumps({"binding": bound, "content": content}, indent=1).encode())


def _named(binding: Mapping[str, Any]) -> tuple[Path, Any]:
    """Return the file of a binding's record, and the binding as it comes back from JSON."""
    bound = json.loads(json.dumps(binding))
    digest = hashlib.sha256(json.dumps(bound, sort_keys=True).encode()).hexdigest()
    return cache_folder() / "epsilons" / f"{digest[:32]}.json", bound
