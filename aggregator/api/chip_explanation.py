"""Why the chips and switches of a node are published as they are, fault by fault."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aggregator.agent_reports.fault_answers import ChipFaultDetails, isolation_requests
from aggregator.api.fault_status import (
    began_at_ms,
    raised_at_ms,
    received_ms,
)
from aggregator.cluster_documents.published_node import ACCOMPANIES, FILTER
from aggregator.processors.custom_filter import job_filters
from aggregator.processors.record_edits import PUBLIC_FAULT
from aggregator.processors.state_types import NO_SWITCH_STATE
from contract.codes.levels import ChipLevel
from contract.documents.cluster_device import pre_separates
from contract.documents.separation import chip_of
from contract.documents.switch_info import event_key, leveled
from contract.pages.explanation import ExplainedChip, ExplainedEvent, ExplainedFault
from contract.pages.faults import names_of
from contract.sentences import counted, joined, message, sentence
from service.clock import shown_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aggregator.cluster_documents.published_node import WithheldFault
    from aggregator.inputs.node_context import JobState, NodeContext
    from aggregator.merge.pipeline import Pipeline
    from aggregator.public_faults.values import ActivePublicFault
    from contract.documents.cluster_device import CodeFault, DeviceRecord
    from contract.documents.switch_info import SwitchRecord
    from contract.pages.blind import BlindStatus

_MANUAL = ChipLevel.MANUALLY_SEPARATE_NPU.value
_PRE_SEPARATE = ChipLevel.PRE_SEPARATE_NPU.value
_WORDS = {
    "available": sentence("available"),
    "unhealthy": sentence("unhealthy"),
    "network_unhealthy": sentence("its network link is down"),
    "recovering": sentence("recovering"),
}
_FILTERED = message("held back from readers until {time}: filtered by {jobs}")
_MAX_JOBS = 20
"""Jobs that are named in one sentence."""
_LISTS = ("available", "unhealthy", "network_unhealthy", "recovering")


def blind_text(status: BlindStatus) -> str:
    """Return which source is blind since when and why, in words."""
    if status.since_ms is None:
        return sentence(
            "the source {source} gives the node's agent no answer: {reason}",
            source=status.source,
            reason=status.reason,
        )
    return sentence(
        "the source {source} gives the node's agent no answer since {time}: {reason}",
        source=status.source,
        time=shown_time(status.since_ms),
        reason=status.reason,
    )


def job_name(key: str, job: JobState | None) -> str:
    """Return the name of a job for people: ``job namespace/name``, else its key."""
    name = key if job is None or not job.name else f"{job.namespace}/{job.name}"
    return sentence("job {name}", name=name)


class _Reasons:
    """Finds the reasons for the faults of one node."""

    def __init__(
        self,
        pipeline: Pipeline,
        node: str,
        node_context: NodeContext,
        standing: Iterable[ActivePublicFault],
    ) -> None:
        self._pipeline, self._node, self._facts = pipeline, node, node_context
        self._standing = tuple(standing)
        self.answers = ChipFaultDetails(pipeline, node)
        self._isolations = isolation_requests(pipeline, node)

    def since_ms(self, chip: str, code: str) -> int | None:
        """Return since when an aggregator has the fault (epoch milliseconds)."""
        return received_ms(self._pipeline, self._node, chip, code)

    def filtering_jobs(
        self, code: str, level: str, chip: str | None, since_ms: int, until_ms: int
    ) -> str:
        """Return the jobs that filter a fault until this time."""
        names = []
        for key, job in sorted(self._facts.jobs.items()):
            alone = msgspec.structs.replace(self._facts, jobs={key: job})
            controllers = self._pipeline.processing.controllers
            for chips, job_filter in job_filters(alone, controllers):
                mine = chip is None or chip in chips
                if mine and job_filter.until_ms(code, level, since_ms) == until_ms:
                    names.append(job_name(key, job))
        more = len(names) - _MAX_JOBS
        if more > 0:
            others = counted(more, "{count} more job", "{count} more jobs")
            names = [*names[:_MAX_JOBS], others]
        return joined("{before}, {part}", names or [sentence("a job")])

    def hidden(self, withheld: WithheldFault) -> str:
        """Return why a fault is held back."""
        if withheld.why == ACCOMPANIES:
            return sentence(
                "held back from readers while it lasts: it came along with a UCE fault (80E01801) "
                "of the same chip"
            )
        assert withheld.until_ms is not None
        until = shown_time(withheld.until_ms)
        if withheld.why != FILTER:
            return sentence(
                "held back from readers until {time} at most: it may come along with a UCE fault "
                "(80E01801) of the same chip",
                time=until,
            )
        fault = withheld.fault
        since_ms = self.since_ms(fault.chip, fault.code) or 0
        jobs = self.filtering_jobs(fault.code, fault.level, fault.chip, since_ms, withheld.until_ms)
        return sentence(_FILTERED, time=until, jobs=jobs)

    def public(self, fault: CodeFault) -> tuple[str, int | None]:
        """Return which program reports a public fault, and when it ends by itself."""
        _, _, number = fault.chip.rpartition("-")
        active = [
            public_fault
            for public_fault in self._standing
            if public_fault.code == fault.code and number in map(str, public_fault.devices)
        ]
        if not active:
            return sentence("a public fault of a program that is not known here"), None
        who = joined(
            "{before}, {part}",
            (f"{public_fault.resource} ({public_fault.fault_id})" for public_fault in active),
        )
        ends = [public_fault.ends_at_ms for public_fault in active]
        times = [at_ms for at_ms in ends if at_ms is not None]
        if len(times) == len(ends):
            until_ms = max(times)
            text = sentence(
                "a public fault of {program}; it ends at {time}",
                program=who,
                time=shown_time(until_ms),
            )
            return text, until_ms
        text = message("a public fault of {program}; it holds until its program reports the end")
        return sentence(text, program=who), None

    def separated(self, chip: str) -> tuple[str, int | None]:
        """Return why a chip is in manual separation, and until when."""
        separation = self._pipeline.processing.separation
        policy = separation.policy
        separated = separation.chips.get(self._node, {}).get(chip)
        if separated is None or not separated.codes:
            text = message("in manual separation; an operator releases it: vigil release")
            return sentence(text), None
        codes = [
            sentence("{code} (last at {time})", code=code, time=shown_time(at_ms))
            for code, at_ms in sorted(separated.codes.items())
        ]
        reason = counted(
            policy.threshold,
            "in manual separation, because {count} time within {hours} h came: {codes}",
            "in manual separation, because {count} times within {hours} h came: {codes}",
            hours=policy.window_hours,
            codes=joined("{before}, {part}", codes),
        )
        if policy.free_ms is None:
            text = message(
                "{reason}; never released by time, an operator may release it: vigil release"
            )
            return sentence(text, reason=reason), None
        until_ms = max(separated.codes.values()) + policy.free_ms
        text = sentence(
            "{reason}; released at {time}, or an operator may release it: vigil release",
            reason=reason,
            time=shown_time(until_ms),
        )
        return text, until_ms

    def of_node(self, fault: CodeFault) -> str:
        """Return why a fault that the node reports holds, as far as its document has a reason."""
        chip = chip_of(fault.chip)
        if fault.code != _MANUAL or chip is None or chip not in self._isolations:
            return sentence("the node reports it")
        isolation = self._isolations[chip]
        return sentence(
            "{by} (as stated) isolated it at {time}: {reason}",
            by=isolation.by,
            time=shown_time(isolation.at_ms),
            reason=isolation.reason,
        )

    def of_fault(
        self, reported: CodeFault | None, published: CodeFault | None, hidden: WithheldFault | None
    ) -> tuple[str, int | None]:
        """Return why a fault is published or not, and until when that is so by time alone."""
        if published is None:
            if hidden is not None:
                return self.hidden(hidden), hidden.until_ms
            return sentence("the node reports it; it is not published yet"), None
        if reported is not None:
            by_node = self.of_node(published)
            chips = self._pipeline.processing.separation.of(self._node)
            if published.code == _MANUAL and published.chip in chips:
                reason, until_ms = self.separated(published.chip)
                text = sentence("{by}; and here it is {reason}", by=by_node, reason=reason)
                return text, until_ms
            return by_node, None
        if published.fault_type == PUBLIC_FAULT:
            return self.public(published)
        if published.code == _MANUAL:
            return self.separated(published.chip)
        return sentence("it was published; the node does not report it any more"), None


def explained_chips(
    pipeline: Pipeline,
    node: str,
    reported: DeviceRecord | None,
    node_context: NodeContext,
    standing: Iterable[ActivePublicFault],
    blind: Iterable[BlindStatus] = (),
) -> Iterator[ExplainedChip]:
    """Yield every chip that a document of the node or cluster-info has, by its number."""
    unseen: dict[str, list[BlindStatus]] = {}
    for source in blind:
        if source.chip is not None:
            unseen.setdefault(source.chip, []).append(source)
    entry = pipeline.device.entries.get(node)
    published = None if entry is None else entry.record
    hidden = pipeline.processing.hidden.get(node, ())
    reasons = _Reasons(pipeline, node, node_context, standing)
    chips = {
        chip for record in (reported, published) if record is not None for chip in record.chips
    }
    all_chips = chips | {withheld.fault.chip for withheld in hidden} | unseen.keys()
    for chip in sorted(all_chips, key=lambda name: (chip_of(name) or 0, name)):
        lists = _lists(reported, chip), _lists(published, chip)
        mine = [withheld for withheld in hidden if withheld.fault.chip == chip]
        faults = tuple(_faults(reasons, reported, published, mine, chip))
        sources = tuple(unseen.get(chip, ()))
        used = None if node_context.used is None else chip in node_context.used
        pods = tuple(
            f"{pod.namespace}/{pod.name}" for pod in node_context.pods if chip in pod.chips
        )
        because = (
            *_about_chip(
                lists,
                faults,
                used,
                is_hidden=bool(mine),
                is_published=pipeline.device.layout.home(node) is not None,
            ),
            *(
                sentence(
                    "{reason}; its state is the last that was known", reason=blind_text(source)
                )
                for source in sources
            ),
        )
        yield ExplainedChip(chip, *lists, used, pods, faults, because, sources)


def _lists(record: DeviceRecord | None, chip: str) -> str:
    if record is None:
        return "none"
    return ",".join(name for name in _LISTS if chip in getattr(record, name)) or "none"


def _faults(
    reasons: _Reasons,
    reported: DeviceRecord | None,
    published: DeviceRecord | None,
    hidden: Iterable[WithheldFault],
    chip: str,
) -> Iterator[ExplainedFault]:
    before, after = _by_code(reported, chip), _by_code(published, chip)
    meant = {key: old for key, old in before.items() if old.level == _MANUAL and key not in after}
    if meant and any(code == _MANUAL for _, code in after.keys() - before.keys()):
        # The text of cluster-info has no codes at this level (clusterd#2.3): those that the node
        # reports are meant.
        after = {key: old for key, old in after.items() if key[1] != _MANUAL} | meant
    aside = {(withheld.fault.fault_type, withheld.fault.code): withheld for withheld in hidden}
    for key in sorted(before.keys() | after.keys() | aside.keys()):
        fault_type, code = key
        old, other, hidden_fault = before.get(key), after.get(key), aside.get(key)
        because, until_ms = reasons.of_fault(old, other, hidden_fault)
        answer = reasons.answers.of(chip, code)
        shown = old or other or (None if hidden_fault is None else hidden_fault.fault)
        since_ms = reasons.since_ms(chip, code)
        raised_ms = 0 if shown is None else raised_at_ms(shown)
        yield ExplainedFault(
            code=code,
            severity=answer.severity,
            device_fault=answer.device_fault,
            severity_source=answer.severity_source,
            fault_type=fault_type,
            reported=None if old is None else old.level,
            published=None if other is None else other.level,
            since_ms=began_at_ms(raised_ms, since_ms),
            until_ms=until_ms,
            because=because,
            received_at_ms=since_ms,
            **names_of(code),
        )


def _by_code(record: DeviceRecord | None, chip: str) -> dict[tuple[str, str], CodeFault]:
    faults = () if record is None else record.faults
    return {(fault.fault_type, fault.code): fault for fault in faults if fault.chip == chip}


def _in_words(state: str) -> str:
    """Return a text for the lists of a document that name a chip (``none`` for no list)."""
    words = [_WORDS[word] for word in state.split(",") if word in _WORDS]
    if words == [_WORDS["available"], _WORDS["network_unhealthy"]]:
        return sentence("available, but its network link is down")
    return joined("{before}, {part}", words or [sentence("in no list")])


def _about_chip(
    lists: tuple[str, str],
    faults: tuple[ExplainedFault, ...],
    used: bool | None,
    *,
    is_hidden: bool,
    is_published: bool,
) -> Iterator[str]:
    reported, published = lists
    if reported == published:
        yield sentence("the node reports: {reported}", reported=_in_words(reported))
    else:
        text = message("the node reports: {reported}. An aggregator would publish: {published}")
        if is_published:
            text = message("the node reports: {reported}. The aggregator publishes: {published}")
        yield sentence(text, reported=_in_words(reported), published=_in_words(published))
    if is_hidden and "recovering" in published and "recovering" not in reported:
        yield sentence("no pod gets it while its fault is held back, and none is ended for it")
    if any(fault.published and pre_separates(fault.published, fault.code) for fault in faults):
        spared = message("{level}: a pod uses it, so it is not unhealthy until that ends")
        if "unhealthy" in published.split(","):
            spared = message("{level}: a pod uses it, so it is unhealthy because of another fault")
        text = {
            None: message("{level}: it is not known whether a pod uses it"),
            True: spared,
            False: message("{level}: no pod uses it, so it is unhealthy"),
        }[used]
        yield sentence(text, level=_PRE_SEPARATE)


def explained_events(
    pipeline: Pipeline, node: str, reported: SwitchRecord | None, node_context: NodeContext
) -> Iterator[ExplainedEvent]:
    """Yield the events of a node's switches, with their reasons."""
    entry = pipeline.switch.entries.get(node)
    reasons = _Reasons(pipeline, node, node_context, ())
    received = pipeline.processing.switches.get(node, NO_SWITCH_STATE).received
    before = {} if reported is None else {event_key(e): (e, lv) for e, lv in leveled(reported)}
    after = {} if entry is None else {event_key(e): (e, lv) for e, lv in leveled(entry.record)}
    aside = {
        event_key(withheld.event): withheld
        for withheld in pipeline.processing.hidden_events.get(node, ())
    }
    for key in sorted(before.keys() | after.keys() | aside.keys()):
        hidden_event = aside.get(key)
        event = (
            hidden_event.event if hidden_event is not None else (before.get(key) or after[key])[0]
        )
        since_ms, until_ms = received.get(key), None
        if key in after:
            because = sentence("the node reports it")
            if key not in before:
                because = sentence("it was published; the node does not report it any more")
        elif hidden_event is not None:
            until_ms = hidden_event.until_ms
            code = event.assembled_fault_code
            jobs = reasons.filtering_jobs(code, hidden_event.level, None, since_ms or 0, until_ms)
            because = sentence(_FILTERED, time=shown_time(until_ms), jobs=jobs)
        else:
            because = sentence("the node reports it; it is not published yet")
        yield ExplainedEvent(
            switch=event.switch_chip_id,
            port=event.switch_port_id,
            code=event.assembled_fault_code,
            reported=before[key][1] if key in before else None,
            published=after[key][1] if key in after else None,
            since_ms=began_at_ms(event.alarm_raised_time, since_ms),
            until_ms=until_ms,
            because=because,
            received_at_ms=since_ms,
            **names_of(event.assembled_fault_code),
        )
