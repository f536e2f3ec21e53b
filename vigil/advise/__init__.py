"""The parts of ``vigil advise``: dumps, requests to an aggregator, and output."""
