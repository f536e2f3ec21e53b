"""A session that is computed from the changes is the one that is computed as a whole."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from advisor.advise import Advisor, advise
from advisor.options import AdvisorOptions, Profile
from advisor.scheduler_view.state import SchedulerState
from advisor.snapshot import ClusterSnapshot, StoredConfigMap, Taint, VcJob, VcJobTask
from tests.advisor.player import PLAYED_AGAIN, options_of, play, recorded, snapshot_of
from tests.advisor.scene import T0, Chips, Scene, fault
from tests.parts.examples import examples

_LEVELS = ("NotHandleFault", "SubHealthFault", "PreSeparateNPU", "SeparateNPU", "RestartNPU")
_FOLLOWING = ("chips", "host", "switch", "touch")
_NODES = st.sampled_from(["n1", "n2", "n3", "n4"])
_CARDS = st.lists(st.integers(0, 7), max_size=3, unique=True)


def same(
    advisor: Advisor, snapshot: ClusterSnapshot, state: SchedulerState, options: AdvisorOptions
) -> SchedulerState:
    """Compute a session both ways, compare, and return the state after it."""
    report, after = advisor.advise(snapshot, state, options)
    whole, expected = advise(snapshot, state, options)
    assert msgspec.json.encode(report, enc_hook=list) == msgspec.json.encode(whole, enc_hook=list)
    assert after == expected
    return after


@pytest.mark.parametrize("name", PLAYED_AGAIN)
def test_recordings_are_decided_the_same(name: str) -> None:
    recording = recorded(name)
    advisor = Advisor()
    states = dict.fromkeys(Profile, SchedulerState(is_known=True))
    for session in play(recording):
        snapshot = snapshot_of(session, recording)
        for profile in Profile:
            options = msgspec.structs.replace(options_of(recording), profile=profile)
            states[profile] = same(advisor, snapshot, states[profile], options)


class Quiet(Scene):
    """A cluster whose documents are written when something in them changes."""

    written = T0
    touched = T0

    def configmaps(self) -> list[StoredConfigMap]:
        now, self.now = self.now, self.written
        found = super().configmaps()
        self.now = now
        at = datetime.fromtimestamp(self.touched, UTC).isoformat()
        return [
            msgspec.structs.replace(one, annotations={"npu-vigil/touched": at}) for one in found
        ]


_chips = st.builds(
    Chips,
    unhealthy=_CARDS,
    network=_CARDS,
    recovering=_CARDS,
    faults=st.lists(
        st.builds(
            fault,
            card=st.integers(0, 7),
            level=st.sampled_from(_LEVELS),
            code=st.sampled_from(["80E18005", "81078603"]),
        ),
        max_size=3,
    ),
    free=st.sampled_from([tuple(range(8)), (0, 1, 2), ()]),
    omit=st.sampled_from([(), (), ("huawei.com/Ascend910-Recovering",)]),
    stamp=st.sampled_from([None, None, 1_795_264_800, 1_795_264_900]),
)
_labels = st.fixed_dictionaries(
    {},
    optional={
        "fault-scheduling": st.sampled_from(["force", "grace", "grace", "off", "external-force"]),
        "pod-rescheduling": st.just("on"),
        "fault-retry-times": st.sampled_from(["1", "3"]),
        "process-recover-enable": st.just("on"),
        "subHealthyStrategy": st.sampled_from(["ignore", "graceExit", "forceExit"]),
        "fault-type": st.sampled_from(["Separate", "SubHealth", "software"]),
    },
)
_OWN: dict[str, dict[str, Any]] = {
    "cordoned": {"is_cordoned": True},
    "tainted": {"taints": (Taint("t", "v", "NoSchedule"),)},
    "no label": {"labels": {}},
    "no cards": {"annotations": {}},
    "no chips": {"capacity": {}, "allocatable": {"cpu": 1000}},
    "as before": {},
}
_actions = st.one_of(
    st.tuples(st.just("chips"), _NODES, _chips),
    st.tuples(st.just("host"), _NODES, st.sampled_from(["Healthy", "UnHealthy", "PreSeparate"])),
    st.tuples(st.just("switch"), _NODES, st.sampled_from(["Healthy", "UnHealthy", "SubHealthy"])),
    st.tuples(st.just("touch"), st.none(), st.none()),
    st.tuples(st.just("ready"), _NODES, st.booleans()),
    st.tuples(st.just("gone"), _NODES, st.booleans()),
    st.tuples(st.just("node"), _NODES, st.sampled_from(sorted(_OWN))),
    st.tuples(st.just("job"), st.lists(st.just("") | _NODES, min_size=1, max_size=3), _labels),
    st.tuples(st.just("fail"), st.integers(0, 9), st.none()),
    st.tuples(st.just("restart"), st.integers(0, 9), st.integers(0, 2)),
    st.tuples(st.just("anew"), st.integers(0, 9), st.just("") | _NODES),
    st.tuples(st.just("remove"), st.integers(0, 9), st.none()),
    st.tuples(st.just("phase"), st.integers(0, 3), st.sampled_from(["Running", "Inqueue"])),
    st.tuples(st.just("ungroup"), st.integers(0, 3), st.none()),
    st.tuples(st.just("elastic"), st.integers(0, 3), st.none()),
    st.tuples(st.just("wait"), st.sampled_from([0, 11, 30, 100, 901, 1300, -1, -500]), st.none()),
    st.tuples(st.just("rest"), st.integers(1, 4), st.none()),
)


def act(scene: Scene, action: tuple[str, Any, Any]) -> None:
    """Change the cluster."""
    what, which, value = action
    if what in _FOLLOWING and isinstance(scene, Quiet):
        scene.written = scene.written if what == "touch" else scene.now
        scene.touched = scene.now
    pods, groups = sorted(scene.pods), sorted(scene.groups)
    match what:
        case "chips":
            scene.chips[which] = value
        case "host":
            scene.hosts[which] = value
        case "switch":
            scene.switches[which] = value
        case "ready" | "gone":
            book = scene.not_ready if what == "ready" else scene.gone
            (book.discard if value else book.add)(which)
        case "node":
            scene.node_changes[which] = _OWN[value]
        case "job":
            scene.add(f"j{scene.made}", which, value, npus=(8, 4, 1)[len(which) - 1])
        case "wait":
            scene.now += which
        case "fail" | "restart" | "anew" | "remove" if pods:
            pod = pods[which % len(pods)]
            match what:
                case "fail":
                    scene.change(pod, phase="Failed")
                case "restart":
                    scene.restarted(pod, value)
                case "anew":
                    scene.replace(pod, value)
                case "remove":
                    del scene.pods[pod]
        case "phase" | "ungroup" | "elastic" if groups:
            name = groups[which % len(groups)]
            if what == "ungroup":
                del scene.groups[name]
            elif what == "phase":
                scene.groups[name] = msgspec.structs.replace(scene.groups[name], phase=value)
            else:
                labels = {"elastic-scheduling": "on", "fault-scheduling": "grace"}
                annotations = {"minReplicas": "1"}
                scene.vcjobs.append(
                    VcJob("default", name, "", labels, annotations, (VcJobTask("w", 2),))
                )


@pytest.mark.slow
@examples(150, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.tuples(_actions, st.booleans()), min_size=4, max_size=25),
    st.sampled_from([None, 2]),
    st.booleans(),
)
def test_random_changes_are_decided_the_same(
    steps: list[tuple[tuple[str, Any, Any], bool]], limit: int | None, self_maintain: bool
) -> None:
    """Some sessions come to nothing, as the aggregator's do that it only shows."""
    scene, advisor = Quiet(is_first=False), Advisor()
    scene.add("a", ["n1", "n2"], {"fault-scheduling": "grace", "pod-rescheduling": "on"})
    scene.add("b", ["n3", ""], {"fault-scheduling": "force"}, npus=4)
    states = dict.fromkeys(Profile, SchedulerState())
    for action, comes in steps:
        act(scene, action)
        for _ in range(action[1] if action[0] == "rest" else 1):
            snapshot = scene.snapshot()
            for profile in Profile:
                options = AdvisorOptions(profile, True, self_maintain, max_delete_per_tick=limit)
                after = same(advisor, snapshot, states[profile], options)
                if comes:
                    states[profile] = after
            scene.now += comes


