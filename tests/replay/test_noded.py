"""Recordings of the real NodeD, played through ours: the same document at every resting point."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from contract.node_info import decode_node_info
from tests.compatibility import ABSENT, check, different
from tests.replay.node import NodePlayer, recorded_node, time_zone
from tests.vectors import VECTORS

RECORDINGS = sorted(path.stem for path in (VECTORS / "noded/recordings").glob("*.json"))


def parsed(data: dict[str, str], labels: dict[str, str]) -> Any:
    """The document as one tree, without what varies from run to run.

    That is the time, of which the offset stays, the order of the devices, and with it the check
    code, which ``decode_node_info`` has proved right.
    """
    tree: dict[str, Any] = {"labels": labels} | dict(sorted(data.items()))
    tree["updateTime"] = f"a time{data['updateTime'][19:]}"
    if data["NodeInfo"] == "{}":
        return tree  # an operator's nonsense
    assert decode_node_info("recording", data).update_time_ms
    tree["NodeInfo"] = outer = json.loads(data["NodeInfo"])
    outer["CheckCode"] = "right"
    outer["NodeInfo"]["FaultDevList"].sort(key=lambda one: (one["DeviceType"], one["DeviceId"]))
    return tree


def upstream_at(recording: dict[str, Any], at_ms: int) -> Any:
    """What the store had at ``at_ms`` with the real program."""
    shown = [row for row in recording["observed"] if row["at_ms"] <= at_ms]
    if not shown or "data" not in shown[-1]:
        return ABSENT
    return parsed(shown[-1]["data"], shown[-1]["labels"])


@pytest.mark.looptime(resolution=2**-20)
@pytest.mark.parametrize("name", RECORDINGS)
async def test_recording(name: str) -> None:
    recording = recorded_node(name)
    start = next(do for do in recording["steps"] if do["do"] == "start-agent")
    moments = [do["at_ms"] for do in recording["steps"]] + [recording["end_ms"]]
    with time_zone(start.get("environment", {}).get("TZ")):
        player = NodePlayer(start["node_name"])
        for do, (at_ms, next_ms) in zip(recording["steps"], pairwise(moments), strict=True):
            await player.until(at_ms)
            await player.do(do)
            if next_ms - at_ms < 100:
                continue  # the next step belongs to this one
            # Just before the next step, which is noted when it is done, up to 30 ms later.
            await player.until(next_ms - 40)
            document = player.document
            ours = ABSENT if document is None else parsed(document.data, document.labels)
            found = different(upstream_at(recording, next_ms - 40), ours)
            check(f"noded/{name}@{next_ms}", found)
        await player.stop()
