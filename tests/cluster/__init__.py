"""Recordings of the real ClusterD, played through the whole aggregator."""
