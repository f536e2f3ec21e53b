"""``vigil elastic``."""
