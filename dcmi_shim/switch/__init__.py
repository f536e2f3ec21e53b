"""On-board switches, from ``liblingqu-dcmi.so``."""
