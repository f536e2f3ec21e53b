"""Whether pods find room: on which nodes, and why not on others."""
