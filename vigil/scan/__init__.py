"""``vigil scan``: a look at everything that the agent needs, which changes nothing."""
