"""Records clipped to a public norm, and sums of pair gradients."""
