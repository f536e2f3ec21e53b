"""Compares what two programs published when the same happened: state by state, in their order."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from contract.codes.chip_codes import CARD_DROP
from contract.documents.device_info import decode
from contract.documents.vigil_key import VIGIL_KEY, decode_vigil_key
from tests.compatibility import ABSENT, PRESENT, Difference, different
from tests.parts.deadlines import patience
from tests.replay.player import OPERATOR, Shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


FAULT_TIME_TOLERANCE_MS = 250
QUERIED_MS = 1_000
"""How much later than ours upstream's times of what it found by a query can be: one cycle."""
FIRST_LOOK_MS = 5_500
"""The same at a start: its first look at the chips."""
EARLIER_SECONDS = 7
"""How much earlier than upstream ours can be by upstream's cycles alone (1 s and 5 s)."""
ONCE_SECONDS = 5.6
"""How long ours shows a one-off event; upstream does until its next 5 s cycle."""
HEALTH_SECONDS = 5.0
"""How often both ask for the health words, which show a dropped card, while there is no event.

After an event both ask at once.
"""
_EVENTS = ("occur", "recover", "once")
CYCLE_MS = 1_000
"""Upstream writes what changes within one cycle together; ours may write it piece by piece."""
_INSIDE = ("DeviceInfoCfg", "SwitchInfoCfg", "UpgradeFaultReason")
_FIRST_TIME_MS = 1_500_000_000_000
_GAP_COST = 12.0
"""What a state that only one of both has costs; a pair costs 1 per difference."""
_NO_PAIR = 1_000.0


@dataclass(frozen=True)
class StateAt:
    """What the store had from ``at_ms`` on, as one tree without what varies from run to run."""

    at_ms: int
    by: str
    tree: Any


def parsed(shown: Shown) -> Any:
    """Return the document as one tree, without what varies from run to run.

    The check code is no part of it: ``decode`` has proved it right. ``UpdateTime`` must be a stamp.
    Our own data key, which upstream does not have, is read by its codec and left out. An operator's
    edit changes what is stored, so it is only marked as done.
    """
    if shown.by == OPERATOR:
        return {"by": OPERATOR, "deleted": shown.data is None}
    assert shown.data is not None, "nobody else deletes it"
    tree: dict[str, Any] = {"labels": shown.labels} | dict(sorted(shown.data.items()))
    decode(shown.data, "recording")
    own_key = tree.pop(VIGIL_KEY, None)
    if own_key is not None:
        record = decode_vigil_key(own_key, "recording")
        assert record.blind or record.faults
    for key in _INSIDE:
        if key in tree:
            tree[key] = json.loads(tree[key])
    inner = tree["DeviceInfoCfg"]["DeviceInfo"]
    tree["DeviceInfoCfg"]["CheckCode"] = "right"
    for stamped in (inner, tree.get("SwitchInfoCfg")):
        if stamped is not None:
            assert isinstance(stamped["UpdateTime"], int)
            stamped["UpdateTime"] = "a stamp"
    if "SwitchInfoCfg" in tree:
        switch = tree["SwitchInfoCfg"]
        switch["FaultCode"] = [json.loads(event) for event in switch["FaultCode"]]
    devices = inner["DeviceList"]
    for key in devices:
        if key.endswith("-Fault"):
            devices[key] = json.loads(devices[key])
    return _moved(tree, shown.ahead_ms)


def _moved(tree: Any, ahead_ms: int) -> Any:
    """Return the tree with all its times in milliseconds ``ahead_ms`` earlier."""
    if ahead_ms == 0:
        return tree
    if isinstance(tree, dict):
        return {key: _moved(value, ahead_ms) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_moved(value, ahead_ms) for value in tree]
    is_time = isinstance(tree, int) and tree > _FIRST_TIME_MS
    return tree - ahead_ms if is_time else tree


def real_plugin(recording: dict[str, Any]) -> list[Shown]:
    """Return the documents that the real program published, in order of time."""
    shown: list[Shown] = []
    labels: dict[str, str] = {}
    for row in recording["observed"]:
        if "data" in row or "deleted" in row:
            labels = row.get("labels", labels)
            shown.append(Shown(row["at_ms"], row.get("data"), labels, row.get("by", "plugin")))
    return shown


def states(shown: Sequence[Shown]) -> list[StateAt]:
    """Return the successive states; a refresh without a change is no new state."""
    found: list[StateAt] = []
    for one in shown:
        tree = parsed(one)
        if not found or tree != found[-1].tree or one.by == OPERATOR:
            found.append(StateAt(one.at_ms, one.by, tree))
    return found


def compared(
    recording: dict[str, Any], shown: Sequence[Shown], *, for_real: bool = False
) -> list[Difference]:
    """Return the differences between our documents ``shown`` and those of the real program.

    With ``for_real``, the recording was played in real time on a shared machine. Then the start of
    a process may take longer, and upstream's phase of 1 s does not count. It grows as deadlines do.
    """
    slack_ms = round(patience(CYCLE_MS)) if for_real else 0
    steps = recording["steps"]

    def later_ms(theirs: StateAt) -> float:
        return slack_ms + _may_be_later_ms(steps, theirs.at_ms)

    upstream = states(real_plugin(recording))
    found = differences(upstream, states(shown), later_ms=later_ms, slack_ms=slack_ms)
    return [one for one in found if not (for_real and one.path == "$[0] (time)")]


