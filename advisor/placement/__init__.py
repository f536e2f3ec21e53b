"""Whether pods find free capacity: on which nodes, and why not on others."""
