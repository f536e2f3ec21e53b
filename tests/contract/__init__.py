"""Tests of the contract room."""
