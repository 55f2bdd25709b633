"""What a mechanism does to text, measured: what can still be learned, what attacks find, and what stays visible.

Each question is a module of its own. Nothing here draws a text for release or changes a guarantee.
"""
