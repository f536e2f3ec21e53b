"""A journal played again, also through another fault configuration."""
