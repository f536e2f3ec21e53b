"""Labels and annotations of the Node."""
