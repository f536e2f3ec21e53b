"""Renders the state as ``SwitchInfoCfg``, and reads it back for an agent without a journal.

Source: ``docs/spec/device-plugin.md#5.2`` and 5.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.codes.families import SwitchInfo
from contract.codes.levels import Severity, SwitchLevel
from contract.codes.switch_codes import L2, format_switch_code, parse_switch_code
from contract.documents.device_info import clean_switch_info, unread_switch_info
from contract.documents.switch_info import (
    SwitchEvent,
    SwitchPort,
    SwitchRecord,
    encode_switch_info,
    port_of,
    port_subject,
)
from contract.observation import NODE, Assertion, Observation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.policy.state import Fault, PolicyState
    from contract.codes.families import Family
    from contract.observation import Report

SWITCH_SOURCE = "switch"

_RANK = {level.value: rank for rank, level in enumerate(SwitchLevel)}
_STATUS = {
    SwitchLevel.SEPARATE: "UnHealthy",
    SwitchLevel.PRE_SEPARATE: "PreSeparate",
    SwitchLevel.RESTART_REQUEST: "UnHealthy",
    SwitchLevel.SUB_HEALTH_FAULT: "SubHealthy",
    SwitchLevel.NOT_HANDLE: "Healthy",
}
_PLANE_PORTS = 16
"""From this many faulty ports to L2 on, a plane of a switch chip counts as down."""
_LASTING, _ONE_OFF = 1, 2


def switch_info_text(state: PolicyState, family: Family, update_time: int) -> str | None:
    """Return the text of ``SwitchInfoCfg`` for ``state``, stamped in epoch seconds.

    ``None`` for a family without such a key. A blind switch keeps its last state; one that never
    answered and has no fault is not reported as healthy.
    """
    if family.switch_info is not SwitchInfo.CLEAN:
        return clean_switch_info(family, update_time)
    if SWITCH_SOURCE not in state.of(NODE).answered and not _live(state):
        return unread_switch_info()
    return encode_switch_info(render_switch_info(state, update_time))


def is_known(state: PolicyState, family: Family) -> bool:
    """Return whether the switches, if there are any, have answered this process or are blind."""
    node = state.of(NODE)
    has_switches = family.switch_info is SwitchInfo.CLEAN
    return not has_switches or SWITCH_SOURCE in node.answered or SWITCH_SOURCE in node.blind


def render_switch_info(state: PolicyState, update_time: int) -> SwitchRecord:
    """Return the events in order of arrival.

    A code in no table is left out, but counts as not handled.
    """
    live = _live(state)
    with_level = [(port, fault) for port, fault in live if fault.level]
    times = {
        f"{fault.code}_{port.chip}_{port.port}": (_raised_at_ms(fault), fault.level)
        for port, fault in with_level
    }
    level, status = _summary(live)
    return SwitchRecord(
        events=tuple(_event(port, fault) for port, fault in with_level),
        level=level,
        update_time=update_time,
        status=status,
        # Go writes the keys of a map in order (device-plugin#1.3).
        times=tuple((key, at_ms, own) for key, (at_ms, own) in sorted(times.items())),
    )


def _live(state: PolicyState) -> list[tuple[SwitchPort, Fault]]:
    faults = [
        (port_of(subject), fault)
        for subject, subject_state in state.subjects()
        if subject.kind == "switch"
        for fault in subject_state.faults.values()
    ]
    return sorted(faults, key=lambda pair: (pair[1].first_seen_ms, pair[1].revision))


def _summary(live: Iterable[tuple[SwitchPort, Fault]]) -> tuple[str, str]:
    """Return the level and the status of the node, the plane rule included (device-plugin#5.3)."""
    levels = {fault.level or SwitchLevel.NOT_HANDLE.value for _, fault in live}
    if _is_plane_down(live):
        levels.add(SwitchLevel.SEPARATE)
    if not levels:
        return "", "Healthy"
    level = SwitchLevel(min(levels, key=_RANK.__getitem__))
    return level, _STATUS[level]


def _is_plane_down(live: Iterable[tuple[SwitchPort, Fault]]) -> bool:
    """Return whether a switch chip lost its ports to L2, whatever their codes.

    Upstream compares for equality (defect K23): 17 faulty ports are not less serious than 16.
    """
    ports: dict[int, set[int]] = {}
    for port, fault in live:
        # Only lasting faults (assertion 1) count for the plane rule (device-plugin#5.3).
        if port.peer_device == L2 and not fault.once:
            ports.setdefault(port.chip, set()).add(port.port)
    return any(len(down) >= _PLANE_PORTS for down in ports.values())


def _event(port: SwitchPort, fault: Fault) -> SwitchEvent:
    return SwitchEvent(
        event_type=parse_switch_code(fault.code).event_type,
        assembled_fault_code=fault.code,
        peer_port_device=port.peer_device,
        peer_port_id=port.peer_port,
        switch_chip_id=port.chip,
        switch_port_id=port.port,
        severity=0 if fault.severity is None else fault.severity,
        assertion=_ONE_OFF if fault.once else _LASTING,
        alarm_raised_time=_raised_at_ms(fault),
    )


def _raised_at_ms(fault: Fault) -> int:
    return fault.raised_at_ms or fault.first_seen_ms


def restored_ports(record: SwitchRecord) -> tuple[Report, ...]:
    """Return the faults of switch ports in a document, as observations."""
    return tuple(
        Observation(
            SWITCH_SOURCE,
            port_subject(
                SwitchPort(
                    event.switch_chip_id,
                    event.switch_port_id,
                    event.peer_port_device,
                    event.peer_port_id,
                )
            ),
            event.assembled_fault_code,
            Assertion.PRESENT,
            event.alarm_raised_time,
            Severity(event.severity) if event.severity in set(Severity) else None,
            event.alarm_raised_time,
        )
        for event in record.events
        if event.alarm_raised_time > 0 and _is_own(event)
    )


def _is_own(event: SwitchEvent) -> bool:
    """Return whether our agent could have published ``event``; a foreign one is not restored."""
    try:
        code = parse_switch_code(event.assembled_fault_code)
    except ValueError:
        return False
    return (
        code.event_type == event.event_type
        and format_switch_code(code) == event.assembled_fault_code
    )
