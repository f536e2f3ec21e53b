"""Fault codes of chips: events, and lists as audit."""
