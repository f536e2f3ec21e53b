"""ClusterD's gRPC services for its clients (``spec/clusterd.md`` 5).

Only ``server`` and the services import gRPC: a daemon that does not serve pays nothing.
"""
