"""What others do about a process that failed, where Volcano does nothing (``consumers#2.9``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from advisor.advise import Advisor
from advisor.options import AdvisorOptions, Profile
from advisor.report import Action, JobDecision
from advisor.snapshot import Container, ControllingOwner, LifecyclePolicy, VcJob, WorkloadObject
from contract.scheduling import LWS_GROUP_INDEX, LWS_NAME, LWS_WORKER_INDEX
from tests.advisor.scene import FORCE, Scene, corrected, decision

if TYPE_CHECKING:
    from collections.abc import Mapping

PROFILES = [AdvisorOptions(profile=Profile.UPSTREAM), corrected()]
RETRIES = {"fault-retry-times": "3"}


def failed(scene: Scene, name: str = "j-1") -> JobDecision:
    """Let a pod be ``Failed``, and return the decision about its job."""
    scene.change(name, phase="Failed", containers=(Container("c", exit_code=1),))
    return decision(scene.session(), "j")


def owned_by(kind: str, options: AdvisorOptions = PROFILES[0]) -> Scene:
    scene = Scene(options=options)
    scene.add("j", ["n1", "n2"], FORCE, owner=ControllingOwner(kind, "made", "uid-of-made"))
    return scene


@pytest.mark.parametrize("options", PROFILES)
def test_the_kubelet_restarts_a_container_of_a_deployment(options: AdvisorOptions) -> None:
    scene = owned_by("ReplicaSet", options)
    scene.restarted("j-1", 1)
    found = decision(scene.session(), "j")
    assert (found.action, found.row, found.also_deleted, found.gap) == (Action.NONE, "D8", (), "")
    assert "fault-retry-times" in found.why
    assert "kubelet restarts the container of j-1 in place" in found.follow_up
    assert [pod.name for pod in found.fault_pods] == ["j-1"]


def test_without_fault_scheduling_that_is_the_reason() -> None:
    scene = Scene()
    scene.add("j", ["n1", "n2"], owner=ControllingOwner("ReplicaSet", "r", "u"))
    scene.restarted("j-1", 1)
    found = decision(scene.session(), "j")
    assert found.row == "D2"
    assert "kubelet" in found.follow_up


@pytest.mark.parametrize(
    ("kind", "text", "goes"),
    [
        ("PodSet", "j-1 stays Failed", []),
        ("RoleSet", "RoleSet controller of AIBrix deletes j-1", ["j-1"]),
        ("ReplicaSet", "makes a pod anew for each; j-1 stays Failed", []),
        ("StatefulSet", "StatefulSet controller deletes j-1", ["j-1"]),
        ("AscendJob", "the Ascend Operator fails AscendJob default/made", []),
    ],
)
def test_who_acts_on_a_pod_that_is_failed(kind: str, text: str, goes: list[str]) -> None:
    found = failed(owned_by(kind))
    assert text in found.follow_up
    assert ([pod.name for pod in found.also_deleted], found.gap) == (goes, "")


def test_a_pod_set_that_recreates_deletes_the_others() -> None:
    scene = owned_by("PodSet")
    scene.workloads = [WorkloadObject("PodSet", "default", "made", policy="Recreate")]
    found = failed(scene)
    assert [pod.name for pod in found.also_deleted] == ["j-0"]


def test_a_pod_without_owner_stays_failed() -> None:
    scene = owned_by("PodSet")
    scene.change("j-1", owner=None)
    assert failed(scene).follow_up == "j-1 stays Failed: no controller owns it"


def test_an_unknown_controller_is_not_known() -> None:
    scene = owned_by("Train")
    scene.change("j-1", phase="Failed")
    report = scene.session()
    assert decision(report, "j").follow_up.startswith("not known: what the controller of Train")
    assert not report.is_known
    assert not report.is_calm


@pytest.mark.parametrize(
    ("policies", "text", "goes"),
    [
        ((), "no policy for PodFailed", []),
        ((LifecyclePolicy(("PodEvicted",), "RestartJob"),), "no policy for PodFailed", []),
        ((LifecyclePolicy(("PodFailed",), "RestartJob"),), "RestartJob", ["j-0"]),
        ((LifecyclePolicy(("*",), "TerminateJob"),), "TerminateJob", ["j-0"]),
        ((LifecyclePolicy(("PodFailed",), "RestartTask"),), "RestartTask", []),
    ],
)
def test_a_vcjob_acts_by_its_policies(
    policies: tuple[LifecyclePolicy, ...], text: str, goes: list[str]
) -> None:
    scene = owned_by("Job")
    scene.vcjobs = [VcJob("default", "made", policies=policies)]
    found = failed(scene)
    assert text in found.follow_up
    assert ([pod.name for pod in found.also_deleted], found.gap) == (goes, "")


@pytest.mark.parametrize(
    "jobs", [[], [VcJob("default", "made", policies=(LifecyclePolicy((), "x"),))]]
)
def test_a_vcjob_that_is_not_there_or_has_exit_codes_is_not_known(jobs: list[VcJob]) -> None:
    scene = owned_by("Job")
    scene.vcjobs = jobs
    found = failed(scene)
    assert found.follow_up.startswith("not known: Job default/made")
    assert found.gap


def test_a_container_that_ended_while_others_run() -> None:
    scene = owned_by("PodSet")
    scene.change("j-1", restart_policy="Never", containers=(Container("c", exit_code=1),))
    found = decision(scene.session(), "j")
    assert "has ended and is not started again" in found.follow_up


def lws(
    policy: str | None,
    options: AdvisorOptions,
    labels: Mapping[str, str] = {},
    *,
    size: int = 2,
) -> Scene:
    """Return a group of a leader and a worker; without ``policy`` the set is not there."""
    scene = Scene(options=options)
    scene.add(
        "j", ["n1", "n2"], {**FORCE, **labels}, owner=ControllingOwner("StatefulSet", "s", "u")
    )
    for number in "01":
        own = {LWS_NAME: "s", LWS_GROUP_INDEX: "0", LWS_WORKER_INDEX: number}
        scene.change(f"j-{number}", labels={**FORCE, **labels, **own})
    if policy is not None:
        found = WorkloadObject("LeaderWorkerSet", "default", "s", policy=policy, size=size)
        scene.workloads = [found]
    return scene


@pytest.mark.parametrize("options", PROFILES)
@pytest.mark.parametrize(
    ("policy", "size", "goes", "is_known"),
    [
        ("RecreateGroupOnPodRestart", 2, ["j-0", "j-1"], True),
        ("RecreateGroupOnPodRestart", 3, ["j-0", "j-1"], True),
        ("RecreateGroupAfterStart", 2, ["j-0", "j-1"], True),
        ("RecreateGroupAfterStart", 3, [], True),
        ("None", 2, [], True),
        (None, 2, [], False),
    ],
)
def test_lws_acts_by_its_restart_policy(
    options: AdvisorOptions, policy: str | None, size: int, goes: list[str], is_known: bool
) -> None:
    scene = lws(policy, options, size=size)
    scene.restarted("j-1", 1)
    report = scene.session()
    found = decision(report, "j")
    assert "the kubelet restarts the container of j-1" in found.follow_up
    assert [pod.name for pod in found.also_deleted] == goes
    assert report.is_known is is_known
    assert report.is_calm is (is_known and not goes)
    assert not report.deletions, "the scheduler deletes none"


def test_lws_after_start_waits_for_a_pending_pod() -> None:
    scene = lws("RecreateGroupAfterStart", PROFILES[0])
    scene.change("j-0", phase="Pending")
    scene.restarted("j-1", 1)
    found = decision(scene.session(), "j")
    assert "j-0 is pending" in found.follow_up
    assert not found.also_deleted


@pytest.mark.parametrize("options", PROFILES)
def test_lws_acts_with_retries_where_the_corrected_profile_leaves_the_pod(
    options: AdvisorOptions,
) -> None:
    """The label of OME is there: ``corrected`` leaves a restarted container alone."""
    scene = lws("RecreateGroupOnPodRestart", options, RETRIES | {"ome.io/inferenceservice": "a"})
    scene.restarted("j-1", 1)
    found = decision(scene.session(), "j")
    gone = {pod.name for pod in found.pods} | {pod.name for pod in found.also_deleted}
    assert gone == {"j-0", "j-1"}


@pytest.mark.parametrize(
    ("policy", "faulty", "goes"),
    [
        ("RecreateGroupOnPodRestart", "n2", ["j-0"]),
        ("None", "n2", []),
        ("None", "n1", ["j-1"]),
    ],
)
def test_lws_follows_a_deletion_by_its_policy(policy: str, faulty: str, goes: list[str]) -> None:
    """Workers go with their leader, whatever the policy is."""
    scene = lws(policy, PROFILES[0], {"ome.io/inferenceservice": "a", "pod-rescheduling": "on"})
    scene.hosts[faulty] = "UnHealthy"
    found = decision(scene.session(), "j")
    assert len(found.pods) == 1
    assert [pod.name for pod in found.also_deleted] == goes


def test_an_lws_that_changes_is_looked_at_again() -> None:
    """The next session is computed from what changed, which is no pod."""
    scene, advisor = lws("None", PROFILES[0]), Advisor()
    scene.restarted("j-1", 1)
    found = []
    for policy in ("None", "None", "RecreateGroupOnPodRestart"):
        scene.workloads = [msgspec.structs.replace(scene.workloads[0], policy=policy)]
        report, scene.state = advisor.advise(scene.snapshot(), scene.state, scene.options)
        scene.is_first = False
        found.append(len(decision(report, "j").also_deleted))
    assert found == [0, 0, 2]
