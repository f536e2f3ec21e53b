"""Checks of the PEM files of a TLS server, which gRPC and the pages have in common."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, TypeAlias

from contract.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FileStamp: TypeAlias = tuple[int, int, int] | None


def file_stamp(path: Path) -> FileStamp:
    """Return what differs once a file was replaced; ``None`` where it cannot be looked at."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def load_server_files(
    context: ssl.SSLContext, section: str, certificate: Path, key: Path, client_ca: Path | None
) -> Iterator[Problem]:
    """Load files that can be read into ``context``; yield what is wrong with them.

    ``section`` is the section of the configuration that names the files.
    """
    try:
        # An encrypted key would need a password from a terminal, which a daemon has not.
        context.load_cert_chain(certificate, key, password=b"")
    except (ssl.SSLError, ValueError, OSError) as error:
        reason = getattr(error, "reason", None) or error
        text = f"{certificate} and {key} are not a valid certificate (PEM) and its key"
        yield Problem(f"{section}.certificate_file", f"{text} without a password: {reason}")
    if client_ca is None:
        return
    try:
        context.load_verify_locations(client_ca)
        if not context.get_ca_certs():
            raise ValueError("no certificate of an authority is in it")
    except (ssl.SSLError, ValueError, OSError) as error:
        reason = getattr(error, "reason", None) or error
        text = f"{client_ca} is not a valid PEM file of an authority: {reason}"
        yield Problem(f"{section}.client_ca_file", text)
