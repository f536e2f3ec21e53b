"""``vigil validate``."""
