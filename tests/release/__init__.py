"""Tests of what a release has. ``real_*.py`` are of ``make test-release``."""
