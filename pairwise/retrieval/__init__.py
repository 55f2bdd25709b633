"""Private retrieval: the subset query, and a server and client for it."""
