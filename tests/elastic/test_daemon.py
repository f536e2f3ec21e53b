"""``vigil elastic`` on a real API server: what it writes, when, and when it does not."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from contract.documents.elastic_job import KEPT, LEASE, RESTORE, SWITCH
from tests.elastic.bed import Bed
from tests.parts.controlplane import ControlPlane
from tests.parts.exposition import ELASTIC, listed, scraped
from tests.parts.volcano import GROUPS, JOBS, Volcano, install

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.elastic.bed import Elastic

pytestmark = [pytest.mark.apiserver, pytest.mark.daemon, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    directory = tmp_path_factory.mktemp("elastic")
    with ControlPlane(tmp_path_factory.mktemp("plane"), audited=True) as plane:
        install(plane)
        made = Bed(directory, Volcano(plane), 3)
        try:
            with made.volcano:
                yield made
        finally:
            made.stop()


@pytest.fixture
def elastic(bed: Bed, request: pytest.FixtureRequest) -> Iterator[Elastic]:
    """A daemon that acts, unless ``dry`` is in the name of the test."""
    is_dry = "dry" in request.node.name
    daemon = bed.elastic(request.node.name, *(() if is_dry else ("--act",)))
    daemon.start()
    yield daemon
    daemon.stop()
    for name in bed.nodes:
        bed.report(name)
    for one in bed.plane.request("GET", JOBS)["items"]:
        name = one["metadata"]["name"]
        bed.plane.request("DELETE", f"{JOBS}/{name}")
        for pod in bed.volcano.pods(name):
            bed.plane.ask("DELETE", f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}")
        bed.sees(lambda name=name: not bed.volcano.pods(name), "its pods stay")  # type: ignore[misc]
        bed.plane.ask("DELETE", f"{GROUPS}/{name}-{one['metadata']['uid']}")


def test_a_job_goes_on_with_the_pods_that_there_is_room_for(bed: Bed, elastic: Elastic) -> None:
    """Three hosts, one loses a chip: two pods, the same object, nothing while a pod lives."""
    uid = bed.train("multi", 3)
    assert elastic.state("multi")[0] in ("running", "starting")
    bed.report("n0", unhealthy=(3,))
    bed.volcano.holds = {"multi-w-2"}
    bed.volcano.evict("multi")
    bed.sees(lambda: bed.volcano.phase("multi") == "Terminating", "it does not end")
    bed.sees(lambda: len(bed.volcano.pods("multi")) == 1, "two pods end")
    time.sleep(1)
    assert bed.size("multi") == (3, 3), "nothing is written while a pod lives"
    assert KEPT not in bed.volcano.job("multi")["metadata"]["annotations"]
    bed.volcano.holds = set()
    bed.sees(lambda: bed.size("multi") == (2, 2), "the size is written")
    bed.volcano.until("multi", "Running")
    job = bed.volcano.job("multi")
    assert job["metadata"]["uid"] == uid
    assert job["metadata"]["annotations"]["distributed"] == "true"
    nodes = {pod["spec"]["nodeName"] for pod in bed.volcano.pods("multi")}
    assert len(nodes) == 2
    kept = json.loads(job["metadata"]["annotations"][KEPT])
    assert (kept["original"]["replicas"], kept["cause"]) == (3, "CardUnhealthy on n0")
    bed.sees(lambda: any(reason == "ElasticStart" for reason, _ in bed.events("multi")), "an Event")
    bed.sees(lambda: elastic.state("multi")[0] == "running", "it runs")
    metrics = elastic.ask("/metrics")
    assert "npu_vigil_elastic_starts_total 1.0" in metrics
    own = {key: one for key, one in scraped(metrics).items() if "_elastic_" in key}
    assert own == listed(ELASTIC)


def test_a_single_host_goes_on_with_fewer_chips(bed: Bed, elastic: Elastic) -> None:
    """One chip of each host is bad, so eight do not fit, and four do."""
    uid = bed.train("single", 1, action="RestartJob")
    for name in bed.nodes:
        bed.report(name, unhealthy=(0,))
    time.sleep(0.5)
    bed.volcano.evict("single")
    bed.sees(lambda: KEPT in bed.volcano.job("single")["metadata"]["annotations"], "it is written")
    bed.volcano.until("single", "Running")
    job = bed.volcano.job("single")
    assert job["metadata"]["uid"] == uid
    amounts = job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"]
    assert amounts["limits"] == amounts["requests"] == {"huawei.com/Ascend910": "4"}
    assert bed.size("single") == (1, 1)
    assert elastic.state("single")[0] in ("running", "starting")


def test_it_waits_for_room_and_takes_the_original_size_again(bed: Bed, elastic: Elastic) -> None:
    bed.train("waits", 2, least="2")
    for name in bed.nodes[1:]:
        bed.report(name, unhealthy=(1,))
    time.sleep(0.5)
    bed.volcano.evict("waits", node="n1")
    bed.sees(lambda: elastic.state("waits")[0] == "waiting-for-room", "it waits")
    bed.sees(lambda: "there is room for" in elastic.state("waits")[1], "it says for what")
    assert bed.size("waits") == (2, 2)
    bed.report("n2")
    bed.volcano.until("waits", "Running")
    assert bed.size("waits") == (2, 2)


def test_what_ended_without_a_fault_stays_ended(bed: Bed, elastic: Elastic) -> None:
    bed.train("done", 2)
    bed.volcano.evict("done", reason="pod-failed")
    bed.volcano.until("done", "Terminated")
    bed.sees(lambda: elastic.state("done")[0] == "no-cause", "no cause")
    time.sleep(1.5)
    assert bed.volcano.phase("done") == "Terminated"


def test_a_kill_between_the_two_writes_is_gone_over(bed: Bed, elastic: Elastic) -> None:
    """The controller stands still, so that the second write is the last; both are made once."""
    bed.train("killed", 2)
    bed.volcano.evict("killed")
    bed.volcano.until("killed", "Terminated")
    bed.sees(lambda: KEPT in bed.volcano.job("killed")["metadata"]["annotations"], "first write")
    elastic.kill()
    elastic.start()
    bed.volcano.until("killed", "Running")
    kept = json.loads(bed.volcano.job("killed")["metadata"]["annotations"][KEPT])
    assert (kept["start"], len(kept["starts_ms"])) == (1, 1)


def test_what_the_owner_sets_is_the_original_from_then_on(bed: Bed, elastic: Elastic) -> None:
    bed.train("owned", 3)
    bed.report("n0", unhealthy=(3,))
    time.sleep(0.5)
    bed.volcano.evict("owned")
    bed.sees(lambda: bed.size("owned") == (2, 2), "two pods")
    bed.volcano.until("owned", "Running")
    spec = bed.volcano.job("owned")["spec"]
    spec["tasks"][0]["replicas"] = spec["tasks"][0]["minAvailable"] = spec["minAvailable"] = 1
    bed.plane.request("PATCH", f"{JOBS}/owned", {"spec": spec})
    bed.sees(
        lambda: any(reason == "ElasticOriginalSize" for reason, _ in bed.events("owned")),
        "an Event names who wrote",
    )
    found = json.loads(elastic.ask("/api/v1/elastic"))["jobs"]
    assert next(one["original"] for one in found if one["name"] == "owned") == "1 × 8"


def test_pods_that_failed_by_themselves_go_first(bed: Bed, elastic: Elastic) -> None:
    """A chip under a pod failed, and the pod with it; a start over that pod would fail at once."""
    bed.volcano.fails = {"self"}
    bed.plane.request("POST", JOBS, bed.fresh("self", 2))
    bed.sees(lambda: any(_failed(pod) for pod in bed.volcano.pods("self")), "a pod fails")
    pod = next(pod for pod in bed.volcano.pods("self") if _failed(pod))
    node = pod["spec"]["nodeName"]
    bed.plane.request(
        "PATCH",
        f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}",
        {"metadata": {"annotations": {"huawei.com/AscendReal": "Ascend910-3"}}},
    )
    bed.volcano.until("self", "Failed")
    bed.volcano.fails = set()
    bed.report(node, unhealthy=(3,))
    bed.sees(lambda: bed.size("self")[0] == 2 and not _any_failed(bed, "self"), "made anew")
    bed.volcano.until("self", "Running")
    assert elastic.state("self")[0] in ("running", "starting")


def _failed(pod: dict[str, Any]) -> bool:
    found: bool = pod["status"]["phase"] == "Failed"
    return found


def _any_failed(bed: Bed, name: str) -> bool:
    return any(_failed(pod) for pod in bed.volcano.pods(name))


def test_off_and_conditions(bed: Bed, elastic: Elastic) -> None:
    bed.train("off", 2, least=" 2")
    bed.sees(lambda: elastic.state("off")[0] == "conditions", "a condition does not hold")
    bed.sees(lambda: any("' 2'" in text for _, text in bed.events("off")), "an Event says it")
    annotations = {"minReplicas": "1", SWITCH: "off"}
    bed.plane.request("PATCH", f"{JOBS}/off", {"metadata": {"annotations": annotations}})
    bed.volcano.evict("off")
    bed.volcano.until("off", "Terminated")
    bed.sees(lambda: "elastic on" in elastic.state("off")[1], "it is off")
    time.sleep(1)
    assert bed.volcano.phase("off") == "Terminated"


def test_a_dry_run_writes_its_lease_only(bed: Bed, elastic: Elastic) -> None:
    """By the API server's own audit log."""
    before = len(bed.plane.audit())
    bed.train("dry", 2)
    bed.volcano.evict("dry")
    bed.sees(lambda: elastic.state("dry")[0] == "ready", "it would write")
    time.sleep(1)
    assert KEPT not in bed.volcano.job("dry")["metadata"]["annotations"]
    assert bed.volcano.phase("dry") == "Terminated"
    requests = bed.plane.audit()[before:]
    mine = [one for one in requests if one["user"]["username"].endswith(":npu-vigil-elastic")]
    written = {
        (one["objectRef"]["resource"], one["objectRef"]["name"])
        for one in mine
        if one["verb"] not in ("get", "list", "watch")
    }
    assert mine
    assert written <= {("leases", LEASE)}


