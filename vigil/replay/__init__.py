"""``vigil replay``."""
