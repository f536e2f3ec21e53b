"""One picture of the agent, taken at once: the API answers with it, metrics are made from it.

Times are epoch milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from agent.journal import JournalStatus

if TYPE_CHECKING:
    from agent.heartbeat import Heartbeat
    from agent.publication import Publication
    from agent.state import State
    from dcmi_shim.types import Inventory, StuckCall


class Blind(msgspec.Struct, frozen=True):
    """A source that gives no answer about a chip."""

    source: str
    since_ms: int
    reason: str


class ChipStatus(msgspec.Struct, frozen=True):
    """One chip: its level and whether anything is known about it."""

    chip: int
    device: str
    level: str
    faults: int
    blind: tuple[Blind, ...]


class FaultStatus(msgspec.Struct, frozen=True):
    """One fault that holds now. ``severity`` is ``None`` when the driver told none."""

    chip: int
    device: str
    code: str
    level: str
    severity: str | None
    device_fault: bool
    since_ms: int
    episode: str
    reason: str
    source: str
    once: bool


class DriverStatus(msgspec.Struct, frozen=True):
    """The driver; identity is ``None`` until it answered.

    ``trouble`` says why it does not answer, or which chips it does not show and why.
    ``polling_reason`` says why no events arrive; ``gaps`` counts the times some may have been lost.
    """

    root: str
    library: str | None
    version: str | None
    family: str | None
    chip_name: str | None
    trouble: str | None
    polling_reason: str | None
    gaps: int
    stuck_calls: tuple[str, ...]


class PublicationStatus(msgspec.Struct, frozen=True):
    """One document on its way to the store."""

    document: str
    store: str
    acknowledged_at_ms: int | None
    acknowledged_stamp: int | None
    acknowledged_revision: int | None
    waiting_since_ms: int | None
    trouble: str | None
    trouble_since_ms: int | None
    conflict_since_ms: int | None
    watch_trouble: str | None
    foreign_writes: int


class HeartbeatStatus(msgspec.Struct, frozen=True):
    """The heartbeat. ``standing`` says whose the node name is; ``conflict`` who has it instead.

    ``withheld`` says which stalled task keeps the agent from beating.
    """

    holder: str
    interval_seconds: float
    standing: str
    conflict: str | None
    beats: int
    failures: int
    beaten_at_ms: int | None
    trouble: str | None
    withheld: str | None


class Status(msgspec.Struct, frozen=True):
    """Everything. ``not_ready`` says in words why the agent is not ready; empty when it is."""

    node: str
    version: str
    at_ms: int
    started_at_ms: int
    revision: int
    not_ready: tuple[str, ...]
    stalled: dict[str, float]
    chips: tuple[ChipStatus, ...]
    faults: tuple[FaultStatus, ...]
    driver: DriverStatus
    publication: PublicationStatus
    heartbeat: HeartbeatStatus
    journal: JournalStatus


def chip_statuses(state: State, device_type: str) -> tuple[ChipStatus, ...]:
    """The chips of ``state`` by physical id."""
    return tuple(
        ChipStatus(
            chip=chip,
            device=f"{device_type}-{chip}",
            level=known.level.value,
            faults=len(known.faults),
            blind=tuple(
                Blind(source, blindness.since_ms, blindness.reason)
                for source, blindness in sorted(known.blind.items())
            ),
        )
        for chip, known in sorted(state.chips.items())
    )


def fault_statuses(state: State, device_type: str) -> tuple[FaultStatus, ...]:
    """The faults of ``state`` by physical id, in order of arrival."""
    return tuple(
        FaultStatus(
            chip=chip,
            device=f"{device_type}-{chip}",
            code=fault.code,
            level=fault.level.value,
            severity=None if fault.severity is None else fault.severity.word,
            device_fault=fault.device_fault,
            since_ms=fault.first_seen_ms,
            episode=fault.episode,
            reason=fault.because,
            source=fault.source,
            once=fault.once,
        )
        for chip, known in sorted(state.chips.items())
        for fault in known.faults.values()
    )


def driver_status(
    root: str,
    inventory: Inventory | None,
    trouble: str | None,
    polling_reason: str | None,
    gaps: int,
    stuck: tuple[StuckCall, ...],
) -> DriverStatus:
    """The driver as far as it answered."""
    return DriverStatus(
        root=root,
        library=None if inventory is None else inventory.library,
        version=None if inventory is None else inventory.driver_version,
        family=None if inventory is None else inventory.family,
        chip_name=None if inventory is None else inventory.chip_name,
        trouble=trouble,
        polling_reason=polling_reason,
        gaps=gaps,
        stuck_calls=tuple(
            call.function if call.chip is None else f"{call.function} on {call.chip}"
            for call in stuck
        ),
    )


def publication_status(document: str, store: str, record: Publication) -> PublicationStatus:
    """How the publishing of ``document`` goes."""
    return PublicationStatus(
        document=document,
        store=store,
        acknowledged_at_ms=record.acknowledged_at_ms,
        acknowledged_stamp=record.acknowledged_stamp,
        acknowledged_revision=record.acknowledged_revision,
        waiting_since_ms=None if record.waiting is None else record.waiting.event_ms,
        trouble=record.trouble,
        trouble_since_ms=record.trouble_since_ms,
        conflict_since_ms=record.conflict_since_ms,
        watch_trouble=record.watch_trouble,
        foreign_writes=record.foreign_writes,
    )


def heartbeat_status(heartbeat: Heartbeat) -> HeartbeatStatus:
    """How the heartbeat goes."""
    return HeartbeatStatus(
        holder=heartbeat.holder,
        interval_seconds=heartbeat.interval_seconds,
        standing=heartbeat.standing.value,
        conflict=heartbeat.conflict,
        beats=heartbeat.beats,
        failures=heartbeat.failures,
        beaten_at_ms=heartbeat.beaten_at_ms,
        trouble=heartbeat.trouble,
        withheld=heartbeat.withheld,
    )


def not_ready(
    publication: PublicationStatus, chips: int, driver: DriverStatus, conflict: str | None
) -> tuple[str, ...]:
    """Why the cluster does not see what this node knows; nothing when it does."""
    reasons = [] if conflict is None else [conflict]
    if driver.library is None:
        why = "" if driver.trouble is None else f": {driver.trouble}"
        reasons.append(f"the driver has not answered yet{why}")
    elif not chips:
        reasons.append("no chip was read yet")
    if publication.conflict_since_ms is not None:
        reasons.append(f"conflict: somebody else writes {publication.document}")
    if publication.trouble is not None:
        reasons.append(f"{publication.document} cannot be published: {publication.trouble}")
    elif publication.acknowledged_at_ms is None:
        reasons.append(f"{publication.document} was not published yet")
    return tuple(reasons)
