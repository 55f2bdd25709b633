"""Retrieval: queries with private answers, a small server and client, and how good what comes back is."""

from __future__ import annotations

from pairwise.retrieval.evaluation import Alignment, align, nearest, precision_at_k, recall_at_k

__all__ = ["Alignment", "align", "nearest", "precision_at_k", "recall_at_k"]
