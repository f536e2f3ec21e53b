"""Files of a server: how gRPC and the pages check them and take up replaced ones.

New content that cannot be used leaves the last good content in force, and is logged once.
Replaced certificates of the pages count from the next connection on.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from functools import partial
from typing import TYPE_CHECKING, Generic, NoReturn, TypeAlias, TypeVar

from typing_extensions import override

from contract.errors import ConfigurationError, Problem
from pacing.abandonable_thread import AbandonableThread
from service.files.private import rights_problems
from service.log.ongoing_failure import OngoingFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

_FileStamp: TypeAlias = tuple[int, int, int, int] | None
Content = TypeVar("Content")

_PERIOD_SECONDS = 5.0
_DEADLINE_SECONDS = 10.0


class ReloadedFiles(Generic[Content]):
    """The last good content of files that are replaced while they are in use."""

    def __init__(
        self,
        paths: Iterable[Path],
        load: Callable[[], Content],
        log: logging.Logger,
        subject: str,
    ) -> None:
        """Load the files. ``load`` raises ``ConfigurationError`` with what is wrong with each.

        ``subject`` names them in messages, such as "gRPC certificates".
        """
        self._paths = tuple(paths)
        self._load = load
        self._log = log
        self._subject = subject
        self.problem = OngoingFailure(
            log,
            f"new {subject} are not used: %s",
            f"the {subject} are good again",
            level=logging.ERROR,
        )
        """Why the newest content is not used."""
        self._seen = self._stamps()
        self.content = load()

    def refresh(self) -> bool:
        """Look whether the files were replaced by good ones; return whether they were."""
        stamps = self._stamps()
        if stamps == self._seen:
            return False
        # The stamps are older than what is read now: a file replaced meanwhile is read again.
        self._seen = stamps
        before = self.content
        self.load()
        changed = self.content != before
        if changed:
            self._log.info("the %s were replaced", self._subject)
        return changed

    def load(self) -> None:
        """Load the files, whether they were replaced or not."""
        try:
            self.content = self._load()
        except ConfigurationError as error:
            self.problem.record_failure("; ".join(map(str, error.problems)))
        else:
            self.problem.end()

    async def keep_current(self, on_replaced: Callable[[], None] = lambda: None) -> NoReturn:
        """Look at the files for ever; call ``on_replaced`` after good ones replaced others."""
        thread: AbandonableThread[bool] | None = None
        content = self.content
        while True:
            await asyncio.sleep(_PERIOD_SECONDS)
            # A disk that hangs keeps one thread, and the last good content.
            if thread is not None and thread.is_stuck:
                continue
            thread = AbandonableThread(self.refresh, self._subject)
            try:
                await thread.result(_DEADLINE_SECONDS)
            except TimeoutError:
                self.problem.record_failure(f"they cannot be read within {_DEADLINE_SECONDS:g} s")
            # Not what the thread returns: one that was late has replaced the content as well.
            if self.content != content:
                content = self.content
                on_replaced()

    def _stamps(self) -> tuple[_FileStamp, ...]:
        return tuple(map(_stamp, self._paths))


def _stamp(path: Path) -> _FileStamp:
    """Return what differs once a file was replaced; ``None`` where it cannot be looked at."""
    try:
        status = path.stat()
    except OSError:
        return None
    # The mode: a file is refused, or accepted again, by its rights.
    return status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode


def read_files(paths: Mapping[str, Path]) -> tuple[list[bytes], list[Problem]]:
    """Return the content of the files that can be read, and a problem for each other one.

    ``paths`` are by the setting that names them.
    """
    contents, problems = [], []
    for where, path in paths.items():
        try:
            contents.append(path.read_bytes())
        except OSError as error:
            problems.append(Problem(where, f"{path} cannot be read: {error.strerror}"))
    return contents, problems


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


_log = logging.getLogger(__name__)

# OpenSSL keeps the session of each TLS 1.2 client in its context, and Python cannot switch that
# off. A new context forgets them.
_MAX_CONNECTIONS_OF_CONTEXT = 1000


class PagesTls(ReloadedFiles[ssl.SSLContext]):
    """The last good content of the files. With ``client_ca`` pages demand a certificate."""

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
