"""Properties ``consumers#P1`` to P7 and P9, over random clusters and sessions."""

from __future__ import annotations

import copy
import json
from typing import Any

import msgspec
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from advisor.advise import advise
from advisor.layered_dict import as_dict
from advisor.options import AdvisorOptions, Profile
from advisor.report import flat
from advisor.scheduler_view.state import SchedulerState
from contract.scheduling import go_integer
from tests.advisor.scene import Chips, Scene, fault
from tests.parts.examples import examples

_LEVELS = ("NotHandleFault", "SubHealthFault", "PreSeparateNPU", "SeparateNPU", "RestartNPU")
_cards = st.lists(st.integers(0, 7), max_size=3, unique=True)
_labels = st.fixed_dictionaries(
    {},
    optional={
        "fault-scheduling": st.sampled_from(
            ["force", "grace", "off", "Force", "external-force", "force"]
        ),
        "pod-rescheduling": st.sampled_from(["on", "off"]),
        "fault-retry-times": st.sampled_from(["0", "1", "2", "-1", "x", "3"]),
        "process-recover-enable": st.sampled_from(["on", "pause"]),
        "subHealthyStrategy": st.sampled_from(["ignore", "graceExit", "forceExit", "hotSwitch"]),
        "ome.io/inferenceservice": st.just("s"),
        "fault-type": st.sampled_from(["Separate", "SubHealth", "software"]),
    },
)
_annotations = st.fixed_dictionaries(
    {},
    optional={
        "sp-block": st.sampled_from(["8", "16", "32"]),
        "ProcessRecoverStrategy": st.just(""),
        "huawei.com/recover_policy_path": st.sampled_from(["pod", "job"]),
        "huawei.com/schedule_policy": st.just("chip8-node8-ra64-sp"),
    },
)
_chips = st.builds(
    Chips,
    unhealthy=_cards,
    network=_cards,
    faults=st.lists(
        st.builds(fault, card=st.integers(0, 7), level=st.sampled_from(_LEVELS)), max_size=3
    ),
)
_nodes = st.sampled_from(["n1", "n2", "n3", "n4"])
_actions = st.one_of(
    st.tuples(st.just("chips"), _nodes, _chips),
    st.tuples(st.just("host"), _nodes, st.sampled_from(["Healthy", "UnHealthy", "PreSeparate"])),
    st.tuples(st.just("switch"), _nodes, st.sampled_from(["Healthy", "UnHealthy", "SubHealthy"])),
    st.tuples(st.just("fail"), st.integers(0, 7), st.none()),
    st.tuples(st.just("restart"), st.integers(0, 7), st.integers(0, 2)),
    st.tuples(st.just("anew"), st.integers(0, 7), st.sampled_from(["", "n1", "n4"])),
    st.tuples(st.just("wait"), st.integers(1, 1000), st.none()),
)


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    """Return a cluster with jobs, and faults or none."""
    scene = Scene()
    for number in range(draw(st.integers(1, 2))):
        nodes = draw(st.lists(_nodes, min_size=1, max_size=3))
        annotations = draw(_annotations)
        scene.add(f"j{number}", nodes, draw(_labels), annotations=annotations)
    for node in draw(st.lists(_nodes, max_size=2, unique=True)):
        scene.chips[node] = draw(_chips)
    return scene


def _apply(scene: Scene, action: tuple[str, Any, Any]) -> None:
    what, which, value = action
    names = sorted(scene.pods)
    match what:
        case "chips":
            scene.chips[which] = value
        case "host":
            scene.hosts[which] = value
        case "switch":
            scene.switches[which] = value
        case "wait":
            scene.now += which
        case _ if not names:
            return
        case "fail":
            scene.change(names[which % len(names)], phase="Failed")
        case "restart":
            scene.restarted(names[which % len(names)], value)
        case "anew":
            scene.replace(names[which % len(names)], value)


def _options(profile: Profile) -> AdvisorOptions:
    return AdvisorOptions(profile=profile)


_profiles = st.sampled_from(list(Profile))
_steps = st.lists(_actions, max_size=12)
_limits = examples(40, suppress_health_check=[HealthCheck.too_slow])


