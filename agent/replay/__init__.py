"""Replays a journal, also through another fault configuration."""
