"""What the scheduler has in memory between two sessions (``consumers#1.4`` to 1.7, 2.3).

``State()`` is that of a scheduler that starts. It is encoded with ``msgspec.json`` and the
``enc_hook`` of ``advisor/layered_dict.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from advisor.scheduler_view.document_entries import (
    VolcanoDeviceEntry,
    VolcanoNodeEntry,
    VolcanoSwitchEntry,
)


class SeenConfigMap(msgspec.Struct, frozen=True, gc=False):
    """A ConfigMap that the scheduler's informer has.

    ``version`` distinguishes one content from another. ``nodes`` are those in its last readable
    content, ``is_readable`` whether the present content could be read. ``event_at_ms`` is the time
    of its last event (consumers#1.5, item 3).
    """

    version: str
    nodes: tuple[str, ...] = ()
    is_readable: bool = True
    event_at_ms: int = 0


class NodeMemory(msgspec.Struct, frozen=True, gc=False):
    """What the plugin keeps of a node: the stamp that it applied last, and its annotations.

    ``stamp`` is in Unix seconds; ``None``: the time of the last session, with which an entry is
    stamped whose free list the scheduler has made itself (consumers#1.6).
    ``kept`` are the keys of ``DeviceList`` that were ever applied (consumers#1.3, 1.7), ``pods``
    the uids of pods on the node, whose cards are out of the free list. ``link_down_at`` is in Unix
    seconds, 0 for never (consumers#1.9).
    """

    stamp: int | None = 0
    kept: dict[str, str] = {}
    pods: tuple[str, ...] = ()
    link_down_at: int = 0


class FaultType(StrEnum):
    """Why a pod is at fault, in the order in which a job's reason is chosen (consumers#2.5)."""

    NODE = "NodeUnhealthy"
    CARD = "CardUnhealthy"
    SUB_HEALTH = "SubHealthFault"
    SEPARATE = "RelationFaultSeparate"
    POD_FAILED = "pod-failed"
    PROCESS = "process-exception"


_FAULT_TYPES = frozenset(FaultType)


class CachedPod(msgspec.Struct, frozen=True, gc=False):
    """A pod of a cached job: ``type`` is its ``FaultType``, empty for a healthy one.

    Raises ``ValueError`` for a type that there is not.

    Source: docs/spec/consumers.md#2.4.
    """

    name: str
    uid: str
    node: str = ""
    type: str = ""
    rank: str = ""

    def __post_init__(self) -> None:
        if self.type and self.type not in _FAULT_TYPES:
            raise ValueError(f"there is no fault type {self.type!r:.60}")


class CachedJob(msgspec.Struct, frozen=True, gc=False):
    """A fault job that the scheduler has cached (consumers#2.3, 2.8).

    ``uid`` identifies the job, ``first_seen`` is in Unix seconds. ``value`` is its
    ``fault-scheduling`` then, ``strategy`` its sub-health strategy, ``retry_times`` its
    ``fault-retry-times``: later edits of labels do not count (consumers#8-9). ``pods`` are those of
    the evaluation, ``deleted`` the uids of those that were deleted. ``pending`` counts sessions
    since the pods at fault have gone.
    """

    uid: str
    first_seen: int
    value: str = ""
    strategy: str = ""
    retry_times: int = 0
    pods: tuple[CachedPod, ...] = ()
    deleted: tuple[str, ...] = ()
    pending: int = 0
    is_executed: bool = False
    is_forced: bool = False
    is_evicted: bool = False
    row: str = ""


class SchedulerState(msgspec.Struct, frozen=True, gc=False):
    """The memory of the scheduler. ``is_known`` is false where nothing before is known.

    ``session_at`` is the time of the last session, in Unix seconds. ``judged`` are the restarts of
    containers that were judged, by pod uid and container (``corrected`` alone, R22).
    """

    is_known: bool = False
    configmaps: dict[str, SeenConfigMap] = {}
    devices: Mapping[str, VolcanoDeviceEntry] = {}
    switches: Mapping[str, VolcanoSwitchEntry] = {}
    nodes: Mapping[str, VolcanoNodeEntry] = {}
    memories: Mapping[str, NodeMemory] = {}
    jobs: dict[str, CachedJob] = {}
    retries: dict[str, int] = {}
    judged: dict[str, int] = {}
    session_at: int = 0
