"""What the next leader takes over: persisted state, and documents that are read again."""
