"""Chaos: faults and troubles by a seed on real parts, and a judge that knows the truth."""
