"""What schedulers read of a Node: its conditions and its taints, as far as they concern us.

Types of conditions of ours are opposite to the custom of the node problem detector: ``True`` is
healthy, as with ``Ready``.
"""

from __future__ import annotations

from datetime import UTC, datetime
from sys import intern
from typing import TYPE_CHECKING, Any

import msgspec

from contract.kubernetes import Member

if TYPE_CHECKING:
    from contract.kubernetes import KubernetesObject

NPU_HEALTHY = "NPUHealthy"
"""Of the chips themselves."""
NPU_LINKS_HEALTHY = "NPULinksHealthy"
"""Of the network of the chips, and of on-board switches."""
NODE_HARDWARE_HEALTHY = "NodeHardwareHealthy"
"""Of parts of the server besides chips."""
NPU_WATCHED = "NPUWatched"
"""Whether an agent observes all of that."""
CONDITION_TYPES = (NPU_HEALTHY, NPU_LINKS_HEALTHY, NODE_HARDWARE_HEALTHY, NPU_WATCHED)

TAINT_KEY = "npu-vigil/fault"
NO_SCHEDULE = "NoSchedule"
NO_EXECUTE = "NoExecute"

TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"
MAX_MESSAGE_BYTES = 1024


class NodeCondition(msgspec.Struct, frozen=True, gc=False):
    """A condition of a Node. Times are epoch milliseconds, 0 where there is none."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    changed_at_ms: int = 0
    """When its status changed last (``lastTransitionTime``)."""
    written_at_ms: int = 0
    """``lastHeartbeatTime``."""


class NodeTaint(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", gc=False):
    """A taint of a Node, in the form of the API."""

    key: str
    effect: str
    value: str = ""
    time_added: str | None = None


class NodeSignals(msgspec.Struct, frozen=True, gc=False):
    """The conditions of our types and all taints of one version of a Node."""

    uid: str
    version: str
    conditions: tuple[NodeCondition, ...] = ()
    taints: tuple[NodeTaint, ...] = ()

    def condition(self, type_: str) -> NodeCondition | None:
        """Return the condition of this type; ``None`` where there is none."""
        return next((c for c in self.conditions if c.type == type_), None)

    @property
    def fault_taints(self) -> tuple[NodeTaint, ...]:
        """The taints with our key."""
        return tuple(taint for taint in self.taints if taint.key == TAINT_KEY)


class _SignalCondition(msgspec.Struct, rename="camel"):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: datetime | None = None
    last_heartbeat_time: datetime | None = None


class _SignalStatus(msgspec.Struct):
    conditions: list[_SignalCondition] | None = None


class _SignalSpec(msgspec.Struct):
    taints: tuple[NodeTaint, ...] | None = None


_status = Member("status", _SignalStatus)
_spec = Member("spec", _SignalSpec)


def node_signals(item: KubernetesObject) -> NodeSignals:
    """Return what concerns us of a Node. Raises ``msgspec.DecodeError``."""
    conditions = (
        NodeCondition(
            # Texts that all Nodes share are kept once.
            intern(condition.type),
            intern(condition.status),
            intern(condition.reason or ""),
            condition.message or "",
            _milliseconds(condition.last_transition_time),
            _milliseconds(condition.last_heartbeat_time),
        )
        for condition in _status(item).conditions or ()
        # The kubelet writes its own conditions every few minutes; no decision here needs them.
        if condition.type in CONDITION_TYPES
    )
    metadata = item.metadata
    return NodeSignals(
        metadata.uid, metadata.resource_version, tuple(conditions), _spec(item).taints or ()
    )


def _milliseconds(at: datetime | None) -> int:
    return 0 if at is None else int(at.timestamp() * 1000)


def api_time(at_ms: int) -> str:
    """Return a time as the API has it, in whole seconds."""
    return datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition_body(condition: NodeCondition) -> dict[str, Any]:
    """Return a condition in the form of the API."""
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": api_time(condition.changed_at_ms),
        "lastHeartbeatTime": api_time(condition.written_at_ms),
    }
