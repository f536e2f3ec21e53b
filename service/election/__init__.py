"""Which replica leads."""
