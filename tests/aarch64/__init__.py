"""Tests of the bundle for aarch64 below qemu. ``real_*.py`` are of ``make test-aarch64``."""
