"""What the documents of the RDMA device plugin have of each node, and which nodes are blind.

Source: ``docs/spec/dpu-info.md``, decision: ``docs/decisions/050``. Thousands of documents are
written again every five minutes, so of each only a few words are kept, and one that has nothing
new costs no step. Times are steady (``_ms`` of an ``Instant``) unless they are named wall times.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from contract.documents import dpu_info
from contract.documents.dpu_info import DpuInfo, decode_dpu_info
from contract.errors import DocumentError
from contract.kubernetes import Member
from contract.pages.blind import BlindStatus
from contract.pages.changes import BlindChange
from service.clock import shown_time
from stores.cluster import KindUnavailable, ObjectKind, Snapshot, Update
from stores.interruption import Interrupted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aggregator.public_faults.values import NodeLookup
    from contract.documents.dpu_info import DpuFault
    from contract.kubernetes import KubernetesObject
    from service.clock import Instant

SOURCE = "dpuinfo"
"""The source of blindness, and the resource of public faults."""
_MINUTES = dpu_info.SILENT_AFTER_MS // 60_000
_NEVER = DpuInfo(0)
_PAUSE_SECONDS = 0.5
"""Thousands of plugins that write every 5 minutes would wake the process for each document."""


class DpuReport(msgspec.Struct, frozen=True, gc=False):
    """What a document has.

    ``problem`` is why its text cannot be read; ``info`` is empty then.
    """

    node: str
    info: DpuInfo
    problem: str = ""


DpuEvent: TypeAlias = Snapshot[DpuReport] | Update[DpuReport] | KindUnavailable | Interrupted
"""Keys are names of documents."""


class _Data(msgspec.Struct):
    text: str | None = msgspec.field(default=None, name=dpu_info.DATA_KEY)


_data = Member("data", _Data)


def _read(config_map: KubernetesObject) -> DpuReport | None:
    """Return what a ConfigMap has; ``None`` for one of another name."""
    node, data = dpu_info.node_of(config_map.metadata.name), _data(config_map)
    if node is None:
        return None
    try:
        return DpuReport(node, decode_dpu_info(node, data.text))
    except DocumentError as error:
        return DpuReport(node, _NEVER, str(error))


DOCUMENTS = ObjectKind(
    name="documents of RDMA plugins",
    path=f"/api/v1/namespaces/{dpu_info.NAMESPACE}/configmaps",
    read=_read,
    query={"labelSelector": "=".join(dpu_info.LABEL)},
    by_name=True,
    pause_seconds=_PAUSE_SECONDS,
)


class _LastGoodDocument(msgspec.Struct, gc=False):
    """The last good content of a document, and when its ``UpdateTime`` was seen to change."""

    info: DpuInfo
    changed_at_ms: int
    problem: str = ""
    problem_since_ms: int = 0
    """Wall time."""


class DpuStatus(msgspec.Struct, frozen=True):
    """The documents of RDMA plugins.

    ``listed``: all stores were listed. ``interrupted`` has by store why it cannot be watched.
    ``documents`` were read, of them ``blind`` ones are too old, ``unreadable`` ones are malformed
    and ``without_node`` ones name a node that does not exist. ``problems``: what is wrong, by node.
    ``devices`` and ``faults`` are those of existing nodes.
    """

    listed: bool
    interrupted: dict[str, str]
    documents: int
    blind: int
    unreadable: int
    without_node: int
    devices: int
    faults: int
    problems: dict[str, str]


_MAX_PROBLEMS = 100


class DpuDocuments:
    """The documents of all stores, by their numbers; of two for one node the newest counts.

    ``node_lookup`` has which nodes exist: a document of another one is counted and not shown, since
    it outlives its node.
    """

    def __init__(self, urls: tuple[str, ...], node_lookup: NodeLookup) -> None:
        self.changed: set[str] = set()
        """Nodes of which faults may have changed."""
        self._urls = urls
        self._listed: set[str] = set()
        self._lookup = node_lookup
        self._known: tuple[dict[str, _LastGoodDocument], ...] = tuple({} for _ in urls)
        self._interrupted: dict[str, str] = {}
        self._blind: dict[str, BlindStatus] = {}
        self._blind_changes: dict[str, BlindStatus | None] = {}
        self._due_ms: int | None = None

    @property
    def is_listed(self) -> bool:
        """Whether every store was listed, so that a document that is not here does not exist."""
        return len(self._listed) == len(self._urls)

    def knows(self, node: str) -> bool:
        """Return whether there is a document of the node."""
        return any(node in reports for reports in self._known)

    @property
    def with_faults(self) -> frozenset[str]:
        """Nodes of which some document has a fault, also such that do not exist."""
        return frozenset(
            node
            for reports in self._known
            for node, report in reports.items()
            if report.info.faults
        )

    def has_faults(self, node: str) -> bool:
        """Return whether a document has a fault of the node, also where that does not exist."""
        newest = self._newest(node)
        return newest is not None and bool(newest.info.faults)

    def observe_event(self, source: int, event: DpuEvent, now: Instant) -> bool:
        """Apply an event of the store with this number; return whether a step is needed."""
        reports, url, due_ms = self._known[source], self._urls[source], self._due_ms
        is_news = False
        match event:
            case Snapshot(items, unreadable):
                self._interrupted.pop(url, None)
                is_news = url not in self._listed
                self._listed.add(url)
                nodes = {item.node for item in items.values()}
                nodes.update(filter(None, map(dpu_info.node_of, unreadable)))
                for node in reports.keys() - nodes:
                    self._forget(reports, node, now)
                for item in items.values():
                    self._apply(reports, item, now)
            case Update(_, DpuReport() as report):
                self._apply(reports, report, now)
            case Update(name, None):
                gone = dpu_info.node_of(name)
                if gone in reports:
                    self._forget(reports, gone, now)
            case Interrupted(reason) | KindUnavailable(reason):
                self._interrupted[url] = reason
        return is_news or bool(self.changed or self._blind_changes) or due_ms != self._due_ms

    def _apply(
        self, reports: dict[str, _LastGoodDocument], report: DpuReport, now: Instant
    ) -> None:
        node, info = report.node, report.info
        before = reports.get(node)
        if report.problem:
            if before is None:
                reports[node] = before = _LastGoodDocument(_NEVER, now.steady_ms)
            is_news = before.problem != report.problem
            if not before.problem:
                before.problem_since_ms = now.wall_ms
            before.problem = report.problem
        elif before is None:
            reports[node] = _LastGoodDocument(info, now.steady_ms)
            is_news = bool(info.faults)
        else:
            is_news = info.faults != before.info.faults or bool(before.problem)
            if info.update_time_ms != before.info.update_time_ms:
                before.changed_at_ms = now.steady_ms
            before.info, before.problem = info, ""
        if is_news:
            self.changed.add(node)
        self._judge(node, now)

    def _forget(self, reports: dict[str, _LastGoodDocument], node: str, now: Instant) -> None:
        del reports[node]
        self.changed.add(node)
        self._judge(node, now)

    def _newest(self, node: str) -> _LastGoodDocument | None:
        matches = [reports[node] for reports in self._known if node in reports]
        if len(matches) < 2:
            return matches[0] if matches else None
        return max(matches, key=lambda report: report.info.update_time_ms)

    def _judge(self, node: str, now: Instant) -> None:
        """Judge whether a node is blind."""
        newest = self._newest(node)
        silent_at_ms = None if newest is None else _silent_at_ms(newest, now)
        status = None
        if newest is not None and newest.problem:
            consequence = (
                "its last good content counts" if newest.info is not _NEVER else "it never was good"
            )
            status = BlindStatus(
                SOURCE, newest.problem_since_ms, f"{newest.problem}; {consequence}"
            )
        elif newest is not None and silent_at_ms is not None and silent_at_ms <= now.steady_ms:
            before = self._blind.get(node)
            since_ms = now.wall_ms - (now.steady_ms - silent_at_ms)
            if before is not None and before.reason == _why_silent(node, newest.info):
                since_ms = before.since_ms or since_ms
            status = BlindStatus(SOURCE, since_ms, _why_silent(node, newest.info))
        elif silent_at_ms is not None and (self._due_ms is None or silent_at_ms < self._due_ms):
            self._due_ms = silent_at_ms
        if status == self._blind.get(node):
            return
        if status is None:
            del self._blind[node]
        else:
            self._blind[node] = status
        self._blind_changes[node] = status

    def step(self, now: Instant) -> None:
        """Judge all nodes again when the first of them may have fallen silent."""
        if self._due_ms is None or now.steady_ms < self._due_ms:
            return
        self._due_ms = None
        for node in self._nodes():
            self._judge(node, now)

    def next_due_ms(self) -> int | None:
        """Return when ``step`` has something to do."""
        return self._due_ms

    def has_node(self, node: str) -> bool:
        """Return whether the node exists, as far as that is known yet."""
        return not self._lookup.synced or self._lookup.has_node(node)

    def faults(self, node: str) -> tuple[DpuFault, ...]:
        """Return the faults that hold on a node, by device and code."""
        newest = self._newest(node)
        return newest.info.faults if newest is not None and self.has_node(node) else ()

    def blind(self, node: str) -> BlindStatus | None:
        """Return why the document of a node shows nothing now; ``None`` where it does."""
        return self._blind.get(node) if self.has_node(node) else None

    def pop_blind_changes(self, now: Instant) -> Iterator[BlindChange]:
        """Yield which nodes became blind, or are not any more, since the last call."""
        changes, self._blind_changes = self._blind_changes, {}
        for node, status in sorted(changes.items()):
            if self.has_node(node):
                since_ms = now.wall_ms if status is None else status.since_ms or now.wall_ms
                reason = "" if status is None else status.reason
                yield BlindChange(
                    node, now.wall_ms, SOURCE, since_ms, reason, is_over=status is None
                )

    def problems(self, node: str) -> Iterator[str]:
        """Yield what of a node's document does not count."""
        newest = self._newest(node)
        if newest is not None:
            yield from ([newest.problem] if newest.problem else map(str, newest.info.left_out))

    def status(self) -> DpuStatus:
        """Return the state of all documents."""
        counts: Counter[str] = Counter()
        problems: dict[str, str] = {}
        for node in self._nodes():
            newest = self._newest(node)
            assert newest is not None
            counts["documents"] += 1
            if (newest.problem or newest.info.left_out) and len(problems) < _MAX_PROBLEMS:
                problems[node] = "; ".join(self.problems(node))
            if not self.has_node(node):
                counts["without_node"] += 1
                continue
            counts["devices"] += newest.info.devices
            counts["faults"] += len(newest.info.faults)
            if newest.problem:
                counts["unreadable"] += 1
            elif node in self._blind:
                counts["blind"] += 1
        return DpuStatus(
            listed=self.is_listed,
            interrupted=dict(self._interrupted),
            documents=counts["documents"],
            blind=counts["blind"],
            unreadable=counts["unreadable"],
            without_node=counts["without_node"],
            devices=counts["devices"],
            faults=counts["faults"],
            problems=problems,
        )

    def _nodes(self) -> Iterator[str]:
        """Yield each node that has a document once."""
        for number, reports in enumerate(self._known):
            for node in reports:
                if not any(node in before for before in self._known[:number]):
                    yield node


def _silent_at_ms(report: _LastGoodDocument, now: Instant) -> int:
    """Return the steady time from which a document shows only that its plugin is silent.

    Its own time counts, and where that is ahead of our clock, when it was seen to change.
    """
    by_its_time = now.steady_ms + report.info.update_time_ms - now.wall_ms
    return min(by_its_time, report.changed_at_ms) + dpu_info.SILENT_AFTER_MS


def _why_silent(node: str, info: DpuInfo) -> str:
    return (
        f"{dpu_info.NAMESPACE}/{dpu_info.PREFIX}{node} has not been written for {_MINUTES} "
        f"minutes (UpdateTime {shown_time(info.update_time_ms)}); its last faults stay"
    )
