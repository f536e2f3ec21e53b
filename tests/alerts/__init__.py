"""The alert rules of ``monitoring``: their source, and tests with real programs."""
