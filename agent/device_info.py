"""The device-info document of this node: what it should say now, and what it said before us."""

from __future__ import annotations

import logging
import operator
import time
from typing import TYPE_CHECKING

from msgspec.structs import replace

from agent.publisher import Wanted
from agent.render import family_of, render
from agent.state import CHIP_SOURCE, Adopted
from agent.switch_info import is_told, remembered_ports, switch_info_text
from agent.usage import ChipsInUse
from contract.codes import is_code
from contract.device_info import decode, encode, verify_published
from contract.errors import DocumentError
from contract.isolation import (
    Isolation,
    read_isolation,
    reasons_of,
    released,
    without,
    without_own_reasons,
)
from contract.names import DEVICE_INFO_NAMESPACE, REPORT_LABEL, device_info_name
from contract.observation import (
    Assertion,
    Observation,
    SourceAnswered,
    Subject,
    chip_subject,
)
from contract.policies import FAULT_DURATION
from contract.switch_info import decode_switch_info
from stores.base import Document

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.policy import Input
    from agent.state import State
    from contract.catalogue import Catalogue
    from contract.device_info import DeviceInfo
    from dcmi_shim.types import Inventory

log = logging.getLogger("agent.device_info")

REFRESH_SECONDS = 300.0
"""An unchanged document is written again so that its readers see its age (spec 1.7)."""
PATIENCE_SECONDS = 1.5
"""How long the first document waits for chips, switches and pods of which nothing is known yet."""


class DeviceInfoDocument:
    """Renders the document from ``state``; ``inventory`` is set once the driver has answered."""

    def __init__(self, node: str, state: Callable[[], State], tables: Catalogue) -> None:
        self.namespace = DEVICE_INFO_NAMESPACE
        self.name = device_info_name(node)
        self._state = state
        self._tables = tables
        self.isolation = Isolation()
        self.in_use = ChipsInUse()
        self.awaits_usage = False
        """Whether a store that knows of pods has not told yet which chips they use."""
        self._inventory: Inventory | None = None
        self._made_of: tuple[object, ...] = ()
        self._made: Wanted | None = None
        self._inventory_at = 0.0

    @property
    def inventory(self) -> Inventory | None:
        """What the driver says this node has."""
        return self._inventory

    @property
    def device_type(self) -> str:
        """What device names begin with; a guess until the driver has answered."""
        return "npu" if self._inventory is None else family_of(self._inventory).device_type

    def identify(self, inventory: Inventory) -> None:
        """Take over what the driver says. Raises ``DriverError`` for an unknown card family."""
        family_of(inventory)
        self._inventory = inventory
        self._inventory_at = time.monotonic()

    def wanted(self) -> Wanted | None:
        """What is to be published now; ``None`` while too little is known."""
        inventory, state = self._inventory, self._state()
        if inventory is None or not self._is_told(inventory, state):
            return None
        made_of = state, inventory, self.isolation, self.in_use
        if self._made is None or not all(map(operator.is_, made_of, self._made_of)):
            # All four are immutable, and one event asks more than once.
            self._made_of, self._made = made_of, self._make(*made_of)
        return self._made

    def _make(
        self, state: State, inventory: Inventory, isolation: Isolation, in_use: ChipsInUse
    ) -> Wanted:
        family = family_of(inventory)
        content = render(state, inventory, 0, in_use.used, isolation, in_use.assigned)

        def stamped(stamp: int) -> Document:
            info = replace(
                content,
                update_time=stamp,
                switch_info=switch_info_text(state, family, stamp),
            )
            return Document(self.namespace, self.name, encode(info, family), dict([REPORT_LABEL]))

        return Wanted(state.revision, content, stamped, REFRESH_SECONDS)

    def _is_told(self, inventory: Inventory, state: State) -> bool:
        """Whether each chip, the switches and the store of pods answered or are known to be silent,
        so that lists are not in parts; after a moment those that answered are enough."""
        known = [state.chips.get(chip.physical_id) for chip in inventory.chips]
        if not any(chip is not None and chip.was_read for chip in known):
            return False
        if time.monotonic() > self._inventory_at + PATIENCE_SECONDS:
            return True
        chips = all(c is not None and (c.was_read or CHIP_SOURCE in c.blind) for c in known)
        return chips and not self.awaits_usage and is_told(state, family_of(inventory))

    def take_over(self, existing: Document | None) -> tuple[Input, ...]:
        """Keep what operators and earlier writers isolated in the document that is there.

        Returns what it remembers of chips and switch ports, for an agent that has no journal;
        audits then find out what is not true any more.
        """
        if existing is None:
            return ()
        self.isolation = without_own_reasons(
            read_isolation(existing.data), FAULT_DURATION, self._tables.durations
        )
        try:
            chips = decode(existing.data, self.name)
            ports = decode_switch_info(self.name, existing.data)
        except DocumentError as error:
            log.warning("the document that is there makes no sense and is replaced: %s", error)
            return ()
        return (*remembered_chips(chips), *(() if ports is None else remembered_ports(ports)))

    def release(self, foreign: Document) -> bool:
        """Whether ``foreign`` is ours but for names that an operator released; they are then."""
        names = released(self.isolation, foreign.data)
        if not names:
            return False
        log.warning("an operator released %s", ", ".join(sorted(names)))
        self.isolation = without(self.isolation, names)
        return True

    def stamp_of(self, document: Document) -> int | None:
        """``UpdateTime`` of a stored document; ``None`` when it cannot be trusted."""
        try:
            return decode(document.data, self.name).update_time
        except DocumentError:
            return None

    def verify(self, document: Document) -> None:
        """Raises ``DocumentError`` if readers would refuse ``document``."""
        verify_published(document.data, self.name)
        decode_switch_info(self.name, document.data)


def remembered_chips(found: DeviceInfo) -> tuple[Input, ...]:
    """What a document remembers of chips, and why it upgraded their codes."""
    if found.update_time <= 0:
        return ()
    reports: list[Input] = []
    for name in sorted({*found.free, *found.unhealthy, *found.network_unhealthy}):
        subject = _subject(name)
        if subject is not None:
            reports.append(SourceAnswered(CHIP_SOURCE, subject, found.update_time * 1000))
    # Before the faults, whose times may be those of their upgrades.
    for name, reasons in reasons_of(found.upgrade_reasons, FAULT_DURATION).items():
        subject = _subject(name)
        if subject is not None:
            reports += [
                Adopted(
                    subject,
                    code,
                    FAULT_DURATION,
                    min(reason.upgrade_time, found.update_time * 1000),
                    found.update_time * 1000,
                )
                for code, reason in reasons.items()
                if reason.upgrade_time > 0
            ]
    for fault in found.faults:
        subject = _subject(fault.npu_name)
        if subject is not None:
            reports += [
                Observation(CHIP_SOURCE, subject, code, Assertion.PRESENT, entry.fault_time)
                for code, entry in (fault.fault_time_and_level_map or {}).items()
                if is_code(code) and entry.fault_time > 0
            ]
    return tuple(reports)


def _subject(name: str) -> Subject | None:
    physical_id = name.rpartition("-")[2]
    return chip_subject(int(physical_id)) if physical_id.isdecimal() else None
