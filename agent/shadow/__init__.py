"""What a real Device Plugin writes, compared with what we would have written."""
