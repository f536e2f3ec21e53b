"""The global rank table of a MindIE service (``spec/consumers.md`` 4.3): pure."""
