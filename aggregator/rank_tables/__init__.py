"""The global rank table of a MindIE service (``docs/spec/consumers.md#4.3``): pure."""
