"""Tests of the aggregator package."""
