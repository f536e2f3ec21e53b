"""Defects that are put into a copy of the product, to learn whether a test notices them."""
