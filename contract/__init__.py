"""What all sides agree on: levels, codes, documents. Pure: no I/O, no clock."""
