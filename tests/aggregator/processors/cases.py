"""Records and node contexts, for the processors."""

from __future__ import annotations

from typing import Any

from aggregator.inputs.node_context import JobState, NodeContext, PodState
from aggregator.processors.chains import ChainContext, DeviceResult, process_device
from aggregator.processors.state_types import NO_DEVICE_STATE, DeviceState
from contract.documents import device_info
from contract.documents.cluster_device import DeviceRecord, device_record
from contract.go import encode as go_json
from tests.contract.documents.node_documents import KEY, config, fault, names

T = 1_760_000_000_000
"""A wall time in milliseconds."""

NODE = "node1"

SHIPPED_POLICY = """\
enabled: true
separate:
  fault_window_hours: 24
  fault_threshold: 3
release:
  fault_free_hours: 48
"""


def chip(number: int) -> str:
    return f"Ascend910-{number}"


def one(number: int, level: str, code: str, time_ms: int = T, kind: str = "Card") -> dict[str, Any]:
    """Return a fault object with one code."""
    return fault(number, level, code, {code: (time_ms, level)}, kind)


def record(*faults: dict[str, Any], **lists: Any) -> DeviceRecord:
    """Return the record of a node that has ``faults``."""
    return device_record(device_info.decode(config(faults, **lists), "x"))


def record_of(free: Any, faults: Any = (), **lists: Any) -> DeviceRecord:
    """Return a record with every list as it is given, by chip numbers."""
    devices = {
        KEY: names(free),
        f"{KEY}-Fault": go_json.encode(list(faults)),
        f"{KEY}-NetworkUnhealthy": names(lists.get("network", ())),
        f"{KEY}-Recovering": names(lists.get("recovering", ())),
        f"{KEY}-Unhealthy": names(lists.get("unhealthy", ())),
    }
    return device_record(device_info.decode(config(devices=devices), "x"))


def pod(*numbers: int, job: str = "job1", uid: str = "", **labels: str) -> PodState:
    chips = tuple(map(chip, numbers))
    return PodState(uid or f"pod-of-{job}", NODE, job=job, chips=chips, labels=labels)


def node_context(*pods: PodState, **annotations: str) -> NodeContext:
    """Return the context of a node with ``pods``; ``annotations`` (``codes``, ``levels``) are
    ``job1``'s.
    """
    full = {
        f"huawei.com/schedule.filter.fault{name.title()}": text
        for name, text in annotations.items()
    }
    full = {name.replace("Codes", "Code").replace("Levels", "Level"): t for name, t in full.items()}
    jobs = {
        one.job: JobState(one.job, annotations=full if one.job == "job1" else {}) for one in pods
    }
    used = frozenset(name for one in pods for name in one.chips)
    return NodeContext(used=used, pods=pods, jobs=jobs)


def process(
    reported: DeviceRecord,
    now_ms: int = T,
    known: NodeContext | None = None,
    state: DeviceState = NO_DEVICE_STATE,
    **context: Any,
) -> DeviceResult:
    """Run ``reported`` through the device chain."""
    return process_device(
        NODE, reported, state, ChainContext(known or node_context(), **context), now_ms
    )


def codes(done: DeviceRecord) -> list[str]:
    """Return the published codes by chip."""
    return [f"{one.chip.removeprefix('Ascend910-')}:{one.code}" for one in done.faults]


def numbers(chips: tuple[str, ...]) -> list[int]:
    return [int(name.removeprefix("Ascend910-")) for name in chips]


def policy_text(
    enabled: str = "true", window: object = 24, threshold: object = 3, free: object = 48
) -> str:
    return (
        f"enabled: {enabled}\nseparate: {{fault_window_hours: {window},"
        f" fault_threshold: {threshold}}}\nrelease: {{fault_free_hours: {free}}}"
    )
