"""What makes each query of the dashboards change its answer."""

from __future__ import annotations

import enum
import math
from typing import TYPE_CHECKING, NamedTuple

from contract.codes.catalogue import shipped
from contract.codes.chip_codes import LINK_DOWN, NETWORK_FAULT_CODES
from contract.codes.levels import ChipLevel

if TYPE_CHECKING:
    from collections.abc import Mapping

CALL = "dcmi_get_device_errorcode_v2"
SEPARATING = next(
    code
    for code, level in sorted(shipped().chip_levels.items())
    if level == ChipLevel.SEPARATE_NPU and len(code) == 8 and code not in NETWORK_FAULT_CODES
)
"""A code that a driver reports, and that separates its chip."""
CHIP, LINK_CHIP, HANGING_CHIP, DROPPED_CHIP, LATE_CHIP = range(5)
AHEAD, OTHER = "node-2", "node-3"
"""A node with another time, and one with a fault of an on-board switch."""


class Cause(enum.Enum):
    """What the test does; the value is its text in the document."""

    FAULT = "a chip has a fault that separates it"
    POD = "a pod of a job uses that chip"
    LINK = "a link is down"
    HANG = "a driver call does not return"
    DROP = "a chip gives no answer"
    BMC = "the BMC raises an alarm"
    SWITCH = "a node reports a fault of a switch"
    PUBLIC = "another program reports a public fault"
    CONFIGURATION = "the fault configuration is not valid"
    CLOCK = "a second node sends heartbeats that are an hour ahead"
    JOURNAL = "the disk of the agent is full"
    STRANGER = "another program writes a document of the cluster"
    REFUSED = "the API server refuses documents when a fault begins"
    SLOW = "the API server delays a document when a fault begins"
    AWAY = "the API server cannot be reached"
    KILLED = "the agent is killed"
    NO_LEADER = "the aggregator ends"


class Case(NamedTuple):
    """A sample that a query has after its cause, and not before; limits include themselves."""

    cause: Cause
    labels: Mapping[str, str] = {}
    low: float = -math.inf
    high: float = math.inf


_DROPPED = f"Ascend910-{DROPPED_CHIP}"
_NAMED = {"code": SEPARATING, "level": "SeparateNPU"}

CASES: dict[tuple[str, str, str], Case] = {
    ("fleet", "alive", "A"): Case(Cause.CLOCK, low=2),
    ("fleet", "lost", "A"): Case(Cause.KILLED, low=1),
    ("fleet", "blind", "A"): Case(Cause.HANG, low=1),
    ("fleet", "separated", "A"): Case(Cause.FAULT, low=1),
    ("fleet", "jobs", "A"): Case(Cause.POD, low=1),
    ("fleet", "stores", "A"): Case(Cause.AWAY, low=1),
    ("fleet", "alerts", "A"): Case(Cause.FAULT, {"alertname": "NpuVigilChipSeparated"}, 1),
    ("fleet", "faults", "A"): Case(Cause.FAULT, _NAMED | {"node": "node-1", "subject": "chip 0"}),
    ("fleet", "levels", "A"): Case(Cause.FAULT, {"level": "SeparateNPU"}, 1),
    ("fleet", "episodes", "A"): Case(Cause.FAULT, {"level": "SeparateNPU"}, 0.5),
    ("fleet", "parts", "A"): Case(Cause.BMC, low=1),
    ("fleet", "parts", "B"): Case(Cause.SWITCH, {"level": "Separate"}, 1),
    ("fleet", "parts", "C"): Case(Cause.PUBLIC, low=1),
    ("fleet", "heartbeats", "A"): Case(Cause.KILLED, {"node": "node-1"}, 4),
    ("fleet", "sources", "A"): Case(Cause.DROP, {"node": "node-1", "chip": _DROPPED}),
    ("node", "beat", "A"): Case(Cause.AWAY, low=4),
    ("node", "active", "A"): Case(Cause.FAULT, low=1),
    ("node", "silent", "A"): Case(Cause.DROP, low=1),
    ("node", "used", "A"): Case(Cause.POD, low=1),
    ("node", "faults", "A"): Case(Cause.FAULT, _NAMED | {"subject": "chip 0"}),
    ("node", "health", "A"): Case(Cause.FAULT, {"chip": str(CHIP)}, 2, 3),
    ("node", "links", "A"): Case(Cause.LINK, {"chip": str(LINK_CHIP)}, 0, 0),
    ("node", "sources", "A"): Case(Cause.HANG, {"chip": str(HANGING_CHIP)}, 1),
    ("node", "calls", "A"): Case(Cause.HANG, low=1),
    ("node", "rules", "A"): Case(Cause.LINK, {"chip": str(LINK_CHIP), "code": LINK_DOWN}, 1),
    ("node", "episodes", "A"): Case(Cause.FAULT, {"level": "SeparateNPU"}, 0.5),
    ("node", "lag", "A"): Case(Cause.REFUSED, {"document": "node-info"}, 2),
    ("node", "gaps", "A"): Case(Cause.HANG, low=0.5),
    ("watcher", "leaders", "A"): Case(Cause.NO_LEADER, high=0),
    ("watcher", "agents", "A"): Case(Cause.KILLED, low=1),
    ("watcher", "beats", "A"): Case(Cause.AWAY, low=1),
    ("watcher", "journals", "A"): Case(Cause.JOURNAL, low=1),
    ("watcher", "stores", "A"): Case(Cause.AWAY, high=0),
    ("watcher", "failing", "A"): Case(Cause.REFUSED, low=1),
    ("watcher", "cluster_lag", "A"): Case(Cause.REFUSED, low=2),
    ("watcher", "node_lag", "A"): Case(Cause.REFUSED, {"node": "node-1"}, 2),
    ("watcher", "seconds", "A"): Case(Cause.FAULT, {"le": "+Inf"}, 0.5),
    ("watcher", "writes", "A"): Case(Cause.FAULT, {"result": "acknowledged"}, 0.01),
    ("watcher", "writers", "A"): Case(Cause.STRANGER, low=1),
    ("watcher", "configuration", "A"): Case(Cause.CONFIGURATION, low=1),
    ("watcher", "stalls", "A"): Case(Cause.SLOW, low=1),
    ("watcher", "clocks", "A"): Case(Cause.CLOCK, {"node": AHEAD}, 3000),
}
"""By dashboard, panel and letter of the query."""
