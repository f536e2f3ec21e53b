"""Messages of the kernel that mean a fault."""
