"""Requests to an API server: addresses, credentials, connections, pauses."""
