"""Writes the aggregator's documents: at which rate, in which order, until a store shows them."""
