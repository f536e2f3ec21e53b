"""The heartbeat of this agent, and whether this agent is the only one with its node name."""
