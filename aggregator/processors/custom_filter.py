"""Withhold faults that a job tolerates: its annotations name which, and for how long.

Source: ``clusterd#3.3``. Unlike upstream (defect B24) a filter counts for chips of the job on this
node only, and ends with its annotation.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from aggregator.cluster_documents.published_node import FILTER, WithheldEvent, WithheldFault
from aggregator.processors.record_edits import PUBLIC_FAULT, remove_faults
from aggregator.processors.state_types import earliest
from contract.documents.switch_info import event_key

if TYPE_CHECKING:
    from aggregator.inputs.node_context import JobState, NodeContext
    from aggregator.processors.state_types import SwitchState, Times
    from contract.documents.cluster_device import DeviceRecord
    from contract.documents.switch_info import SwitchRecord

CODES = "huawei.com/schedule.filter.faultCode"
LEVELS = "huawei.com/schedule.filter.faultLevel"
# Upstream's values: default 60, allowed 0 to 86400, otherwise the default (clusterd#3.3).
_DEFAULT_SECONDS = 60
_MAX_SECONDS = 86_400
_ALIASES = {
    "ResetFault": "Separate",
    "SeparateFault": "Separate",
    "RestartRequestFault": "RestartRequest",
    "PreSeparateFault": "PreSeparate",
}
_SERVER_LEVEL = "RestartRequest"
"""What the jobs of MindIE servers tolerate without an annotation."""

_ITEM = re.compile(r"(?:[^,\[]|\[[^\]]*\]?)+")
"""A comma between brackets belongs to a switch's code."""

# Upstream accepts full-width comma and colon, as a Chinese keyboard writes them.
_WIDE = str.maketrans("，：", ",:")

# Rank and node status of each level: the table of clusterd#3.3. Its order is upstream's.
_SWITCH_LEVELS = {
    "NotHandle": (0, "Healthy"),
    "NotHandleFault": (0, "Healthy"),
    "SubHealthFault": (1, "SubHealthy"),
    "RestartRequest": (2, "UnHealthy"),
    "PreSeparate": (3, "PreSeparate"),
    "Separate": (4, "UnHealthy"),
}


class Filter(msgspec.Struct, frozen=True):
    """Codes and levels, and for how many milliseconds each is hidden."""

    codes: dict[str, int]
    levels: dict[str, int]

    def until_ms(self, code: str, level: str, received_ms: int) -> int | None:
        """Return the last moment (wall time) at which a fault is withheld; ``None`` where the
        filter does not match.
        """
        length_ms = self.codes.get(code)
        if length_ms is None:
            length_ms = self.levels.get(level)
        return None if length_ms is None else received_ms + length_ms


def read_filter(text: str) -> dict[str, int]:
    """Decode an annotation into items and their milliseconds; what is not a number of seconds
    counts as 60.
    """
    items: dict[str, int] = {}
    for item in _ITEM.findall(text.translate(_WIDE)):
        name, colon, seconds = item.rpartition(":")
        if not colon:
            name, seconds = item, ""
        if name.strip():
            items[name.strip()] = _seconds(seconds.strip()) * 1000
    return items


def _seconds(text: str) -> int:
    # The length first: ``int`` of a text of megabytes is slow, and an annotation is written by
    # users.
    if len(text) > len(str(_MAX_SECONDS)) or not (text.isascii() and text.isdigit()):
        return _DEFAULT_SECONDS
    return int(text) if int(text) <= _MAX_SECONDS else _DEFAULT_SECONDS


# Jobs of one template have the same annotations; a cluster has few distinct texts.
@lru_cache(maxsize=1024)
def _filter(codes: str, levels: str, is_server: bool) -> Filter:
    by_level = {_ALIASES.get(name, name): ms for name, ms in read_filter(levels).items()}
    # The job's own annotation for this level counts before the default of MindIE servers.
    if is_server:
        by_level.setdefault(_SERVER_LEVEL, _DEFAULT_SECONDS * 1000)
    return Filter(read_filter(codes), by_level)


