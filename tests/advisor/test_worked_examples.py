"""The worked examples of ``docs/spec/consumers.md#2.11``, and where ``corrected`` differs."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.options import AdvisorOptions, Profile
from advisor.report import Acceptance, Action, Scope, WorkloadKind
from advisor.snapshot import Container, ControllingOwner, LegacyHeartbeat
from tests.advisor.scene import (
    FORCE,
    GRACE,
    T0,
    Chips,
    Scene,
    cards,
    codes,
    corrected,
    decision,
    deleted,
    fault,
    sections,
)

ON = {"pod-rescheduling": "on"}
REPLICA_SET = ControllingOwner("ReplicaSet", "rs", "uid-of-rs")
OME = {"ome.io/inferenceservice": "qwen"}
AIBRIX = {"storm-service-name": "vllm", "role-name": "prefill"}


def _hit(scene: Scene, node: str, *unhealthy: int) -> None:
    scene.chips[node] = Chips(unhealthy=unhealthy, faults=[fault(card) for card in unhealthy])


def _two_pods(labels: dict[str, str], **changes: Any) -> Scene:
    scene = Scene()
    scene.add("j", ["n1", "n2"], labels, **changes)
    assert not deleted(scene.session())
    return scene


def _four_pods(labels: dict[str, str]) -> Scene:
    scene = Scene(count=5)
    owner = ControllingOwner("AscendJob", "j", "uid-of-j")
    scene.add("j", ["n1", "n2", "n3", "n4"], labels, owner=owner)
    scene.session()
    return scene


def test_e1_force_removes_the_whole_job() -> None:
    scene = _two_pods(FORCE)
    _hit(scene, "n1", 3)
    report = scene.session()
    assert deleted(report) == {"j-0": 0, "j-1": 0}
    found = decision(report, "j")
    assert (found.row, found.action, found.scope) == ("D10", Action.FORCE_DELETE, Scope.JOB)
    scene.pods.clear()
    scene.pod("j", "j-0", "", FORCE, rank="0")
    (placed,) = scene.session().placement
    assert placed.accepts == ("n2", "n3", "n4")
    assert placed.refuses == {"n1": "FreeCards: 8 asked, 7 free; Ascend910-3 unhealthy"}


def test_e2_grace_evicts_and_forces_after_its_time() -> None:
    scene = _two_pods(GRACE, termination_grace_seconds=600)
    _hit(scene, "n1", 3)
    seen = scene.now
    report = scene.session()
    assert deleted(report) == {"j-0": 600, "j-1": 600}
    assert decision(report, "j").deadline_ms == (seen + 901) * 1000
    for pod in list(scene.pods):
        scene.change(pod, is_terminating=True)
    scene.now = seen + 900
    assert not deleted(scene.session())
    report = scene.session()
    assert scene.now == seen + 902
    assert deleted(report) == {"j-0": 0, "j-1": 0}
    assert "R34" in decision(report, "j").rules
    assert not deleted(scene.session())


def test_a_pod_that_is_over_leaves_no_grace() -> None:
    scene = _two_pods(GRACE | {"fault-retry-times": "2"}, termination_grace_seconds=600)
    scene.change("j-1", phase="Failed")
    assert deleted(scene.session()) == {"j-0": 600, "j-1": 0}


def test_only_the_label_grace_brings_a_forced_end() -> None:
    scene = _two_pods(FORCE | {"subHealthyStrategy": "graceExit"})
    scene.chips["n1"] = Chips(faults=[fault(3, "SubHealthFault")])
    report = scene.session()
    assert (deleted(report), decision(report, "j").deadline_ms) == ({"j-0": 30, "j-1": 30}, None)
    scene.now += 1000
    assert not deleted(scene.session())


@pytest.mark.parametrize("options", [AdvisorOptions(), corrected()])
def test_a_grace_job_that_was_not_acted_on_ends_by_force_upstream(options: AdvisorOptions) -> None:
    scene = Scene(options=options)
    annotations = {"ProcessRecoverStrategy": "recover"}
    scene.add("j", ["n1", "n2"], GRACE, annotations=annotations)
    _hit(scene, "n1", 3)
    seen = scene.now
    report = scene.session()
    is_upstream = options.profile is Profile.UPSTREAM
    assert (decision(report, "j").row, deleted(report)) == ("D7", {})
    assert decision(report, "j").deadline_ms == ((seen + 901) * 1000 if is_upstream else None)
    scene.now = seen + 900
    assert not deleted(scene.session())
    report = scene.session()
    assert deleted(report) == ({"j-0": 0, "j-1": 0} if is_upstream else {})
    assert sections(report) == (set() if is_upstream else {37})
    assert not deleted(scene.session())


@pytest.mark.parametrize("labels", [{}, {"fault-scheduling": "off"}])
def test_e3_without_the_label_nothing_is_deleted(labels: dict[str, str]) -> None:
    scene = _two_pods(labels)
    _hit(scene, "n1", 3)
    report = scene.session()
    assert not deleted(report)
    assert decision(report, "j").row == "D2"
    assert report.node_verdicts[0].unhealthy == ("Ascend910-3",)


def test_e4_an_unsupported_value_blocks_the_job() -> None:
    scene = _two_pods({"fault-scheduling": "Force"})
    _hit(scene, "n1", 3)
    report = scene.session()
    assert not deleted(report)
    assert decision(report, "j").row == "D5"
    assert "FAULT_SCHEDULING_UNSUPPORTED" in codes(report)
    first = scene.state.jobs["default/j"].first_seen
    scene.now = first + 1200
    scene.session()
    assert scene.state.jobs["default/j"].first_seen == first
    scene.session()
    assert scene.state.jobs["default/j"].first_seen == first + 1201
    other = Scene(options=corrected())
    other.add("j", ["n1", "n2"], {"fault-scheduling": "Force"})
    _hit(other, "n1", 3)
    report = other.session()
    assert (decision(report, "j").row, sections(report)) == ("D2", {10})
    assert not other.state.jobs


def test_e5_pod_level_widens_after_twelve_sessions() -> None:
    scene = _four_pods(FORCE | ON)
    scene.hosts["n3"] = "UnHealthy"
    report = scene.session()
    assert deleted(report) == {"j-2": 0}
    assert decision(report, "j").workload is WorkloadKind.ASCENDJOB
    assert report.node_verdicts[2].accept_new is Acceptance.NONE
    scene.replace("j-2", "")
    waiting = scene.sessions(11)
    assert not any(map(deleted, waiting))
    report = scene.session()
    assert deleted(report) == dict.fromkeys(["j-0", "j-1", "j-2", "j-3"], 0)
    found = decision(report, "j")
    assert (found.row, found.action) == ("D13", Action.ESCALATE)


@pytest.mark.parametrize(
    ("replica_type", "gone"),
    [
        (None, ["j-0", "j-1", "j-2", "j-3"]),
        ("master", ["j-0", "j-1", "j-2", "j-3"]),
        ("worker", ["j-0"]),
    ],
)
def test_e6_e7_the_master_takes_all(replica_type: str | None, gone: list[str]) -> None:
    labels = FORCE | ON
    scene = _four_pods(labels)
    if replica_type is not None:
        kind = {"training.kubeflow.org/replica-type": replica_type}
        scene.change("j-0", labels=labels | kind)
    scene.hosts["n1"] = "UnHealthy"
    assert sorted(deleted(scene.session())) == gone


def test_e8_process_recovery_never_widens() -> None:
    scene = _four_pods(FORCE | ON | {"process-recover-enable": "on"})
    scene.hosts["n3"] = "UnHealthy"
    assert deleted(scene.session()) == {"j-2": 0}
    scene.replace("j-2", "")
    assert not any(map(deleted, scene.sessions(20)))


def _super_pods() -> Scene:
    scene = Scene(count=4, size=16)
    scene.add("j", ["n1", "n2", "n3", "n4"], FORCE | ON, npus=16, annotations={"sp-block": "32"})
    scene.session()
    return scene


def test_e9_logical_super_pods_go_before_the_job() -> None:
    scene = _super_pods()
    _hit(scene, "n4", 3)
    assert deleted(scene.session()) == {"j-3": 0}
    scene.replace("j-3", "")
    assert not any(map(deleted, scene.sessions(5)))
    report = scene.session()
    assert deleted(report) == {"j-2": 0, "j-3": 0}
    assert (decision(report, "j").row, decision(report, "j").scope) == ("D12", Scope.SUPER_POD)
    scene.replace("j-2", "")
    scene.replace("j-3", "")
    assert not any(map(deleted, scene.sessions(5)))
    assert len(deleted(scene.session())) == 4


def test_e10_rank_0_in_the_logical_super_pod_takes_all() -> None:
    scene = _super_pods()
    _hit(scene, "n2", 3)
    assert deleted(scene.session()) == {"j-1": 0}
    scene.replace("j-1", "")
    assert not any(map(deleted, scene.sessions(5)))
    report = scene.session()
    assert len(deleted(report)) == 4
    assert decision(report, "j").row == "D10"


def _ome(labels: dict[str, str], **scene_changes: Any) -> Scene:
    scene = Scene(**scene_changes)
    scene.add("pf", ["n1", "n2"], FORCE | ON | OME | labels, owner=REPLICA_SET)
    scene.session()
    return scene


def test_e11_a_deployment_of_ome_loses_one_pod() -> None:
    scene = _ome({})
    _hit(scene, "n1", 0)
    report = scene.session()
    assert deleted(report) == {"pf-0": 0}
    found = decision(report, "pf")
    assert (found.row, found.workload) == ("D9", WorkloadKind.OME_DEPLOYMENT)
    assert "1 replacement" in found.follow_up
    scene.replace("pf-0", "", "pf-x")
    assert not any(map(deleted, scene.sessions(15)))


def test_e12_without_retries_a_restarted_container_is_nothing() -> None:
    scene = _ome({})
    scene.restarted("pf-0", 1)
    assert not deleted(scene.session())


def test_e13_with_retries_the_restarted_pod_is_deleted_too() -> None:
    scene = _ome({"fault-retry-times": "3"})
    scene.restarted("pf-0", 1)
    report = scene.session()
    assert deleted(report) == {"pf-0": 0}
    retry = decision(report, "pf").retry
    assert retry is not None
    assert (retry.before, retry.after) == (3, 2)
    other = _ome({"fault-retry-times": "3"}, options=corrected())
    other.restarted("pf-0", 1)
    report = other.session()
    assert (deleted(report), sections(report)) == ({}, {7})


@pytest.mark.parametrize(("labels", "grace"), [(FORCE, 0), (GRACE, 45)])
def test_e14_a_worker_on_a_node_that_is_not_ready(labels: dict[str, str], grace: int) -> None:
    lws = {"leaderworkerset.sigs.k8s.io/name": "dsv3"}
    scene = Scene()
    owner = ControllingOwner("StatefulSet", "dsv3", "uid-of-dsv3")
    scene.add("g", ["n1", "n2"], labels | ON | OME | lws, owner=owner, termination_grace_seconds=45)
    scene.session()
    scene.not_ready.add("n2")
    report = scene.session()
    assert deleted(report) == {"g-1": grace}
    found = decision(report, "g")
    assert found.workload is WorkloadKind.OME_LWS
    assert "g-0" in found.follow_up


def test_a_missing_node_object_leaves_no_grace() -> None:
    scene = _two_pods(GRACE, termination_grace_seconds=45)
    scene.gone.add("n2")
    assert deleted(scene.session()) == {"j-0": 45, "j-1": 0}


def test_e15_an_instance_of_aibrix_goes_as_a_whole() -> None:
    scene = Scene()
    scene.add("prefill-0", ["n1", "n2"], FORCE | AIBRIX)
    scene.add("decode-0", ["n3", "n4"], FORCE | AIBRIX)
    scene.session()
    _hit(scene, "n2", 1)
    report = scene.session()
    assert sorted(deleted(report)) == ["prefill-0-0", "prefill-0-1"]
    assert decision(report, "prefill-0").row == "D15"


def _shared(annotations: dict[str, str] | None = None, **changes: Any) -> Scene:
    scene = Scene(count=5, **changes)
    nodes = ["n1", "n2", "n3", "n4"]
    scene.add("vllm", nodes, FORCE | ON | AIBRIX, annotations=annotations)
    scene.session()
    return scene


def test_e16_a_shared_podgroup_loses_one_pod_then_all() -> None:
    scene = _shared()
    assert "SHARED_PG_WITHOUT_RECOVER_PATH" in codes(scene.session())
    _hit(scene, "n3", 1)
    assert deleted(scene.session()) == {"vllm-2": 0}
    scene.replace("vllm-2", "")
    assert not any(map(deleted, scene.sessions(11)))
    assert len(deleted(scene.session())) == 4


def test_e17_rank_0_of_a_shared_podgroup_takes_all() -> None:
    scene = _shared()
    _hit(scene, "n1", 1)
    assert len(deleted(scene.session())) == 4
    other = _shared(options=corrected())
    _hit(other, "n1", 1)
    report = other.session()
    assert (deleted(report), sections(report)) == ({"vllm-0": 0}, {8})


def test_e18_a_recover_path_limits_it_for_good() -> None:
    scene = _shared({"huawei.com/recover_policy_path": "pod"})
    _hit(scene, "n1", 1)
    assert deleted(scene.session()) == {"vllm-0": 0}
    scene.replace("vllm-0", "")
    assert not any(map(deleted, scene.sessions(15)))


def test_e19_a_failed_pod_takes_its_instance_and_one_retry() -> None:
    scene = Scene()
    labels = FORCE | AIBRIX | {"fault-retry-times": "10"}
    scene.add("decode-0", ["n1", "n2"], labels, restart_policy="Never")
    scene.session()
    scene.change("decode-0-1", phase="Failed", containers=(Container("c", exit_code=137),))
    report = scene.session()
    assert deleted(report) == {"decode-0-0": 0, "decode-0-1": 0}
    assert scene.state.retries == {"default/decode-0": 9}


def test_e20_an_instance_of_mindie_uses_one_of_many_retries() -> None:
    scene = Scene()
    labels = FORCE | {"app": "mindie-ms-server", "fault-retry-times": "100000000"}
    scene.add("server", ["n1", "n2"], labels, owner=ControllingOwner("AscendJob", "server", "u"))
    scene.session()
    for pod in ("server-0", "server-1"):
        scene.change(pod, phase="Failed")
    report = scene.session()
    assert deleted(report) == {"server-0": 0, "server-1": 0}
    assert scene.state.retries == {"default/server": 99_999_999}
    assert decision(report, "server").workload is WorkloadKind.MINDIE_SERVER


def test_e21_only_the_controller_on_the_bad_node_goes() -> None:
    scene = Scene()
    labels = FORCE | {"app": "mindie-ms-controller"}
    scene.add(
        "control", ["n3", "n4"], labels, npus=0, owner=ControllingOwner("AscendJob", "c", "u")
    )
    scene.session()
    scene.hosts["n4"] = "UnHealthy"
    report = scene.session()
    assert deleted(report) == {"control-1": 0}
    assert decision(report, "control").workload is WorkloadKind.MINDIE_CONTROL


def _sub_health(strategy: str | None, need: str = "") -> Scene:
    labels = FORCE | ({"subHealthyStrategy": strategy} if strategy else {})
    scene = _two_pods(labels, termination_grace_seconds=45)
    if need:
        pod = scene.pods["j-0"]
        scene.change("j-0", annotations=pod.annotations | {"needVolcanoOpe": need})
    scene.chips["n1"] = Chips(faults=[fault(2, "SubHealthFault")])
    return scene


@pytest.mark.parametrize("strategy", [None, "ignore", "graceexit"])
def test_e22_sub_health_without_a_strategy_is_ignored(strategy: str | None) -> None:
    report = _sub_health(strategy).session()
    assert not report.decisions
    assert report.node_verdicts[0].accept_new is Acceptance.ONLY_IGNORE_STRATEGY


def test_e22_graceful_exit_evicts_even_with_force() -> None:
    report = _sub_health("graceExit").session()
    assert deleted(report) == {"j-0": 45, "j-1": 45}
    found = decision(report, "j")
    assert (found.action, found.patch) == (Action.EVICT, ("GracefulExit", "1"))


def test_e22_forced_exit() -> None:
    assert deleted(_sub_health("forceExit").session()) == {"j-0": 0, "j-1": 0}


@pytest.mark.parametrize(
    ("need", "expected"), [("", {}), ("Delete", {}), ("delete", {"j-0": 0, "j-1": 0})]
)
def test_e22_a_hot_switch_waits_for_its_annotation(need: str, expected: dict[str, int]) -> None:
    assert deleted(_sub_health("hotSwitch", need).session()) == expected


def test_e23_a_pre_separated_card_in_use_deletes_nothing() -> None:
    scene = _two_pods(FORCE)
    scene.chips["n1"] = Chips(faults=[fault(3, "PreSeparateNPU")])
    report = scene.session()
    assert not deleted(report)
    assert decision(report, "j").action is Action.PLATFORM_RESTART
    assert decision(report, "j").row == "D4"
    scene.pods.clear()
    scene.chips["n1"] = Chips(unhealthy=[3], faults=[fault(3, "PreSeparateNPU")])
    scene.pod("j", "j-0", "", FORCE, rank="0")
    (placed,) = scene.session().placement
    assert "n1" not in placed.accepts


def test_e24_a_network_fault_deletes_nothing_and_repels_distributed_jobs() -> None:
    scene = _two_pods(FORCE)
    scene.chips["n1"] = Chips(network=[5])
    report = scene.session()
    assert not report.decisions
    assert report.node_verdicts[0].state == "CardNetworkUnhealthy"
    del scene.pods["j-0"]
    scene.add("one", [""], FORCE)
    scene.add("two", ["", ""], FORCE)
    one, two = scene.session().placement
    assert "n1" in one.accepts
    assert two.refuses["n1"] == "NetworkCards: 8 asked, 7 free with a sound network"


def test_e25_a_silent_agent_is_not_seen() -> None:
    beats = {"n1": LegacyHeartbeat("1", (T0 - 16) * 1000, 5)}
    scene = Scene(options=AdvisorOptions(heartbeat_check=True), heartbeats=beats)
    scene.add("j", ["n1", "n2"], FORCE)
    assert not scene.session().decisions
    other = Scene(options=corrected(heartbeat_check=True), heartbeats=beats)
    other.add("j", ["n1", "n2"], FORCE)
    report = other.session()
    assert (deleted(report), sections(report)) == ({"j-0": 0, "j-1": 0}, {24})


@pytest.mark.parametrize(
    ("age_ms", "interval", "is_fault"),
    [
        (15_000, 5, False),
        (15_001, 5, True),
        (3_001, 1, True),
        (900_000, 300, False),
        (900_001, 300, True),
        (15_000, 301, False),
        (15_001, 301, True),
        (15_001, 0, True),
        (15_001, -1, True),
        (-5_000, 5, False),
    ],
)
def test_the_heartbeat_table(age_ms: int, interval: int, is_fault: bool) -> None:
    beats = {"n1": LegacyHeartbeat("1", T0 * 1000 - age_ms, interval)}
    scene = Scene(options=corrected(heartbeat_check=True), heartbeats=beats)
    assert (scene.session().node_verdicts[0].state == "NodeUnhealthy") == is_fault


def _used_up(options: AdvisorOptions) -> Scene:
    scene = Scene(options=options)
    scene.add("j", ["n1", "n2"], FORCE | {"fault-retry-times": "1"}, restart_policy="Never")
    scene.session()
    scene.change("j-1", phase="Failed")
    assert len(deleted(scene.session())) == 2
    for pod, node in (("j-0", "n1"), ("j-1", "n2")):
        scene.replace(pod, node)
    scene.session()
    scene.change("j-1", phase="Failed")
    assert decision(scene.session(), "j").row == "D8"
    _hit(scene, "n1", 3)
    return scene


def test_e26_a_used_up_budget_hides_a_card_fault() -> None:
    scene = _used_up(AdvisorOptions())
    assert not any(map(deleted, scene.sessions(3)))
    scene.now += 1200
    assert len(deleted(scene.session())) == 2
    report = _used_up(corrected()).session()
    assert deleted(report) == {"j-0": 0, "j-1": 0}
    assert 6 in sections(report)


def test_e27_a_pre_separated_node_keeps_its_pods() -> None:
    scene = _two_pods(FORCE)
    scene.hosts["n1"] = "PreSeparate"
    report = scene.session()
    assert not report.decisions
    del scene.pods["j-0"]
    scene.pod("j", "j-0", "", FORCE)
    (placed,) = scene.session().placement
    assert placed.refuses["n1"].startswith("PreSeparate: ")


def test_e28_values_that_differ_are_joined() -> None:
    def shared(options: AdvisorOptions) -> Scene:
        scene = Scene(options=options)
        scene.add("j", ["n1", "n2"], {}, termination_grace_seconds=45)
        scene.change("j-0", labels=GRACE)
        scene.change("j-1", labels=FORCE)
        _hit(scene, "n2", 3)
        return scene

    report = shared(AdvisorOptions()).session()
    assert not deleted(report)
    assert decision(report, "j").row == "D5"
    assert "LABEL_CONFLICT" in codes(report)
    report = shared(corrected()).session()
    assert deleted(report) == {"j-0": 45, "j-1": 45}
    assert sections(report) == {10}


def test_cards_are_named_in_the_decision() -> None:
    scene = _two_pods(FORCE)
    _hit(scene, "n2", 3, 5)
    (found,) = decision(scene.session(), "j").fault_pods
    assert (found.name, found.type, found.node) == ("j-1", "CardUnhealthy", "n2")
    assert ",".join(found.cards) == cards(3, 5)
    assert (found.codes, found.levels) == (("80E18005",), ("SeparateNPU",))


@pytest.mark.parametrize(("ranks", "options"), [(True, AdvisorOptions()), (False, corrected())])
def test_ranks_in_a_shared_podgroup_are_known_or_do_not_matter(
    ranks: bool, options: AdvisorOptions
) -> None:
    scene = _aibrix(ranks=ranks, options=options)
    assert "guess" not in decision(scene.session(), "j").why


def test_ranks_in_a_shared_podgroup_of_aibrix_are_a_guess() -> None:
    report = _aibrix(ranks=False, options=AdvisorOptions()).session()
    assert "ranks are a guess" in decision(report, "j").why
    assert not report.is_known


def _aibrix(*, ranks: bool, options: AdvisorOptions) -> Scene:
    scene = Scene(options=options)
    labels = FORCE | {"pod-rescheduling": "on", "storm-service-name": "s"}
    scene.add("j", ["n1", "n2"], labels, owner=ControllingOwner("RoleSet", "r", "u"), ranks=ranks)
    scene.chips["n2"] = Chips(unhealthy=[3])
    return scene
