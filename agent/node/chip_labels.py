"""The labels and annotations of our Node about its chips (``docs/spec/device-plugin.md#6.2``,
6.3).
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from agent.node.labels import (
    ANNOTATION,
    LABEL,
    SERVER_TYPE,
    addresses_in,
    desired_labels,
    obsolete_keys,
)
from contract.codes.families import FAMILIES
from contract.errors import DriverCallError, DriverCallStuck, DriverGone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent.node.labels import DesiredLabels, Key
    from dcmi_shim.driver import Driver
    from dcmi_shim.values import Inventory, NodeFacts
    from stores.base import NodeObject

log = logging.getLogger("agent.node_object")

_REFRESH_SECONDS = 60.0
_RETRY_SECONDS = 1.0


class ChipLabels:
    """Derives the keys from the answers of ``driver``."""

    def __init__(self, driver: Driver, *, refresh_seconds: float = _REFRESH_SECONDS) -> None:
        self._driver = driver
        self._refresh_seconds = refresh_seconds
        self._inventory: Inventory | None = None
        self._desired: DesiredLabels | None = None
        self._refused: dict[str, str] = {}
        self._problems: tuple[str, ...] = ()

    def desired(self, seen: NodeObject) -> Iterator[tuple[Key, str]]:
        """Yield the keys, with their values, that a Node like ``seen`` must have."""
        if self._desired is None:
            return
        for name, value in self._desired.labels.items():
            yield (LABEL, name), value
        for name, value in self._desired.annotations.items():
            yield (ANNOTATION, name), value
        if self._desired.server_type is not None and not seen.labels.get(SERVER_TYPE):
            yield (LABEL, SERVER_TYPE), self._desired.server_type

    def obsolete_keys(self, seen: NodeObject) -> Iterator[Key]:
        """Yield the keys of older releases that the Node must not have any more."""
        if self._inventory is None:
            return
        labels, annotations = obsolete_keys(seen, self._inventory)
        yield from ((LABEL, name) for name in labels)
        yield from ((ANNOTATION, name) for name in annotations)

    async def run(
        self, seen: Callable[[], NodeObject | None], wake: Callable[[], None]
    ) -> NoReturn:
        """Read the driver's answers, addresses again and again, until cancelled.

        ``seen`` returns the Node as it is now; ``wake`` is called when the desired keys have
        changed.
        """
        current: tuple[Inventory, NodeFacts] | None = None
        addresses: dict[int, str] = {}
        while True:
            inventory = await self._driver.inventory()
            if inventory.family not in FAMILIES:
                await asyncio.sleep(self._refresh_seconds)
                continue
            try:
                if current is None or current[0] != inventory or self._problems:
                    facts, problems = await self._driver.facts()
                    self._log_problems(problems)
                    current = inventory, facts
                await self._ask_addresses(inventory, addresses)
                if (node := seen()) is not None:
                    # After a restart, the Node has the last address of a chip that does not answer
                    # now.
                    addresses = addresses_in(node, inventory) | addresses
            except DriverGone:
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            if self._update(inventory, desired_labels(inventory, current[1], addresses)):
                wake()
            await asyncio.sleep(self._refresh_seconds)

    async def _ask_addresses(self, inventory: Inventory, addresses: dict[int, str]) -> None:
        """Read the address of each chip; a chip without an answer keeps its last one."""
        if not FAMILIES[inventory.family].has_network:
            return
        for chip in inventory.chips:
            with suppress(DriverCallError, DriverCallStuck):
                addresses[chip.physical_id] = await self._driver.address(chip)

    def _update(self, inventory: Inventory, desired: DesiredLabels) -> bool:
        """Take over ``desired``; return whether it has changed."""
        for key, value in desired.refused.items():
            if self._refused.get(key) != value:
                log.error(
                    "label %s is left out: the driver returns %r, which Kubernetes refuses",
                    key,
                    value,
                )
        self._refused = desired.refused
        self._inventory = inventory
        differs = desired != self._desired
        self._desired = desired
        return differs

    def _log_problems(self, problems: tuple[str, ...]) -> None:
        if problems and problems != self._problems:
            log.warning("labels of the node lack what the driver does not answer: %s", problems[0])
        self._problems = problems
