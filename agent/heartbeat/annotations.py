"""The heartbeat in annotations of the Node, for Volcano up to 5.0.1 (``noded#7.2``)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from agent.publishing.node_info_heartbeat import whole_seconds
from contract.errors import StoreError, StoreRefused
from contract.names import HEARTBEAT_ANNOTATION, INTERVAL_ANNOTATION
from service.log.trouble import Trouble
from stores.base import WRITE_SECONDS
from stores.deadline import answered_within

if TYPE_CHECKING:
    from stores.base import ClusterObjects

log = logging.getLogger("agent.heartbeat")


class NodeAnnotations:
    """Writes heartbeats as annotations of the Node called ``node``.

    ``beaten_seconds`` is the last one written (epoch seconds); ``trouble`` is why writes fail.
    """

    def __init__(self, objects: ClusterObjects, node: str, interval_seconds: float) -> None:
        self.beaten_seconds: int | None = None
        self.failures = 0
        self.trouble = Trouble(
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
            self.trouble.begin(str(error))
            return isinstance(error, StoreRefused)
        self.beaten_seconds = self._stamp
        self.trouble.end()
        return True
