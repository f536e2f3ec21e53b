"""The store on a Kubernetes API server."""
