"""The label without which old readers leave a node's heartbeat out (``docs/spec/noded.md#7.2``).

It is the operator's: whoever sets it has a node without heartbeats taken for dead.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NoReturn

from contract.errors import StoreRefused
from contract.names import HEARTBEAT_LABEL
from stores.interruption import Interrupted

if TYPE_CHECKING:
    from stores.base import ClusterObjects, NodeObject

log = logging.getLogger("agent.heartbeat")

_REFUSED_SECONDS = 60.0


class RequiredLabel:
    """Looks whether the Node called ``node`` has it. ``problem`` is ``None`` while it has."""

    def __init__(self, objects: ClusterObjects, node: str) -> None:
        self.problem: str | None = f"node {node} was not read yet"
        self._objects = objects
        self._node = node
        self._said: str | None = None

    async def run(self) -> NoReturn:
        """Look until cancelled."""
        while True:
            try:
                async for seen in self._objects.watch_node(self._node):
                    self._say(
                        f"node {self._node} cannot be read: {seen.reason}"
                        if isinstance(seen, Interrupted)
                        else self._missing(seen)
                    )
            except StoreRefused as error:
                self._say(f"node {self._node} cannot be read: {error}")
            await asyncio.sleep(_REFUSED_SECONDS)

    def _missing(self, node: NodeObject) -> str | None:
        name, value = HEARTBEAT_LABEL
        if node.labels.get(name) == value:
            return None
        found = f"it says {node.labels[name]!r}" if name in node.labels else "it is not there"
        return (
            f"label {name}={value} of node {self._node}: {found}, so readers of old releases leave "
            f"its heartbeat out; kubectl label node {self._node} --overwrite {name}={value}"
        )

    def _say(self, problem: str | None) -> None:
        if problem is None and self._said is not None:
            log.warning("label %s=%s: readers of old releases see the heartbeat", *HEARTBEAT_LABEL)
        elif problem is not None and problem != self._said:
            log.error("%s", problem)
        self.problem = self._said = problem
