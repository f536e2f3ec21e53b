"""``vigil scan``: checks everything that the agent needs, and changes nothing."""
