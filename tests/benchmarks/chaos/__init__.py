"""Tests of the chaos program."""
