"""Kubernetes Events about faults."""
