"""What the job view needs to know from others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from contract.cluster_device import CodeFault, DeviceRecord
from contract.node_info import NodeRecord
from contract.switch_info import SwitchRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aggregator.facts import Job, NodeState, Pod


class World(Protocol):
    """Pods, jobs and Node objects as they are now. It is asked often: answers are looked up."""

    @property
    def pods_known(self) -> bool:
        """Whether pods were listed; before that nothing is said of jobs."""

    @property
    def nodes_known(self) -> bool:
        """Whether Node objects were listed; before that none of them is missing."""

    def pods_on(self, node: str) -> Iterable[Pod]:
        """The pods of a node that are neither done nor failed."""

    def node(self, name: str) -> NodeState | None:
        """The Node object; ``None`` where there is none."""

    def jobs(self) -> Mapping[str, Job]:
        """All jobs by key, those whose pods are on no node yet, too."""


class Published(Protocol):
    """What is published of one node now, and what is kept out of it on purpose."""

    @property
    def device(self) -> DeviceRecord | None: ...
    @property
    def switch(self) -> SwitchRecord | None: ...
    @property
    def node(self) -> NodeRecord | None: ...

    @property
    def hidden_faults(self) -> Iterable[CodeFault]:
        """Chip faults that a job's filter hides (3.3)."""

    @property
    def hidden_switch(self) -> SwitchRecord | None:
        """Switch events that a job's filter hides, with the level that they had."""

    def received_ms(self, subject: str, code: str) -> int | None:
        """Wall time at which this fault of a chip (by its name), or this event of a switch (by
        ``<chip>/<port>``), was first heard of (1.6); ``None`` where that is not known."""


class Told(msgspec.Struct, frozen=True):
    """``Published`` as a value; ``received`` holds wall times by subject and code."""

    device: DeviceRecord | None = None
    switch: SwitchRecord | None = None
    node: NodeRecord | None = None
    hidden_faults: tuple[CodeFault, ...] = ()
    hidden_switch: SwitchRecord | None = None
    received: dict[tuple[str, str], int] = {}

    def received_ms(self, subject: str, code: str) -> int | None:
        """Wall time at which the fault was first heard of; ``None`` where it is not known."""
        return self.received.get((subject, code))


NOTHING = Told()
"""Of a node of which nothing is known."""
