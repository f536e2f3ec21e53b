"""The faults of shared storage clients as public faults (``docs/spec/noded.md#4.3`` to 4.5)."""

from __future__ import annotations

import hashlib

RESOURCES = {"DPC": "dpcStorage", "DTFS": "dtfsStorage"}
"""The programs that report the faults of a client."""

_NAMES = {
    "110001020": ("DPC", "PROCESS"),
    "110001021": ("DPC", "MEMORY"),
    "110001022": ("DTFS", "PROCESS"),
    "110001023": ("DTFS", "LINK"),
}
CODES = {
    client: tuple(code for code, (of, _) in _NAMES.items() if of == client) for client in RESOURCES
}
"""The codes of a client's faults."""


def fault_id(node: str, code: str) -> str:
    """Return what a fault of ``code`` on ``node`` is called as long as the node lives."""
    client, name = _NAMES[code]
    # A digest, because an id has 128 characters at most and a
    # node's name may be longer (clusterd#4.2).
    return hashlib.sha256(f"{node}/{client}_{name}".encode()).hexdigest()


def resource_of(code: str) -> str:
    """Return the program that reports a fault of ``code``."""
    return RESOURCES[_NAMES[code][0]]