def job_filters(
    node_context: NodeContext, controllers: frozenset[str]
) -> list[tuple[frozenset[str], Filter]]:
    """Return the filters of the jobs on a node, each with the chips of its job on this node.

    ``controllers``: the jobs whose MindIE controller is subscribed. Without it a server's job
    tolerates nothing.
    """
    filters = []
    # Sorted, so that equal inputs give equal results in each replica.
    for key, job in sorted(node_context.jobs.items()):
        pods = [pod for pod in node_context.pods if pod.job == key]
        server = _server(job, [pod.labels for pod in pods])
        if server and server not in controllers:
            continue
        codes, levels = job.annotations.get(CODES, ""), job.annotations.get(LEVELS, "")
        if pods and (codes or levels or server):
            # Chips of this node only: ``node_context`` has the pods of one node (upstream: defect
            # B24).
            chips = frozenset(chip for pod in pods for chip in pod.chips)
            filters.append((chips, _filter(codes, levels, bool(server))))
    return filters


def _server(job: JobState, pods: list[dict[str, str]]) -> str:
    """Return the MindIE job that a job is a server of; empty for any other job."""
    for labels in (job.labels, *pods):
        if labels.get("app") == "mindie-ms-server" and labels.get("jobID"):
            return labels["jobID"]
    return ""


def filter_device(
    record: DeviceRecord,
    received: Times,
    wanted: list[tuple[frozenset[str], Filter]],
    now_ms: int,
) -> tuple[DeviceRecord, tuple[WithheldFault, ...]]:
    """Withhold what the jobs on the faulty chips tolerate. Public faults are always shown."""
    hidden = []
    for fault in record.faults:
        if fault.fault_type == PUBLIC_FAULT:
            continue
        ends = (
            job_filter.until_ms(fault.code, fault.level, received[fault.chip][fault.code])
            for chips, job_filter in wanted
            if fault.chip in chips
        )
        # Two jobs may share a chip; the fault is hidden as long as one of them tolerates it.
        until_ms = max((end for end in ends if end is not None), default=-1)
        # Inclusive, as upstream: hidden while now - receive time <= threshold (clusterd#3.3).
        if now_ms <= until_ms:
            hidden.append(WithheldFault(fault, FILTER, until_ms))
    return remove_faults(record, [withheld.fault for withheld in hidden]), tuple(hidden)


def filter_switch(
    record: SwitchRecord,
    state: SwitchState,
    wanted: list[tuple[frozenset[str], Filter]],
    now_ms: int,
) -> tuple[SwitchRecord, tuple[WithheldEvent, ...]]:
    """Withhold what any job on the node tolerates, and judge the node by what is left.

    An event without a level of its own is always shown.
    """
    times = {key: (time_ms, level) for key, time_ms, level in record.times or ()}
    hidden, shown = [], []
    for event in record.events:
        key = event_key(event)
        time_ms, level = times.get(key, (0, ""))
        ends = (
            job_filter.until_ms(event.assembled_fault_code, level, state.received[key])
            for _, job_filter in wanted
            # Without an entry the event has no level of its own that a filter could name.
            if key in times
        )
        until_ms = max((end for end in ends if end is not None), default=-1)
        if now_ms <= until_ms:
            hidden.append(WithheldEvent(event, time_ms, level, until_ms))
        else:
            shown.append(event)
    if not hidden:
        return record, ()
    gone = {event_key(withheld.event) for withheld in hidden}
    remaining = tuple(pair for pair in record.times or () if pair[0] not in gone)
    levels = [level for _, _, level in remaining if level in _SWITCH_LEVELS]
    level = max(levels, key=lambda name: _SWITCH_LEVELS[name][0], default="NotHandleFault")
    record = msgspec.structs.replace(
        record, events=tuple(shown), level=level, status=_SWITCH_LEVELS[level][1], times=remaining
    )
    return record, tuple(hidden)


def next_change_ms(hidden: tuple[WithheldFault | WithheldEvent, ...]) -> int | None:
    """Return when the first withheld fault is published (wall)."""
    until_ms = earliest(*(withheld.until_ms for withheld in hidden))
    # One millisecond more, since the limit itself is still hidden.
    return None if until_ms is None else until_ms + 1
