"""What the real ClusterD showed in a recording, and when that had come to rest.

Not compared are documents of services that this project does not have (``NOT_OURS``).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from contract.names import CLUSTER_LABEL, CLUSTER_NODE_NAME
from tests.cluster.player import AT_LAST_SECONDS, Sent, Shown
from tests.vectors import VECTORS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SETTLED_MS = 2000
"""The real aggregator needs up to two seconds; states before that are not compared."""

_STAYED_MS = 2500
_BEFORE_NEXT_MS = 1500
"""What upstream shows for at least this long between two steps counts, too: that it goes on by
itself is known to the second only."""

NOT_OURS = (
    "job-summary-*",
    "current-job-statistic",
    "scheduling-exception-report",
    "fault-job-info",
    "super-pod-*",
    "data-trace-*",
    "reset-config-*",
)
"""Documents of upstream that no program writes here; ``docs/compatibility.md`` has the reasons."""


_ASKED_BY = {
    "PubFault/SendPublicFault": "send-public-fault",
    "fault.Fault/GetFaultMsgSignal": "get-fault",
    "fault.Fault/Register": "subscribe-fault-stream",
    "fault.Fault/SubscribeFaultMsgSignal": "subscribe-fault-stream",
}


def names() -> list[str]:
    """Return the names of all recordings."""
    found = (path.stem for path in (VECTORS / "clusterd").glob("*.json"))
    return sorted(name for name in found if name != "examples")


def recorded(name: str) -> dict[str, Any]:
    """Return the recording called ``name``."""
    recording: dict[str, Any] = json.loads((VECTORS / f"clusterd/{name}.json").read_text())
    return recording


def is_ours(name: str) -> bool:
    """Return whether we write the document of this name."""
    return not any(fnmatchcase(name, pattern) for pattern in NOT_OURS)


@dataclass(frozen=True)
class Point:
    """A moment at which both have come to rest. ``name`` identifies it: ``@`` and a time.

    ``output``: only this one has.
    """

    name: str
    at_ms: int
    output: str | None = None


def shown(recording: Mapping[str, Any]) -> list[Shown]:
    """Return the recorded states of documents and pods' labels in the form of our own states."""
    # Upstream makes this document late where it is empty.
    starts = (one["at_ms"] for one in recording["steps"] if one["do"] == "restart-aggregator")
    empty = {CLUSTER_NODE_NAME: ""}
    found = [Shown(next(starts), CLUSTER_NODE_NAME, empty, dict([CLUSTER_LABEL]))]
    for one in recording["observed"]:
        if "name" not in one or not is_ours(one["name"]):
            continue
        if one.get("kind") == "Pod":
            where = f"Pod {one['namespace']}/{one['name']}"
            found.append(Shown(one["at_ms"], where, {"labels": one["labels"]["fault-type"]}, {}))
            continue
        data = None if one.get("deleted") else _data(one)
        by_hand = one.get("by") == "hand" or bool(one.get("deleted"))
        found.append(Shown(one["at_ms"], one["name"], data, one.get("labels", {}), by_hand))
    return found


def _data(one: Mapping[str, Any]) -> dict[str, str]:
    if "data" in one:
        return dict(one["data"])
    return {SUMMARY: json.dumps(one["summary"])}


SUMMARY = "(summary)"
"""The key of a recording's summary of data that are too large for it."""


def sent(recording: Mapping[str, Any]) -> list[Sent]:
    """Return the answers and messages of gRPC calls and streams; ``step`` is the number of the
    request's step.
    """
    found = []
    for one in recording["observed"]:
        if "stream" not in one:
            continue
        asked = [
            number
            for number, step in enumerate(recording["steps"])
            if step["at_ms"] <= one["at_ms"]
            and step["do"] in _ASKED_BY[one["stream"]]
            and one.get("client") in (None, step["object"])
        ]
        message = one.get("message")
        if message is None:
            message = {key: one[key] for key in ("answers", "error", "end") if key in one}
        client = one.get("client", {})
        found.append(Sent(one["at_ms"], asked[-1], one["stream"], client, message))
    return found


def points(
    recording: Mapping[str, Any], at_last_seconds: float = AT_LAST_SECONDS
) -> Iterator[Point]:
    """Yield the times at which to compare with the recording.

    They are before each step that comes late enough, and where an output is constant for long
    enough between two steps.
    """
    steps = recording["steps"]
    changes: dict[str, list[int]] = {}
    for one in shown(recording):
        if not one.by_hand:
            changes.setdefault(one.name, []).append(one.at_ms)
    ends = [step["at_ms"] for step in steps[1:]]
    ends.append(last_ms(recording) + int(at_last_seconds * 1000))
    for step, end_ms in zip(steps, ends, strict=True):
        begin_ms = step["at_ms"]
        if end_ms - begin_ms < SETTLED_MS:
            continue
        for output, times in sorted(changes.items()):
            within = [at for at in times if begin_ms < at < end_ms]
            for at, following in pairwise(within):
                if following - at >= _STAYED_MS:
                    name = f"@{begin_ms}+{at - begin_ms}"
                    yield Point(name, following - _BEFORE_NEXT_MS, output)
        yield Point(f"@{begin_ms}", end_ms - 1)


def last_ms(recording: Mapping[str, Any]) -> int:
    """Return the time of the last step or observation (ms)."""
    rows = (recording["steps"][-1], *recording["observed"])
    return max(int(one["at_ms"]) for one in rows)
