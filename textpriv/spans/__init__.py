"""Typed spans: what a detector finds in a text, and the mechanism by which each kind of it is drawn."""
