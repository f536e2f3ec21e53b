"""``vigil forget``."""
