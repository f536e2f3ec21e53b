"""Tests of the advisor room."""
