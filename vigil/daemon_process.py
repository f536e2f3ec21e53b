"""Prepares the process of a daemon: signals, standard streams, memory."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import os
import signal
from asyncio import sslproto
from typing import TYPE_CHECKING

from service.log.setup import protect_standard_streams
from service.log.standard_streams import STANDARD_ERROR
from service.tasks import STOP_SIGNALS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_WITHOUT_MEANING = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)
"""Other daemons reopen a log or print something; without a handler they end the process."""


_CERTIFICATES = "SSL_CERT_FILE"
"""The variable that names the file with the host's authorities to OpenSSL."""

_MALLOC_OPTIONS = (
    # Each thread that writes a file would keep the most that it ever needed in an arena of its own.
    ("MALLOC_ARENA_MAX", -8, 1),
    # Larger blocks are mapped. They are buffers and documents, which would leave gaps in the heap.
    ("MALLOC_MMAP_THRESHOLD_", -3, 64 * 1024),
)
"""Variables of glibc, the numbers of their options in its ``malloc.h``, and the values for them.
ctypes has no constants of C headers; these numbers are part of glibc's ABI.
"""

_FULL = 2
"""The generation that is everything but what is frozen."""

_MIDDLE_COLLECTIONS = 1
"""More than so many collections of the middle generation begin a full one. With Python's 10 it
comes after 16 to 26 minutes, and garbage and free lists grow until then.
"""

_TLS_BUFFER_BYTES = 64 * 1024
"""A record of TLS has at most 16 KiB, and few answers are longer than four of them."""


@contextlib.contextmanager
def daemon_process() -> Iterator[None]:
    """Prepare the process for a daemon, which is loaded and run in the block.

    SIGTERM and SIGINT end it with status 0 until the daemon's own handlers take their place:
    loading takes about a second, and nothing has begun by then that would have to be ended. After
    the block they change nothing: the end that has begun is not cut short.
    """
    protect_standard_streams()
    # The watchdog of systemd ends a process that hangs by SIGABRT, and its log shows where.
    faulthandler.enable(STANDARD_ERROR)
    _tune_malloc()
    _trim_after_collections()
    _shorten_tls_buffers()
    for number in STOP_SIGNALS:
        signal.signal(number, _end)
    for number in _WITHOUT_MEANING:
        # A handler, because programs that are started would inherit that a signal is ignored.
        signal.signal(number, _do_nothing)
    try:
        yield
    finally:
        for number in (*STOP_SIGNALS, *_WITHOUT_MEANING):
            # A second SIGTERM must not cut short what ends after the loop, such as the log.
            signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Import the modules of a daemon in the block, with less processor time and memory.

    No garbage collection looks at them, neither in the block nor later: modules are never freed.
    What the daemon imports later, such as its store, is looked at. A full collection has little to
    look at then, so it comes more often. Decision 029.
    """
    gc.disable()
    gc.set_threshold(*gc.get_threshold()[:2], _MIDDLE_COLLECTIONS)
    try:
        _import_aiohttp()
        yield
        gc.freeze()
    finally:
        gc.enable()


def _import_aiohttp() -> None:
    """Import ``aiohttp`` without the certificates of the host.

    Its import reads them for requests that bring no TLS context. Those of the agent and of the
    aggregator bring one wherever TLS is used.
    """
    before = os.environ.get(_CERTIFICATES)
    os.environ[_CERTIFICATES] = os.devnull
    try:
        import aiohttp  # noqa: F401
    finally:
        if before is None:
            del os.environ[_CERTIFICATES]
        else:
            os.environ[_CERTIFICATES] = before


def _tune_malloc() -> None:
    """Set how glibc allocates memory; what the environment sets stays. Decision 029."""
    # musl has no ``mallopt``.
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None or "GLIBC_TUNABLES" in os.environ:
        return
    for variable, option, value in _MALLOC_OPTIONS:
        if variable not in os.environ:
            mallopt(option, value)


def _trim_after_collections() -> None:
    """Return free pages of the heap after each full garbage collection.

    Connections and documents that come and go leave gaps between what stays. Decision 029.
    """
    # musl has no ``malloc_trim``.
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is None:
        return

    def after(phase: str, collection: dict[str, int]) -> None:
        if phase == "stop" and collection["generation"] == _FULL:
            trim(0)

    gc.callbacks.append(after)


def _shorten_tls_buffers() -> None:
    """Have asyncio give each TLS connection a buffer of 64 KiB, in place of 256.

    It is filled with zeros, so all its pages are resident. An agent on an API server has 8
    connections, and an aggregator 17.
    """
    sslproto.SSLProtocol.max_size = _TLS_BUFFER_BYTES


def _end(_number: int, _frame: FrameType | None) -> None:
    # Not ``sys.exit``: an exception could be raised in the middle of an import.
    os._exit(0)


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    pass
