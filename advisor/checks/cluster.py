"""Where the scheduler's view differs from what is published; errors in documents and in jobs.

Sources: ``docs/spec/consumers.md#1.2`` to 1.9, 2.1, 2.2, 2.8, 7.1 and 7.5 (R4, R10, R12, R23, R36).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.jobs import JOINT, npu_request
from advisor.report import Finding, NotKnown, WorkloadKind
from advisor.rescheduling.fault_pods import StaleNodes
from advisor.scheduler_view.cluster_cache import has, kind_of
from advisor.scheduler_view.document_entries import NETWORK_UNHEALTHY, RECOVERING, UNHEALTHY, names
from advisor.scheduler_view.nodes import (
    HEALTHY_WORD,
    PRE_SEPARATE_WORD,
    SUB_HEALTHY_WORD,
    UNHEALTHY_WORD,
)
from advisor.workloads.pod_recreation import workload_of
from contract import scheduling
from contract.documents.device_info import LEAD_SECONDS
from contract.sentences import joined, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from advisor.jobs import SchedulerJob
    from advisor.options import AdvisorOptions
    from advisor.report import Gang, JobDecision
    from advisor.scheduler_view.cluster_cache import ClusterCache
    from advisor.scheduler_view.nodes import NodeView
    from advisor.snapshot import ClusterSnapshot

_WORDS = frozenset({"", HEALTHY_WORD, SUB_HEALTHY_WORD, UNHEALTHY_WORD, PRE_SEPARATE_WORD})
_ISOLATING = frozenset(
    {"RestartRequest", "RestartBusiness", "RestartNPU", "SeparateNPU", "ManuallySeparateNPU"}
)
"""Levels that put a card into a list of unhealthy ones, in use or not (consumers#1.10)."""
_BY_HANDLING = frozenset({"SubHealthFault", "PreSeparateNPU", "NotHandleFault"})
"""Levels that the scheduler reads in ``fault_handling`` (consumers#1.3, M13)."""
# Two periods of the agents' documents, which are written every five minutes.
DIRECT_STALE_SECONDS = 600
"""The reader's own constant for documents of agents (1.5-3, ``deviceInfoRefreshTime``)."""


def cluster_findings(
    snapshot: ClusterSnapshot, cache: ClusterCache, stale: Iterable[str]
) -> Iterator[Finding]:
    """Return the findings about documents; ``stale`` are those of ``stale_configmaps``."""
    yield from cache.findings
    if cache.crashed_by:
        yield Finding.error(
            "SCHEDULER_CRASHES",
            f"ConfigMap {cache.crashed_by}",
            sentence("DeviceInfoCfg is empty: the scheduler crashes here and at each start"),
        )
    yield from _stale(snapshot, cache, stale)


def not_known(snapshot: ClusterSnapshot, *, is_known: bool) -> tuple[str, ...]:
    """Return what cannot be concluded from a snapshot and what is known of earlier sessions."""
    unknown = []
    if not is_known:
        unknown.append(
            sentence(
                "without the state of an earlier session: whether a job was already acted on, its"
                " pending count and remaining retries. Kept keys of nodes and entries without a"
                " document are not known either"
            )
        )
    unknown += [
        sentence("{kind}: they could not be read", kind=kind) for kind in sorted(snapshot.unread)
    ]
    return tuple(unknown)


def gaps(
    snapshot: ClusterSnapshot, decisions: Iterable[JobDecision], gangs: Iterable[Gang]
) -> tuple[NotKnown, ...]:
    """Return what ``decisions`` and ``gangs`` depend on and is not known."""
    not_known_jobs = [
        NotKnown(f"PodGroup {decision.job}", decision.gap) for decision in decisions if decision.gap
    ]
    # Only gangs that fit: one that does not fit stays so with fewer nodes.
    for gang in gangs:
        if gang.fits and gang.not_predicted:
            called = f"PodGroup {gang.namespace}/{gang.name}"
            text = sentence(
                "{object}: {rest} is not predicted, so fewer nodes may take it",
                object=called,
                rest=gang.not_predicted,
            )
            not_known_jobs.append(NotKnown(called, text))
    # Without PodGroups no job is known, and "nothing happens" would be a guess (decision 49).
    if "podgroups" in snapshot.unread and any(pod.group for pod in snapshot.pods):
        text = sentence(
            "PodGroups could not be read: what the scheduler does with pods is not known"
        )
        not_known_jobs.append(NotKnown("", text))
    return tuple(not_known_jobs)


def stale_configmaps(
    snapshot: ClusterSnapshot, cache: ClusterCache, options: AdvisorOptions
) -> list[str]:
    """Return the ConfigMaps whose last event is older than ``stale_after`` (R4).

    Agents write an unchanged document every five minutes, so in direct mode twice that counts.
    """
    seconds = options.stale_after
    if not options.use_cluster_info:
        seconds = max(seconds, DIRECT_STALE_SECONDS)
    oldest = snapshot.now_ms - seconds * 1000
    # 0 is a document without a known event, which is never old (consumers#1.5, item 3).
    return sorted(key for key, seen in cache.seen.items() if 0 < seen.event_at_ms < oldest)


class StaleDocumentsCheck:
    """The nodes whose documents are too old to delete pods for them (R4)."""

    def __init__(self) -> None:
        self.nodes = StaleNodes()
        self.keys: Sequence[str] = ()
        self._of: list[tuple[str, tuple[str, ...]]] = []

    def update(
        self, snapshot: ClusterSnapshot, cache: ClusterCache, options: AdvisorOptions
    ) -> StaleNodes:
        """Update to a session; return the nodes whose documents became too old or ended."""
        before = self.nodes
        self.keys = stale_configmaps(snapshot, cache, options)
        documents = [(key, cache.seen[key].nodes) for key in self.keys]
        if documents == self._of:
            return StaleNodes()
        self._of = documents
        kinds: dict[str, set[str]] = {"device": set(), "switch": set(), "host": set()}
        for key, nodes in documents:
            kinds[kind_of(key)].update(nodes)
        self.nodes = StaleNodes(**{kind: frozenset(nodes) for kind, nodes in kinds.items()})
        return StaleNodes(*(node ^ other for node, other in zip(before, self.nodes, strict=True)))


def _stale(
    snapshot: ClusterSnapshot, cache: ClusterCache, keys: Iterable[str]
) -> Iterator[Finding]:
    for key in keys:
        age = (snapshot.now_ms - cache.seen[key].event_at_ms) // 1000
        yield Finding.warning(
            "STALE_INPUT",
            f"ConfigMap {key}",
            sentence(
                "Its last event was {seconds} s ago; the scheduler goes on with it", seconds=age
            ),
        )


class GhostEntryCheck:
    """Entries that the scheduler has and no document has, and those that two documents have.

    Source: docs/spec/consumers.md#1.4.
    """

    def __init__(self) -> None:
        self.findings: tuple[Finding, ...] = ()
        self._seen: object = None

    def update(self, cache: ClusterCache) -> None:
        """Look for ghosts and duplicates where documents have changed their nodes."""
        seen = [(key, seen.nodes) for key, seen in cache.seen.items()]
        listed = (seen, len(cache.devices), len(cache.switches))
        if listed != self._seen:
            self._seen = listed
            self.findings = tuple(_ghosts(cache))


def _ghosts(cache: ClusterCache) -> Iterator[Finding]:
    for kind, entries in (("device", cache.devices), ("switch", cache.switches)):
        listed: dict[str, str] = {}
        for key, seen in sorted(cache.seen.items()):
            if not has(key, kind):
                continue
            for node in seen.nodes:
                if node in listed:
                    text = sentence(
                        "Its {kind} entry is in {first} and {second}: the last write counts",
                        kind=kind,
                        first=listed[node],
                        second=key,
                    )
                    yield Finding.warning("DUPLICATE_ENTRY", f"Node {node}", text)
                listed[node] = key
        for node in sorted(entries.keys() - listed.keys()):
            yield Finding.warning(
                "GHOST_ENTRY",
                f"Node {node}",
                sentence(
                    "No document has its {kind} entry any more, and the scheduler goes on with the"
                    " last one",
                    kind=kind,
                ),
            )


def is_ahead(name: str, cache: ClusterCache, now: int) -> bool:
    """Whether the stamp of the entry of a node is ahead of the clock."""
    entry = cache.devices.get(name)
    return entry is not None and entry.UpdateTime > now + LEAD_SECONDS


def node_findings(view: NodeView, cache: ClusterCache, now: int) -> Iterator[Finding]:
    """Return the findings about a node."""
    called = f"Node {view.name}"
    for code, text in view.problems:
        yield Finding.warning(code, called, text)
    for source, word in (("switch", view.switch_status), ("host", view.host_status)):
        if word not in _WORDS:
            text = sentence(
                "NodeStatus of its {source} is {word}: the scheduler knows no such word",
                source=source,
                word=f"{word!r:.60}",
            )
            yield Finding.warning("STATUS_WORD_UNKNOWN", called, text)
    if not view.is_npu:
        return
    if not view.is_in_table:
        text = sentence(
            "It has chips and no label accelerator that names them: it takes no pod, and its "
            "faults move no pod"
        )
        yield Finding.warning("ACCELERATOR_MISSING", called, text)
        return
    entry = cache.devices.get(view.name)
    if entry is not None and is_ahead(view.name, cache, now):
        text = sentence(
            "UpdateTime of its entry is {seconds} s ahead of the clock",
            seconds=entry.UpdateTime - now,
        )
        yield Finding.warning("STAMP_AHEAD", called, text)
    if not view.is_in_map:
        return
    if view.free is None:
        text = sentence(
            "The scheduler has no list of free cards for it: it takes no pod with chips"
        )
        yield Finding.warning("NO_DEVICE_ENTRY", called, text)
    elif entry is None:
        text = sentence("Its document is gone, and its last lists stay in force")
        yield Finding.warning("GHOST_ENTRY", called, text)
    elif len(view.free) > view.idle.get(view.resource, 0):
        text = sentence(
            "the list of free cards has {free}, Kubernetes has {idle} idle: it takes no pod with "
            "chips",
            free=len(view.free),
            idle=view.idle.get(view.resource, 0),
        )
        yield Finding.warning("FREE_LIST_TOO_LONG", called, text)
    # Without them no name and no level can be wrong, as on nearly all nodes.
    if view.unhealthy or view.faults:
        yield from _names(view, called, entry.DeviceList if entry else None)


def _names(view: NodeView, called: str, listed: Mapping[str, str] | None) -> Iterator[Finding]:
    """Return names that match no card, and faults of which less follows (M6, M12, M13)."""
    prefix = f"{view.resource.partition('/')[2]}-"
    bad = [name for name in view.unhealthy if not _is_card(name, prefix)]
    if bad:
        text = sentence(
            "-Unhealthy has {name}, which is not the name of a card: it matches none",
            name=f"{bad[0]!r:.60}",
        )
        yield Finding.warning("CARD_NAME_UNUSABLE", called, text)
    unhealthy = {*view.unhealthy, *(view.network_unhealthy or ())}
    # A card that is being reset is kept away by this list (consumers#1.6).
    unhealthy.update(names((listed or {}).get(view.resource + RECOVERING)))
    for fault in view.faults:
        if fault.fault_level in _BY_HANDLING and fault.fault_handling != fault.fault_level:
            text = sentence(
                "{card} has the level {level} and fault_handling {handling}, which alone counts",
                card=fault.npu_name,
                level=fault.fault_level,
                handling=f"{fault.fault_handling!r:.60}",
            )
            yield Finding.warning("FAULT_HANDLING_DIFFERS", called, text)
        if fault.fault_level in _ISOLATING and fault.npu_name not in unhealthy:
            text = sentence(
                "{card} has the level {level} in -Fault and is in neither {list} nor {other}: "
                "nothing follows",
                card=fault.npu_name,
                level=fault.fault_level,
                list=UNHEALTHY,
                other=NETWORK_UNHEALTHY,
            )
            yield Finding.warning("FAULT_NOT_LISTED", called, text)


def _is_card(name: str, prefix: str) -> bool:
    number = name.removeprefix(prefix)
    # ``isdigit`` alone is true of digits of other scripts as well.
    return name.startswith(prefix) and number.isascii() and number.isdigit()


def by_object(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings in the order of their objects."""
    return tuple(
        sorted(
            findings,
            key=lambda finding: (finding.object, finding.code, finding.section, finding.text),
        )
    )


def job_findings(job: SchedulerJob, options: AdvisorOptions) -> Iterator[Finding]:
    """Return the findings about a job."""
    yield from _labels(job)
    # Without fault-scheduling no fault is evaluated, so nothing of this has an effect.
    if not job.is_off:
        yield from _participant(job, options)


def _labels(job: SchedulerJob) -> Iterator[Finding]:
    called = f"PodGroup {job.key}"
    for key, value in job.labels.items():
        if JOINT in value:
            text = sentence(
                "Its PodGroup and pods disagree on {key}: the scheduler reads {value}",
                key=key,
                value=f"{value!r:.80}",
            )
            yield Finding.error("LABEL_CONFLICT", called, text)
    value = job.fault_scheduling
    if value and JOINT not in value and value not in scheduling.FAULT_SCHEDULING_VALUES:
        text = sentence(
            "fault-scheduling {value} is not a supported value: nothing is ever deleted",
            value=f"{value!r:.60}",
        )
        yield Finding.error("FAULT_SCHEDULING_UNSUPPORTED", called, text)


def _participant(job: SchedulerJob, options: AdvisorOptions) -> Iterator[Finding]:
    called = f"PodGroup {job.key}"
    blind = [
        pod.name
        for pod in job.pods
        # The Device Plugin writes it at allocation (M19), so other pods may lack it rightly.
        if pod.phase == "Running"
        and npu_request(pod)
        and not pod.annotations.get(scheduling.ASCEND_REAL)
    ]
    if blind:
        text = sentence(
            "{pods} run without huawei.com/AscendReal: no card fault matches",
            pods=joined("{before}, {part}", blind[:3]),
        )
        yield Finding.warning("NO_ASCENDREAL", called, text)
    if job.is_pod_limited and not job.is_pod_rescheduling:
        code = (
            "OME_WITHOUT_POD_RESCHEDULING"
            if scheduling.OME_SERVICE in job.labels
            else "LIMIT_WITHOUT_POD_RESCHEDULING"
        )
        text = sentence(
            "Without pod-rescheduling=on a fault blocks the job's later faults for 1200 s"
        )
        yield Finding.warning(code, called, text)
    if (
        job.is_pod_rescheduling
        and not job.is_pod_limited
        and job.is_distributed
        and workload_of(job) is WorkloadKind.AIBRIX
    ):
        text = sentence("A fault of rank 0 removes all pods of the shared PodGroup")
        yield Finding.warning("SHARED_PG_WITHOUT_RECOVER_PATH", called, text)
    if job.fault_scheduling == scheduling.FAULT_SCHEDULING_GRACE:
        longest = max((pod.termination_grace_seconds for pod in job.pods), default=0)
        if longest > options.grace_over_time:
            text = sentence(
                "Pods may take {seconds} s to end and are deleted by force after {limit} s",
                seconds=longest,
                limit=options.grace_over_time,
            )
            yield Finding.warning("GRACE_SHORTER_THAN_TERMINATION", called, text)
