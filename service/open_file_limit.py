"""File descriptors of this process: more of them, and some that no connection may take."""

from __future__ import annotations

import logging
import resource

log = logging.getLogger("service.descriptors")

_WANTED = 4096
_RESERVED = 128


def raise_soft_limit() -> None:
    """Raise the soft limit to 4,096, or to the hard limit where that is lower.

    Not higher: children inherit it, and some programs close every descriptor below it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED if hard == resource.RLIM_INFINITY else min(_WANTED, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError) as error:
        log.warning("the limit of open files stays at %d: %s", soft, error)


def is_reserved(descriptor: int) -> bool:
    """Return whether ``descriptor`` is one of the last 128 (at most half) below the soft limit.

    The kernel gives out the lowest that is free, so all below it are taken. The rest is for the
    journal, the driver's process and the store.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return False
    return descriptor >= soft - min(_RESERVED, soft // 2)
