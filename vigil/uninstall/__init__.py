"""``vigil uninstall``."""
