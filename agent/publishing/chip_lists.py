"""Renders the chip lists of device-info from the state: free, unhealthy, and the fault entries.

Source: ``docs/spec/device-plugin.md#1.3``, 1.6, 2.7 and 2.8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.chip_allocation import NOTHING_IN_USE, ChipAllocation
from agent.policy.state import CHIP_SOURCE, ChipState, PolicyState
from agent.publishing.switch_info import switch_info_text
from contract.codes.chip_codes import is_network
from contract.codes.families import FAMILIES
from contract.codes.levels import ChipLevel, is_healthy, is_network_healthy, most_serious
from contract.codes.policies import AUTOFILL_CODE
from contract.documents.device_info import (
    CARD_NETWORK_UNHEALTHY,
    CARD_UNHEALTHY,
    UNKNOWN_ID,
    DeviceFault,
    DeviceInfo,
    TimeAndLevel,
)
from contract.documents.separation import UpgradeReason, write_reasons, written_code
from contract.errors import DriverError

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from contract.codes.families import Family
    from dcmi_shim.values import Inventory, SuperPod

DUO_FAMILY = "Ascend310P"
"""The one family with cards of two dies that are reset as one."""
# Super pods 1D and 2D: those of an A5 alone have ``RackID`` (device-plugin#1.3).
_RACK_TYPES = frozenset({1, 2})
_NEVER_SEEN = ChipState()


def family_of(inventory: Inventory) -> Family:
    """Return the card family of this node. Raises ``DriverError`` for one that is not known."""
    family = FAMILIES.get(inventory.family)
    if family is None:
        raise DriverError(
            f"the driver names the card family {inventory.family!r}, known are "
            f"{', '.join(FAMILIES)}: this version cannot serve the node"
        )
    return family


def render(
    state: PolicyState,
    inventory: Inventory,
    update_time: int,
    in_use: ChipAllocation = NOTHING_IN_USE,
    *,
    cards_together: bool = False,
) -> DeviceInfo:
    """Return the document for ``state``, stamped ``update_time`` (epoch seconds).

    A chip ``in_use`` is spared its pre-separation; one that a pod has is not free. A chip that
    never answered and has no fault is in no list; a blind one keeps its last state. One that has
    not answered since the start keeps its faults, and is not free; but while the driver answers for
    no chip, nothing is known of them. With ``cards_together`` both dies of a Duo card are unhealthy
    when one is, because they are reset as one (device-plugin#2.8, EX-41).
    """
    spared = in_use.used | in_use.assigned
    family = family_of(inventory)
    free: list[str] = []
    unhealthy: list[str] = []
    network_unhealthy: list[str] = []
    faults: list[DeviceFault] = []
    order = [(chip.logic_id, chip.physical_id) for chip in inventory.chips]
    missing = missing_chips(state, {chip for _, chip in order})
    order += ((logic_id, chip) for chip, logic_id in missing.items())
    # Entries are in the order of logic ids, missing chips among them (device-plugin#1.3).
    order.sort()
    with_ill_die = _ill_cards(state, inventory, spared) if cards_together else frozenset()
    for _, chip in order:
        chip_state = state.chips.get(chip, _NEVER_SEEN)
        name = family.device_name(chip)
        network, own, bare = _entries(name, chip_state, name in spared)
        level = _level_of([own, bare])
        goes_along = chip in with_ill_die and chip_state.was_read
        if goes_along and own is None and bare is None:
            bare = _entry(CARD_UNHEALTHY, name, {}, ChipLevel.NORMAL_NPU)
        faults += [entry for entry in (network, bare, own) if entry is not None]
        if network is not None and not is_network_healthy(ChipLevel(network.fault_level)):
            network_unhealthy.append(name)
        if goes_along or not is_healthy(level, name in spared):
            unhealthy.append(name)
        elif (
            chip_state.was_read
            and name not in in_use.used
            and level is not ChipLevel.PRE_SEPARATE_NPU
            and chip not in missing
            and not (chip_state.silent and _gives_no_answer(chip_state, state, order))
        ):
            free.append(name)
    super_pod_id, server_index, rack_id = super_pod_ids(inventory.super_pod, family)
    # The driver states the super pod by way of a chip; without one, the last known ids stay.
    if not inventory.chips and state.server is not None and state.server.super_pod is not None:
        super_pod_id, server_index, rack_id = state.server.super_pod
    return DeviceInfo(
        device_type=family.device_type,
        free=tuple(sorted(free)),
        unhealthy=tuple(sorted(unhealthy)),
        network_unhealthy=tuple(sorted(network_unhealthy)) if family.has_network else (),
        # Upstream's list is empty, too: no reachable code sets its status (device-plugin#1.3).
        recovering=(),
        faults=tuple(faults),
        update_time=update_time,
        super_pod_id=super_pod_id,
        server_index=server_index,
        rack_id=rack_id,
        manually_separated=_isolated(state, [chip for _, chip in order], family),
        upgrade_reasons=_reasons(state, family),
        switch_info=switch_info_text(state, family, update_time),
    )


def _gives_no_answer(
    chip_state: ChipState, state: PolicyState, order: Sequence[tuple[int, int]]
) -> bool:
    """Return whether a silent chip was asked without an answer while the driver answers for
    others.
    """
    blind = chip_state.blind.get(CHIP_SOURCE)
    if blind is None:
        return False
    # A call that hangs counts once another chip has answered; until then the driver may hang as a
    # whole (decision 18).
    return not blind.by_driver or any(
        other.was_read and not other.silent
        for _, chip in order
        if (other := state.chips.get(chip)) is not None
    )


def _ill_cards(state: PolicyState, inventory: Inventory, in_use: frozenset[str]) -> frozenset[int]:
    """Return the chips on cards of a Duo of which a die is unhealthy by itself."""
    family = family_of(inventory)
    if family.name != DUO_FAMILY:
        return frozenset()
    ill = set()
    for chip in inventory.chips:
        name = family.device_name(chip.physical_id)
        chip_state = state.chips.get(chip.physical_id, _NEVER_SEEN)
        _, own, bare = _entries(name, chip_state, name in in_use)
        if not is_healthy(_level_of([own, bare]), name in in_use):
            ill.add(chip.card_id)
    return frozenset(chip.physical_id for chip in inventory.chips if chip.card_id in ill)


def _level_of(entries: Iterable[DeviceFault | TimeAndLevel | None]) -> ChipLevel:
    return most_serious(ChipLevel(entry.fault_level) for entry in entries if entry is not None)


def missing_chips(state: PolicyState, listed: Container[int]) -> dict[int, int]:
    """Return the physical ids of chips that were read once and are not ``listed``, with logic ids.

    For a chip that only a document has, the physical id stands for the unknown logic id.
    """
    return {
        chip: chip if chip_state.place is None else chip_state.place.logic_id
        for chip, chip_state in state.chips.items()
        if chip not in listed and chip_state.was_read
    }


def _entries(
    name: str, chip_state: ChipState, used: bool
) -> tuple[DeviceFault | None, DeviceFault | None, DeviceFault | None]:
    """Return the entry of the network codes, of the chip's own codes, and of a reason without a
    code.

    The last one stands alone: a reader takes an entry's level only for codes not in its map. Codes
    that only an upgrade holds are shown while they make the chip or its network unhealthy.
    """
    if not chip_state.faults and not chip_state.upgrades:
        return None, None, None
    # ``fault_code`` lists codes in the order of their arrival (device-plugin#1.3).
    live = sorted(chip_state.faults.values(), key=lambda fault: fault.first_seen_ms)
    codes = {fault.code: TimeAndLevel(fault.first_seen_ms, fault.level) for fault in live}
    bare = None
    for upgrade in chip_state.upgrades:
        if upgrade.code == AUTOFILL_CODE:
            bare = _entry(CARD_UNHEALTHY, name, {}, upgrade.level)
            continue
        raised = TimeAndLevel(upgrade.upgraded_at_ms, upgrade.level)
        codes[upgrade.code] = _worse(codes.get(upgrade.code), raised)
    network = {code: entry for code, entry in codes.items() if is_network(code)}
    own = {code: entry for code, entry in codes.items() if not is_network(code)}
    if network.keys().isdisjoint(chip_state.faults) and is_network_healthy(
        _level_of(network.values())
    ):
        network = {}
    if own.keys().isdisjoint(chip_state.faults) and is_healthy(_level_of(own.values()), used):
        own = {}
    return (
        _entry_of(CARD_NETWORK_UNHEALTHY, name, network),
        _entry_of(CARD_UNHEALTHY, name, own),
        bare,
    )


def _worse(before: TimeAndLevel | None, raised: TimeAndLevel) -> TimeAndLevel:
    """Return the entry of an upgraded code: with the upgrade's time, unless its level is not
    worse.
    """
    if before is None:
        return raised
    level, other = ChipLevel(raised.fault_level), ChipLevel(before.fault_level)
    return raised if most_serious([level, other]) is level else before


def _isolated(state: PolicyState, listed: Sequence[int], family: Family) -> str:
    """Return the names of separated chips in the order of ``listed``, then those that are not in
    it.
    """
    isolated = {chip for chip, chip_state in state.chips.items() if chip_state.isolated}
    unlisted = sorted(isolated.difference(listed))
    named = [*(chip for chip in listed if chip in isolated), *unlisted]
    return ",".join(family.device_name(chip) for chip in named)


def _reasons(state: PolicyState, family: Family) -> str:
    return write_reasons(
        {
            family.device_name(chip): [
                UpgradeReason(
                    upgrade.upgraded_at_ms, written_code(upgrade.code), upgrade.level, upgrade.kind
                )
                for upgrade in chip_state.upgrades
            ]
            for chip, chip_state in state.chips.items()
        }
    )


def _entry_of(kind: str, name: str, codes: dict[str, TimeAndLevel]) -> DeviceFault | None:
    if not codes:
        return None
    return _entry(kind, name, codes, _level_of(codes.values()))


def _entry(kind: str, name: str, codes: dict[str, TimeAndLevel], level: ChipLevel) -> DeviceFault:
    return DeviceFault(
        fault_type=kind,
        npu_name=name,
        large_model_fault_level=level,
        fault_level=level,
        fault_handling=level,
        fault_code=",".join(codes),
        fault_time_and_level_map=codes,
    )


def super_pod_ids(super_pod: SuperPod | None, family: Family) -> tuple[int, int, int]:
    """Return super-pod id, server index and rack id; only some A5 super pods have a rack."""
    if super_pod is None:
        return UNKNOWN_ID, UNKNOWN_ID, 0
    has_rack = family.name == "Ascend910A5" and super_pod.super_pod_type in _RACK_TYPES
    return (
        _int32(super_pod.super_pod_id),
        _int32(super_pod.server_index),
        _int32(super_pod.chassis_id) if has_rack else 0,
    )


def _int32(value: int | None) -> int:
    """Return the driver's 32 bits as upstream casts them; its "invalid" is all ones."""
    if value is None:
        return -1
    return value - (1 << 32) if value >= 1 << 31 else value
