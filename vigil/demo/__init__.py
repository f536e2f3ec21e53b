"""The demo: the whole system on one machine with emulated hardware."""
