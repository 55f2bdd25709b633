"""Records clipped to a public norm, sums of pair gradients, and graphs of pairs."""
