"""The label without which readers of old releases ignore a node's heartbeat
(``docs/spec/noded.md#7.2``).

Only an operator sets it: with the label, these readers take a node without heartbeats for dead.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from contract.names import HEARTBEAT_LABEL
from stores.interruption import Interrupted, followed

if TYPE_CHECKING:
    from stores.base import ClusterObjects, NodeObject

log = logging.getLogger("agent.heartbeat")

_REFUSED_SECONDS = 60.0


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
        found = f"its value is {node.labels[name]!r}" if name in node.labels else "it is not there"
        return (
            f"label {name}={value} of node {self._node}: {found}, so readers of old releases leave "
            f"its heartbeat out; kubectl label node {self._node} --overwrite {name}={value}"
        )

    def _log_state(self, problem: str | None) -> None:
        if problem is None and self._logged is not None:
            log.warning("label %s=%s: readers of old releases see the heartbeat", *HEARTBEAT_LABEL)
        elif problem is not None and problem != self._logged:
            log.error("%s", problem)
        self.problem = self._logged = problem
