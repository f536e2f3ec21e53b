"""What collectors report: observations, blindness, answers and gaps.

All of these are journaled in the order in which they were reported, and a replay of the journal
needs nothing else. Times are Unix epoch milliseconds of the host's clock unless a name ends
in another unit.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

import msgspec

from contract.codes.levels import Severity


class Assertion(StrEnum):
    """What a source reports about a code on a subject."""

    OCCUR = "occur"
    RECOVER = "recover"
    ONCE = "once"
    PRESENT = "present"
    ABSENT = "absent"


# Subjects are keys of most dictionaries of the agent, so each computes its hash once.
class Subject(
    msgspec.Struct, frozen=True, order=True, omit_defaults=True, gc=False, cache_hash=True
):
    """Whom an observation is about.

    ``Subject("chip", 3)`` is the chip with physical id 3, ``Subject("host", 1, "Fan")`` the part of
    the server that the BMC calls Fan 1, ``Subject("node", 0)`` the node as a whole. Only
    ``switch_info.port_subject`` decodes ``part`` of a switch.
    """

    kind: str
    id: int
    part: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.id} {self.part}".rstrip()


NODE = Subject("node", 0)
"""A source that speaks for the node as a whole, such as its BMC, is blind or answers about this."""


def chip_subject(physical_id: int) -> Subject:
    """Return the subject of the chip with ``physical_id``."""
    return Subject("chip", physical_id)


def host_subject(device_type: str, device_id: int) -> Subject:
    """Return the subject of a part of the server, as the BMC names it (``noded#4.1``)."""
    return Subject("host", device_id, device_type)


def storage_subject(name: str) -> Subject:
    """Return the subject of a shared storage client of this node: ``DPC`` or ``DTFS``.

    Its faults are public ones (``docs/spec/noded.md#4.3``, 4.4) and in no document about the host.
    """
    return Subject("storage", 0, name)


class Observation(msgspec.Struct, frozen=True, tag="observation", omit_defaults=True):
    """One thing that a collector saw.

    ``code`` is formatted as on the wire (8 or more upper-case hexadecimal digits).
    ``driver_raised_at_ms`` is the driver's own time, ``seen_at_ms`` when this host read it.
    OCCUR, RECOVER and ONCE come from events; PRESENT and ABSENT from audits that disagree with
    the tracked state. ``serial`` is the driver's number of an event, or the place of an alarm in a
    BMC's list. ``anew`` marks a PRESENT whose code was not in the list before: it cannot be
    what recovered since, if anything did.
    """

    source: str
    subject: Subject
    code: str
    assertion: Assertion
    seen_at_ms: int
    severity: Severity | None = None
    driver_raised_at_ms: int | None = None
    serial: int | None = None
    text: str = ""
    anew: bool = False


class SourceBlind(msgspec.Struct, frozen=True, tag="blind", omit_defaults=True):
    """A source gives no answer about a subject since ``since_ms``, because of ``reason``.

    ``by_driver``: that may be because the driver gives none about anything.
    """

    source: str
    subject: Subject
    since_ms: int
    reason: str
    by_driver: bool = False


class SourceAnswered(msgspec.Struct, frozen=True, tag="answered"):
    """A source answered about a subject: for the first time, or again after blindness."""

    source: str
    subject: Subject
    at_ms: int


class HealthRead(msgspec.Struct, frozen=True, tag="health", omit_defaults=True):
    """The health word of a chip without events, and the ``codes`` that it listed then.

    ``word`` is 0 healthy, 1 minor, 2 major, 3 critical; ``None``: the chip did not give it when its
    list had changed. It bounds the severity of codes that no table has.
    """

    source: str
    subject: Subject
    at_ms: int
    word: int | None = None
    codes: tuple[str, ...] = ()


class Gap(msgspec.Struct, frozen=True, tag="gap"):
    """Something may have been missed here; an audit follows."""

    source: str
    at_ms: int
    reason: str


Report: TypeAlias = Observation | SourceBlind | SourceAnswered | HealthRead | Gap
