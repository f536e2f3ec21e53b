"""Which nodes are lost, from their heartbeats."""
