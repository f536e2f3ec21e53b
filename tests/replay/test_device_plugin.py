"""Recordings of the real device plugin, played through ours: the same documents, never later."""

from __future__ import annotations

import json
from typing import Any

import pytest

from contract.device_info import decode
from tests.compatibility import check, different
from tests.replay.player import Shown, play, recorded
from tests.vectors import VECTORS

RECORDINGS = sorted(path.stem for path in (VECTORS / "device-plugin/recordings").glob("*.json"))
FAULT_TIME_TOLERANCE_MS = 250
FIRST_LOOK_MS = 5_500
"""How much later than ours upstream's first look at the chips after a start can be."""
_INSIDE = ("DeviceInfoCfg", "SwitchInfoCfg", "UpgradeFaultReason")


def parsed(shown: Shown) -> Any:
    """The document as one tree, without what varies from run to run.

    The check code is no part of it: ``decode`` has proved it right. ``UpdateTime`` must be a stamp
    close to the time of the write.
    """
    decode(shown.data, "recording")
    tree: dict[str, Any] = {"labels": shown.labels} | dict(sorted(shown.data.items()))
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
    return tree


def close_times_equal(upstream: Any, ours: Any, at_start: frozenset[tuple[str, str]]) -> None:
    """Give our fault times upstream's value where they are the same but for the tolerance.

    What was there ``at_start`` (device and code) has the time of the first look at it.
    """
    for one, other in zip(_faults(upstream), _faults(ours), strict=False):
        times, our_times = one["fault_time_and_level_map"], other["fault_time_and_level_map"]
        for code in times.keys() & our_times.keys():
            theirs, mine = times[code]["fault_time"], our_times[code]["fault_time"]
            earlier = FIRST_LOOK_MS if (one["npu_name"], code) in at_start else 0
            if -FAULT_TIME_TOLERANCE_MS - earlier <= mine - theirs <= FAULT_TIME_TOLERANCE_MS:
                our_times[code]["fault_time"] = theirs
    reasons, our_reasons = upstream["UpgradeFaultReason"], ours["UpgradeFaultReason"]
    for name in reasons.keys() & our_reasons.keys():
        for reason, our_reason in zip(reasons[name], our_reasons[name], strict=False):
            if abs(reason["upgrade_time"] - our_reason["upgrade_time"]) <= FAULT_TIME_TOLERANCE_MS:
                our_reason["upgrade_time"] = reason["upgrade_time"]


def close_switch_times_equal(upstream: Any, ours: Any) -> None:
    """The same for the times of switch faults, which are inside of the event's text, too."""
    theirs, mine = upstream.get("SwitchInfoCfg"), ours.get("SwitchInfoCfg")
    if theirs is None or mine is None:
        return
    pairs = list(zip(theirs["FaultCode"], mine["FaultCode"], strict=False))
    for key in theirs["FaultTimeAndLevelMap"].keys() & mine["FaultTimeAndLevelMap"].keys():
        pairs.append((theirs["FaultTimeAndLevelMap"][key], mine["FaultTimeAndLevelMap"][key]))
    for one, other in pairs:
        for member in ("AlarmRaisedTime", "fault_time"):
            if member in one and abs(one[member] - other[member]) <= FAULT_TIME_TOLERANCE_MS:
                other[member] = one[member]


def _faults(tree: Any) -> list[Any]:
    devices = tree["DeviceInfoCfg"]["DeviceInfo"]["DeviceList"]
    return [fault for key, faults in devices.items() if key.endswith("-Fault") for fault in faults]


def distinct(shown: list[Shown]) -> list[tuple[int, Any]]:
    """The states that follow one another, with their times; a refresh is none."""
    states: list[tuple[int, Any]] = []
    for one in shown:
        tree = parsed(one)
        if not states or tree != states[-1][1]:
            states.append((one.at_ms, tree))
    return states


def real_plugin(recording: dict[str, Any]) -> list[Shown]:
    shown: list[Shown] = []
    labels: dict[str, str] = {}
    for row in recording["observed"]:
        labels = row.get("labels", labels)
        shown.append(Shown(row["at_ms"], row["data"], labels))
    return shown


@pytest.mark.looptime(resolution=2**-20)  # a binary fraction: sums of times stay exact
@pytest.mark.parametrize("name", RECORDINGS)
async def test_recording(name: str) -> None:
    recording = recorded(name)
    played = await play(recording)
    stamps = [decode(one.data, name).update_time for one in played]
    assert stamps == sorted(set(stamps)), "readers drop what is not newer"
    upstream, ours = distinct(real_plugin(recording)), distinct(played)
    at_start = frozenset(
        (fault["npu_name"], code)
        for fault in _faults(upstream[0][1])
        for code in fault["fault_time_and_level_map"]
    )
    for (at_ms, theirs), (our_at_ms, mine) in zip(upstream, ours, strict=False):
        close_times_equal(theirs, mine, at_start)
        close_switch_times_equal(theirs, mine)
        assert mine != theirs or our_at_ms <= at_ms, "a state later than upstream's"
    found = different([tree for _, tree in upstream], [tree for _, tree in ours])
    check(f"device-plugin/{name}", found)
