"""Elastic vcjobs: what is decided, and what is done on a real API server."""
