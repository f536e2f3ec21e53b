"""The heartbeat that is sent beside our own for readers of old releases (``noded#7.10``).

One of three: in annotations of the Node, or in node-info as releases 5.0.x or 6.0.RC had it. All of
them ignore a Node without a label, which only an operator sets: with it, these readers take a node
without heartbeats for dead (``docs/spec/noded.md#7.2``).
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from agent.publishing.node_info_heartbeat import NodeInfoBeat, whole_seconds
from contract.documents.node_info import Generation
from contract.errors import StoreError, StoreRefused
from contract.names import HEARTBEAT_ANNOTATION, HEARTBEAT_LABEL, INTERVAL_ANNOTATION
from contract.record import Record
from service.log.ongoing_failure import OngoingFailure
from stores.base import WRITE_SECONDS
from stores.deadline import answered_within
from stores.interruption import Interrupted, followed

if TYPE_CHECKING:
    from collections.abc import Callable

    from stores.base import ClusterObjects, NodeObject, Store

log = logging.getLogger("agent.heartbeat")

_MIN_RELAYED_SECONDS = 3
_REFUSED_SECONDS = 60.0


class NodeAnnotations:
    """Writes heartbeats as annotations of ``node``, for Volcano up to 5.0.1 (``noded#7.2``).

    ``beaten_seconds`` is the last one written (epoch seconds); ``trouble`` is why writes fail.
    """

    def __init__(self, objects: ClusterObjects, node: str, interval_seconds: float) -> None:
        self.beaten_seconds: int | None = None
        self.failures = 0
        self.trouble = OngoingFailure(
            log,
            "no heartbeat on the Node: %s; retried until it succeeds",
            "the heartbeat is on the Node again",
            level=logging.ERROR,
        )
        self._objects = objects
        self._node = node
        self._interval = str(whole_seconds(interval_seconds))
        self._stamp = 0

    async def beat(self, now_seconds: int) -> bool:
        """Write one heartbeat; return whether the next attempt may wait for the next interval.

        Readers look for a change, so two beats differ. The oldest readers compare clocks, so a beat
        follows the host's clock, also where that is set back.
        """
        self._stamp = now_seconds if now_seconds != self._stamp else now_seconds + 1
        annotations = {HEARTBEAT_ANNOTATION: str(self._stamp), INTERVAL_ANNOTATION: self._interval}
        try:
            async with answered_within(WRITE_SECONDS):
                await self._objects.set_node(self._node, {}, annotations)
        except StoreError as error:
            self.failures += 1
            self.trouble.record_failure(str(error))
            return isinstance(error, StoreRefused)
        self.beaten_seconds = self._stamp
        self.trouble.end()
        return True


class RequiredLabel:
    """Watches whether the Node called ``node`` has the label.

    ``problem`` is ``None`` while it has.
    """

    def __init__(self, objects: ClusterObjects, node: str) -> None:
        self.problem: str | None = f"node {node} was not read yet"
        self._objects = objects
        self._node = node
        self._logged: str | None = None

    async def run(self) -> None:
        """Watch the Node until cancelled."""
        watch = partial(self._objects.watch_node, self._node)
        async for seen in followed(watch, _REFUSED_SECONDS):
            self._log_state(
                f"node {self._node} cannot be read: {seen.reason}"
                if isinstance(seen, Interrupted)
                else self._missing(seen)
            )

    def _missing(self, node: NodeObject) -> str | None:
        name, value = HEARTBEAT_LABEL
        if node.labels.get(name) == value:
            return None
        state = f"its value is {node.labels[name]!r}" if name in node.labels else "it is not there"
        return (
            f"label {name}={value} of node {self._node}: {state}, so readers of old releases leave "
            f"its heartbeat out; kubectl label node {self._node} --overwrite {name}={value}"
        )

    def _log_state(self, problem: str | None) -> None:
        if problem is None and self._logged is not None:
            log.warning("label %s=%s: readers of old releases see the heartbeat", *HEARTBEAT_LABEL)
        elif problem is not None and problem != self._logged:
            log.error("%s", problem)
        self.problem = self._logged = problem


class OldReaders(Record, frozen=True):
    """What is done for them: nothing with generation ``lease``.

    ``label`` is ``None`` also where nothing has labels.
    """

    generation: str
    annotations: NodeAnnotations | None = None
    beating: NodeInfoBeat | None = None
    label: RequiredLabel | None = None


def old_readers(
    generation: str, interval_seconds: float, store: Store, node: str, stalled: Callable[[], object]
) -> OldReaders:
    """Return the parts that ``heartbeat.generation`` requires."""
    objects = store.objects
    if generation == "lease":
        return OldReaders(generation)
    annotations = beating = None
    if generation == "annotation":
        assert objects is not None, "the configuration asks for Kubernetes"
        annotations = NodeAnnotations(objects, node, interval_seconds)
    else:
        beating = NodeInfoBeat(Generation(generation), interval_seconds, lambda: bool(stalled()))
        if interval_seconds < _MIN_RELAYED_SECONDS:
            log.warning(
                "heartbeat.interval_seconds is %g: a ClusterD of 6.0.RC relays heartbeats every 5 "
                "to 6 s, so it would report nodes as lost and found. Use 5; the least is 3",
                interval_seconds,
            )
    label = None if objects is None else RequiredLabel(objects, node)
    return OldReaders(generation, annotations, beating, label)
