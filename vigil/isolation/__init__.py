"""``vigil isolate`` and ``vigil release``: chips that people take out of scheduling."""
