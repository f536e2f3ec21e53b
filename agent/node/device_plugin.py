"""Names the account of a Device Plugin beside an agent that owns device-info.

Names of accounts and roles differ with the vendor's release and the chip, so what keeps the plugin
from writing can only be checked where its account is known (``docs/installation.md``).
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import TYPE_CHECKING, NoReturn

from contract.errors import StoreError
from stores.deadline import answered_within

if TYPE_CHECKING:
    from stores.base import ClusterObjects

log = logging.getLogger("agent.device_plugin")

_REQUEST_SECONDS = 10.0
PROGRAM = re.compile(r"(^|[\s/])(ascend-)?device-plugin(\s|$)")
"""A command line that runs the vendor's Device Plugin."""


class DevicePluginAccount:
    """Logs once, at the start, each Device Plugin among the pods of ``node`` with its account."""

    def __init__(self, objects: ClusterObjects, node: str) -> None:
        self._objects = objects
        self._node = node

    async def run(self) -> NoReturn:
        """Log the accounts, and then wait until cancelled."""
        try:
            async with answered_within(_REQUEST_SECONDS):
                commands = await self._objects.commands(self._node)
        except StoreError as error:
            log.info("the account of a Device Plugin in a pod is not known: %s", error)
        else:
            for pod, command, account in sorted(set(commands)):
                if PROGRAM.search(command):
                    log.info(
                        "pod %s is a Device Plugin with the account %s; device-info is this "
                        "agent's: where the plugin writes it too, apply "
                        "overlays/beside-device-plugin",
                        pod,
                        account,
                    )
        await asyncio.get_running_loop().create_future()
        raise AssertionError("the wait has no end")
