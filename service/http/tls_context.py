"""The TLS context of the pages: replaced files count from the next connection on.

New content that cannot be used leaves the last good content in force, and is logged once.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import stat
from typing import TYPE_CHECKING, NoReturn

from contract.errors import ConfigurationError, Problem
from pacing.abandonable_thread import AbandonableThread
from service.log.ongoing_failure import OngoingFailure
from service.tls_files import file_stamp, load_server_files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from service.tls_files import FileStamp

_log = logging.getLogger(__name__)

_PERIOD_SECONDS = 5.0
_DEADLINE_SECONDS = 10.0
# OpenSSL keeps the session of each TLS 1.2 client in its context, and Python cannot switch that
# off. A new context forgets them.
_MAX_CONNECTIONS_OF_CONTEXT = 1000


class PagesTls:
    """The last good content of the files. With ``client_ca`` pages demand a certificate."""

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None) -> None:
        """Read the files. Raises ``ConfigurationError`` with what is wrong with each."""
        self._certificate, self._key = certificate, key
        self._client_ca = client_ca
        self._trouble = OngoingFailure(
            _log,
            "new certificates of the pages are not used: %s",
            "the certificates of the pages are good again",
            level=logging.ERROR,
        )
        self._seen = self._stamps()
        self._context = self._load()
        self._connections = 0

    @property
    def demands_certificate(self) -> bool:
        """Whether pages are only for clients with a certificate."""
        return self._client_ca is not None

    def context(self) -> ssl.SSLContext:
        """Return the context of a new connection."""
        self._connections += 1
        return self._context

    async def keep_current(self) -> NoReturn:
        """Look at the files for ever."""
        thread: AbandonableThread[None] | None = None
        while True:
            await asyncio.sleep(_PERIOD_SECONDS)
            # A disk that hangs keeps one thread, and the context.
            if thread is not None and thread.is_stuck:
                continue
            thread = AbandonableThread(self.refresh, "certificates of the pages")
            try:
                await thread.result(_DEADLINE_SECONDS)
            except TimeoutError:
                self._trouble.begin(f"they cannot be read within {_DEADLINE_SECONDS:g} s")

    def refresh(self) -> None:
        """Read the files again where they were replaced, or where the context is worn out."""
        stamps = self._stamps()
        is_replaced = stamps != self._seen
        if not is_replaced and self._connections < _MAX_CONNECTIONS_OF_CONTEXT:
            return
        # The stamps are older than what is read now: a file replaced meanwhile is read again.
        self._seen, self._connections = stamps, 0
        try:
            self._context = self._load()
        except ConfigurationError as error:
            self._trouble.begin("; ".join(map(str, error.problems)))
            return
        self._trouble.end()
        if is_replaced:
            _log.info("the certificates of the pages were replaced")

    def _paths(self) -> Iterator[tuple[str, Path]]:
        yield "pages.certificate_file", self._certificate
        yield "pages.key_file", self._key
        if self._client_ca is not None:
            yield "pages.client_ca_file", self._client_ca

    def _stamps(self) -> tuple[FileStamp, ...]:
        return tuple(file_stamp(path) for _, path in self._paths())

    def _load(self) -> ssl.SSLContext:
        """Return a context of the files. Raises ``ConfigurationError`` with what is wrong."""
        problems = []
        for where, path in self._paths():
            try:
                with path.open("rb") as opened:
                    opened.read(1)
            except OSError as error:
                problems.append(Problem(where, f"{path} cannot be read: {error.strerror}"))
        if not problems and self._key.stat().st_mode & stat.S_IRWXO:
            text = f"{self._key} is open to every user; remove these rights: chmod o= {self._key}"
            problems.append(Problem("pages.key_file", text))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # A renegotiation would be a handshake that no limit counts.
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
        context.num_tickets = 0
        if self._client_ca is not None:
            # Not demanded: probes of a kubelet have no certificate.
            context.verify_mode = ssl.CERT_OPTIONAL
        problems = problems or list(
            load_server_files(context, "pages", self._certificate, self._key, self._client_ca)
        )
        if problems:
            raise ConfigurationError("configuration", problems)
        return context
