"""Tests of what `vigil advise` is made of."""
