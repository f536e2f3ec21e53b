"""Sends changes of faults from the journal to the aggregator until it acknowledges them."""
