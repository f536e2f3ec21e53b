"""What the aggregator shows: status, metrics, explanations and pages."""
