"""That this agent lives, and that it is the only one of its node."""
