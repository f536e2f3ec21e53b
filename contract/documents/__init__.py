"""The documents that daemons write and read, byte for byte."""
