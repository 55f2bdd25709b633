"""Corpus: files of records in, private files of the same format out, resumable."""

from __future__ import annotations

from textpriv.corpus.report import CorpusReport
from textpriv.corpus.run import privatize_corpus

__all__ = ["CorpusReport", "privatize_corpus"]
