"""Public language models of text, over the words of a vocabulary."""

from textpriv.language.ngrams import NGrams

__all__ = ["NGrams"]
