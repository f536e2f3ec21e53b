"""The device-info document of this node: its desired content, and the content of the stored one."""

from __future__ import annotations

import contextlib
import logging
import operator
import time
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from agent.chip_allocation import NOTHING_IN_USE, ChipAllocation
from agent.policy.state import (
    CHIP_SOURCE,
    Adopted,
    ChipsRemembered,
    Forgotten,
    Released,
    ServerState,
)
from agent.publishing.chip_lists import family_of, missing_chips, render
from agent.publishing.publisher import DesiredDocument
from agent.publishing.switch_info import is_known, restored_ports, switch_info_text
from agent.publishing.vigil_key import key_with_answers
from contract.codes.chip_codes import is_code
from contract.codes.families import FAMILIES, SwitchInfo
from contract.codes.levels import ChipLevel, Severity
from contract.codes.policies import AUTOFILL_CODE, FAULT_AUTOFILL, UPGRADE_TYPES
from contract.documents.device_info import (
    REFRESH_SECONDS,
    UPGRADE_REASON_KEY,
    decode,
    encode,
    verify_published,
)
from contract.documents.isolation_request import (
    ISOLATION_ANNOTATION,
    encode_requests,
    read_requests,
)
from contract.documents.separation import chip_of, read_names, read_reasons
from contract.documents.switch_info import decode_switch_info
from contract.documents.vigil_key import VIGIL_KEY
from contract.errors import DocumentError
from contract.names import DEVICE_INFO_NAMESPACE, REPORT_LABEL, device_info_name
from contract.observation import Assertion, Observation, chip_subject
from stores.base import Document

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.policy.state import PolicyState
    from agent.policy.step import Input
    from agent.publishing.vigil_key import NamedSource
    from contract.codes.families import Family
    from contract.documents.device_info import DeviceInfo
    from contract.documents.isolation_request import IsolationRequest
    from dcmi_shim.values import Inventory

log = logging.getLogger("agent.device_info")

_MILD = ChipLevel.NOT_HANDLE_FAULT
"""The level of a code that no table has, when its severity is minor."""
FIRST_DOCUMENT_SECONDS = 1.5
"""How long the first document waits for chips, switches and pods of which nothing is known yet."""


class Allocation(Protocol):
    """Which chips pods have, as far as a store that knows of pods has answered."""

    @property
    def chips(self) -> ChipAllocation:
        """The chips in use, as they were last known."""

    @property
    def answered(self) -> bool:
        """Whether the store has answered, or failed, since the start."""


