"""What faults mean: pure functions of a state, inputs and times."""
