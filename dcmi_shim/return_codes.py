"""Return codes of DCMI and what they mean (``spec/dcmi.md`` 4.4 and 12)."""

from __future__ import annotations

NOT_READY = -8012
UNSUPPORTED = -8255
CLOSE_FAILED = -99997
SYMBOL_MISSING = -99998
NOT_LOADED = -99999

MEANINGS = {
    0: "success",
    -8001: "invalid parameter",
    -8002: "permission denied: not root, or not in the running user group",
    -8003: "memory operation failed",
    -8004: "secure C function failed",
    -8005: "internal error, or the driver is not usable in this container",
    -8006: "timeout",
    -8007: "invalid device id",
    -8008: "device does not exist",
    -8009: "ioctl failed",
    -8010: "sending a message failed",
    -8011: "receiving a message failed",
    NOT_READY: "not ready",
    -8013: "not supported in this container, or busy",
    -8014: "file operation failed",
    -8015: "reset failed",
    -8016: "reset aborted",
    -8017: "upgrade in progress",
    -8020: "resource occupied: subscribed twice, or the device is used by another container",
    -8022: "inconsistent partition",
    -8023: "configuration not found",
    UNSUPPORTED: "not supported by this chip or driver",
    CLOSE_FAILED: "the library could not be closed",
    SYMBOL_MISSING: "the library has no such function; a newer driver may have it",
    NOT_LOADED: "the library is not loaded",
}

ENVIRONMENT = frozenset({-8002, -8005, -8013, -8020, UNSUPPORTED, SYMBOL_MISSING, NOT_LOADED})
"""Answers about rights, the container or the version: they say nothing about a chip's health."""


def meaning(return_code: int) -> str:
    """What ``return_code`` means; a code that is in no list is called unknown."""
    return MEANINGS.get(return_code, "unknown return code")
