"""Tests of ``vigil prove``."""
