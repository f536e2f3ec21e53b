"""An HTTP server that a flood of connections or requests cannot take away from its daemon."""
