"""Rows of the HTTP pages: the agent and the aggregator answer with the same types."""