class DeviceInfoDocument:
    """Renders the document from ``state``; ``inventory`` is set once the driver has answered.

    ``named_blind`` returns what our own data key names, ``None`` where there is no such key;
    ``cards_together`` is that of ``render``. ``allocation``: ``None`` where no store knows of pods.
    """

    def __init__(
        self,
        node: str,
        state: Callable[[], PolicyState],
        named_blind: Callable[[], NamedSource | None] = lambda: None,
        *,
        cards_together: bool = False,
        allocation: Allocation | None = None,
    ) -> None:
        self._cards_together = cards_together
        self._named_blind = named_blind
        self.namespace = DEVICE_INFO_NAMESPACE
        self.name = device_info_name(node)
        self._state = state
        self._allocation = allocation
        self.inventory: Inventory | None = None
        """The driver's last inventory of this node."""
        self._made_of: tuple[object, ...] = ()
        self._made: DesiredDocument | None = None
        self._inventory_at = 0.0
        self.server_before: ServerState | None = None
        """The server as the document describes it that was stored at the start."""

    @property
    def _in_use(self) -> ChipAllocation:
        return NOTHING_IN_USE if self._allocation is None else self._allocation.chips

    @property
    def _awaits_allocation(self) -> bool:
        return self._allocation is not None and not self._allocation.answered

    def missing(self) -> tuple[int, ...]:
        """Return the physical ids of chips that are known and not listed.

        There are none before the first list.
        """
        if self.inventory is None:
            return ()
        listed = {chip.physical_id for chip in self.inventory.chips}
        return tuple(sorted(missing_chips(self._state(), listed)))

    @property
    def device_type(self) -> str:
        """The prefix of device names; a guess until the driver has answered."""
        return "npu" if self.inventory is None else family_of(self.inventory).device_type

    def identify(self, inventory: Inventory) -> None:
        """Take over the driver's ``inventory``.

        Raises ``DriverError`` for an unknown card family.
        """
        family_of(inventory)
        self.inventory = inventory
        self._inventory_at = time.monotonic()

    def desired(self) -> DesiredDocument | None:
        """Return the document to publish now; ``None`` while too little is known.

        Virtual devices are not supported: readers would schedule whole chips instead, so such a
        node has no document of ours.
        """
        inventory, state = self.inventory, self._state()
        if inventory is None or inventory.virtual or not self._is_known(inventory, state):
            return None
        made_of = state, inventory, self._in_use, self._named_blind()
        if self._made is None or not all(map(operator.is_, made_of, self._made_of)):
            # All four are immutable, and one event asks more than once.
            self._made_of, self._made = made_of, self._make(*made_of)
        return self._made

    def _make(
        self,
        state: PolicyState,
        inventory: Inventory,
        in_use: ChipAllocation,
        named: NamedSource | None,
    ) -> DesiredDocument:
        own_key = None if named is None else key_with_answers(named, state)
        family = family_of(inventory)
        annotations = _annotations(state, family)
        content = render(state, inventory, 0, in_use, cards_together=self._cards_together)

        def stamped(stamp: int) -> Document:
            switches = switch_info_text(state, family, stamp)
            info = replace(content, update_time=stamp, switch_info=switches)
            data = encode(info, family)
            if own_key is not None:
                data[VIGIL_KEY] = own_key
            return Document(self.namespace, self.name, data, dict([REPORT_LABEL]), annotations)

        parts = content, own_key, annotations
        return DesiredDocument(state.revision, parts, stamped, REFRESH_SECONDS)

    def _is_known(self, inventory: Inventory, state: PolicyState) -> bool:
        """Return whether all chips, the switches and the store of pods have answered or are blind.

        So lists are complete. After ``FIRST_DOCUMENT_SECONDS`` one answering chip is enough.
        """
        # Without any answer the driver may hang as a whole: the stored document stays
        # (decision 18).
        if not any(chip.was_read for chip in state.chips.values()):
            return False
        chip_states = [state.chips.get(chip.physical_id) for chip in inventory.chips]
        if time.monotonic() > self._inventory_at + FIRST_DOCUMENT_SECONDS:
            return True
        chips = all(
            chip_state is not None
            and ((chip_state.was_read and not chip_state.silent) or CHIP_SOURCE in chip_state.blind)
            for chip_state in chip_states
        )
        return chips and not self._awaits_allocation and is_known(state, family_of(inventory))

    def observe_stored(self, existing: Document | None) -> None:
        """Take over the description of the server from the document stored at the start."""
        if existing is not None:
            with contextlib.suppress(DocumentError):
                ports = decode_switch_info(self.name, existing.data)
                chips = decode(existing.data, self.name)
                self.server_before = server_of(chips, has_switches=ports is not None)

    def restore_from(self, existing: Document | None) -> tuple[Input, ...]:
        """Return the chips and switch ports of the stored document, for an agent without a journal.

        Audits then find out which faults are over.
        """
        if existing is None:
            return ()
        try:
            chips = decode(existing.data, self.name)
            ports = decode_switch_info(self.name, existing.data)
        except DocumentError as error:
            log.warning("the stored document cannot be decoded and is replaced: %s", error)
            return ()
        return (*restored_chips(chips), *(() if ports is None else restored_ports(ports)))

    def restore_isolation(
        self, existing: Document | None, now_ms: int, *, has_journal: bool
    ) -> tuple[Adopted | Released, ...]:
        """Return which chips the stored document separates, and which it does not any more.

        With a journal these are only what operators did while no agent ran.
        """
        if existing is None:
            return ()
        if not has_journal:
            return adopted(existing, self.stamp_of(existing), now_ms)
        state = self._state()
        isolated = {*state.named, *(chip for chip, seen in state.chips.items() if seen.isolated)}
        # No document has the time of an operator's edit, so it counts from now.
        isolations = adopted(existing, None, now_ms)
        added = (item for item in isolations if item.subject.id not in isolated and _isolates(item))
        return (*self.operator_releases(existing, now_ms), *added)

    def differences_to(self, foreign: Document, now_ms: int) -> tuple[Input, ...]:
        """Return inputs about missing chips from ``foreign``, the document of a program that is
        gone.

        Its list is newer than our state: a chip that it does not have is forgotten. A chip that
        pods have may be in none of its lists.
        """
        try:
            info = decode(foreign.data, self.name)
        except DocumentError:
            return ()
        there = chips_of(info)
        used = self._in_use.used | self._in_use.assigned
        because = "the program that wrote device-info before does not list it"
        return (
            *restored_chips(info),
            *(
                Forgotten(chip_subject(chip), now_ms, because)
                for chip in self.missing()
                if chip not in there and f"{self.device_type}-{chip}" not in used
            ),
        )

    def operator_releases(self, foreign: Document, now_ms: int) -> tuple[Released, ...]:
        """Return the separated chips whose names an operator removed from ``foreign``.

        Only a name that a store had can be removed; a document without the key releases nothing
        (device-plugin#3.6).
        """
        names, state = read_names(foreign.data), self._state()
        if names is None:
            return ()
        gone = [
            chip
            for chip in state.named
            if chip not in names and chip in state.chips and state.chips[chip].isolated
        ]
        if gone:
            log.warning("an operator released %s", ", ".join(f"chip {chip}" for chip in gone))
        return tuple(Released(chip_subject(chip), now_ms) for chip in gone)

    def operator_requests(self, foreign: Document, now_ms: int) -> tuple[Adopted, ...]:
        """Return the chips that an operator isolates in ``foreign``: by name, and by a request for
        it.

        A name alone separates nothing: the Device Plugin removes it again (device-plugin#3.6).
        """
        chips, requests = self._state().chips, read_requests(foreign.annotations)
        added = [
            chip
            for chip in sorted((read_names(foreign.data) or frozenset()) & requests.keys())
            # What a rule isolated takes no request, so it ends by that rule (decision 39).
            if chip in chips and not chips[chip].isolated
        ]
        for chip in added:
            log.warning("%s (as stated) isolated chip %d", requests[chip].by, chip)
        return tuple(_isolation(chip, now_ms, requests[chip]) for chip in added)

    def separated_chips(self, document: Document | None) -> tuple[int, ...]:
        """Return the chips that ``document`` separates by their names."""
        return () if document is None else tuple(sorted(read_names(document.data) or ()))

    def stamp_of(self, document: Document) -> int | None:
        """Return ``UpdateTime`` of a stored document in seconds.

        ``None`` when it is not plausible.
        """
        try:
            return decode(document.data, self.name).update_time
        except DocumentError:
            return None

    def verify(self, document: Document) -> None:
        """Raise ``DocumentError`` if readers would refuse ``document``."""
        verify_published(document.data, self.name)
        decode_switch_info(self.name, document.data)


