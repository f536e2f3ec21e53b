"""Chips that are busy and make no progress."""
