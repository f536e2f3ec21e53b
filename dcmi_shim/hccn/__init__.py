"""Network state of chips, from ``hccn_tool``."""
