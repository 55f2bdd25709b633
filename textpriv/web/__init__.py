"""Web: the report, the playground and what they are rendered with."""
