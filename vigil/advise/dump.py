"""Reads dumps of a cluster: Lists as ``kubectl get -o json`` prints them, or sessions line by line.

Errors name the file, the line and the object.
"""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from advisor.inputs import kubernetes_objects
from advisor.snapshot import ClusterSnapshot, StoredConfigMap
from contract.errors import ConfigurationError, DocumentError, Problem
from contract.scheduling import go_integer
from contract.validation_texts import decode_text
from vigil.advise.json_values import INSTEAD, JsonValue, parts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

_MAX_PROBLEMS = 20
"""Shown of one file: a tool that wrote one wrong object wrote them all so."""
_KINDS: dict[tuple[str, str], tuple[str, Callable[[msgspec.Raw], Any]]] = {
    ("", "Node"): ("nodes", kubernetes_objects.node),
    ("", "Pod"): ("pods", kubernetes_objects.pod),
    ("", "ConfigMap"): ("configmaps", kubernetes_objects.configmap),
    ("apps", "ReplicaSet"): ("replica_sets", kubernetes_objects.replica_set),
    ("scheduling.volcano.sh", "PodGroup"): ("podgroups", kubernetes_objects.pod_group),
    ("batch.volcano.sh", "Job"): ("vcjobs", kubernetes_objects.vcjob),
    ("mindxdl.gitee.com", "AscendJob"): ("ascend_jobs", kubernetes_objects.ascend_job),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): (
        "workloads",
        kubernetes_objects.leader_worker_set,
    ),
    ("orchestration.aibrix.ai", "PodSet"): ("workloads", kubernetes_objects.pod_set),
    **{
        (group, kind): ("workloads", kubernetes_objects.workload(kind))
        for group, kind in (
            ("orchestration.aibrix.ai", "StormService"),
            ("orchestration.aibrix.ai", "RoleSet"),
            ("ome.io", "InferenceService"),
            ("apps", "Deployment"),
            ("apps", "StatefulSet"),
        )
    },
}
"""By API group and kind. Objects of other kinds are left out."""


class _ObjectHead(msgspec.Struct):
    kind: str = ""
    version: str = msgspec.field(default="", name="apiVersion")


_head = msgspec.json.Decoder(_ObjectHead)


def sessions(sources: Sequence[str]) -> Iterator[ClusterSnapshot]:
    """Return the sessions in these files, ``-`` being standard input.

    Lists are one session together; each line with ``now_ms`` is one. Raises ``ConfigurationError``
    with all problems of the file that has them first.
    """
    return sessions_of((_called(source), _content(source)) for source in sources)


def sessions_of(contents: Iterable[tuple[str, bytes]]) -> Iterator[ClusterSnapshot]:
    """Yield the sessions in these contents, each with the name of its source."""
    lists: list[JsonValue] = []
    before: int | None = None
    for source, content in contents:
        for part in parts_of(content, source):
            now_ms = part.outer.now_ms
            if now_ms is None:
                lists.append(part)
            else:
                # The scheduler's memory goes forward only.
                if before is not None and now_ms < before:
                    text = f"now_ms {now_ms} is before that of the session before, {before}"
                    raise ConfigurationError(part.source, [Problem(f"line {part.line}", text)])
                before = now_ms
                yield _SessionReader().session([part], now_ms)
            # A List has no time that could order it among sessions.
            if lists and before is not None:
                text = "is a List, and sessions were given too: give one or the other"
                raise ConfigurationError(lists[0].source, [Problem(f"line {lists[0].line}", text)])
    if lists:
        yield _SessionReader().session(lists, None)


def _called(source: str) -> str:
    return "standard input" if source == "-" else source


