"""When something is tried again, and how long work runs before other tasks may. Pure."""
