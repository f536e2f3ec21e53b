"""Episodes of real parts: kept scripts, and what follows one with something wrong.

There ``StandIn`` takes the place of the programs: the right product has nothing wrong, and
documents that stay wrong take a minute. ``real_parts.py`` plays more on the programs.
"""

from __future__ import annotations

import dataclasses
import os
import threading
from contextlib import closing, suppress
from multiprocessing import Pipe
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import pytest

from benchmarks.chaos import real
from benchmarks.chaos.broker import MqttPlatform
from benchmarks.chaos.excuses import PastTrouble
from benchmarks.chaos.judge import Excuse, Fault, Sample, Wrong
from benchmarks.chaos.outcome import Kept, NotPlayed, Outcome
from benchmarks.chaos.plan import NODES, Plan
from benchmarks.chaos.planning import plan_of, read_plan
from benchmarks.chaos.site import Answers
from benchmarks.chaos.summary import Results
from benchmarks.chaos.troubles import CLUSTER_INFO, DEVICE_INFO, TROUBLES
from tests.parts.controlplane import ControlPlane
from tests.parts.deadlines import wait_until
from tests.parts.places import Cluster
from tests.parts.tree import ROOT

if TYPE_CHECKING:
    from pathlib import Path

SCRIPTS = sorted((ROOT / "tests/chaos/real").glob("*.json"))
MAX_SCRIPTS = 6
PLANS = [plan_of("directory", seed) for seed in range(1, 5)]
SHOWN = [
    Sample(DEVICE_INFO, 1.0, frozenset({"node-1"}), {}),
    Sample(DEVICE_INFO, 1.0, frozenset({"node-2"}), {}),
    Sample(CLUSTER_INFO, 1.0, frozenset(NODES), {}),
]
INVENTED = Sample(DEVICE_INFO, 1.0, frozenset({"node-1"}), {("node-1", 0, "80E18402"): "NotHandle"})
ERROR = "documents stay wrong after the episode", "not within 60 s"


class StandIn:
    """Shows something wrong for the plan of ``wrong_seed``; documents stay wrong in ``last``."""

    wrong_seed = 2
    last = -1
    played: ClassVar[list[Plan]]
    """All plans that were played, by all stand-ins."""
    number = 0

    def __init__(self, *_: object) -> None:
        type(self).number += 1
        self.errors: list[tuple[str, str]] = []
        self.nodes: dict[str, object] = {}
        self.programs: list[str] = []

    def play(self, plan: Plan) -> tuple[list[Fault], list[Sample], list[Excuse]]:
        self.played.append(plan)
        self.errors = [ERROR] if len(self.played) == self.last else []
        return [], [*SHOWN, INVENTED] if plan.seed == self.wrong_seed else SHOWN, []

    def close(self) -> None:
        pass


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> type[StandIn]:
    class Site(StandIn):
        played: ClassVar[list[Plan]] = []

    monkeypatch.setattr(real, "Site", Site)
    monkeypatch.setattr(real, "install", lambda *_: None)
    # Nothing was reported, so no journal has a gap.
    monkeypatch.setattr(real, "proved", lambda outcome, _: outcome)
    return Site


def played(plans: list[Plan], kept: Kept) -> list[Outcome]:
    results = [*real.play_until_wrong(plans, kept)]
    outcomes = [result for result in results if isinstance(result, Outcome)]
    assert outcomes == results
    return outcomes


def kept_plan(directory: Path, seed: int) -> Plan:
    return msgspec.json.decode((directory / f"directory-{seed}.json").read_bytes(), type=Plan)


@pytest.mark.server
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_real_parts_play_a_kept_script_right(tmp_path: Path, script: Path) -> None:
    plan, outcomes = read_plan(script), list[Outcome | NotPlayed]()
    real.play_real([plan], outcomes.append, Kept(None, None), workers=1)
    (outcome,) = outcomes
    assert isinstance(outcome, Outcome), outcome.cause
    assert (outcome.texts, outcome.gaps, outcome.is_proved) == ([], {}, True)
    assert outcome.faults == len(plan.faults)
    # On a busy machine a fault may end while its write is due, which is counted apart.
    assert outcome.proved > 0
    assert len(outcome.one_off_seconds) == sum(fault.once for fault in plan.faults)


def test_kept_scripts_are_of_both_stores_with_a_server_and_not_too_many() -> None:
    platforms = [read_plan(script).platform for script in SCRIPTS]
    assert {"kubernetes", "mqtt"} <= set(platforms)
    assert len(platforms) <= MAX_SCRIPTS


def test_programs_end_after_an_episode_with_something_wrong_and_its_plan_is_kept_small(
    tmp_path: Path, site: type[StandIn]
) -> None:
    outcomes = played(PLANS, Kept(tmp_path, None))
    assert [outcome.plan.seed for outcome in outcomes] == [1, 2]
    assert [outcome.wrong for outcome in outcomes] == [[], [Wrong.INVENTED]]
    assert outcomes[0].processor_seconds == 0.0 < outcomes[1].processor_seconds
    small = kept_plan(tmp_path, 2)
    assert (small.faults, small.troubles) == ((), ())
    assert site.number == 1
    assert {plan.seed for plan in site.played} == {1, 2}


