"""TLS of a client from PEM texts in memory: no key is written to a disk."""

from __future__ import annotations

import contextlib
import os
import ssl
from typing import TYPE_CHECKING

from stores.kubernetes_api.client.unusable import Unusable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO


def client_tls(authorities: bytes | None, *, verify: bool) -> ssl.SSLContext:
    """Return a context that trusts ``authorities`` (PEM), or the host's. Raises ``Unusable``.

    All of ``authorities`` must be readable: half of a file, while it is written, is not trusted.
    """
    # PEM is ASCII, and comments beside it do not matter. Without any text Python would trust the
    # authorities of the host.
    text = None if authorities is None else authorities.decode("ascii", "ignore")
    if text is not None and not text.strip():
        raise Unusable("has no certificates (PEM)")
    try:
        context = ssl.create_default_context(cadata=text)
    except (ssl.SSLError, ValueError) as error:
        raise Unusable(f"has no certificates (PEM), or broken ones: {_reason(error)}") from None
    # Newer Pythons demand more of certificates than Go does, whose clients all clusters serve.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def check_server_name(context: ssl.SSLContext, name: str) -> None:
    """Raise ``Unusable`` for what no server can be asked to be."""
    try:
        context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname=name)
    except (ssl.SSLError, ValueError, TypeError):
        raise Unusable("is not a name that a certificate can have") from None


def identify(context: ssl.SSLContext, certificate: bytes, key: bytes | None) -> None:
    """Let ``context`` identify itself. ``key`` is in ``certificate`` where it is ``None``.

    Raises ``Unusable`` where they do not belong together, or the key has a password.
    """
    try:
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(_in_memory(certificate))
            key_file = None if key is None else stack.enter_context(_in_memory(key))
            # An encrypted key would need a password from a terminal, which a daemon has not.
            context.load_cert_chain(file, key_file, password=b"")
    except (ssl.SSLError, ValueError) as error:
        raise Unusable(
            f"is not a valid certificate (PEM) with its key without a password: {_reason(error)}"
        ) from None
    except OSError as error:
        raise Unusable(f"cannot be kept in memory: {error.strerror}") from None


def is_tls_error(error: BaseException | None) -> bool:
    """Return whether other certificates might have avoided ``error`` or what caused it."""
    while error is not None:
        if isinstance(error, ssl.SSLError):
            # A connection that broke in its handshake is not a matter of certificates.
            return not isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError))
        error = error.__cause__
    return False


def _reason(error: Exception) -> str:
    # The text of ours would be that of Python, with its source line.
    return getattr(error, "reason", None) or type(error).__name__


@contextlib.contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """Give ``content`` a path to a file without a name, which no disk ever holds."""
    with _memory_file() as file:
        file.write(content)
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"


def _memory_file() -> IO[bytes]:
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("npu-vigil"), "wb")
    # Only here, because it would cost each daemon memory.
    import tempfile

    # Builds of Python for glibc before 2.27 lack ``memfd_create``. This directory is memory, too.
    return tempfile.TemporaryFile(dir="/dev/shm")
