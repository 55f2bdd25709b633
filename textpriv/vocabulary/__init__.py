"""Vocabulary: public words, their vectors and their prior, and the formats they are read from."""

from __future__ import annotations

from textpriv.vocabulary.vocabulary import Vocabulary

__all__ = ["Vocabulary"]
