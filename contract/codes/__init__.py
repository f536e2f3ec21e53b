"""Fault codes, levels and chip families: what is shipped, and its meaning."""
