"""The emulated driver: C library, control and scenarios."""
