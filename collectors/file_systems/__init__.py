"""File systems of the host: mounted, writable, with free space."""
