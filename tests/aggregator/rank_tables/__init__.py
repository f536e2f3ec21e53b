"""Global rank tables."""
