"""What the real job controller does with a vcjob, without any program of ours (consumers#2.9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.elastic.jobs import as_written, vcjob
from tests.parts.deadlines import nothing_happens_for
from tests.parts.volcano import JOBS, PODS, QUEUES, set_queue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.volcano.jobs import Real

pytestmark = [pytest.mark.server, pytest.mark.timeout(120)]

_SOON_SECONDS = 1.0
"""In which the controller would have acted; it took 0.2 s at most."""
_CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
_CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


@pytest.fixture
def real(cluster: Real) -> Iterator[Real]:
    yield cluster
    cluster.clean()


def _restart(retries: int) -> dict[str, Any]:
    policies = [{"event": "PodEvicted", "action": "RestartJob"}]
    return {"maxRetry": retries, "policies": policies}


def test_restart_with_stored_max_retry_0_fails_with_the_first_pod(real: Real) -> None:
    """The other pod keeps its grace, and the PodGroup is gone, so Volcano forgets the job."""
    made = real.train("first", **_restart(0))
    real.around.holds = {"first-w-1"}
    real.delete_pods("first")
    real.around.until("first", "Failed")
    (left,) = real.around.pods("first")
    ends = left["metadata"]["deletionTimestamp"]
    assert left["metadata"]["name"] == "first-w-1"
    real.sees(lambda: real.group(made) is None, "the PodGroup goes")
    nothing_happens_for(_SOON_SECONDS, because="the controller deletes what is over at once")
    (still,) = real.around.pods("first")
    assert still["metadata"]["deletionTimestamp"] == ends, "its grace was changed"


def test_restart_with_retries_starts_at_full_size(real: Real) -> None:
    made = real.train("retries", **_restart(3))
    before = {pod["metadata"]["uid"] for pod in real.around.pods("retries")}
    real.delete_pods("retries")
    real.sees(lambda: _new(real, "retries", before) == 2, "both pods are made anew")
    real.around.until("retries", "Running")
    assert real.around.job("retries")["status"]["retryCount"] == 1
    assert real.group(made) is not None


def _new(real: Real, name: str, before: set[str]) -> int:
    return sum(1 for pod in real.around.pods(name) if pod["metadata"]["uid"] not in before)


@pytest.mark.parametrize("retries", [0, 3])
@pytest.mark.parametrize(
    ("action", "ending", "ended"),
    [("TerminateJob", "Terminating", "Terminated"), ("AbortJob", "Aborting", "Aborted")],
)
def test_terminate_and_abort_end_when_all_pods_have_ended(
    real: Real, action: str, ending: str, ended: str, retries: int
) -> None:
    name = f"{ended.lower()}-{retries}"
    policies = [{"event": "PodEvicted", "action": action}]
    real.train(name, maxRetry=retries, policies=policies)
    real.around.holds = {f"{name}-w-1"}
    real.delete_pods(name)
    real.around.until(name, ending)
    nothing_happens_for(_SOON_SECONDS, because="the controller deletes what is over at once")
    assert real.around.phase(name) == ending
    assert [pod["metadata"]["name"] for pod in real.around.pods(name)] == [f"{name}-w-1"]
    real.around.holds = set()
    real.around.until(name, ended)
    assert real.around.pods(name) == []


@pytest.mark.parametrize("retries", [0, 3])
def test_without_a_policy_each_pod_is_made_anew_at_once(real: Real, retries: int) -> None:
    name = f"none-{retries}"
    real.train(name, maxRetry=retries, policies=[])
    before = {pod["metadata"]["uid"] for pod in real.around.pods(name)}
    real.around.holds = {f"{name}-w-1"}
    real.delete_pods(name)
    real.sees(lambda: _new(real, name, before) == 1, "the ended pod is made anew")
    assert len(real.around.pods(name)) == 2, "the other one has not ended yet"
    real.around.holds = set()
    real.sees(lambda: _new(real, name, before) == 2, "so is the other one")
    assert real.around.job(name)["spec"]["tasks"][0]["replicas"] == 2


def test_max_retry_that_is_left_out_is_stored_as_3(real: Real) -> None:
    """At the creation, and at each full write by a client that leaves 0 out, as Go's does."""
    item = as_written(vcjob("stored", phase=""))
    del item["spec"]["maxRetry"]
    real.plane.request("POST", JOBS, item)
    assert real.stored_retries("stored") == 3
    real.train("rewritten", **_restart(0))
    assert real.stored_retries("rewritten") == 0
    whole = real.around.job("rewritten")
    del whole["spec"]["maxRetry"]
    del whole["metadata"]["resourceVersion"]
    answer = real.plane.ask("PUT", f"{JOBS}/rewritten", _with_version(real, "rewritten", whole))
    assert answer[0] == 200, answer
    assert real.stored_retries("rewritten") == 3


