"""The address of ClusterD's public fault service, without gRPC."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.record import Record

if TYPE_CHECKING:
    from pathlib import Path


class FaultServiceAddress(Record, frozen=True):
    """Where ClusterD is: ``HOST:PORT``, with ``ca_file`` over TLS. Files are PEM."""

    target: str
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
