"""File systems of the host: mounted, writable, with room."""