def test_no_plan_becomes_smaller_once_documents_stay_wrong(
    tmp_path: Path, site: type[StandIn]
) -> None:
    site.last = 4
    outcomes = played(PLANS, Kept(tmp_path, None))
    assert len(outcomes) == 2
    assert len(site.played) == 4, "a smaller plan was played after that"
    assert kept_plan(tmp_path, 2) == PLANS[1], "it would need three runs"


def test_where_documents_stay_wrong_all_plans_are_kept_as_they_are(
    tmp_path: Path, site: type[StandIn]
) -> None:
    site.wrong_seed, site.last = 0, 3
    outcomes = played(PLANS, Kept(tmp_path, None))
    assert [outcome.wrong for outcome in outcomes] == [[], [], [ERROR[0]]]
    assert site.played == PLANS[:3]
    assert [kept_plan(tmp_path, seed) for seed in (1, 2, 3)] == PLANS[:3]


def test_a_worker_keeps_the_plan_that_finds_a_mutant_and_plays_no_other(
    tmp_path: Path, site: type[StandIn], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real, "end_with_the_parent", lambda: None)
    monkeypatch.setitem(real._REAL_MUTANTS, ("directory", "hasty"), "vigil")
    reader, writer = Pipe(duplex=False)
    real._work(PLANS, Kept(tmp_path, "hasty"), writer)
    assert [reader.recv().plan.seed for _ in range(2)] == [1, 2]
    assert not reader.poll()
    assert (tmp_path / "hasty.json").exists()
    assert site.number == 1


@pytest.mark.slow
def test_plans_whose_broker_does_not_start_are_not_played_and_the_cause_is_named(
    tmp_path: Path,
    site: type[StandIn],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    broker = tmp_path / "mosquitto"
    broker.write_text("#!/bin/sh\necho no memory\nexit 3\n")
    broker.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    plans = [plan_of("mqtt", seed) for seed in (1, 2)]
    (result,) = real.play_until_wrong(plans, Kept(None, None))
    assert isinstance(result, NotPlayed)
    assert result.plans == plans
    assert "no memory" in result.cause
    assert site.played == []
    results = Results([PLANS[0], *plans])
    results.add(*played(PLANS[:1], Kept(None, None)))
    results.add(result)
    summary = results.summary()
    assert (summary["episodes"], summary["not_played"]) == (1, 2)
    assert summary["causes"] == {f"{broker} ended with 3: no memory": 2}
    assert (
        f"2 episodes are not played: {broker} ended with 3:\nno memory" in capsys.readouterr().out
    )


@pytest.mark.slow
@pytest.mark.parametrize("trouble", ["foreign-write", "document-deleted", "cluster-info-deleted"])
def test_a_stranger_changes_nothing_while_the_api_server_is_away(
    tmp_path: Path, trouble: str
) -> None:
    place = Cluster(ControlPlane(tmp_path))  # it was never started
    stage: Any = SimpleNamespace(
        place=place, nodes={"node-1": SimpleNamespace(document="mindx-dl-deviceinfo-node-1")}
    )
    with pytest.raises(ConnectionRefusedError):
        place.read("cluster-info-device-0")
    TROUBLES[trouble].apply(stage, "node-1")


@pytest.mark.parametrize(("answered", "end"), [(2.5, 3.0), (7.5, 7.5), (20.0, 11.0)])
def test_the_bound_of_a_trouble_counts_from_the_answer_of_its_agent(
    answered: float, end: float
) -> None:
    ended = PastTrouble(TROUBLES["agent-killed"], frozenset({"node-1"}), 1.0, 3.0, 6.0)
    unseen = PastTrouble(TROUBLES["event-lost"], frozenset({"node-2"}), 2.0, 3.0, 6.0)
    gone = PastTrouble(TROUBLES["agent-killed"], frozenset({"node-2"}), 4.0, 5.0, 6.0)
    release = threading.Event()
    times = iter([answered])
    nodes = {
        "node-1": SimpleNamespace(up=release.wait),
        "node-2": SimpleNamespace(up=lambda: 1 / 0),
    }
    answers = Answers(nodes, lambda: next(times))
    past = list[PastTrouble]()
    for trouble in ended, unseen, gone:
        past.append(trouble)
        answers.note(past)
        answers.note(past)  # a fault came after the trouble
    release.set()
    assert answers.ended(past) == [dataclasses.replace(ended, end=end), unseen, gone]


@pytest.mark.server
def test_a_client_that_is_not_subscribed_to_the_broker_knows_nothing(tmp_path: Path) -> None:
    with closing(MqttPlatform(tmp_path)) as platform:
        data = {"key": "value"}

        def read() -> object:
            with suppress(OSError):
                return platform.place.read("cluster-info-device-0")
            return "nothing is known"

        wait_until(lambda: read() is None, "the client is subscribed")
        platform.place.write("cluster-info-device-0", data)
        wait_until(lambda: read() == data, "the message was received")
        platform.take()
        wait_until(lambda: read() == "nothing is known", "the connection has ended")
        platform.give()
        wait_until(lambda: read() == data, "the client is subscribed again")
