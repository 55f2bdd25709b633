"""Algorithms as their papers published them, with what they truly guarantee."""
