"""``vigil simulate``."""
