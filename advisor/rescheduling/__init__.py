"""Which jobs the scheduler reschedules in a session, and which of their pods it deletes."""
