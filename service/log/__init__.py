"""Logging on standard error that no task waits for."""
