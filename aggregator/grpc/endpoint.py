"""The address of the gRPC services, and their TLS files.

A replaced file counts from the next connection on. New content that cannot be used leaves the last
good content in force, and is logged once.
"""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from contract.errors import ConfigurationError
from service.files.reloaded import ReloadedFiles, read_files
from service.tls.files import load_server_files

if TYPE_CHECKING:
    from aggregator.config import GrpcSection

_log = logging.getLogger(__name__)


class TlsFiles(msgspec.Struct, frozen=True):
    """PEM files: our certificate with its key, and the authority of the clients' certificates."""

    certificate: Path
    key: Path
    client_ca: Path


class GrpcEndpoint(msgspec.Struct, frozen=True):
    """``listen`` is ``HOST:PORT`` (port 0: any); without ``tls`` it is plain text."""

    listen: str
    tls: TlsFiles | None


def endpoint_of(section: GrpcSection) -> GrpcEndpoint | None:
    """Return what to serve, by the configuration; ``None`` where nothing is to be served."""
    if section.listen is None:
        return None
    certificate, key = section.certificate_file, section.key_file
    client_ca = section.client_ca_file
    if certificate is None or key is None or client_ca is None:
        return GrpcEndpoint(section.listen, None)
    return GrpcEndpoint(section.listen, TlsFiles(certificate, key, client_ca))


class Pem(NamedTuple):
    """The content of the files."""

    certificate: bytes
    key: bytes
    client_ca: bytes


class TlsMaterial(ReloadedFiles[Pem]):
    """The last good content of the files. gRPC calls ``refresh`` in threads of its own."""

    def __init__(self, files: TlsFiles) -> None:
        """Read the files. Raises ``ConfigurationError`` with what is wrong with each."""
        super().__init__(_paths(files).values(), lambda: _load(files), _log, "gRPC certificates")


def _paths(files: TlsFiles) -> dict[str, Path]:
    return {
        "grpc.certificate_file": files.certificate,
        "grpc.key_file": files.key,
        "grpc.client_ca_file": files.client_ca,
    }


def _load(files: TlsFiles) -> Pem:
    """Read and check the files. Raises ``ConfigurationError`` with what is wrong with each."""
    contents, problems = read_files(_paths(files))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    problems = problems or list(
        load_server_files(context, "grpc", files.certificate, files.key, files.client_ca)
    )
    if problems:
        raise ConfigurationError("configuration", problems)
    return Pem(*contents)
