"""Events of ``/api/v1/stream``. Times are epoch milliseconds."""

from __future__ import annotations

import msgspec

STATUS = "status"
"""The code for a part of a node as a whole: its published status."""


class FaultChange(msgspec.Struct, frozen=True):
    """One fault of one node, as it holds from ``at_ms`` on.

    An aggregator reports what is published, an agent what it has judged. ``subject`` is a chip
    (``Ascend910-3``), a port (``switch 1 port 4``), a part of the server (``Fan 3``), a storage
    client (``storage DPC``), or ``node`` and ``switches`` for their status (``code`` is ``status``
    then). ``level`` is ``None`` where the fault is over, ``was`` where it began. Of a fault of a
    chip that holds, the other members are those of ``Fault``.
    """

    node: str
    at_ms: int
    subject: str
    code: str
    was: str | None = None
    level: str | None = None
    severity: str | None = None
    device_fault: bool | None = None
    severity_source: str | None = None


class BlindChange(msgspec.Struct, frozen=True):
    """From ``at_ms`` on a source is blind because of ``reason``, or not any more: ``is_over``."""

    node: str
    at_ms: int
    source: str
    since_ms: int
    reason: str
    chip: str | None = None
    is_over: bool = False


class JobChange(msgspec.Struct, frozen=True):
    """From ``at_ms`` on the job has this ``health``, because of faults on ``nodes``.

    ``nodes`` are those that hit it now or did so before; ``is_over``: nothing hits it any more.
    """

    at_ms: int
    job: str
    namespace: str
    name: str
    health: str
    nodes: tuple[str, ...]
    is_over: bool = False


class LeaderChange(msgspec.Struct, frozen=True):
    """From ``at_ms`` on this aggregator has this ``role``; ``holder`` leads (empty: none)."""

    at_ms: int
    role: str
    leads: bool
    holder: str
