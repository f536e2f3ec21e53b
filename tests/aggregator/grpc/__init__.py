"""ClusterD's gRPC services."""
