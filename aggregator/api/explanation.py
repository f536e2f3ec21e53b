"""Why a node and its chips are published as they are: ``GET /api/v1/nodes/{node}``.

It compares what the node reported with what is published and names what made the difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aggregator.api.chip_explanation import blind_text, explained_chips, explained_events, job_name
from aggregator.api.fault_status import faults_of_server
from aggregator.inputs.node_context import JobState, NodeContext
from aggregator.inputs.node_documents import newest
from contract.documents.node_info import render_node_entry
from contract.pages.explanation import (
    ExplainedDpuFault,
    ExplainedJob,
    ExplainedNode,
    ExplainedPublicFault,
)
from contract.pages.faults import names_of
from contract.record import Record
from contract.sentences import counted, joined, message, sentence
from service.clock import shown_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from aggregator.advising.status import AdviceAbout
    from aggregator.jobs.messages import NodeImpact
    from aggregator.merge.pipeline import Pipeline
    from aggregator.public_faults.values import ActivePublicFault
    from contract.documents.dpu_info import DpuFault
    from contract.documents.node_info import NodeRecord
    from contract.documents.switch_info import SwitchRecord
    from contract.pages.aggregator_status import NodeStatus, RelationStatus

_PRE_SEPARATE = "PreSeparate"


# Not a ``msgspec.Struct``, which would load all modules of public faults and jobs for its types.
class ExplanationContext(Record, frozen=True):
    """What is known of a node besides its documents.

    ``standing`` are its public faults, ``dpu_faults`` those of its RDMA NICs and DPUs with what
    follows from each, ``dpu_problems`` what of their document does not count; ``jobs`` those with
    pods there, by key, with what hits them there; ``relations`` the relation faults of all of them.
    ``heartbeat_problem`` is the sentence of which ``NodeStatus`` has the text.
    ``publish_lost``: nodes that fall silent are published as lost. ``began`` returns since when a
    fault of a server is published.
    """

    node_context: NodeContext = msgspec.field(default_factory=NodeContext)
    standing: tuple[ActivePublicFault, ...] = ()
    dpu_faults: tuple[tuple[DpuFault, str], ...] = ()
    dpu_problems: tuple[str, ...] = ()
    jobs: tuple[tuple[str, NodeImpact | None], ...] = ()
    relations: tuple[RelationStatus, ...] = ()
    heartbeat_problem: str | None = None
    publish_lost: bool = True
    began: Callable[[str, str, str], int | None] = lambda *_: None


def explain(
    pipeline: Pipeline,
    status: NodeStatus,
    context: ExplanationContext,
    acknowledged: Mapping[str, bool],
) -> ExplainedNode[AdviceAbout]:
    """Return why the node of ``status`` is published as it is.

    ``acknowledged``: document to whether every store that is published to has its newest value.
    """
    node, node_context = status.node, context.node_context
    report = newest(pipeline.device.caches, node)
    switch = newest(pipeline.switch.caches, node)
    server = newest(pipeline.node.caches, node)
    documents = tuple(
        table.kind.document(home)
        for table in pipeline.tables
        if (home := table.layout.home(node)) is not None
    )
    reported = None if report is None else report.record
    switches = None if switch is None else switch.record
    parts = None if server is None else server.record
    return ExplainedNode(
        node=status,
        reported_status=None if parts is None else parts.status,
        reported_switch_status=None if switches is None else switches.status,
        documents={name: acknowledged.get(name, False) for name in documents},
        because=(
            *_about_node(pipeline, status, parts, switches, context),
            *(
                sentence("its document of RDMA devices: {reason}", reason=problem)
                for problem in context.dpu_problems
            ),
        ),
        chips=tuple(
            explained_chips(
                pipeline, node, reported, node_context, context.standing, status.blind or ()
            )
        ),
        switch_events=tuple(explained_events(pipeline, node, switches, node_context)),
        server_faults=tuple(faults_of_server(pipeline, node, context.began)),
        public_faults=tuple(map(_public, context.standing)),
        jobs=tuple(_jobs(context)),
        dpu_faults=tuple(_dpu_faults(context)),
    )


_STATES = {
    "reported": sentence("its newest device-info counts"),
    "kept": sentence("its newest device-info is refused; the last good one stays in force"),
    "missing": sentence("its store lacks its device-info; the last one stays in force"),
    "rejected": sentence("its device-info was never a good one"),
    "earlier": sentence("no document of it was read yet; it is published as an earlier run did"),
    "deleted": sentence("its device-info was deleted; it is published healthy and dropped soon"),
    "unreported": sentence("it has no device-info"),
}


def _about_node(
    pipeline: Pipeline,
    status: NodeStatus,
    server: NodeRecord | None,
    switch: SwitchRecord | None,
    context: ExplanationContext,
) -> Iterator[str]:
    node_context = context.node_context
    yield _STATES[status.state]
    for rejection in status.rejected:
        yield sentence(
            "its {kind} document in {store} is refused since {time}: {reason}",
            kind=rejection.kind,
            store=rejection.store,
            time=shown_time(rejection.since_ms),
            reason=rejection.reason,
        )
    if status.faults_problem is not None:
        yield sentence("its faults cannot be read: {reason}", reason=status.faults_problem)
    for source in pipeline.sources:
        if source.interrupted is not None:
            yield sentence(
                "{store} cannot be read, what it reported last counts: {reason}",
                store=source.url,
                reason=source.interrupted,
            )
    yield from _about_heartbeat(status, context)
    for blind in status.blind or ():
        if blind.chip is None:
            yield blind_text(blind)
    if status.blind_left_out:
        yield sentence(
            "{count} more blind sources than its agent has room to name",
            count=status.blind_left_out,
        )
    use = {
        None: sentence("it is not known whether pods use its chips"),
        True: sentence("pods use its chips"),
        False: sentence("no pod uses its chips"),
    }[None if node_context.used is None else bool(node_context.used)]
    entry = pipeline.node.entries.get(status.node)
    if entry is not None and server is not None and not node_context.lost:
        same = msgspec.structs.replace(server, update_time_ms=entry.stamp)
        is_same = render_node_entry(status.node, same) == entry.text
        if not is_same and entry.record.status != server.status:
            yield sentence(
                "its status {reported} is published as {published}: {reason}",
                reported=server.status,
                published=entry.record.status,
                reason=use,
            )
    switches = pipeline.switch.entries.get(status.node)
    if switch is not None and switches is not None and switches.record.status != switch.status:
        hidden = pipeline.processing.hidden_events.get(status.node)
        reasons = []
        if hidden:
            reasons = [sentence("{count} of their events are held back", count=len(hidden))]
        reasons += [use] if switch.level == _PRE_SEPARATE else []
        yield sentence(
            "the status {reported} of its switches is published as {published}: {reason}",
            reported=switch.status,
            published=switches.record.status,
            reason=joined("{before}; {part}", reasons or [sentence("it is not published yet")]),
        )


def _about_heartbeat(status: NodeStatus, context: ExplanationContext) -> Iterator[str]:
    if context.heartbeat_problem is not None:
        yield sentence("whether it is alive is unknown: {reason}", reason=context.heartbeat_problem)
    if status.heartbeat not in ("lost", "silent"):
        return
    age, interval = status.heartbeat_age_seconds, status.heartbeat_interval_seconds
    began = sentence("its heartbeat fell silent")
    if age is not None and interval is not None:
        began = sentence(
            "its heartbeat fell silent {age} s ago (interval {interval} s)",
            age=f"{age:.0f}",
            interval=f"{interval:g}",
        )
    if status.heartbeat == "silent":
        text = message("{silence}, with so many others that no node is published as lost")
    elif not context.publish_lost:
        text = message("{silence}: it is lost, which is not to be published")
    else:
        text = message("{silence}: it is lost, and published UnHealthy for that")
    yield sentence(text, silence=began)


def _public(fault: ActivePublicFault) -> ExplainedPublicFault:
    if fault.ends_at_ms is not None:
        because = sentence(
            "{program} reported it; it ends at {time}",
            program=fault.resource,
            time=shown_time(fault.ends_at_ms),
        )
    else:
        because = sentence(
            "{program} reported it; it holds until {program} reports the end",
            program=fault.resource,
        )
    if not fault.placed:
        because = sentence(
            "{reason}; the node has not reported its chips yet, it counts for those that it has",
            reason=because,
        )
    return ExplainedPublicFault(
        resource=fault.resource,
        fault_id=fault.fault_id,
        code=fault.code,
        level=str(fault.level),
        devices=fault.devices,
        since_ms=fault.added_at_ms,
        until_ms=fault.ends_at_ms,
        because=because,
        **names_of(fault.code),
    )


def _dpu_faults(context: ExplanationContext) -> Iterator[ExplainedDpuFault]:
    for fault, because in context.dpu_faults:
        yield ExplainedDpuFault(
            subject=fault.subject,
            code=fault.code,
            level=fault.level,
            since_ms=fault.since_ms,
            description=fault.description,
            because=because,
            **names_of(fault.code),
        )


def _jobs(context: ExplanationContext) -> Iterator[ExplainedJob]:
    # Here, since a verb that explains documents has no jobs to explain.
    from aggregator.jobs.messages import Health

    node_context = context.node_context
    for key, part in context.jobs:
        job = node_context.jobs.get(key, JobState(key))
        relations = tuple(relation for relation in context.relations if relation.job == key)
        pods = (pod for pod in node_context.pods if pod.job == key)
        yield ExplainedJob(
            job=key,
            namespace=job.namespace,
            name=job.name,
            pods=tuple(f"{pod.namespace}/{pod.name}" for pod in pods),
            health=(Health.HEALTHY if part is None else part.health).word,
            since_ms=None if part is None else part.since_ms,
            relations=relations,
            because=tuple(_about_job(job_name(key, job), part, relations)),
        )


def _about_job(
    name: str, part: NodeImpact | None, relations: Iterable[RelationStatus]
) -> Iterator[str]:
    if part is None:
        yield sentence("nothing on this node hits {job}", job=name)
    else:
        yield counted(
            len(part.faults),
            "{count} fault of this node hit {job} since {time}, which makes it {health}",
            "{count} faults of this node hit {job} since {time}, which makes it {health}",
            job=name,
            time=shown_time(part.since_ms),
            health=part.health.word,
        )
    for relation in relations:
        if relation.result:
            text = message(
                "{code} on {part} (since {time}) belongs together with a failure of {job}: "
                "{result} follows for its pods here (label fault-type)"
            )
        elif relation.closed:
            text = message(
                "{code} on {part} (since {time}) came too long ago to have to do with a failure "
                "of {job}"
            )
        else:
            text = message(
                "{code} on {part} (since {time}) would count against this node if something of "
                "{job} failed now"
            )
        fields = {"result": relation.result} if relation.result else {}
        yield sentence(
            text,
            code=relation.code,
            part=relation.subject,
            time=shown_time(relation.since_ms),
            job=name,
            **fields,
        )
