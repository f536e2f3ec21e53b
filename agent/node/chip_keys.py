"""What the labels and annotations of our Node are to say of its chips, as the driver tells it
(``docs/spec/device-plugin.md#6.2``, 6.3)."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from agent.node.keys import ANNOTATION, LABEL
from agent.node.labels import SERVER_TYPE, addresses_in, left_behind, wanted
from contract.codes.families import FAMILIES
from contract.errors import DriverCallError, DriverCallStuck, DriverGone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent.node.keys import Key
    from agent.node.labels import DesiredLabels
    from dcmi_shim.driver import Driver
    from dcmi_shim.values import Inventory, NodeFacts
    from stores.base import NodeObject

log = logging.getLogger("agent.node_object")

_REFRESH_SECONDS = 60.0
_AGAIN_SECONDS = 1.0


class ChipKeys:
    """Follows what ``driver`` says."""

    def __init__(self, driver: Driver, *, refresh_seconds: float = _REFRESH_SECONDS) -> None:
        self._driver = driver
        self._refresh_seconds = refresh_seconds
        self._inventory: Inventory | None = None
        self._wanted: DesiredLabels | None = None
        self._refused: dict[str, str] = {}
        self._problems: tuple[str, ...] = ()

    def wanted(self, seen: NodeObject) -> Iterator[tuple[Key, str]]:
        """What a Node that is as ``seen`` is to say."""
        if self._wanted is None:
            return
        for name, value in self._wanted.labels.items():
            yield (LABEL, name), value
        for name, value in self._wanted.annotations.items():
            yield (ANNOTATION, name), value
        if self._wanted.server_type is not None and not seen.labels.get(SERVER_TYPE):
            yield (LABEL, SERVER_TYPE), self._wanted.server_type

    def left_behind(self, seen: NodeObject) -> Iterator[Key]:
        """What it is not to say any more."""
        if self._inventory is None:
            return
        labels, annotations = left_behind(seen, self._inventory)
        yield from ((LABEL, name) for name in labels)
        yield from ((ANNOTATION, name) for name in annotations)

    async def run(
        self, seen: Callable[[], NodeObject | None], wake: Callable[[], None]
    ) -> NoReturn:
        """Read what the driver says, addresses again and again. ``seen`` is the Node as it is now;
        ``wake`` is called when something else is wanted."""
        known: tuple[Inventory, NodeFacts] | None = None
        addresses: dict[int, str] = {}
        while True:
            inventory = await self._driver.inventory()
            if inventory.family not in FAMILIES:
                await asyncio.sleep(self._refresh_seconds)
                continue
            try:
                if known is None or known[0] != inventory or self._problems:
                    facts, problems = await self._driver.facts()
                    self._log_problems(problems)
                    known = inventory, facts
                await self._ask_addresses(inventory, addresses)
                if (node := seen()) is not None:
                    addresses = addresses_in(node, inventory) | addresses
            except DriverGone:
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            if self._want(inventory, wanted(inventory, known[1], addresses)):
                wake()
            await asyncio.sleep(self._refresh_seconds)

    async def _ask_addresses(self, inventory: Inventory, addresses: dict[int, str]) -> None:
        """A chip that has no address now, or does not say it, keeps its last one."""
        if not FAMILIES[inventory.family].has_network:
            return
        for chip in inventory.chips:
            with suppress(DriverCallError, DriverCallStuck):
                addresses[chip.physical_id] = await self._driver.address(chip)

    def _want(self, inventory: Inventory, wanted: DesiredLabels) -> bool:
        """Whether it is something else than before."""
        for key, value in wanted.refused.items():
            if self._refused.get(key) != value:
                log.error(
                    "label %s is left out: Kubernetes takes no label value %r; the driver says so",
                    key,
                    value,
                )
        self._refused = wanted.refused
        self._inventory = inventory
        differs = wanted != self._wanted
        self._wanted = wanted
        return differs

    def _log_problems(self, problems: tuple[str, ...]) -> None:
        if problems and problems != self._problems:
            log.warning("labels of the node lack what the driver does not say: %s", problems[0])
        self._problems = problems
