"""What a mechanism does to text, measured: deniability of words, and what a release leaves visible.

Each question is a module of its own. Nothing here draws a text for release or changes a guarantee.
"""
