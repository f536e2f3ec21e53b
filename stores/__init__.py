"""Where documents live: Kubernetes or a directory."""
