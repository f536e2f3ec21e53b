"""What the scheduler will do about what is published, computed behind publication."""
