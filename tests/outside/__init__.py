"""Recordings of what other people and programs see: verbs, metrics, pages and their schemas."""
