"""Whether the API server lets this agent write objects of other nodes.

An attacker with the agent of one node could separate the chips of every other one, unless the
policy of the manifests is in force.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NoReturn

from contract.errors import StoreError
from contract.sentences import message
from pacing.waiting import wait_for_event
from stores.base import WRITE_SECONDS
from stores.deadline import answered_within

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

log = logging.getLogger("agent.own_node_only")

_PERIOD_SECONDS = 6 * 3600.0
_MISSING_SECONDS = 60.0
"""Until the next check while it is not in force; each pause is twice as long, up to the period."""
_RECONNECTED_SECONDS = 10.0
"""From an interruption of the store to the check: all watches are connected again in this time."""

MISSING = message(
    "own-node-only is not in force: the API server lets this agent write what belongs to other "
    "nodes. So an attacker on one node can isolate the chips of all"
)
ADVICE = message(
    "apply daemonset/base on Kubernetes 1.30 or newer, without the component "
    "without-own-node-only, and run the agent with the token of its pod"
)


class OwnNodeOnlyCheck:
    """Checks the policy at the start and rarely afterwards: a check is two requests of each node.

    ``is_in_force`` is ``None`` while ``check`` does not find it out.
    """

    def __init__(self, check: Callable[[], Awaitable[bool | None]]) -> None:
        self.is_in_force: bool | None = None
        self._check = check
        self._is_missed = False
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Check again: after an interruption another API server, policy or token may be in
        force.
        """
        self._woken.set()

    async def run(self) -> NoReturn:
        """Check until cancelled."""
        missing_seconds = _MISSING_SECONDS
        while True:
            self._woken.clear()
            await self._ask()
            if self.is_in_force:
                pause_seconds, missing_seconds = _PERIOD_SECONDS, _MISSING_SECONDS
            else:
                pause_seconds = missing_seconds
                missing_seconds = min(2 * missing_seconds, _PERIOD_SECONDS)
            if await wait_for_event(self._woken, pause_seconds):
                await asyncio.sleep(_RECONNECTED_SECONDS)
                missing_seconds = _MISSING_SECONDS

    async def _ask(self) -> None:
        try:
            async with answered_within(WRITE_SECONDS):
                self.is_in_force = await self._check()
        except StoreError:
            self.is_in_force = None  # other tasks log an unreachable store
        if self.is_in_force is False and not self._is_missed:
            self._is_missed = True
            log.warning("%s; %s", MISSING, ADVICE)
        elif self.is_in_force and self._is_missed:
            self._is_missed = False
            log.warning("own-node-only is in force")
