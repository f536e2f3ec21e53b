"""What a store that comes back without documents lacks, and what ends a node there."""
