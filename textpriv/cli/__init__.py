"""Command line: eleven commands, their options, and what they print."""
