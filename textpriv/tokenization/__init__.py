"""Tokenization: texts to token classes and word ids. Drawing and files are elsewhere."""
