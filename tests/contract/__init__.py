"""Tests of the contract package."""
