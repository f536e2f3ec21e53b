"""Pages of the daemons over HTTP: their content, filters, parts and description."""
