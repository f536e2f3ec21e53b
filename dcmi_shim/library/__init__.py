"""Binding of the vendor's library: types, calls, discovery."""