def restored_chips(info: DeviceInfo) -> tuple[Input, ...]:
    """Return the chips in a document and their faults, as inputs of the policy."""
    if info.update_time <= 0:
        return ()
    reports: list[Input] = []
    for number in sorted(chips_of(info)):
        reports.append(ChipsRemembered(chip_subject(number), info.update_time * 1000))
    for fault in info.faults:
        chip = chip_of(fault.npu_name)
        if chip is not None:
            reports += [
                Observation(
                    CHIP_SOURCE,
                    chip_subject(chip),
                    code,
                    Assertion.PRESENT,
                    entry.fault_time,
                    # Documents have no severities. Where no table has the code, this level follows
                    # from a mild one (device-plugin#2.7).
                    Severity.MINOR if entry.fault_level == _MILD else None,
                )
                for code, entry in (fault.fault_time_and_level_map or {}).items()
                if is_code(code) and entry.fault_time > 0
            ]
    return tuple(reports)


def chips_of(info: DeviceInfo) -> set[int]:
    """Return the physical ids of all chips that a document names in a list or with a fault."""
    listed = {*info.free, *info.unhealthy, *info.network_unhealthy}
    names = listed | {fault.npu_name for fault in info.faults}
    return {chip for name in names if (chip := chip_of(name)) is not None}


