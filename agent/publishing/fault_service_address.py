"""The address of ClusterD's public fault service, without gRPC."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class FaultServiceAddress:
    """Where ClusterD is: ``HOST:PORT``, with ``ca_file`` over TLS. Files are PEM."""

    target: str
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
