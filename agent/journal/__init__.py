"""The history of a node in SQLite."""
