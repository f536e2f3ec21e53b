"""Clients of shared storage, by their status files."""
