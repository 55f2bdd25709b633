"""Command line: ten commands, their options, and what they print."""