def _may_be_later_ms(steps: Sequence[dict[str, Any]], at_ms: int) -> float:
    """Return how much later than upstream's state of ``at_ms`` ours may come (ms)."""
    if any(step["do"] == "once" for step in steps):
        return ONCE_SECONDS * 1000
    looks = [step["at_ms"] for step in steps if step["do"] in ("drop", "return")]
    looked_ms = max((one for one in looks if one <= at_ms), default=None)
    if looked_ms is None or looked_ms < at_ms - HEALTH_SECONDS * 1000 - CYCLE_MS:
        return 0
    is_beside_event = any(
        step["do"] in _EVENTS and looked_ms - CYCLE_MS <= step["at_ms"] <= at_ms for step in steps
    )
    return 0 if is_beside_event else HEALTH_SECONDS * 1000


def differences(
    upstream: Sequence[StateAt],
    ours: Sequence[StateAt],
    *,
    later_ms: Callable[[StateAt], float] = lambda _: 0.0,
    slack_ms: int = 0,
) -> Iterator[Difference]:
    """Yield the differences between two sequences of states, with the paths of upstream's states.

    ``$[2]`` is upstream's state 2; a state that only ours has follows it: ``$[2+1]``. The pairs are
    those with the fewest differences. A state that only one has is compared with the other's state
    at that time. A state of ours may be later than upstream's by ``later_ms`` of it; its times may
    differ by ``slack_ms`` more.
    """
    at_start = _at_start(upstream)

    def contents(theirs: StateAt, mine: StateAt, path: str) -> list[Difference]:
        if OPERATOR in (theirs.by, mine.by):
            return list(different(theirs.tree, mine.tree, path))
        tree = _with_times_of(theirs.tree, mine.tree, at_start, FAULT_TIME_TOLERANCE_MS + slack_ms)
        return list(different(theirs.tree, tree, path))

    def alone(state: StateAt, others: Sequence[StateAt], path: str) -> Iterator[Difference]:
        """Yield the differences at a time at which the other program does not have ``state``."""
        is_ours = others is upstream
        other = next((one for one in reversed(others) if one.at_ms <= state.at_ms), None)
        found = []
        if other is not None and OPERATOR not in (state.by, other.by):
            found = contents(*((other, state) if is_ours else (state, other)), path)
        whole = Difference(path, ABSENT, PRESENT) if is_ours else Difference(path, PRESENT, ABSENT)
        yield from found or [whole]

    def is_late(theirs: StateAt, mine: StateAt) -> bool:
        return mine.at_ms - theirs.at_ms > later_ms(theirs)

    @cache
    def pair(i: int, j: int) -> tuple[Difference, ...]:
        path = f"$[{i}]"
        theirs, mine = upstream[i], ours[j]
        found = contents(theirs, mine, path)
        if OPERATOR in (theirs.by, mine.by):
            return tuple(found)
        seconds = (mine.at_ms - theirs.at_ms) / 1000
        if is_late(theirs, mine) or seconds < -EARLIER_SECONDS:
            how = f"{seconds:.0f} s later" if seconds > 0 else f"over {EARLIER_SECONDS} s earlier"
            found.append(Difference(f"{path} (time)", "in time", how))
        return tuple(found)

    def weight(i: int, j: int) -> float:
        """Return the cost of a pair of states.

        An operator's state pairs with nothing else. A late and different state pairs with nothing:
        it may be another state. Neither does a brief, different state on the way to the next one:
        upstream wrote the next one at once.
        """
        theirs, mine, found = upstream[i], ours[j], pair(i, j)
        is_strange = found and (OPERATOR in (theirs.by, mine.by) or _is_brief(ours, j))
        if is_strange or (len(found) > 1 and is_late(theirs, mine)):
            return _NO_PAIR
        return len(found)

    def extra(j: int) -> float:
        """Return the cost of a state that only ours has; a brief one before the next is free."""
        return 0.0 if _is_brief(ours, j) else _GAP_COST

    @cache
    def cost(i: int, j: int) -> float:
        if i == len(upstream) or j == len(ours):
            return (len(upstream) - i) * _GAP_COST + sum(map(extra, range(j, len(ours))))
        return min(
            weight(i, j) + cost(i + 1, j + 1),
            _GAP_COST + cost(i + 1, j),
            extra(j) + cost(i, j + 1),
        )

    i = j = more = 0
    while i < len(upstream) or j < len(ours):
        both = i < len(upstream) and j < len(ours)
        if both and cost(i, j) == weight(i, j) + cost(i + 1, j + 1):
            yield from pair(i, j)
            i, j, more = i + 1, j + 1, 0
        elif i < len(upstream) and cost(i, j) == _GAP_COST + cost(i + 1, j):
            yield from alone(upstream[i], ours, f"$[{i}]")
            i, more = i + 1, 0
        else:
            if not _is_brief(ours, j):
                more += 1
                yield from alone(ours[j], upstream, f"$[{i - 1}+{more}]")
            j += 1


