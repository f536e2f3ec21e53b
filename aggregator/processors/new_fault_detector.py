"""Which faults are new, for counting how often a code comes (``docs/spec/clusterd.md#3.9``).

Faults on chips that no job uses do not count. Upstream's design counts them, but its program and
that program's own test do not (clusterd#3.9, B31), and other programs see what the program does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggregator.processors.record_edits import PUBLIC_FAULT
from aggregator.processors.state_types import Occurrence
from contract.codes.levels import ChipLevel

if TYPE_CHECKING:
    from aggregator.inputs.node_context import NodeContext
    from aggregator.processors.state_types import DeviceState, Times
    from contract.documents.cluster_device import DeviceRecord

_NEVER_COUNT = frozenset({ChipLevel.NOT_HANDLE_FAULT.value, ChipLevel.SUB_HEALTH_FAULT.value})
_MANUAL = ChipLevel.MANUALLY_SEPARATE_NPU.value


def new_faults(
    node: str, record: DeviceRecord, state: DeviceState, received: Times, node_context: NodeContext
) -> tuple[dict[str, dict[str, str]], tuple[Occurrence, ...]]:
    """Return the faults that are shown of a node now, and those of them that are new and count.

    No fault is new as long as it is not known which chips are used. Public faults do not count:
    their sender also reports when they end.
    """
    if node_context.used is None:
        return state.seen, ()
    pods = sorted(node_context.pods, key=lambda pod: pod.job, reverse=True)
    jobs = {chip: pod.job for pod in pods if pod.job for chip in pod.chips}
    seen: dict[str, dict[str, str]] = {}
    found = []
    for fault in record.faults:
        if fault.fault_type == PUBLIC_FAULT or fault.code == _MANUAL:
            continue
        codes = seen.setdefault(fault.chip, {})
        if fault.code in codes:
            continue
        codes[fault.code] = fault.level
        known = state.seen.get(fault.chip, {}).get(fault.code) == fault.level
        if known or fault.level in _NEVER_COUNT or fault.chip not in jobs:
            continue
        at_ms = received[fault.chip][fault.code]
        found.append(Occurrence(at_ms, node, fault.chip, fault.code, jobs[fault.chip]))
    return seen, tuple(found)
