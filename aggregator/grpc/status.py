"""The status of the gRPC server; does not import gRPC, which is loaded only where it is served."""

from __future__ import annotations

import msgspec


class GrpcStatus(msgspec.Struct, frozen=True):
    """``address`` is where it listens, ``None`` while this replica does not lead."""

    address: str | None
    plaintext: bool
    registered: int
    subscribers: int
    sent: int
    tls_problem: str | None
    trouble: str | None
    """Why it does not listen although this replica leads."""
