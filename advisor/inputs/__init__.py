"""Kubernetes' JSON as the values that the advisor reads."""
