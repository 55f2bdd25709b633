"""Pairs: graphs of pairs, losses over them, clipping, and sums over all pairs."""