def _is_brief(ours: Sequence[StateAt], j: int) -> bool:
    """Return whether a state lasts within a cycle and differs from the states before and after."""
    if j + 1 == len(ours) or ours[j + 1].at_ms - ours[j].at_ms >= CYCLE_MS:
        return False
    if j == 0:
        return True  # the chips answer one after the other
    before, now, after = ours[j - 1 : j + 2]
    if OPERATOR in (before.by, now.by, after.by):
        return False
    return _names(now.tree) <= _names(before.tree) | _names(after.tree)


def _names(tree: Any) -> set[str]:
    """Return a set of texts: chips with their lists, codes with levels, reasons, switch faults."""
    devices = tree["DeviceInfoCfg"]["DeviceInfo"]["DeviceList"]
    listed = {key: text.split(",") for key, text in devices.items() if not key.endswith("-Fault")}
    listed["isolated"] = tree["ManuallySeparateNPU"].split(",")
    shown = {f"{key} {name}" for key, names in listed.items() for name in names if name}
    for fault in _faults(tree):
        for code, entry in fault["fault_time_and_level_map"].items():
            shown.add(f"{fault['npu_name']} {fault['fault_type']} {code} {entry}")
    for name, reasons in tree["UpgradeFaultReason"].items():
        shown.update(f"{name} {reason}" for reason in reasons)
    shown.update(map(str, tree.get("SwitchInfoCfg", {}).get("FaultCode", ())))
    return shown


def _at_start(upstream: Sequence[StateAt]) -> frozenset[tuple[str, str]]:
    """Return device and code of each fault at the start; its time is that of the first reading."""
    first = next((state.tree for state in upstream if state.by != OPERATOR), None)
    return frozenset(
        (fault["npu_name"], code)
        for fault in ([] if first is None else _faults(first))
        for code in fault["fault_time_and_level_map"]
    )


def _with_times_of(
    upstream: Any, mine: Any, at_start: frozenset[tuple[str, str]], tolerance_ms: int
) -> Any:
    """Return ``mine`` with upstream's times where they differ by no more than the tolerance."""
    ours = json.loads(json.dumps(mine))
    theirs_by_name = {(one["npu_name"], one["fault_type"]): one for one in _faults(upstream)}
    for other in _faults(ours):
        one = theirs_by_name.get((other["npu_name"], other["fault_type"]))
        if one is None:
            continue
        times, our_times = one["fault_time_and_level_map"], other["fault_time_and_level_map"]
        for code in times.keys() & our_times.keys():
            theirs, our_time = times[code]["fault_time"], our_times[code]["fault_time"]
            earlier = FIRST_LOOK_MS if (one["npu_name"], code) in at_start else QUERIED_MS
            later = 0
            if code == CARD_DROP:
                earlier = later = round(HEALTH_SECONDS * 1000)
            first, last = -tolerance_ms - earlier, tolerance_ms + later
            if first <= our_time - theirs <= last:
                our_times[code]["fault_time"] = theirs
        if times == our_times and _codes(one) == _codes(other):
            # Whose order varies where they arrive within a few ms.
            other["fault_code"] = one["fault_code"]
    reasons, our_reasons = upstream["UpgradeFaultReason"], ours["UpgradeFaultReason"]
    for name in reasons.keys() & our_reasons.keys():
        for reason, our_reason in zip(reasons[name], our_reasons[name], strict=False):
            if abs(reason["upgrade_time"] - our_reason["upgrade_time"]) <= tolerance_ms:
                our_reason["upgrade_time"] = reason["upgrade_time"]
    _close_switch_times(upstream, ours, tolerance_ms)
    return ours


def _codes(fault: Any) -> list[str]:
    return sorted(fault["fault_code"].split(","))


def _close_switch_times(upstream: Any, ours: Any, tolerance_ms: int) -> None:
    """Replace our times of switch faults that are within the tolerance by upstream's.

    They are in the event's text, too.
    """
    theirs, mine = upstream.get("SwitchInfoCfg"), ours.get("SwitchInfoCfg")
    if theirs is None or mine is None:
        return
    pairs = list(zip(theirs["FaultCode"], mine["FaultCode"], strict=False))
    for key in theirs["FaultTimeAndLevelMap"].keys() & mine["FaultTimeAndLevelMap"].keys():
        pairs.append((theirs["FaultTimeAndLevelMap"][key], mine["FaultTimeAndLevelMap"][key]))
    for one, other in pairs:
        for member in ("AlarmRaisedTime", "fault_time"):
            if member in one and abs(one[member] - other[member]) <= tolerance_ms:
                other[member] = one[member]


def _faults(tree: Any) -> list[Any]:
    devices = tree["DeviceInfoCfg"]["DeviceInfo"]["DeviceList"]
    return [fault for key, faults in devices.items() if key.endswith("-Fault") for fault in faults]
