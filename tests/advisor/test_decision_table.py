"""Rows D1 to D15 of ``docs/spec/consumers.md#2.10``, and what stays isolated in each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from advisor.report import Action, Scope
from tests.advisor.scene import (
    FORCE,
    GRACE,
    Chips,
    Scene,
    corrected,
    decision,
    deleted,
    fault,
    sections,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

ON = {"pod-rescheduling": "on"}
WORKER = {"training.kubeflow.org/replica-type": "worker"}


def _scene(
    labels: Mapping[str, str], annotations: Mapping[str, str] | None = None, **changes: Any
) -> Scene:
    """Return a job of three pods with a bad card under rank 1, as seen by the first session."""
    scene = Scene()
    scene.add("j", ["n1", "n2", "n3"], labels, annotations=annotations, **changes)
    scene.chips["n2"] = Chips(unhealthy=[3], faults=[fault(3)])
    return scene


def _refused(scene: Scene) -> set[str]:
    """Return the nodes that refuse another pod of a job without a strategy."""
    scene.add("other", [""], npus=8)
    scene.pods = {name: pod for name, pod in scene.pods.items() if not pod.node}
    (placed,) = scene.session().placement
    return set(placed.refuses)


ROWS: list[tuple[str, dict[str, str], dict[str, str], Action, list[str], Scope | None]] = [
    ("D2", {}, {}, Action.NONE, [], None),
    ("D2", {"fault-scheduling": "off"}, {}, Action.NONE, [], None),
    ("D5", {"fault-scheduling": "FORCE"}, {}, Action.NONE, [], None),
    ("D6", {"fault-scheduling": "external-force"}, {}, Action.ANNOTATE, [], None),
    ("D6", {"fault-scheduling": "external-grace"}, {}, Action.ANNOTATE, [], None),
    ("D7", FORCE, {"ProcessRecoverStrategy": ""}, Action.NONE, [], None),
    ("D9", FORCE | {"ome.io/inferenceservice": "x"}, {}, Action.FORCE_DELETE, ["j-1"], Scope.POD),
    (
        "D9",
        FORCE,
        {"huawei.com/recover_policy_path": "pod"},
        Action.FORCE_DELETE,
        ["j-1"],
        Scope.POD,
    ),
    ("D11", FORCE | ON, {}, Action.FORCE_DELETE, ["j-1"], Scope.POD),
    ("D11", GRACE | ON, {"sp-block": "16"}, Action.EVICT, ["j-1"], Scope.POD),
    (
        "D14",
        FORCE | {"process-recover-enable": "on"},
        {},
        Action.FORCE_DELETE,
        ["j-1"],
        Scope.POD,
    ),
    ("D15", FORCE, {}, Action.FORCE_DELETE, ["j-0", "j-1", "j-2"], Scope.JOB),
    (
        "D15",
        FORCE,
        {"huawei.com/recover_policy_path": "pod,job"},
        Action.FORCE_DELETE,
        ["j-0", "j-1", "j-2"],
        Scope.JOB,
    ),
    ("D15", GRACE, {}, Action.EVICT, ["j-0", "j-1", "j-2"], Scope.JOB),
]


@pytest.mark.parametrize(("row", "labels", "annotations", "action", "gone", "scope"), ROWS)
def test_rows_that_one_session_shows(
    row: str,
    labels: dict[str, str],
    annotations: dict[str, str],
    action: Action,
    gone: list[str],
    scope: Scope | None,
) -> None:
    scene = _scene(labels, annotations)
    report = scene.session()
    found = decision(report, "j")
    assert (found.row, found.action, found.scope) == (row, action, scope)
    assert sorted(deleted(report)) == gone
    assert found.why
    assert found.rules
    assert _refused(scene) == {"n2"}


def test_d1_a_podgroup_that_never_ran() -> None:
    for phase in ("", "Pending", "Inqueue", "Completed"):
        report = _scene(FORCE, phase=phase).session()
        assert (decision(report, "j").row, deleted(report)) == ("D1", {})
    assert deleted(_scene(FORCE, phase="Unknown").session())


def test_d3_a_job_that_was_acted_on_waits() -> None:
    scene = _scene(FORCE)
    scene.session()
    report = scene.session()
    found = decision(report, "j")
    assert (found.row, found.action, deleted(report)) == ("D3", Action.WAIT_COMPLETION, {})
    for pod in ("j-0", "j-1", "j-2"):
        scene.replace(pod, "n4")
    assert decision(scene.session(), "j").action is Action.RELEASED


def test_d4_software_asks_the_platform() -> None:
    scene = Scene()
    scene.add("j", ["n1", "n2"], FORCE)
    scene.change("j-1", labels=FORCE | {"fault-type": "software"})
    report = scene.session()
    assert (decision(report, "j").row, deleted(report)) == ("D4", {})
    scene.chips["n1"] = Chips(unhealthy=[1])
    assert len(deleted(scene.session())) == 2


@pytest.mark.parametrize("times", ["", "0", "-1", "1_0"])
def test_d8_no_budget(times: str) -> None:
    scene = Scene()
    scene.add("j", ["n1", "n2"], FORCE | ({"fault-retry-times": times} if times else {}))
    scene.change("j-1", phase="Failed")
    report = scene.session()
    assert not deleted(report)
    assert [one.row for one in report.decisions] == ["D8"]
    assert _refused(scene) == set()


def test_d10_a_fault_of_rank_0_takes_all() -> None:
    scene = _scene(FORCE | ON)
    scene.chips = {"n1": Chips(unhealthy=[3])}
    report = scene.session()
    assert decision(report, "j").row == "D10"
    assert len(deleted(report)) == 3


def test_d12_and_d13_widen_by_pending_sessions() -> None:
    scene = _scene(FORCE | ON | WORKER, {"sp-block": "16"})
    assert deleted(scene.session()) == {"j-1": 0}
    scene.replace("j-1", "")
    scene.sessions(5)
    report = scene.session()
    assert (decision(report, "j").row, sorted(deleted(report))) == ("D10", ["j-0", "j-1", "j-2"])
    scene = _scene(FORCE | ON)
    scene.session()
    scene.replace("j-1", "")
    scene.sessions(11)
    assert decision(scene.session(), "j").row == "D13"


def test_a_rack_policy_has_stages_of_its_own() -> None:
    annotations = {
        "huawei.com/schedule_policy": "chip8-node8-ra64-sp",
        "ra-block": "16",
        "sp-block": "32",
    }
    scene = Scene(count=8)
    scene.add("j", [f"n{n}" for n in range(1, 9)], FORCE | ON, annotations=annotations)
    scene.chips["n6"] = Chips(unhealthy=[3])
    assert deleted(scene.session()) == {"j-5": 0}
    scene.replace("j-5", "")
    stages = [sorted(deleted(report)) for report in scene.sessions(12)]
    assert [number for number, gone in enumerate(stages, 1) if gone] == [3]
    assert stages[2] == ["j-4", "j-5"]
    for pod in ("j-4", "j-5"):
        scene.replace(pod, "")
    stages = [sorted(deleted(report)) for report in scene.sessions(3)]
    assert [gone for gone in stages if gone] == [["j-4", "j-5", "j-6", "j-7"]]


def test_a_multilevel_job_widens_by_blocks() -> None:
    annotations = {
        "huawei.com/schedule_policy": "multilevel",
        "huawei.com/affinity-config": "level1=2,level2=4",
    }
    scene = Scene(count=8)
    scene.add("j", [f"n{n}" for n in range(1, 9)], FORCE | ON, annotations=annotations)
    scene.chips["n6"] = Chips(unhealthy=[3])
    assert deleted(scene.session()) == {"j-5": 0}
    scene.replace("j-5", "")
    reports = scene.sessions(6)
    assert not any(map(deleted, reports[:5]))
    found = decision(reports[5], "j")
    assert (found.row, found.scope, sorted(deleted(reports[5]))) == (
        "D12",
        Scope.BLOCK,
        ["j-4", "j-5"],
    )
    for pod in ("j-4", "j-5"):
        scene.replace(pod, "")
    reports = scene.sessions(6)
    assert decision(reports[5], "j").row == "D13"
    assert len(deleted(reports[5])) == 8


def test_a_multilevel_job_whose_rank_0_is_in_the_block_goes_as_a_whole() -> None:
    annotations = {
        "huawei.com/schedule_policy": "multilevel",
        "huawei.com/affinity-config": "level1=2",
    }
    scene = Scene()
    scene.add("j", ["n1", "n2", "n3", "n4"], FORCE | ON, annotations=annotations)
    scene.chips["n2"] = Chips(unhealthy=[3])
    assert deleted(scene.session()) == {"j-1": 0}
    scene.replace("j-1", "")
    report = scene.sessions(6)[5]
    assert (decision(report, "j").row, len(deleted(report))) == ("D10", 4)


@pytest.mark.parametrize("config", ["", "level1", "level1=3", "level2=2", "level1=0", "level1=x"])
def test_a_multilevel_job_without_a_tree_loses_no_pod(config: str) -> None:
    annotations = {
        "huawei.com/schedule_policy": "multilevel",
        "huawei.com/affinity-config": config,
    }
    scene = Scene()
    scene.add("j", ["n1", "n2", "n3", "n4"], FORCE | ON, annotations=annotations)
    scene.chips["n2"] = Chips(unhealthy=[3])
    report = scene.session()
    found = decision(report, "j")
    assert (found.action, found.pods) == (Action.NONE, ())
    assert "affinity-config" in found.why
    assert not scene.state.jobs["default/j"].is_executed


@pytest.mark.parametrize("times", [{}, {"fault-retry-times": "2"}])
def test_a_pod_that_fails_joins_once_the_first_deletion_is_complete(times: dict[str, str]) -> None:
    scene = _scene(GRACE | ON | times)
    assert deleted(scene.session()) == {"j-1": 30}
    scene.change("j-1", is_terminating=True)
    scene.change("j-2", phase="Failed")
    assert not deleted(scene.session())
    scene.replace("j-1", "")
    report = scene.session()
    assert deleted(report) == {"j-1": 0, "j-2": 0}
    assert [one.type for one in decision(report, "j").fault_pods] == ["CardUnhealthy", "pod-failed"]
    assert scene.state.retries == {"default/j": int(times.get("fault-retry-times", "0"))}


def test_without_retries_a_pod_that_fails_does_not_join_in_corrected() -> None:
    scene = _scene(FORCE | ON)
    scene.options = corrected()
    assert deleted(scene.session()) == {"j-1": 0}
    scene.replace("j-1", "")
    scene.change("j-2", phase="Failed")
    report = scene.session()
    assert (deleted(report), sections(report)) == ({}, {7})


def test_process_recovery_of_racks_stops_at_the_rack_block() -> None:
    annotations = {"huawei.com/schedule_policy": "chip8-node8-ra64-sp", "ra-block": "16"}
    labels = FORCE | {"process-recover-enable": "on"}
    scene = Scene(count=8)
    scene.add("j", [f"n{n}" for n in range(1, 9)], labels, annotations=annotations)
    scene.chips["n6"] = Chips(unhealthy=[3])
    assert deleted(scene.session()) == {"j-5": 0}
    scene.replace("j-5", "")
    stages = [sorted(deleted(report)) for report in scene.sessions(3)]
    assert stages == [[], [], ["j-4", "j-5"]]
    for pod in ("j-4", "j-5"):
        scene.replace(pod, "")
    assert not any(map(deleted, scene.sessions(15)))
    assert scene.state.jobs["default/j"].pending == 5


def test_relation_faults_block_links_for_twenty_seconds() -> None:
    link = {**fault(2, "NotHandleFault", "81078603")}
    scene = Scene(count=2)
    scene.add("j", ["n1"], FORCE)
    scene.chips["n1"] = Chips(faults=[link])
    scene.change("j-0", labels=FORCE | {"fault-type": "Separate"})
    scene.add("two", ["", ""], FORCE)
    seen = scene.now
    assert deleted(scene.session()) == {"j-0": 0}
    scene.pods.pop("j-0")
    (placed,) = scene.session().placement
    assert placed.refuses["n1"].startswith("NetworkCards: ")
    scene.now = seen + 19
    (placed,) = scene.session().placement
    assert "n1" in placed.refuses
    assert scene.now == seen + 20
    (placed,) = scene.session().placement
    assert "n1" in placed.accepts


@pytest.mark.parametrize(
    ("code", "handling", "blocks"),
    [
        ("81078603", "NotHandleFault", True),
        ("80E01801,81078603", "NotHandleFault", False),
        ("81078603", "SubHealthFault", False),
    ],
)
def test_only_a_link_that_is_down_alone_is_blocked(code: str, handling: str, blocks: bool) -> None:
    scene = Scene(count=1)
    scene.add("j", ["n1"], FORCE | {"fault-type": "Separate"})
    scene.chips["n1"] = Chips(faults=[fault(2, handling, code)])
    scene.session()
    scene.pods.clear()
    scene.add("two", ["", ""], FORCE)
    (placed,) = scene.session().placement
    assert (placed.accepts == ()) == blocks


def test_edits_of_labels_do_not_count_while_a_job_is_cached() -> None:
    scene = _scene({"fault-scheduling": "Force"})
    assert decision(scene.session(), "j").row == "D5"
    scene.groups["j"].labels["fault-scheduling"] = "force"
    for pod in list(scene.pods):
        scene.change(pod, labels=FORCE)
    assert decision(scene.session(), "j").row == "D5"
    scene.now += 1200
    assert len(deleted(scene.session())) == 3


@pytest.mark.parametrize(
    ("group", "pods", "row"),
    [
        ({"fault-scheduling": "external-force"}, FORCE, "D5"),
        (FORCE, {"fault-scheduling": "FORCE"}, "D15"),
        (FORCE | {"fault-retry-times": "10"}, {"fault-retry-times": "1"}, "D8"),
        (FORCE | {"fault-retry-times": "10"}, {"fault-retry-times": "10"}, "D15"),
    ],
)
def test_labels_that_differ_are_joined_unless_one_is_there_already(
    group: dict[str, str], pods: dict[str, str], row: str
) -> None:
    scene = Scene()
    scene.add("j", ["n1", "n2"], group)
    scene.change("j-0", labels=pods)
    scene.change("j-1", labels=pods)
    if "fault-retry-times" in pods:
        scene.change("j-1", phase="Failed")
    else:
        scene.chips["n2"] = Chips(unhealthy=[3])
    report = scene.session()
    assert [one.row for one in report.decisions] == [row]


def test_software_becomes_a_fault_with_a_newly_failed_pod() -> None:
    scene = _scene(FORCE | ON | {"fault-retry-times": "2"})
    scene.session()
    scene.change("j-0", labels=scene.pods["j-0"].labels | {"fault-type": "software"})
    assert not deleted(scene.session())
    scene.chips["n3"] = Chips(unhealthy=[1])
    scene.change("j-2", phase="Failed")
    scene.replace("j-1", "")
    report = scene.session()
    assert [one.type for one in decision(report, "j").fault_pods] == [
        "process-exception",
        "CardUnhealthy",
        "pod-failed",
    ]
    assert sorted(deleted(report)) == ["j-0", "j-1", "j-2"]
