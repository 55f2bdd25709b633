"""Records beside an index, such as certificates, each bound to what it was computed for.

A record is a JSON file of its own, named after its binding, so that one can be added later.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from textpriv.files import atomic_write, umask

__all__ = ["Records"]


class Records:
    """The records of one index, in memory and, if it has one, in its folder.

    Parameters
    ----------
    folder : Path or None
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._entries: dict[str, dict[str, Any]] = {}

    def find(self, binding: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the record of a binding; a damaged one is ignored, with a warning."""
        name, bound = _named(binding)
        if name in self._entries:
            return dict(self._entries[name]["content"])
        file = None if self._folder is None else self._folder / f"{name}.json"
        if file is None or not file.exists():
            return None
        try:
            entry = json.loads(file.read_bytes())
            if entry["binding"] == bound:
                self._entries[name] = entry
                return dict(entry["content"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            pass
        warnings.warn(f"{file} is damaged and is computed again.", stacklevel=3)
        return None

    def keep(self, binding: Mapping[str, Any], content: dict[str, Any]) -> None:
        """Record something for a binding, on disk too if the folder can be written."""
        name, bound = _named(binding)
        self._entries[name] = {"binding": bound, "content": content}
        if self._folder is not None:
            with suppress(OSError):
                self._write(self._folder, name)

    def copy_to(self, folder: Path) -> None:
        """Write all records into another folder."""
        if self._folder is not None and self._folder.is_dir():
            folder.mkdir()
            for file in self._folder.glob("*.json"):
                (folder / file.name).write_bytes(file.read_bytes())
        for name in self._entries:
            self._write(folder, name)

    def _write(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(folder / f"{name}.json", mode=0o666 & ~umask()) as file:
            file.write(json.dumps(self._entries[name], indent=1).encode())


def _named(binding: Mapping[str, Any]) -> tuple[str, Any]:
    """Return the name of a binding's record, and the binding as it comes back from JSON."""
    bound = json.loads(json.dumps(binding))
    digest = hashlib.sha256(json.dumps(bound, sort_keys=True).encode())
    return digest.hexdigest()[:32], bound
