"""Events of the switch library as values. Sentinels of the driver are ``None`` here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from contract.codes.levels import Severity
from contract.codes.switch_codes import sub_type_of

if TYPE_CHECKING:
    from dcmi_shim.worker.process import RawSwitchEvent


class DriverSwitchEvent(msgspec.Struct, frozen=True):
    """A fault event of an on-board switch, or a fault of its list (``docs/spec/dcmi.md#6``).

    A ``port`` of 65535 is the whole switch chip. ``assertion`` is 0 recovery, 1 occurrence,
    2 notice. ``seen_at_ms`` is 0 in a list.
    """

    event_type: int
    sub_type: int | None
    peer_device: int
    peer_port: int
    chip: int
    port: int
    severity: Severity | None
    assertion: int
    seen_at_ms: int
    driver_raised_at_ms: int | None
    serial: int
    information: str


def switch_event(raw: RawSwitchEvent) -> DriverSwitchEvent:
    """Return the value of ``raw``; an unknown severity becomes ``None``."""
    known = raw.severity in Severity.__members__.values()
    return DriverSwitchEvent(
        event_type=raw.event_type,
        sub_type=sub_type_of(raw.sub_type),
        peer_device=raw.peer_device,
        peer_port=raw.peer_port,
        chip=raw.chip,
        port=raw.port,
        severity=Severity(raw.severity) if known else None,
        assertion=raw.assertion,
        seen_at_ms=raw.seen_at_ms,
        driver_raised_at_ms=raw.driver_raised_at_ms,
        serial=raw.serial,
        information=raw.information,
    )
