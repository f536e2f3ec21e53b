"""Tests of the simulated platform."""
