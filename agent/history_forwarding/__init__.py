"""What happened to faults, told to the aggregator from the journal."""
