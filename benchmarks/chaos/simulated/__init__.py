"""The simulated platform: the real agent and aggregator in virtual time, in one process."""
