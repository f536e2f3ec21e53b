"""One small module per source of observations."""
