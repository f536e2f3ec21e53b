"""TLS of the pages and of gRPC: its files, its connections, and when certificates end."""
