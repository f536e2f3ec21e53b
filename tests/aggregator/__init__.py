"""Tests of the aggregator room."""
