"""Records beside an index: certificates and calibrations, each bound to what it was computed for.

A record is a JSON file of its own with its binding and a checksum, so that one can be added later, and one that does not
belong is never believed. What is recorded, and whether it is sound, is known to those who compute it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from textpriv.files import atomic_write, umask

__all__ = ["Records"]


class Records:
    """The records of one index, in memory and, where it has one, in its folder.

    Parameters
    ----------
    folder : Path or None

    Attributes
    ----------
    bindings : dict of str to Any
        The bindings of what was recorded since the index was opened, by the names of the records.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._contents: dict[str, dict[str, Any]] = {}
        self.bindings: dict[str, Any] = {}

    def find(self, binding: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the record of a binding; one that does not match is ignored, with a warning."""
        name = _name_of(binding)
        if name in self._contents:
            return self._contents[name]
        if self._folder is None:
            return None
        file = self._folder / f"{name}.json"
        try:
            entry = json.loads(file.read_text(encoding="utf-8"))
            content, bound = dict(entry["content"]), entry["binding"]
            sound = entry["checksum"] == _digest([bound, content]) and bound == _plain(binding)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            sound = False
        if not sound:
            warnings.warn(
                f"{file} does not match what it is bound to and is ignored; it will be computed again.",
                stacklevel=3,
            )
            return None
        self._contents[name] = content
        return dict(content)

    def keep(self, binding: Mapping[str, Any], content: dict[str, Any]) -> None:
        """Record something for a binding."""
        self.remember(binding, content)
        name = _name_of(binding)
        if self._folder is not None:
            # A folder that others own may be read-only; the record then serves this process alone.
            with suppress(OSError):
                self._write(self._folder, name)

    def remember(self, binding: Mapping[str, Any], content: dict[str, Any]) -> None:
        """Record something for a binding in memory alone."""
        name = _name_of(binding)
        self._contents[name] = content
        self.bindings[name] = _plain(binding)

    def copy_to(self, folder: Path) -> None:
        """Write all records into another index's folder of records."""
        if self._folder is not None and self._folder.is_dir():
            shutil.copytree(self._folder, folder)
        for name in self.bindings:
            self._write(folder, name)

    def _write(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        bound, content = self.bindings[name], self._contents[name]
        checksum = _digest([bound, _plain(content)])
        entry = {"binding": bound, "content": content, "checksum": checksum}
        with atomic_write(folder / f"{name}.json", mode=0o666 & ~umask()) as file:
            file.write(json.dumps(entry, indent=1).encode())


def _plain(value: Any) -> Any:
    """Return a value as it comes back from JSON."""
    return json.loads(json.dumps(value))


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _name_of(binding: Mapping[str, Any]) -> str:
    return _digest(_plain(binding))[:32]
