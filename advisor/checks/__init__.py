"""What is wrong with documents and jobs of a running cluster, as far as decisions depend on it."""
