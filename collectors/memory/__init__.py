"""Memory of the host."""
