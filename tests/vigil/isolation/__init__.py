"""Tests of ``vigil isolate`` and ``vigil release``."""
