"""Mechanisms of typed spans: numbers, dates and times by noise; masks, surrogates and identifiers without looking."""
