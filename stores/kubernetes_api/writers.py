"""The last writer of a ConfigMap's data, from ``metadata.managedFields``.

The API server keeps, per manager and kind of operation, which fields it set and when it last
changed any of them, in whole seconds.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from stores.base import LastWriter

if TYPE_CHECKING:
    from collections.abc import Iterable

BY_HAND = (
    "kubectl",
    "npu-vigil-operator",
    "Mozilla",
    "curl",
    "Wget",
    "Python-urllib",
    "python-requests",
    "OpenAPI-Generator",
    "Go-http-client",
    "unknown",
)
"""What the managers of edits by people begin with: their tools, and libraries in scripts.

``unknown`` is what the API server calls a write that brings no name. Programs bring one: the usual
client library gives the program's by default.
"""

OURS = ("npu-vigil", "npu-vigil-touch")
"""The names of our own writes (``FIELD_MANAGER`` and ``TOUCH_MANAGER`` in ``wire``)."""


class ManagedFields(msgspec.Struct, rename="camel"):
    """What one manager set, and when."""

    manager: str = ""
    time: str | None = None
    fields_v1: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict, name="fieldsV1")


class _ManagedMetadata(msgspec.Struct, rename="camel"):
    managed_fields: list[ManagedFields] = []


class _Object(msgspec.Struct):
    metadata: _ManagedMetadata


decoder = msgspec.json.Decoder(_Object)


def newest_writer(entries: Iterable[ManagedFields]) -> LastWriter | None:
    """Return the program that changed data last; ``None`` when no program did."""
    return _newest(
        entry
        for entry in entries
        if "f:data" in entry.fields_v1 and not entry.manager.startswith(BY_HAND)
    )


def newest_other(entries: Iterable[ManagedFields]) -> LastWriter | None:
    """Return the program or person besides us that set data last, else labels; ``None`` where none
    did.
    """
    others = [entry for entry in entries if entry.manager not in OURS]
    return _newest(entry for entry in others if "f:data" in entry.fields_v1) or _newest(
        entry for entry in others if b'"f:labels"' in bytes(entry.fields_v1.get("f:metadata", b""))
    )


def newest_of_spec(entries: Iterable[ManagedFields]) -> LastWriter | None:
    """Return the program or person besides us that set a part of the spec last; ``None`` where
    none did.
    """
    return _newest(
        entry for entry in entries if entry.manager not in OURS and "f:spec" in entry.fields_v1
    )


def _newest(entries: Iterable[ManagedFields]) -> LastWriter | None:
    writers = [
        LastWriter(entry.manager, _milliseconds(entry.time))
        for entry in entries
        if entry.time is not None
    ]
    return max(writers, key=lambda writer: writer.at_ms, default=None)


def _milliseconds(time: str) -> int:
    """Return a time in epoch milliseconds. Raises ``ValueError`` for what is not a valid time."""
    at = datetime.fromisoformat(time)
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
