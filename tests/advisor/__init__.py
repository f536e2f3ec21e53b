"""Tests of the advisor package."""
