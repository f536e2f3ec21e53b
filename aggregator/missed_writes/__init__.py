"""Documents that heartbeats name and no watch delivered."""