def _content(source: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except OSError as error:
        text = error.strerror or str(error)
        raise ConfigurationError(_called(source), [Problem("file", text)]) from None


class _SessionReader:
    """Objects of one session, from one or several values."""

    def __init__(self) -> None:
        self._found: dict[str, list[Any]] = {name: [] for name, _ in _KINDS.values()}
        self._uids: dict[str, tuple[JsonValue, int, str]] = {}
        self._names: dict[str, tuple[JsonValue, int, str]] = {}
        self._latest = LatestTime()
        self._problems: list[tuple[int, str, str]] = []

    def session(self, parts: list[JsonValue], now_ms: int | None) -> ClusterSnapshot:
        """Return the session; ``now_ms`` of ``None`` is the newest time that an object has."""
        first = any(part.outer.first_session for part in parts)
        for part in parts:
            for index, raw in enumerate(_items(part)):
                self._take(part, index, raw, timed=now_ms is None)
                # Enough are shown, and the rest of a large file would take long.
                if len(self._problems) >= _MAX_PROBLEMS:
                    break
            # For each value: lines of its objects are counted in its text, which is freed below.
            if self._problems:
                raise _error(part, self._problems)
            # Freed at once: the text of a large cluster is as large as its objects.
            part.text, part.outer.items = b"", None
        objects = self._found
        return ClusterSnapshot(
            now_ms=self._latest.at_ms if now_ms is None else now_ms,
            first_session=first,
            nodes=tuple(objects["nodes"]),
            pods=tuple(objects["pods"]),
            podgroups=tuple(objects["podgroups"]),
            vcjobs=tuple(objects["vcjobs"]),
            ascend_jobs=tuple(objects["ascend_jobs"]),
            replica_sets=tuple(objects["replica_sets"]),
            workloads=tuple(objects["workloads"]),
            may_lack=now_ms is None,
            # In the order of writes, as the scheduler got them: the last entry of a node counts.
            configmaps=tuple(sorted(objects["configmaps"], key=_written)),
        )

    def _take(self, part: JsonValue, index: int, raw: msgspec.Raw, *, timed: bool) -> None:
        try:
            # Kind and version first: objects of kinds that are left out are never decoded as a
            # whole.
            head = _head.decode(raw)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            self._problems.append(
                (index, f"item {index}", f"is not a valid object: {decode_text(error)}")
            )
            return
        # Items of a typed list have no kind; its own is theirs, with ``List`` behind it.
        kind = head.kind or part.outer.kind.removesuffix("List")
        kind_read = _KINDS.get(
            (head.version.partition("/")[0] if "/" in head.version else "", kind)
        )
        # Items of a typed list have no apiVersion either, so the kind alone decides.
        if kind_read is None and not head.version:
            kind_read = next((item for (_, named), item in _KINDS.items() if named == kind), None)
        if kind_read is None:
            if not kind:
                text = "has no kind" if part.outer.items else f"has no kind; {INSTEAD}"
                self._problems.append((index, f"item {index}", text))
            return
        name, read = kind_read
        try:
            item = read(raw)
        except DocumentError as error:
            self._problems.append((index, error.document, f"{error.where}: {error.what}"))
            return
        called = f"{kind} {'/'.join(filter(None, (getattr(item, 'namespace', ''), item.name)))}"
        self._check_unique(part, index, called, item.uid)
        self._found[name].append(item)
        if timed:
            self._latest.update(raw)

    def _check_unique(self, part: JsonValue, index: int, called: str, uid: str) -> None:
        # By uid first: an object that was renamed by hand is still the same one.
        same_uid = self._uids.get(uid) if uid else None
        again = self._names.get(called)
        other = same_uid or again
        if other is not None:
            where = f"{other[0].source} {_line(other[0], other[1])}".strip()
            text = f"uid {uid} is also that of {other[2]}" if same_uid else "is there twice"
            self._problems.append((index, called, f"{text} ({where})"))
            return
        if uid:
            self._uids[uid] = (part, index, called)
        self._names[called] = (part, index, called)


def _items(part: JsonValue) -> list[msgspec.Raw]:
    """Return the objects of a value: its items, or itself."""
    if part.outer.items is not None:
        return part.outer.items
    return [msgspec.Raw(part.text)]


def _line(part: JsonValue, index: int) -> str:
    return f"line {part.lines({index}).get(index, part.line)}" if part.text else ""


def _written(config_map: StoredConfigMap) -> int:
    """Return the order of writes: ``resourceVersion`` grows with each."""
    # Numbers of an API server grow; Kubernetes calls them opaque, so anything else is 0.
    return go_integer(config_map.resource_version) or 0


def _error(part: JsonValue, problems: list[tuple[int, str, str]]) -> ConfigurationError:
    lines = part.lines({index for index, _, _ in problems})
    return ConfigurationError(
        part.source,
        [
            Problem(f"line {lines.get(index, part.line)}: {called}", text)
            for index, called, text in problems
        ],
    )


class _CreationMetadata(msgspec.Struct):
    creation: str | None = msgspec.field(default=None, name="creationTimestamp")


class _ConditionTimes(msgspec.Struct):
    heartbeat: str | None = msgspec.field(default=None, name="lastHeartbeatTime")
    transition: str | None = msgspec.field(default=None, name="lastTransitionTime")


class _StatusTimes(msgspec.Struct):
    start: str | None = msgspec.field(default=None, name="startTime")
    conditions: list[_ConditionTimes] | None = None


class _ObjectTimes(msgspec.Struct):
    metadata: _CreationMetadata
    status: _StatusTimes | None = None


_times = msgspec.json.Decoder(_ObjectTimes)


class LatestTime:
    """The newest time seen, in ``at_ms``; 0 before any."""

    def __init__(self) -> None:
        self.at_ms = 0
        self._newest = ""

    def update(self, raw: msgspec.Raw) -> None:
        """Take in the times of an object."""
        try:
            read = _times.decode(raw)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return  # Objects differ in what their status is.
        status = read.status or _StatusTimes()
        texts = [read.metadata.creation, status.start]
        for condition in status.conditions or ():
            texts += (condition.heartbeat, condition.transition)
        for text in texts:
            # Times of one form sort as texts, so that few are read.
            if text is not None and text > self._newest:
                self._read(text)

    def _read(self, text: str) -> None:
        try:
            time = datetime.fromisoformat(text)
            # A time without a zone cannot be compared with others.
            at_ms = int(time.timestamp() * 1000) if time.tzinfo is not None else 0
        except (ValueError, OverflowError):
            return
        if at_ms > self.at_ms:
            self.at_ms, self._newest = at_ms, text
