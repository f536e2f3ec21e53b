"""``normal`` is not sent for a job while a pod of it is missing (``docs/spec/clusterd.md#6``)."""

from __future__ import annotations

import msgspec
import pytest

from aggregator.grpc.interfaces import FAULT, NORMAL, FaultMsgSignal
from aggregator.inputs.node_context import JobState
from tests.aggregator.jobs.scene import Scene, fault, part, parts

BROKEN = fault(1, "RestartNPU", "80E18402")


def sized(scene: Scene, size: int, job: str = "job", **labels: str) -> None:
    """Give a job its PodGroup."""
    scene.lookup.all_jobs[job] = JobState(job, "default", job, labels=labels, size=size)
    scene.look(*(node for node, pods in scene.lookup.pods.items() if pods))


def two_pods(size: int = 2, nodes: int = 4) -> Scene:
    """Return a job on n0 and n1 with a fault on n0."""
    scene = Scene(nodes=nodes)
    sized(scene, size)
    scene.pod("a", "n0", "job", "0 1", rank=0)
    scene.pod("b", "n1", "job", "0 1", rank=1)
    scene.chips("n0", BROKEN)
    assert scene.job_view.pop_changed_jobs() == {"job"}
    return scene


def hit_nodes(scene: Scene, job: str = "job") -> list[str]:
    message = scene.job_view.message(job)
    assert message is not None
    assert message.signal_type == (FAULT if message.nodes else NORMAL)
    return [one.node_name for one in message.nodes]


def test_a_job_is_hit_until_the_replacement_has_its_chips() -> None:
    scene = two_pods()
    before = scene.job_view.message("job")
    scene.end("a", "n0")
    assert scene.job_view.message("job") == before
    assert scene.status() == (), "nothing hits a pod that the job has"
    scene.pod("c", "n2", "job", rank=0)
    assert scene.job_view.message("job") == before, "it has no chips yet"
    assert scene.job_view.pop_changed_jobs() == frozenset()
    scene.pod("c", "n2", "job", "0 1", rank=0)
    assert scene.job_view.pop_changed_jobs() == {"job"}
    assert scene.job_view.message("job") == FaultMsgSignal("job", NORMAL)
    scene.chips("n0", BROKEN, fault(0, "RestartNPU", "80E18402"))
    assert scene.job_view.pop_changed_jobs() == frozenset(), "the place is not its any more"


def test_all_pods_are_made_anew_one_after_the_other() -> None:
    scene = two_pods()
    scene.end("a", "n0")
    scene.end("b", "n1")
    assert hit_nodes(scene) == ["n0"]
    scene.pod("c", "n1", "job", "0 1", rank=0)
    assert hit_nodes(scene) == ["n0"]
    scene.pod("d", "n2", "job", "0 1", rank=1)
    assert hit_nodes(scene) == []


def test_a_replacement_on_a_place_that_is_hit_is_hit() -> None:
    scene = two_pods()
    scene.end("a", "n0")
    scene.pod("c", "n0", "job", "1", rank=0)
    assert hit_nodes(scene) == ["n0"]
    assert scene.job_view.pop_changed_jobs() == frozenset()


def test_a_left_place_may_recover_and_be_hit_again() -> None:
    scene = two_pods()
    scene.end("a", "n0")
    scene.chips("n0")
    assert scene.job_view.pop_changed_jobs() == {"job"}
    assert hit_nodes(scene) == []
    scene.publish("n0", node=parts("UnHealthy", part("CPU", 1, "SeparateFault", "00000001")))
    assert hit_nodes(scene) == ["n0"]
    del scene.lookup.nodes["n0"]
    scene.publish("n0", node=None, device=None)
    message = scene.job_view.message("job")
    assert message is not None
    assert [(one.node_ip, one.node_sn) for one in message.nodes] == [("192.168.0.0", "SN-n0")]


def test_a_deleted_job_is_over() -> None:
    scene = two_pods()
    scene.end("a", "n0")
    scene.end("b", "n1")
    assert scene.job_view.pop_changed_jobs() == frozenset()
    del scene.lookup.all_jobs["job"]
    scene.look("n1")
    assert scene.job_view.pop_changed_jobs() == {"job"}
    assert scene.job_view.message("job") is None
    assert not scene.job_view.faulty()


@pytest.mark.parametrize("size", [0, 1])
def test_a_job_that_was_scaled_in_is_complete(size: int) -> None:
    """Cover size 0, too: without its PodGroup it is not known how many pods the job is to have."""
    scene = two_pods()
    scene.end("a", "n0")
    assert hit_nodes(scene) == ["n0"]
    sized(scene, size)
    assert hit_nodes(scene) == []


@pytest.mark.parametrize("size", [0, 1, 3])
def test_nothing_is_held_where_no_pod_is_known_to_be_missing(size: int) -> None:
    """Cover jobs that are known by their pods, have more than they need, or were never complete."""
    scene = two_pods(size)
    scene.end("a", "n0")
    assert scene.job_view.message("job") == FaultMsgSignal("job", NORMAL)


def test_a_pod_that_never_has_chips_is_not_waited_for() -> None:
    scene = Scene(nodes=3)
    sized(scene, 2)
    scene.pod("master", "n1", "job")
    scene.pod("a", "n0", "job", "0 1")
    scene.chips("n0", BROKEN)
    scene.end("a", "n0")
    scene.pod("b", "n2", "job")
    assert hit_nodes(scene) == ["n0"], "the worker has none yet"
    scene.pod("b", "n2", "job", "0 1")
    assert hit_nodes(scene) == []


def test_an_inference_service_is_hit_while_an_instance_of_it_is_missing() -> None:
    scene = Scene(nodes=3)
    labels = {"jobID": "service", "app": "mindie-ms-server"}
    for job, node in (("one", "n0"), ("two", "n1")):
        sized(scene, 1, job, **labels)
        scene.pod(f"{job}-0", node, job, "0 1")
    scene.chips("n0", BROKEN)
    scene.end("one-0", "n0")
    assert hit_nodes(scene, "service") == ["n0"]
    scene.job_view.pop_changed_jobs()
    scene.pod("one-1", "n2", "one", "0 1")
    assert "service" in scene.job_view.pop_changed_jobs()
    assert hit_nodes(scene, "service") == []
    scene.chips("n2", BROKEN)
    scene.end("one-1", "n2")
    scene.job_view.pop_changed_jobs()
    del scene.lookup.all_jobs["one"]
    scene.look("n2")
    assert scene.job_view.pop_changed_jobs() == {"one", "service"}
    assert hit_nodes(scene, "service") == []


def test_levels_of_a_left_place_follow_the_node() -> None:
    scene = two_pods()
    scene.end("a", "n0")
    scene.chips("n0", msgspec.structs.replace(BROKEN, level="SubHealthFault"))
    message = scene.job_view.message("job")
    assert message is not None
    assert [one.fault_level for one in message.nodes] == ["SubHealthy"]
