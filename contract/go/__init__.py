"""JSON as Go's ``encoding/json`` reads and writes it."""
