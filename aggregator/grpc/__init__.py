"""ClusterD's gRPC services for its clients (``docs/spec/clusterd.md#5``).

Only ``server`` and the services import gRPC: a daemon that does not serve pays nothing.
"""

import os

# The library writes a line for each handshake that fails, so that any port scanner fills the log.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