def server_of(info: DeviceInfo, *, has_switches: bool) -> ServerState | None:
    """Return the server as a document describes it.

    Of families that it cannot distinguish, the first.
    """
    families = [
        family.name
        for family in FAMILIES.values()
        if family.device_type == info.device_type
        and (family.switch_info is not SwitchInfo.NONE) is has_switches
    ]
    ids = info.super_pod_id, info.server_index, info.rack_id
    return ServerState(families[0], ids) if families else None


def adopted(document: Document, stamp: int | None, now_ms: int) -> tuple[Adopted, ...]:
    """Return why a document of ``stamp`` (seconds; ``None``: of now) raised the levels of chips.

    A chip without a name was released, whatever separated it; a name without a known reason gets
    one (``docs/spec/device-plugin.md#1.8``, without defect K42).
    """
    data, requests = document.data, read_requests(document.annotations)
    names = read_names(data)
    at_ms = now_ms if stamp is None or stamp <= 0 else min(stamp * 1000, now_ms)
    items = []
    for chip, reasons in read_reasons(data.get(UPGRADE_REASON_KEY, "{}")).items():
        for reason in reasons:
            code, since_ms = reason.code, reason.upgrade_time
            assert code is not None
            # No reason can be younger than the document that has it.
            since_ms = min(since_ms, at_ms) if since_ms > 0 else at_ms
            # An operator's request is ``FaultAutofill`` in the document, which readers know
            # (decision 39).
            request = requests.get(chip) if reason.upgrade_type == FAULT_AUTOFILL else None
            item = Adopted(
                chip_subject(chip),
                code,
                reason.upgrade_type,
                since_ms,
                at_ms,
                reason.fault_level,
                request,
            )
            is_named = names is None or chip in names
            if reason.upgrade_type in UPGRADE_TYPES and (is_named or not _isolates(item)):
                items.append(item)
    explained = {item.subject.id for item in items if _isolates(item)}
    return (
        *items,
        *(
            _isolation(chip, now_ms, requests.get(chip))
            for chip in sorted((names or frozenset()) - explained)
        ),
    )


def _isolation(chip: int, now_ms: int, request: IsolationRequest | None) -> Adopted:
    return Adopted(
        chip_subject(chip),
        AUTOFILL_CODE,
        FAULT_AUTOFILL,
        now_ms,
        now_ms,
        ChipLevel.MANUALLY_SEPARATE_NPU,
        request,
    )


def _annotations(state: PolicyState, family: Family) -> dict[str, str]:
    """Return the annotations that name the operators who isolated chips."""
    requests = {
        family.device_name(chip): upgrade.request
        for chip, chip_state in state.chips.items()
        for upgrade in chip_state.upgrades
        if upgrade.request is not None
    }
    return {ISOLATION_ANNOTATION: encode_requests(requests)} if requests else {}


def _isolates(item: Adopted) -> bool:
    return item.level == ChipLevel.MANUALLY_SEPARATE_NPU
