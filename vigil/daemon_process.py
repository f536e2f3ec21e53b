"""Prepares the process of a daemon: signals, standard streams, memory."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, NoReturn

from service.log.setup import protect_standard_streams
from service.tasks import STOP_SIGNALS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

_WITHOUT_MEANING = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)
"""Other daemons reopen a log or print something; without a handler they end the process."""


_CERTIFICATES = "SSL_CERT_FILE"
"""The variable that names the file with the host's authorities to OpenSSL."""

# ctypes has no constants of C headers; these values are part of glibc's ABI.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
"""Of glibc's ``malloc.h``."""

_MMAP_BYTES = 256 * 1024
"""asyncio gives each TLS connection a buffer of this size, and uses the first pages of most."""

_TRIM_SECONDS = 300.0
"""Less often, what bursts of faults free adds up to more than 1 MiB. A call takes 2 ms."""


@contextlib.contextmanager
def daemon_process() -> Iterator[None]:
    """Prepare the process for a daemon, which is loaded and run in the block.

    SIGTERM and SIGINT end it with status 0 until the daemon's own handlers take their place:
    loading takes about a second, and nothing has begun by then that would have to be ended. After
    the block they change nothing: the end that has begun is not cut short.
    """
    protect_standard_streams()
    _configure_allocator()
    _return_free_memory()
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
    What the daemon imports later, such as its store, is looked at.
    """
    gc.disable()
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


def _configure_allocator() -> None:
    """Have all threads allocate from one arena, and map large buffers, where it is glibc.

    Each thread that writes a file keeps the most that it ever needed in an arena of its own
    otherwise. A buffer of a connection within the heap takes memory for all its pages, and leaves
    a gap. Decision 029. What the environment sets stays.
    """
    # musl has no ``mallopt``.
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and not {"MALLOC_ARENA_MAX", "GLIBC_TUNABLES"} & os.environ.keys():
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)
        # As glibc would have it for this threshold if it still adapted both.
        mallopt(_M_TRIM_THRESHOLD, 2 * _MMAP_BYTES)


def _return_free_memory() -> None:
    """Start a thread that gives free pages of the heap back from time to time, where it is glibc.

    glibc itself does so at the end of the heap alone. Documents and rows leave gaps in between, so
    a daemon would grow for hours. Decision 029.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        threading.Thread(target=_trim_often, args=(trim,), name="free memory", daemon=True).start()


def _trim_often(trim: Callable[[int], int]) -> NoReturn:
    while True:
        time.sleep(_TRIM_SECONDS)
        trim(0)


def _end(_number: int, _frame: FrameType | None) -> None:
    # Not ``sys.exit``: an exception could be raised in the middle of an import.
    os._exit(0)


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    pass
