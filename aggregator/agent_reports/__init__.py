"""What agents report beside upstream's data: sources that are blind, details of faults."""
