"""Nonsense for every parser that reads what others wrote."""
