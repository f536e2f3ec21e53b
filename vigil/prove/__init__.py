"""Proves from journals, documents and the history that faults were delivered."""
