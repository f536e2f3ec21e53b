"""What is published of a node, and what is withheld from its documents."""

from __future__ import annotations

import msgspec

from contract.documents.cluster_device import CodeFault, DeviceRecord
from contract.documents.node_info import NodeRecord
from contract.documents.switch_info import SwitchEvent, SwitchRecord

FILTER = "filter"
ACCOMPANIES = "accompanies"
UNDECIDED = "undecided"


class WithheldFault(msgspec.Struct, frozen=True):
    """A chip's fault that is not published.

    ``why``: ``filter`` (a job tolerates it; the job's message has it all the same), ``accompanies``
    (it came along with a UCE fault) or ``undecided`` (it may still turn out to). ``until_ms`` is
    when that ends by time alone (wall).
    """

    fault: CodeFault
    why: str
    until_ms: int | None


class WithheldEvent(msgspec.Struct, frozen=True):
    """A switch's event that is not published because a job tolerates it."""

    event: SwitchEvent
    time_ms: int
    level: str
    until_ms: int


class PublishedNode(msgspec.Struct, frozen=True):
    """What is published of a node, by kind, and what is withheld.

    After a restart a device record is without faults until the node was read. ``hidden`` faults of
    chips have why; those of switches are all hidden by a job's filter. ``received_ms`` (chip to
    code) and ``events_received_ms`` (by key in the time map, ``<code>_<chip>_<port>``): wall time
    at which each was first received (clusterd#1.6).
    """

    device: DeviceRecord | None = None
    switch: SwitchRecord | None = None
    node: NodeRecord | None = None
    hidden: tuple[WithheldFault, ...] = ()
    hidden_events: tuple[WithheldEvent, ...] = ()
    received_ms: dict[str, dict[str, int]] = {}
    events_received_ms: dict[str, int] = {}
