"""Calibration: the privacy constant over all pairs of words, and the rates and priors that are found by it."""
