"""Certificates and keys of gRPC and the pages: how they are checked and loaded."""

from __future__ import annotations

import logging
import ssl
from functools import partial
from typing import TYPE_CHECKING

from typing_extensions import override

from contract.errors import ConfigurationError, Problem
from service.files.private import rights_problems
from service.files.reloaded import ReloadedFiles, read_files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_log = logging.getLogger(__name__)

# OpenSSL keeps the session of each TLS 1.2 client in its context, and Python cannot switch that
# off. A new context forgets them.
_MAX_CONNECTIONS_OF_CONTEXT = 1000


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


class PagesTls(ReloadedFiles[ssl.SSLContext]):
    """The TLS context of the pages, made of the last good certificate, key and ``client_ca``.

    With ``client_ca`` pages demand a certificate. A replaced one counts from the next connection
    on.
    """

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None) -> None:
        """Read the files. Raises ``ConfigurationError`` with what is wrong with each."""
        self.demands_certificate = client_ca is not None
        """Whether pages are only for clients with a certificate."""
        self._connections = 0
        files = [file for file in (certificate, key, client_ca) if file is not None]
        load = partial(_load, certificate, key, client_ca)
        super().__init__(files, load, _log, "certificates of the pages")

    def context(self) -> ssl.SSLContext:
        """Return the context of a new connection."""
        self._connections += 1
        return self.content

    @override
    def refresh(self) -> bool:
        is_replaced = super().refresh()
        is_worn_out = self._connections >= _MAX_CONNECTIONS_OF_CONTEXT
        if is_worn_out and not is_replaced:
            self.load()
        if is_worn_out or is_replaced:
            self._connections = 0
        return is_replaced


def _load(certificate: Path, key: Path, client_ca: Path | None) -> ssl.SSLContext:
    """Return a context of the files. Raises ``ConfigurationError`` with what is wrong."""
    paths = {"pages.certificate_file": certificate, "pages.key_file": key}
    if client_ca is not None:
        paths["pages.client_ca_file"] = client_ca
    _, problems = read_files(paths)
    problems = problems or rights_problems("pages.key_file", key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A renegotiation would be a handshake that no limit counts.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    context.num_tickets = 0
    if client_ca is not None:
        # Not demanded: probes of a kubelet have no certificate.
        context.verify_mode = ssl.CERT_OPTIONAL
    problems = problems or list(load_server_files(context, "pages", certificate, key, client_ca))
    if problems:
        raise ConfigurationError("configuration", problems)
    return context
