"""Recordings with one write that is wrong: the whole agent in shadow names chip and field."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from contract.pages.agent_status import WriteResult
from tests.agent.shadow.documents import MUTATIONS, taken_apart, written
from tests.agent.shadow.player import compare
from tests.parts.examples import mostly_slow
from tests.replay.player import recorded

REST_MS, END_MS = 9_000, 16_000
"""How long after the last change the wrong write comes, and the next right one."""
FREQUENCY = ("frequency-manual-operator-release", 13_200)
REASONS = ("upgrade-fault-reason-two-chips", 20_150)
SWITCH = ("switch-level-escalation", 17_100)
TWO_PLANES = ("network-and-chip-fault-on-one-chip", 10_200)
"""Recordings and up to when they are played: faults hold then."""

CASES = [
    *(("wrong_code_level", REASONS), ("wrong_entry_level", TWO_PLANES)),
    *(("code_missing", TWO_PLANES), ("code_too_much", FREQUENCY)),
    *(("fault_missing", REASONS), ("wrong_plane", TWO_PLANES), ("not_free", SWITCH)),
    *(("free_and_unhealthy", FREQUENCY), ("not_unhealthy", FREQUENCY)),
    *(("network_unhealthy", TWO_PLANES), ("not_named", FREQUENCY), ("another_named", FREQUENCY)),
    *(("reason_missing", REASONS), ("wrong_kind_of_reason", FREQUENCY)),
    *(("wrong_switch_level", SWITCH), ("wrong_switch_status", SWITCH)),
    *(("switch_fault_missing", SWITCH), ("wrong_order", SWITCH)),
]


def test_every_kind_of_mistake_is_known() -> None:
    assert len(CASES) >= 10
    assert {name for name, _ in CASES} <= MUTATIONS.keys()


@pytest.mark.looptime(resolution=2**-20)
@pytest.mark.parametrize("case", mostly_slow(CASES, 6), ids=[name for name, _ in CASES])
async def test_mutation_is_reported_as_a_difference(case: tuple[str, tuple[str, int]]) -> None:
    name, (played, until_ms) = case
    recording = recorded(played)
    rows: list[dict[str, Any]] = [
        row for row in recording["observed"] if "data" in row and row["at_ms"] <= until_ms
    ]
    last = rows[-1]["data"]
    tree = taken_apart(last)
    assert written(tree).data == last, "only the mistake is changed"
    place = MUTATIONS[name](tree, Random(5))
    tree["DeviceInfoCfg"]["DeviceInfo"]["UpdateTime"] += REST_MS // 1000
    wrong = {"at_ms": until_ms + REST_MS, "data": written(tree).data}
    right = {"at_ms": until_ms + END_MS, "data": last}
    steps = [step for step in recording["steps"] if step["at_ms"] <= until_ms]
    rows += [wrong, right, {"at_ms": until_ms + END_MS + 1_000}]
    compared = await compare(recording | {"steps": steps, "observed": rows})
    wrong_ms = recording["started_ms"] + wrong["at_ms"]
    first = compared.of_the_plugin()[0]
    assert first.place.startswith(place)
    assert first.result is WriteResult.DIFFERENT
    assert abs(first.since_ms - wrong_ms) <= 2
    assert first.over_at_ms is not None
    assert compared.status.writes[WriteResult.DIFFERENT] == 1
