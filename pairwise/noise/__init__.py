"""Randomness and noise: exact samplers and planned releases."""
