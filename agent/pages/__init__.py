"""What is shown over HTTP: status and metrics."""
