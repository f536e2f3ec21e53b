"""Starts elastic vcjobs again after a fault, in place and at the size there is room for."""
