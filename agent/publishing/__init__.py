"""The documents of a node: rendered from the state, and written until the store acknowledged
them.
"""