@pytest.mark.parametrize("profile", list(Profile))
@pytest.mark.parametrize("comes", [(True,) * 6, (False, False, True, False, False, True)])
def test_links_that_relation_faults_name_are_decided_the_same(
    profile: Profile, comes: tuple[bool, ...]
) -> None:
    scene, advisor = Quiet(is_first=False), Advisor()
    scene.add("a", ["n1"], {"fault-scheduling": "force", "fault-type": "Separate"}, npus=1)
    scene.add("b", ["", ""], {"fault-scheduling": "force"}, npus=4)
    scene.add("c", ["", ""], {"fault-scheduling": "force"}, npus=7)
    link = fault(5, "NotHandleFault", "81078603")
    scene.chips["n1"] = Chips(faults=[link])
    state, refusing = SchedulerState(), []
    for counts in comes:
        snapshot = scene.snapshot()
        after = same(advisor, snapshot, state, AdvisorOptions(profile))
        refusing.append(
            [
                len(one.refuses)
                for one in advisor.advise(snapshot, state, AdvisorOptions(profile))[0].placement
            ]
        )
        state = after if counts else state
        scene.now += 8
    assert [0, 1] in refusing
    assert [0, 0] in refusing or not all(comes)


@pytest.mark.parametrize("back_seconds", [50, 0])
def test_lists_that_come_while_the_clock_is_behind_are_applied_later(back_seconds: int) -> None:
    scene, advisor = Quiet(count=1, is_first=False), Advisor()
    options, state = AdvisorOptions(Profile.UPSTREAM, self_maintain=True), SchedulerState()
    scene.add("a", ["n1"], {"fault-scheduling": "force"})
    state = same(advisor, scene.snapshot(), state, options)
    scene.now -= back_seconds
    scene.chips["n1"] = Chips(unhealthy=[3])
    unhealthy = []
    for _ in range(3):
        report, _ = advisor.advise(scene.snapshot(), state, options)
        unhealthy.append([name for node in report.node_verdicts for name in node.unhealthy])
        state = same(advisor, scene.snapshot(), state, options)
        scene.now += 30
    assert unhealthy[-1] == ["Ascend910-3"]
    assert unhealthy[0] == []


