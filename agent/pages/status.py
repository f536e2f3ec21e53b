"""The status of the agent at one instant: the API answers with it, metrics are made from it.

Times are epoch milliseconds.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from agent.chip_removal import is_answering
from agent.publishing import vigil_key
from collectors.chip_faults.collector import HEALTH
from collectors.links.collector import LINK_UP
from collectors.registry import GAUGES
from contract.codes.levels import ChipLevel
from contract.codes.policies import AUTOFILL_CODE
from contract.observation import Subject, chip_subject
from contract.operator_rules.fault_configuration import DOCUMENTS
from contract.pages.agent_status import (
    ChipStatus,
    DriverStatus,
    FaultConfigurationStatus,
    FaultDocumentStatus,
    FaultProblemStatus,
    HeartbeatStatus,
    HeldFaultStatus,
    OldHeartbeatStatus,
    PublicationStatus,
    ShadowStatus,
)
from contract.pages.blind import BlindStatus
from contract.pages.faults import FaultStatus, names_of, subject_name
from contract.sentences import joined, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping

    from agent.heartbeat.heartbeat import Heartbeat
    from agent.heartbeat.old_readers import OldReaders
    from agent.policy.state import Blindness, PolicyState, SubjectState
    from agent.publishing.ownership import OtherProgram
    from agent.publishing.publication import Publication
    from contract.operator_rules.fault_configuration import Judged
    from contract.pages.faults import FaultRule
    from dcmi_shim.values import Inventory, StuckCall

_MAX_PROBLEMS = 100
_WATCH_FAILS_MS = 30_000


def gauges_of(readings: Mapping[tuple[Subject, str], float]) -> dict[str, dict[str, float]]:
    """Return each reading of ``GAUGES`` by its name and chip; about the node the chip is empty."""
    gauges: dict[str, dict[str, float]] = {}
    for (subject, name), value in readings.items():
        if name in GAUGES:
            about = str(subject.id) if subject.kind == "chip" else ""
            gauges.setdefault(name, {})[about] = value
    return gauges


def chip_statuses(
    state: PolicyState,
    device_type: str,
    readings: Mapping[tuple[Subject, str], float],
    missing: Container[int] = (),
) -> tuple[ChipStatus, ...]:
    """Return the chips of ``state`` by physical id; ``missing`` are not listed by the driver."""

    def reading(chip: int, name: str) -> float | None:
        return readings.get((chip_subject(chip), name))

    return tuple(
        ChipStatus(
            chip=chip,
            device=f"{device_type}-{chip}",
            health=None if (word := reading(chip, HEALTH)) is None else int(word),
            link_up=None if (up := reading(chip, LINK_UP)) is None else bool(up),
            was_read=chip_state.was_read,
            level=chip_state.level.value,
            faults=len(chip_state.faults),
            upgrades=chip_state.upgrades,
            blind=blind_sources(chip_state, f"{device_type}-{chip}"),
            listed=chip not in missing,
            answers=chip not in missing and is_answering(chip_state),
        )
        for chip, chip_state in sorted(state.chips.items())
    )


def blind_sources(state: SubjectState, chip: str | None = None) -> tuple[BlindStatus, ...]:
    """Return the sources that give no answer about a subject, which may be ``chip``."""
    return tuple(
        BlindStatus(source, blindness.since_ms, blindness.reason, chip)
        for source, blindness in sorted(state.blind.items())
    )


def blind_about_node(state: PolicyState) -> tuple[BlindStatus, ...]:
    """Return the sources that give no answer about the node as a whole or its storage clients."""
    return tuple(
        BlindStatus(source.source, source.since_ms, source.why)
        for source in vigil_key.blind_sources(state)
        if source.chip is None
    )


def fault_statuses(state: PolicyState, device_type: str) -> tuple[HeldFaultStatus, ...]:
    """Return the faults of ``state`` by subject, chips first, in order of arrival."""
    subjects = sorted(state.subjects(), key=lambda pair: (pair[0].kind != "chip", pair[0]))
    return tuple(
        HeldFaultStatus(
            chip=subject.id if subject.kind == "chip" else None,
            device=f"{device_type}-{subject.id}" if subject.kind == "chip" else None,
            subject=f"{subject.kind} {subject.id}",
            part=subject.part,
            code=fault.code,
            level=fault.level,
            severity=None if fault.severity is None else fault.severity.word,
            device_fault=fault.device_fault and subject.kind == "chip",
            since_ms=fault.first_seen_ms,
            episode=fault.episode,
            reason=fault.because,
            source=fault.source,
            reported_by=fault.reported_by,
            once=fault.once,
        )
        for subject, subject_state in subjects
        for fault in subject_state.faults.values()
    )


def fault_row(
    node: str, rules_of: Callable[[str, str], tuple[FaultRule, ...]], fault: HeldFaultStatus
) -> FaultStatus:
    """Return the row of ``/api/v1/faults`` for a fault of ``node``, with the rules about it."""
    kind, _, number = fault.subject.partition(" ")
    subject = fault.device or subject_name(Subject(kind, int(number), fault.part), "")
    return FaultStatus(
        node=node,
        subject=subject,
        kind=kind,
        code=fault.code,
        level=fault.level,
        **names_of(fault.code),
        since_ms=fault.since_ms,
        severity=fault.severity,
        device_fault=fault.device_fault,
        severity_source="agent",
        episode=fault.episode,
        reason=fault.reason,
        source=fault.source,
        reported_by=fault.reported_by,
        once=fault.once,
        rules=rules_of(kind, fault.code),
    )


def isolation_rows(
    node: str, chips: Iterable[ChipStatus], faults: Iterable[HeldFaultStatus]
) -> Iterator[FaultStatus]:
    """Yield a row for each isolation of a chip of ``node`` that is none of the ``faults``.

    An isolation without a code has its level instead of a code, as in cluster-info.
    """
    shown = {(fault.device, fault.code) for fault in faults}
    for chip in chips:
        for upgrade in chip.upgrades:
            if (
                upgrade.level is not ChipLevel.MANUALLY_SEPARATE_NPU
                or (chip.device, upgrade.code) in shown
            ):
                continue
            code = upgrade.level.value if upgrade.code == AUTOFILL_CODE else upgrade.code
            yield FaultStatus(
                node=node,
                subject=chip.device,
                kind="chip",
                code=code,
                level=upgrade.level,
                **names_of(code),
                since_ms=upgrade.upgraded_at_ms,
                severity=None if upgrade.severity is None else upgrade.severity.word,
                severity_source="agent",
                episode=upgrade.episode,
                reason=upgrade.because,
            )


def driver_status(
    root: str,
    inventory: Inventory | None,
    trouble: str | None,
    polling_reason: str | None,
    gaps: int,
    stuck: tuple[StuckCall, ...],
) -> DriverStatus:
    """Return the driver as far as it answered."""
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
        virtual_chips=() if inventory is None else inventory.virtual,
    )


def unsupported(virtual_chips: tuple[int, ...]) -> str:
    """Return why there is no device-info of a node with virtual devices."""
    return sentence(
        "virtual devices are not supported (docs/compatibility.md); chips that are cut into some: "
        "{chips}",
        chips=joined("{before}, {part}", map(str, virtual_chips)),
    )


def publication_status(
    kind: str, document: str, store: str, record: Publication, other: OtherProgram | None = None
) -> PublicationStatus:
    """Return the status of ``document``, which may be left to the program ``other``."""
    return PublicationStatus(
        kind=kind,
        document=document,
        store=store,
        acknowledged_at_ms=record.acknowledged_at_ms,
        acknowledged_stamp=record.acknowledged_stamp,
        acknowledged_revision=record.acknowledged_revision,
        waiting_since_ms=record.waiting_since_ms,
        trouble=record.trouble,
        trouble_since_ms=record.trouble_since_ms,
        conflict_since_ms=record.conflict_since_ms,
        conflict=(
            None
            if record.conflict_since_ms is None
            else sentence("conflict: {change}", change=record.foreign.writer.changes(document))
        ),
        conflict_writer=record.foreign.writer.name or None,
        left_to=None if other is None else other.text,
        left_to_writer=None if other is None else other.writer.name,
        watch_trouble=record.watch_trouble,
        watch_trouble_since_ms=record.watch_trouble_since_ms,
        foreign_writes=record.foreign.total,
    )


def fault_configuration_status(judged: Judged, trouble: str | None) -> FaultConfigurationStatus:
    """Return the fault configuration in force, with its problems."""
    return FaultConfigurationStatus(
        digest=judged.in_force.texts.digest,
        documents=tuple(
            FaultDocumentStatus(key, judged.in_force.place_of(key).value, key in judged.kept)
            for key in DOCUMENTS
        ),
        problem_counts=dict.fromkeys(DOCUMENTS, 0)
        | Counter(problem.document for problem in judged.problems),
        problems=tuple(
            FaultProblemStatus(
                problem.document, problem.place.value, problem.problem.where, problem.problem.what
            )
            for problem in judged.problems[:_MAX_PROBLEMS]
        ),
        trouble=trouble,
    )


def heartbeat_status(heartbeat: Heartbeat, also: OldReaders) -> HeartbeatStatus:
    """Return the status of the heartbeat, and of that for old readers."""
    on_node, label = also.annotations, also.label
    old = OldHeartbeatStatus(
        generation=also.generation,
        label=None if label is None else label.problem,
        beaten_seconds=None if on_node is None else on_node.beaten_seconds,
        trouble=None if on_node is None else on_node.trouble.reason,
    )
    return HeartbeatStatus(
        holder=heartbeat.claim.holder,
        interval_seconds=heartbeat.interval_seconds,
        standing=heartbeat.claim.state.value,
        conflict=heartbeat.claim.conflict,
        beats=heartbeat.beats,
        failures=heartbeat.failures + (0 if on_node is None else on_node.failures),
        beaten_at_ms=heartbeat.beaten_at_ms,
        trouble=heartbeat.trouble.reason,
        withheld=heartbeat.withheld,
        old=None if also.generation == "lease" else old,
    )


def not_ready(
    publications: Iterable[PublicationStatus],
    chips: Iterable[ChipStatus],
    driver: DriverStatus,
    heartbeat: HeartbeatStatus,
    shadow: ShadowStatus | None = None,
    *,
    blind: Blindness | None = None,
    at_ms: int = 0,
) -> tuple[str, ...]:
    """Return the reasons why the agent is not ready: the cluster does not see this node's faults.

    ``blind``: since when and why no chip gives an answer. ``at_ms`` is the time now: the watch of
    an own document is a reason once it has failed for long. A node-info that was never published
    is not a reason: a node may have no BMC, or one that is blind.
    """
    chip_reason = _chips_not_read(chips, driver, blind)
    reasons = [
        *_heartbeat_reasons(heartbeat),
        *([] if chip_reason is None else [chip_reason]),
        *(
            reason
            for publication in publications
            for reason in _publication_reasons(publication, at_ms)
        ),
    ]
    if shadow is not None and shadow.trouble is not None:
        reasons.append(
            sentence(
                "{document} cannot be watched: {reason}",
                document=shadow.document,
                reason=shadow.trouble,
            )
        )
    return tuple(reasons)


def _heartbeat_reasons(heartbeat: HeartbeatStatus) -> Iterator[str]:
    if heartbeat.conflict is not None:
        yield heartbeat.conflict
    if heartbeat.withheld is not None:
        # Tasks have English names, so that is no sentence.
        yield f"it does not beat: {heartbeat.withheld}"
    if heartbeat.trouble is not None:
        yield sentence("the heartbeat fails: {reason}", reason=heartbeat.trouble)
    if heartbeat.old is not None and heartbeat.old.trouble is not None:
        yield sentence("the heartbeat on the Node fails: {reason}", reason=heartbeat.old.trouble)


def _chips_not_read(
    chips: Iterable[ChipStatus], driver: DriverStatus, blind: Blindness | None
) -> str | None:
    if driver.library is None:
        if driver.trouble is None:
            return sentence("the driver has not answered yet")
        return sentence("the driver has not answered yet: {reason}", reason=driver.trouble)
    if driver.virtual_chips:
        return unsupported(driver.virtual_chips)
    if not any(chip.was_read for chip in chips):
        return sentence("no chip was read yet")
    if blind is None:
        return None
    return sentence("blind: no chip gives an answer: {reason}", reason=blind.reason)


def _publication_reasons(publication: PublicationStatus, at_ms: int) -> Iterator[str]:
    if publication.conflict is not None:
        yield publication.conflict
    if publication.left_to is not None:
        yield publication.left_to
        return
    if publication.trouble is not None:
        yield sentence(
            "{document} cannot be published: {reason}",
            document=publication.document,
            reason=publication.trouble,
        )
    elif publication.acknowledged_at_ms is None and publication.kind == "device-info":
        yield sentence("{document} was not published yet", document=publication.document)
    since_ms = publication.watch_trouble_since_ms
    if since_ms is not None and at_ms - since_ms >= _WATCH_FAILS_MS:
        yield sentence(
            "the watch of {document} has failed for {seconds} s: {reason}",
            document=publication.document,
            seconds=(at_ms - since_ms) // 1000,
            reason=publication.watch_trouble,
        )
