"""The documents of a node: what is wanted in them, and until it is there."""
