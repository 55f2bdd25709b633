"""Learners for private text."""

from textpriv.evaluation.learning import ChannelNB

__all__ = ["ChannelNB"]
