"""Command line: commands, their options, and what they print."""