def test_a_list_without_a_change_has_the_time_of_the_session_again_after_the_clock() -> None:
    scene, advisor = Quiet(count=1, is_first=False), Advisor()
    options, state = AdvisorOptions(Profile.UPSTREAM, self_maintain=True), SchedulerState()
    stamps = []
    for seconds in (-50, 30, 30, 30):
        state = same(advisor, scene.snapshot(), state, options)
        stamps.append(state.memories["n1"].stamp)
        scene.now += seconds
    # ``None`` is the time of the session: the clock is behind the second and third one.
    assert stamps == [None, T0, T0, None]


@pytest.mark.parametrize("limit", [0, 1, 2])
def test_limits_of_deletions_are_kept_the_same(limit: int) -> None:
    scene, advisor, state = Quiet(is_first=False), Advisor(), SchedulerState()
    options = AdvisorOptions(max_delete_per_tick=limit)
    for number in range(1, 4):
        scene.add(f"j{number}", [f"n{number}"], {"fault-scheduling": "force"})
        scene.chips[f"n{number}"] = Chips(unhealthy=[0])
    for _ in range(5):
        state = same(advisor, scene.snapshot(), state, options)
        scene.now += 1


@pytest.mark.slow
def test_a_job_that_waits_is_forced_and_expires_in_time() -> None:
    scene, advisor = Scene(is_first=False), Advisor()
    scene.add("a", ["n1", "n2"], {"fault-scheduling": "grace"})
    scene.chips["n1"] = Chips(unhealthy=[0], faults=[fault(0)])
    state, actions = SchedulerState(), []
    for _ in range(1300):
        snapshot = scene.snapshot()
        report, state = advisor.advise(snapshot, state, AdvisorOptions())
        actions += [(scene.now, one.action.value) for one in report.decisions]
        scene.now += 1
    began = actions[0][0]
    found = [(at - began, kind) for at, kind in actions if kind != "WAIT_COMPLETION"]
    assert found == [(0, "EVICT"), (901, "FORCE_DELETE"), (1201, "EVICT")]


def test_restarts_are_remembered_as_long_as_their_pod_is_there() -> None:
    scene, advisor = Quiet(is_first=False), Advisor()
    scene.add("a", ["n1"], {"fault-scheduling": "force"})
    (uid,) = (pod.uid for pod in scene.snapshot().pods)
    judged = {f"{uid}/train": 2, "uid-gone/train": 1}
    options, state = AdvisorOptions(Profile.CORRECTED), SchedulerState(judged=judged)
    before = same(advisor, scene.snapshot(), state, options)
    assert before.judged == {f"{uid}/train": 2}
    scene.pods.clear()
    scene.now += 1
    snapshot = scene.snapshot()
    assert same(advisor, snapshot, before, options).judged == {}
    # A session that came to nothing has forgotten nothing.
    assert same(advisor, snapshot, before, options).judged == {}


def test_retries_of_jobs_that_are_gone_are_not_counted() -> None:
    scene, advisor = Quiet(is_first=False), Advisor()
    scene.add("a", ["n1"], {"fault-scheduling": "force", "fault-retry-times": "3"})
    scene.add("b", ["n2"], {"fault-scheduling": "force", "fault-retry-times": "2"})
    before = same(
        advisor, scene.snapshot(), SchedulerState(retries={"ns/gone": 1}), AdvisorOptions()
    )
    assert sorted(before.retries.values()) == [2, 3]
    gone = next(iter(scene.groups))
    del scene.groups[gone]
    scene.now += 1
    for _ in range(2):
        after = same(advisor, scene.snapshot(), before, AdvisorOptions())
        assert sorted(after.retries.values()) == [2]
