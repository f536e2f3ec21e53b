"""Device Plugins that run on this node beside the agent: their account and their arguments.

Names of accounts and roles differ with the vendor's release and the chip, so what keeps the plugin
from writing can only be checked where its account is known (``docs/installation.md``).

With ``-hotReset=0`` a Device Plugin resets the two dies of a Duo card as one
(``device-plugin#2.8``), and reports both to the kubelet as unhealthy when one is. Where device-info
shows one as healthy, pods are bound to a die that the kubelet refuses. Its arguments are searched
in the processes of the host, as far as they can be seen, and in the pods of the node.
"""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from agent.publishing.chip_lists import DUO_FAMILY
from collectors.process_files import process_files
from contract.errors import StoreError
from contract.sentences import message
from stores.deadline import answered_within

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dcmi_shim.driver import Driver
    from dcmi_shim.values import Inventory
    from stores.base import ClusterObjects

log = logging.getLogger("agent.device_plugin")

PROGRAM = re.compile(r"(^|[\s/])(ascend-)?device-plugin(\s|$)")
"""A command line that runs the vendor's Device Plugin."""

ADVICE = message(
    'set compatibility.duo_cards = "together", or pods are bound to dies that the kubelet refuses'
)
_PERIOD_SECONDS = 300.0
_REQUEST_SECONDS = 10.0
_PROCESSES = Path("/proc")
_TOGETHER = re.compile(r"\s--?hotReset[=\s]\s*0(\s|$)")


def is_duo(inventory: Inventory) -> bool:
    """Return whether cards of this server have two dies that may be reset as one."""
    cards = [chip.card_id for chip in inventory.chips]
    return inventory.family == DUO_FAMILY and len(set(cards)) < len(cards)


def resets_together(command: str) -> bool:
    """Return whether ``command``, a command line, is a Device Plugin that resets whole cards."""
    return PROGRAM.search(command) is not None and _TOGETHER.search(command) is not None


def processes_resetting_cards(processes: Path = _PROCESSES) -> Iterator[str]:
    """Yield the processes that ``resets_together`` is true of, as far as they can be seen.

    Blocking.
    """
    for pid, command_line in process_files("cmdline", processes):
        words = command_line.decode(errors="replace").split("\0")
        # A shell or an editor may have such a command among its arguments.
        if resets_together(" ".join(words)) and words[0].endswith("device-plugin"):
            yield f"process {pid}"


async def plugins_resetting_cards(objects: ClusterObjects | None, node: str) -> list[str]:
    """Return the processes and pods of ``node`` that reset whole cards, without unreadable pods."""
    resetting = await asyncio.to_thread(lambda: list(processes_resetting_cards()))
    if objects is not None:
        try:
            async with answered_within(_REQUEST_SECONDS):
                commands = await objects.commands(node)
        except StoreError as error:
            log.info("the arguments of a Device Plugin in a pod are not known: %s", error)
        else:
            resetting += [f"pod {pod}" for pod, command, _ in commands if resets_together(command)]
    return sorted(resetting)


class DuoCards:
    """Searches such a program every few minutes, and logs each one once."""

    def __init__(self, driver: Driver, objects: ClusterObjects | None, node: str) -> None:
        self._driver = driver
        self._objects = objects
        self._node = node
        self._named: set[str] = set()

    async def run(self) -> NoReturn:
        """Search until cancelled."""
        while True:
            if is_duo(await self._driver.inventory()):
                for plugin in await plugins_resetting_cards(self._objects, self._node):
                    if plugin not in self._named:
                        self._named.add(plugin)
                        log.warning("%s runs a Device Plugin with -hotReset=0: %s", plugin, ADVICE)
            await asyncio.sleep(_PERIOD_SECONDS)


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
        # The end of a root task would end the agent (``agent/daemon.py``).
        await asyncio.get_running_loop().create_future()
        raise AssertionError("the wait has no end")