def test_what_people_ask(bed: Bed, elastic: Elastic) -> None:
    """``list``, ``show``, ``off``, ``on`` and ``restore``, with the administrator's rights."""
    bed.train("asked", 2)
    shown = _vigil(bed, "show", "default/asked", "--json")
    one = json.loads(shown)
    assert (one["state"], one["size"], one["original"]) == ("running", "2 × 8 chips", "2 × 8 chips")
    assert one["conditions"] == {}
    _vigil(bed, "off", "default/asked")
    text = _vigil(bed, "show", "default/asked")
    assert "not met   switch: annotation npu-vigil/elastic is off" in text
    assert "default/asked  conditions" in _vigil(bed, "list")
    _vigil(bed, "on", "default/asked")
    assert SWITCH not in bed.volcano.job("asked")["metadata"]["annotations"]
    uid = bed.volcano.job("asked")["metadata"]["uid"]
    _vigil(bed, "restore", "default/asked", "--now", "--yes")
    bed.sees(lambda: KEPT in bed.volcano.job("asked")["metadata"]["annotations"], "it starts")
    bed.volcano.until("asked", "Running")
    job = bed.volcano.job("asked")
    assert job["metadata"]["uid"] == uid
    assert RESTORE not in job["metadata"]["annotations"]
    assert elastic.state("asked")[0] in ("running", "starting")


def test_a_job_that_is_none(bed: Bed) -> None:
    assert _status(bed, "show", "asked")[0] == 2
    status, text = _status(bed, "show", "default/nobody")
    assert status == 3
    assert "not found" in text


def _status(bed: Bed, *arguments: str) -> tuple[int, str]:
    where = ("--kubeconfig", str(bed.plane.kubeconfig))
    done = subprocess.run(
        [sys.executable, "-m", "vigil", "elastic", *arguments, *where],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def _vigil(bed: Bed, *arguments: str) -> str:
    status, text = _status(bed, *arguments)
    assert status == 0, text
    return text
