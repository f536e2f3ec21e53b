"""When something is tried again, and how long work gives way to other tasks. Pure."""
