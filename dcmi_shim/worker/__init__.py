"""The process that holds a vendor library, and the calls into it."""
