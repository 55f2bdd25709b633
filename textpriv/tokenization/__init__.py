"""Tokenization: texts to token codes by spaCy, and released tokens back to texts."""
