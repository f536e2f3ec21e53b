"""What the job view needs to know from others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from contract.documents.cluster_device import CodeFault, DeviceRecord
from contract.documents.node_info import NodeRecord
from contract.documents.switch_info import SwitchEvent, SwitchRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from aggregator.inputs.node_context import JobState, NodeState, PodState


class ClusterStateLookup(Protocol):
    """Pods, jobs and Node objects as they are now. It is asked often: answers are looked up."""

    @property
    def pods_known(self) -> bool:
        """Whether pods were listed; before that nothing is reported of jobs."""

    @property
    def nodes_known(self) -> bool:
        """Whether Node objects were listed; before that none of them is missing."""

    def pods_on(self, node: str) -> Iterable[PodState]:
        """Return the pods of a node that are neither done nor failed."""

    def node(self, name: str) -> NodeState | None:
        """Return the Node object; ``None`` where there is none."""

    def jobs(self) -> Mapping[str, JobState]:
        """Return all jobs by key, those whose pods are on no node yet, too."""


class WithheldFaultView(Protocol):
    """A chip's fault that is not published, and why; jobs get what a filter withholds."""

    @property
    def fault(self) -> CodeFault: ...
    @property
    def why(self) -> str: ...


class WithheldEventView(Protocol):
    """A switch's event that a job's filter hides."""

    @property
    def event(self) -> SwitchEvent: ...
    @property
    def level(self) -> str: ...


class PublishedView(Protocol):
    """What is published of one node now, and what is withheld.

    ``received_ms`` (chip to code) and ``events_received_ms`` (by ``<code>_<chip>_<port>``): wall
    time at which it was first received (clusterd#1.6). What is not in there counts from when it is
    seen.
    """

    @property
    def device(self) -> DeviceRecord | None: ...
    @property
    def switch(self) -> SwitchRecord | None: ...
    @property
    def node(self) -> NodeRecord | None: ...
    @property
    def hidden(self) -> Sequence[WithheldFaultView]: ...
    @property
    def hidden_events(self) -> Sequence[WithheldEventView]: ...
    @property
    def received_ms(self) -> Mapping[str, Mapping[str, int]]: ...
    @property
    def events_received_ms(self) -> Mapping[str, int]: ...


class _Nothing(msgspec.Struct, frozen=True):
    device: DeviceRecord | None = None
    switch: SwitchRecord | None = None
    node: NodeRecord | None = None
    hidden: tuple[WithheldFaultView, ...] = ()
    hidden_events: tuple[WithheldEventView, ...] = ()
    received_ms: dict[str, dict[str, int]] = {}
    events_received_ms: dict[str, int] = {}


NOTHING: PublishedView = _Nothing()
"""Of a node of which nothing is known."""

_FILTER = "filter"


def filtered(published: PublishedView) -> list[CodeFault]:
    """Return the chip faults that only a filter withholds."""
    return [one.fault for one in published.hidden if one.why == _FILTER]
