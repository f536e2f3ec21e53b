"""Which lines and branches the tests run, by test, and in which processes (``make coverage``)."""
