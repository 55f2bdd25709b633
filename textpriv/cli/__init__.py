"""Command line: commands, their options, and what they print."""

from __future__ import annotations

from textpriv.cli.app import main

__all__ = ["main"]