@_limits
@given(scenes(), st.lists(_actions, max_size=9), _profiles)
def test_deleted_pods_exist_and_budgets_hold(
    scene: Scene, steps: list[tuple[str, Any, Any]], profile: Profile
) -> None:
    """consumers#P1, P2, P3, P7 and P9, session by session; the state survives its encoding.

    A session that is repeated deletes nothing, as long as no job has waited for 12 sessions.
    """
    scene.options = _options(profile)
    used: dict[str, int] = {}
    times = {
        group.key: go_integer(group.labels.get("fault-retry-times", "")) or 0
        for group in scene.groups.values()
    }
    for step in [None, *steps]:
        if step is not None:
            _apply(scene, step)
        snapshot, before = scene.snapshot(), scene.state
        report, after = advise(snapshot, before, scene.options)
        again, _ = advise(snapshot, before, scene.options)
        assert json.dumps(flat(report)) == json.dumps(flat(again))
        uids = {pod.uid for pod in snapshot.pods}
        assert all(pod.uid in uids for pod in report.deletions)
        for one in report.decisions:
            labels = {
                pod.labels.get("fault-scheduling", "off")
                for pod in snapshot.pods
                if f"default/{pod.group}" == one.job
            }
            if one.pods:
                assert labels & {"force", "grace"}
            if one.retry is not None:
                used[one.job] = used.get(one.job, 0) + one.retry.before - one.retry.after
                assert used[one.job] <= max(times[one.job], 0)
        repeated = msgspec.structs.replace(snapshot, first_session=False)
        kept = msgspec.json.decode(
            msgspec.json.encode(after, enc_hook=as_dict), type=SchedulerState
        )
        assert kept == after
        assert not advise(repeated, kept, scene.options)[0].deletions
        scene.session()
        if scene.state.jobs and any(one.pods for one in report.decisions):
            gone = {pod.uid for pod in report.deletions}
            scene.pods = {name: pod for name, pod in scene.pods.items() if pod.uid not in gone}


@_limits
@given(scenes(), st.lists(st.tuples(_nodes, _cards), max_size=4), _profiles)
def test_network_faults_alone_delete_nothing(
    scene: Scene, networks: list[tuple[str, list[int]]], profile: Profile
) -> None:
    """consumers#P4."""
    scene.options = _options(profile)
    scene.chips = {node: Chips(network=numbers) for node, numbers in networks}
    for name, pod in scene.pods.items():
        kept = {key: value for key, value in pod.labels.items() if key != "fault-type"}
        scene.change(name, labels=kept)
    assert not scene.session().deletions


@_limits
@given(scenes(), _steps, _profiles, st.data())
def test_removing_a_fault_adds_no_deletion(
    scene: Scene, steps: list[tuple[str, Any, Any]], profile: Profile, data: st.DataObject
) -> None:
    """consumers#P5, from equal states."""
    scene.options = _options(profile)
    for step in steps:
        _apply(scene, step)
        scene.session()
    node = data.draw(_nodes)
    scene.chips[node] = data.draw(_chips)
    healed = copy.deepcopy(scene)
    healed.chips.pop(node)
    with_fault = {pod.uid: pod.grace_seconds for pod in scene.session().deletions}
    without = {pod.uid: pod.grace_seconds for pod in healed.session().deletions}
    assert without.keys() <= with_fault.keys()


@_limits
@given(st.sampled_from(["force", "grace"]), st.integers(1, 3), st.booleans())
def test_scope_only_widens_while_a_job_is_pending(value: str, rank: int, blocks: bool) -> None:
    """consumers#P6."""
    scene = Scene(count=5)
    labels = {"fault-scheduling": value, "pod-rescheduling": "on"}
    annotations = {"sp-block": "16"} if blocks else {}
    scene.add("j", ["n1", "n2", "n3", "n4"], labels, annotations=annotations)
    scene.chips[f"n{rank + 1}"] = Chips(unhealthy=[0])
    sizes = []
    for _ in range(30):
        gone = [pod.name for pod in scene.session().deletions]
        if gone:
            sizes.append(len(gone))
        for name in gone:
            scene.replace(name, "")
    assert sizes[0] == 1
    assert sizes == sorted(sizes)
    assert sizes[-1] == 4
