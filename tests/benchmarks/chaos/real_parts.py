"""Real parts play plans: agents on hosts that lose power, aggregators, and a directory.

``make chaos`` runs it: programs that start take more processor time than the other tests may.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import msgspec
import pytest

from benchmarks.chaos.judge import Wrong
from benchmarks.chaos.outcome import Kept, NotPlayed, Outcome
from benchmarks.chaos.plan import CODES, Plan, PlannedFault, PlannedTrouble
from benchmarks.chaos.planning import read_plan
from benchmarks.chaos.real import play_real
from benchmarks.chaos.site import DirectoryPlatform, Site
from dcmi_shim.emulator.install import install
from tests.parts.tree import ROOT

if TYPE_CHECKING:
    from pathlib import Path

PLAN = Plan(
    *("directory", 1, 14.0),
    faults=(
        PlannedFault("node-1", 0, CODES[0], 0.5),
        PlannedFault("node-1", 1, CODES[1], 1.0, once=True),
        PlannedFault("node-2", 2, CODES[1], 3.2),
        PlannedFault("node-1", 3, CODES[2], 3.5, 8.0),
    ),
    troubles=(
        PlannedTrouble("power-lost", "node-1", 0.2, 4.0),
        PlannedTrouble("aggregator-clock-ahead", "aggregator-1", 2.0, 6.0),
        PlannedTrouble("driver-crashes", "node-2", 3.0, 4.0),
    ),
)


AGENTS = msgspec.structs.replace(
    PLAN,
    seconds=20.0,
    troubles=(
        PlannedTrouble("journal-truncated", "node-1", 4.0, 6.0),
        PlannedTrouble("second-agent", "node-2", 2.0, 12.0),
        PlannedTrouble("agent-memory-limited", "node-1", 13.0, 15.0),
    ),
)


@pytest.mark.parametrize("plan", [PLAN, AGENTS], ids=["hosts", "agents"])
def test_a_plan_of_real_parts_is_right_and_proved(tmp_path: Path, plan: Plan) -> None:
    outcomes: list[Outcome | NotPlayed] = []
    play_real([plan], outcomes.append, Kept(tmp_path / "kept", None), workers=1)
    (outcome,) = outcomes
    assert isinstance(outcome, Outcome)
    assert outcome.texts == []
    assert outcome.plan == plan
    assert outcome.faults == len(plan.faults)
    assert outcome.one_off_seconds[0] >= 5.0
    # The journal may have lost that a fault began a moment before the power was lost.
    assert outcome.proved >= len(plan.faults) - 1
    assert (outcome.is_proved, outcome.gaps) == (True, {})
    assert outcome.processor_seconds > 1.0
    assert not (tmp_path / "kept").exists(), "nothing is wrong"


def test_a_deletion_on_a_broker_that_is_assumed_at_once_is_found(tmp_path: Path) -> None:
    plan, outcomes = read_plan(ROOT / "tests/chaos/real/mqtt.json"), list[Outcome | NotPlayed]()
    play_real([plan], outcomes.append, Kept(None, "a deletion assumed at once"), workers=1)
    (outcome,) = outcomes
    assert isinstance(outcome, Outcome)
    assert outcome.wrong == [Wrong.MISSING]


@pytest.fixture
def platform(tmp_path: Path) -> DirectoryPlatform:
    install(tmp_path / "driver", tmp_path / "emulator", "a2")
    return DirectoryPlatform(tmp_path)


def test_a_program_that_does_not_come_up_is_an_error_of_its_episode(
    tmp_path: Path, platform: DirectoryPlatform
) -> None:
    with closing(Site(tmp_path, tmp_path, platform, program="no_such_program")) as site:
        site.play(PLAN)
    ((kind, text),) = site.errors
    assert kind == "a program did not come up"
    assert "no_such_program" in text


@pytest.mark.parametrize("trouble", ["driver-crashes", "disk-full"])
def test_an_agent_that_ended_by_itself_is_an_error_of_the_episode(
    tmp_path: Path, platform: DirectoryPlatform, trouble: str
) -> None:
    with closing(Site(tmp_path, tmp_path, platform)) as site:
        site.play(Plan("directory", 1, 0.5, (), ()))
        assert site.errors == []
        site.nodes["node-1"].kill()
        troubles = (PlannedTrouble(trouble, "node-1", 0.2, 0.4),)
        site.play(Plan("kubernetes", 2, 0.5, (), troubles))
    assert [kind for kind, _ in site.errors] == ["a program ended"]


def test_what_is_still_to_be_lost_ends_with_its_episode(
    tmp_path: Path, platform: DirectoryPlatform
) -> None:
    with closing(Site(tmp_path, tmp_path, platform)) as site:
        troubles = (PlannedTrouble("event-lost", "node-1", 0.2, 0.4),)
        site.play(Plan("directory", 1, 0.5, (), troubles))
        assert site.errors == []
        status = site.nodes["node-1"].emulator.status()
    assert status["losing_events"] == 0
