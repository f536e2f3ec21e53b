"""The chains of processors: each by itself, then through the pipeline."""
