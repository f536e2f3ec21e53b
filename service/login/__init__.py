"""Logins at the pages of the daemons, and those of clients."""
