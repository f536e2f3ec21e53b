"""Return codes of DCMI and what they mean (``docs/spec/dcmi.md#4.4`` and 12)."""

from __future__ import annotations

NOT_READY = -8012
UNSUPPORTED = -8255
# No library returns these three: upstream's wrapper has them for its own failures (dcmi#1.1).
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

SWITCH_MEANINGS = {
    -8001: "invalid parameter",
    -8002: "the log could not be opened",
    -8003: "no memory",
    -8004: "the switch device could not be opened",
    -8005: "ioctl failed",
    -8006: "locking failed",
    -8007: "the library's thread could not be started",
    -8008: "driver and library do not fit together",
    -8009: "the library is not initialised",
    -8010: "too many processes use the switch library; at most 15 may",
    -8011: "mmap failed",
    -8012: "memory could not be set",
    -8013: "memory could not be copied",
    -8014: "too many subscriptions in this process",
    -8015: "invalid filter",
    -8016: "not subscribed",
    -8017: "initialised twice in one process",
}
"""The switch library's own codes: DCMI's numbers, other meanings (``docs/spec/dcmi.md#6``)."""

ENVIRONMENT = frozenset({-8002, -8005, -8013, -8020, UNSUPPORTED, SYMBOL_MISSING, NOT_LOADED})
"""Answers about rights, the container or the version: they mean nothing for a chip's health."""


def meaning(return_code: int) -> str:
    """Return the meaning of ``return_code``; a code that is in no list is called unknown."""
    return MEANINGS.get(return_code, "unknown return code")
