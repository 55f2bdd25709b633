"""Index: a vocabulary's exact nearest lists under a metric, in memory or as a checked, memory-mapped folder."""

from __future__ import annotations

from textpriv.index.index import Index

__all__ = ["Index"]
