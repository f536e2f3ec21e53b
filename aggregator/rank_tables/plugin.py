"""Which global rank tables there are now: a plugin (``aggregator.plugin.Reader``)."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from typing_extensions import override

from aggregator.accepted_namespaces import ALL, Namespaces
from aggregator.plugin import DocumentPlugin
from aggregator.rank_tables.tables import (
    JOB_ID_LABEL,
    PREFIX,
    InstancePlace,
    JobTable,
    decode_job_table,
    render,
)
from contract.errors import DocumentError, quoted
from contract.names import REPORT_LABEL
from service.log.ongoing_failure import OngoingFailures
from stores.base import Changed, Deleted, DocumentsListed, Selection
from stores.interruption import Interrupted
from stores.refusals import Spacing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aggregator.inputs.node_context import PodState
    from service.clock import Instant
    from stores.base import Document, WatchEvent

_log = logging.getLogger(__name__)

MAX_TABLES = 16_000
"""Most tables; further ones are refused."""

APP_LABEL = "app"
COORDINATOR, CONTROLLER = "mindie-ms-coordinator", "mindie-ms-controller"
_NOWHERE: frozenset[str] = frozenset()
_MAX_SHOWN = 5
_DIGITS = re.compile("([0-9]+)")


class _Key(NamedTuple):
    source: int
    namespace: str
    name: str


class _Member(NamedTuple):
    """A pod of the service itself."""

    namespace: str
    job_id: str
    app: str
    name: str
    place: InstancePlace


class RankTablesStatus(msgspec.Struct, frozen=True):
    """How many tables of jobs are read and how many services have a complete table.

    ``problems`` has what is wrong with each ConfigMap that cannot be read. ``listed``: every store
    was read. ``shared`` has each jobID that tables of several namespaces have, with these
    namespaces: none of them is served.
    """

    listed: bool
    tables: int
    services: int
    problems: tuple[str, ...]
    shared: dict[str, tuple[str, ...]] = {}


class RankTables(DocumentPlugin):
    """Global rank tables of services, from the tables of their jobs and from their pods.

    No table changes before ``sources`` stores were listed: a job that is only not read yet would be
    taken for broken. A ConfigMap that cannot be read leaves its last good table in force, and
    touches no other. A jobID that tables of several namespaces have is served from none of them: no
    ConfigMap shows which of them has the right to it. What was served before stays as it was until
    one of them goes.
    """

    def __init__(self, sources: int, namespaces: tuple[str, ...] = (ALL,)) -> None:
        self.namespaces = Namespaces("rank tables", "rank_tables.namespaces", namespaces)
        self._shared: dict[str, tuple[str, ...]] = {}
        self._named: set[str] = set()
        """jobIDs that the log names as shared, and not yet as free again."""
        self._spacing = Spacing()
        self._problems: OngoingFailures[_Key] = OngoingFailures(
            _log, "rank table %s is refused: %s", "rank table %s is good again", _shown
        )
        self._unlisted = set(range(sources))
        self._tables: dict[_Key, JobTable] = {}
        self._services: dict[str, set[_Key]] = {}
        """jobID to the tables of its jobs."""
        self._members: dict[str, dict[tuple[str, str], _Member]] = {}
        """jobID to node and uid to pod."""
        self._nodes: dict[str, dict[str, _Member]] = {}
        self._texts: dict[str, str] = {}
        self._now_ms = 0
        self._dirty: set[str] = set()

    @property
    @override
    def inputs(self) -> tuple[Selection, ...]:
        """See ``DocumentPlugin``: in all namespaces, so that what is left out can be named."""
        return (Selection(label=REPORT_LABEL, has_label=JOB_ID_LABEL),)

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong with each ConfigMap that cannot be read now."""
        return tuple(reason for _, reason in sorted(self._problems.reasons.items()))

    def status(self) -> RankTablesStatus:
        """Return the status now."""
        return RankTablesStatus(
            listed=not self._unlisted,
            tables=len(self._tables),
            services=len(self._texts),
            problems=self.problems,
            shared=dict(sorted(self._shared.items())),
        )

    @override
    def observe(self, source: int, _: Selection, event: WatchEvent, now: Instant) -> frozenset[str]:
        """See ``DocumentPlugin``. No node is judged by it."""
        self._now_ms = now.steady_ms
        match self.namespaces.taken(source, event):
            case DocumentsListed(documents):
                self._replace(source, documents)
            case Changed(document):
                self._put(source, document)
            case Deleted(namespace, name):
                self._drop(_Key(source, namespace, name))
            case Interrupted() | None:
                pass
        return _NOWHERE

    def set_pods(self, node: str, pods: Iterable[PodState]) -> None:
        """Replace the pods of ``node`` that matter for tables."""
        before = self._nodes.get(node, {})
        after = {pod.uid: member for pod in pods if (member := _member(pod)) is not None}
        if before == after:
            return
        for uid, member in before.items():
            members = self._members[member.job_id]
            del members[node, uid]
            if not members:
                del self._members[member.job_id]
        for uid, member in after.items():
            self._members.setdefault(member.job_id, {})[node, uid] = member
        self._dirty |= {member.job_id for member in (*before.values(), *after.values())}
        if after:
            self._nodes[node] = after
        else:
            del self._nodes[node]

    def text(self, job_id: str) -> str | None:
        """Return the table of a service as of the last ``pop_changed_tables``; ``None``: it is
        incomplete.
        """
        return self._texts.get(job_id)

    def pop_changed_tables(self) -> frozenset[str]:
        """Return the jobIDs whose table changed, came or went since the last call."""
        if self._unlisted:
            return _NOWHERE
        dirty, self._dirty = self._dirty, set()
        changed = set()
        for job_id in dirty:
            if self._is_shared(job_id):
                continue
            text = self._render(job_id)
            if text != self._texts.get(job_id):
                changed.add(job_id)
            if text is None:
                self._texts.pop(job_id, None)
            else:
                self._texts[job_id] = text
        return frozenset(changed)

    def _is_shared(self, job_id: str) -> bool:
        """Return whether tables of several namespaces have this jobID; log when that changes."""
        namespaces = tuple(sorted({key.namespace for key in self._services.get(job_id, ())}))
        if len(namespaces) < 2:
            if self._shared.pop(job_id, None) is not None and job_id in self._named:
                self._named.discard(job_id)
                _log.info("jobID %s is used by one namespace again", _quoted(job_id))
            return False
        if job_id not in self._shared and self._spacing.allows(job_id, self._now_ms):
            self._named.add(job_id)
            _log.warning(
                "jobID %s is used by rank tables of several namespaces (%s). The table that was "
                "served stays until all but one are deleted. Set rank_tables.namespaces to those "
                "that count",
                _quoted(job_id),
                ", ".join(namespaces[:_MAX_SHOWN])
                + (", ..." if len(namespaces) > _MAX_SHOWN else ""),
            )
        self._shared[job_id] = namespaces
        return True

    def _render(self, job_id: str) -> str | None:
        keys = sorted(self._services.get(job_id, ()), key=_in_order)
        members = sorted(self._members.get(job_id, {}).values(), key=_by_name)
        here = [member for member in members if member.namespace in {key.namespace for key in keys}]
        return render(
            [self._tables[key] for key in keys],
            [member.place for member in here if member.app == COORDINATOR],
            [member.place for member in here if member.app == CONTROLLER],
        )

    def _replace(self, source: int, documents: Iterable[Document]) -> None:
        here = {_Key(source, document.namespace, document.name) for document in documents}
        for key in {*self._tables, *self._problems.reasons} - here:
            if key.source == source:
                self._drop(key)
        for document in documents:
            self._put(source, document)
        self._unlisted.discard(source)

    def _put(self, source: int, document: Document) -> None:
        if not document.name.startswith(PREFIX):
            return
        key = _Key(source, document.namespace, document.name)
        try:
            if key not in self._tables and len(self._tables) >= MAX_TABLES:
                raise DocumentError(_shown(key), "$", f"there are already {MAX_TABLES}")
            table = decode_job_table(document)
        except DocumentError as error:
            self._problems.record_failure(key, str(error))
            return
        self._problems.end(key)
        if self._tables.get(key) == table:
            return
        self._forget(key)
        self._tables[key] = table
        self._services.setdefault(table.job_id, set()).add(key)
        self._dirty.add(table.job_id)

    def _drop(self, key: _Key) -> None:
        self._problems.forget(key)
        self._forget(key)

    def _forget(self, key: _Key) -> None:
        table = self._tables.pop(key, None)
        if table is not None:
            keys = self._services[table.job_id]
            keys.discard(key)
            if not keys:
                del self._services[table.job_id]
            self._dirty.add(table.job_id)


def _quoted(job_id: str) -> str:
    return quoted(repr(job_id))


def _shown(key: _Key) -> str:
    return f"{key.namespace}/{key.name}"


def _in_order(key: _Key) -> tuple[str, int, list[tuple[int, str]]]:
    """Return a sort key that counts as people do: ``server-2`` before ``server-10``."""
    parts = _DIGITS.split(key.name)
    counted = [(int(part) if part.isdigit() else -1, part) for part in parts]
    return key.namespace, key.source, counted


def _by_name(member: _Member) -> tuple[str, str, str]:
    return member.name, member.place.ip, member.place.host_ip


def _member(pod: PodState) -> _Member | None:
    app, job_id = pod.labels.get(APP_LABEL), pod.labels.get(JOB_ID_LABEL)
    if job_id is None or app not in (COORDINATOR, CONTROLLER):
        return None
    return _Member(pod.namespace, job_id, app, pod.name, InstancePlace(pod.host_ip, pod.ip))