def _with_version(real: Real, name: str, item: dict[str, Any]) -> dict[str, Any]:
    version = real.around.job(name)["metadata"]["resourceVersion"]
    return item | {"metadata": item["metadata"] | {"resourceVersion": version}}


def test_a_generated_claim_makes_max_retry_3_and_is_owned_by_the_job(real: Real) -> None:
    """So deleting the job would delete its checkpoints."""
    volumes = [{"mountPath": "/checkpoints", "volumeClaim": _CLAIM}]
    made = real.train("claimed", **_restart(0), volumes=volumes)
    assert real.stored_retries("claimed") == 3
    name = real.around.job("claimed")["spec"]["volumes"][0]["volumeClaimName"]
    claim = real.plane.request("GET", f"{_CLAIMS}/{name}")
    (owner,) = claim["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Job", made["metadata"]["uid"])


def test_an_ended_job_starts_again_in_place_and_ends_the_same_way(real: Real) -> None:
    """The PodGroup has its name, and the pods the right number of pods."""
    made = real.train("again", 3, plugins={"svc": [], "env": []})
    for size in (2, 1):
        real.delete_pods("again")
        real.around.until("again", "Terminated")
        real.sees(lambda: real.group(made) is None, "the PodGroup goes")
        real.start_again("again", size)
        real.around.until("again", "Running")
        group = real.group(made)
        assert group is not None
        assert group["spec"]["minMember"] == size
        pods = real.around.pods("again")
        assert len(pods) == size
        assert {_number(real, pod) for pod in pods} == {str(size)}
        assert real.around.job("again")["metadata"]["uid"] == made["metadata"]["uid"]


def test_a_job_in_a_closed_queue_gets_its_podgroup_all_the_same(real: Real) -> None:
    """So it is not seen by a missing PodGroup; the scheduler takes none from such a queue."""
    made = real.train("closed")
    real.delete_pods("closed")
    real.around.until("closed", "Terminated")
    real.sees(lambda: real.group(made) is None, "the PodGroup goes")
    set_queue(real.plane, "Closed")
    try:
        real.start_again("closed", 2)
        real.sees(lambda: real.group(made) is not None, "the PodGroup is made")
        state = real.plane.request("GET", f"{QUEUES}/default")["status"]["state"]
        assert state == "Closed"
    finally:
        set_queue(real.plane, "Open")


def _number(real: Real, pod: dict[str, Any]) -> str:
    """Return what ``VC_W_NUM`` is in a pod."""
    (one,) = (each for each in pod["spec"]["containers"][0]["env"] if each["name"] == "VC_W_NUM")
    if "value" in one:
        value: str = one["value"]
        return value
    place = one["valueFrom"]["configMapKeyRef"]
    path = f"/api/v1/namespaces/default/configmaps/{place['name']}"
    found: str = real.plane.request("GET", path)["data"][place["key"]]
    return found


def test_pods_that_failed_by_themselves_stay_until_the_size_is_0(real: Real) -> None:
    """A start over them fails at once; size 0 and ``Pending`` removes them."""
    real.train("self", policies=[])
    for pod in real.around.pods("self"):
        path = f"{PODS}/{pod['metadata']['name']}/status"
        real.plane.request("PATCH", path, {"status": {"phase": "Failed"}})
    real.around.until("self", "Failed")
    before = {pod["metadata"]["uid"] for pod in real.around.pods("self")}
    assert len(before) == 2
    ended = _transitions(real, "self")
    real.start_again("self", 2)
    real.sees(lambda: _transitions(real, "self") > ended, "it fails at once")
    real.around.until("self", "Failed")
    assert {pod["metadata"]["uid"] for pod in real.around.pods("self")} == before
    real.start_again("self", 0)
    real.sees(lambda: real.around.pods("self") == [], "they are removed")
    real.start_again("self", 2)
    real.around.until("self", "Running")
    assert _new(real, "self", before) == 2


def _transitions(real: Real, name: str) -> int:
    """Return how often the job has failed."""
    conditions = real.around.job(name)["status"]["conditions"]
    return sum(1 for one in conditions if one["status"] == "Failed")
