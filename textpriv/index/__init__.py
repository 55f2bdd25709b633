"""Index: a vocabulary's exact nearest lists under a metric, in memory or as a checked, memory-mapped folder; and Tree."""

from __future__ import annotations

from textpriv.index.index import Index
from textpriv.index.tree import Tree

__all__ = ["Index", "Tree"]
