"""``vigil elastic`` on a real API server: what it writes, when, and when it does not."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from typer.testing import CliRunner

from contract.documents.elastic_job import CAUSE, KEPT, LEASE, RESTORE, SWITCH
from contract.errors import ConfigurationError
from tests.elastic.bed import Bed
from tests.parts.deadlines import nothing_happens_for
from tests.parts.exposition import ELASTIC, listed, scraped
from tests.parts.verbs import run_verb
from tests.parts.volcano import COMMANDS, GROUPS, JOBS, Volcano, install, set_queue, uninstall
from vigil.main import app

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.elastic.bed import Elastic
    from tests.parts.controlplane import ControlPlane

_SOON_SECONDS = 0.3
"""In which a daemon that acts wrongly would have written."""

_STARTED = ("running", "starting")
"""The page may still show the last round of the daemon when Volcano has started the job."""

_PARTS = {"network_fault": "--network-faults", "dead_node": "--dead-nodes"}

pytestmark = [pytest.mark.apiserver, pytest.mark.daemon, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def bed(
    running_control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bed]:
    plane = running_control_plane
    plane.recover()
    plane.clean()
    install(plane)
    try:
        made = Bed(tmp_path_factory.mktemp("elastic"), Volcano(plane), 3)
        try:
            with made.volcano:
                yield made
        finally:
            made.stop()
    finally:
        uninstall(plane)


@pytest.fixture
def elastic(bed: Bed, request: pytest.FixtureRequest) -> Iterator[Elastic]:
    """Run a daemon that acts, unless ``dry`` is in the test's name; with the part named there."""
    name: str = request.node.name
    parts = [flag for word, flag in _PARTS.items() if word in name]
    daemon = bed.elastic(name, *(() if "dry" in name else ("--act",)), *parts)
    daemon.start()
    yield daemon
    daemon.stop()
    _clean(bed)


def _clean(bed: Bed) -> None:
    """Make all nodes healthy, and delete all jobs."""
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
    bed.sees(lambda: elastic.state("multi")[0] in _STARTED, "it starts")
    bed.fault("n0", (3,))
    bed.volcano.holds = {"multi-w-2"}
    bed.volcano.evict("multi")
    bed.sees(lambda: bed.volcano.phase("multi") == "Terminating", "it does not end")
    bed.sees(lambda: len(bed.volcano.pods("multi")) == 1, "two pods end")
    bed.sees(lambda: _left(elastic, "multi") == ["multi-w-2"], "it waits for one pod, by name")
    assert "since 20" in elastic.state("multi")[1]
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
        bed.fault(name, (0,))
    bed.volcano.evict("single")
    bed.sees(lambda: KEPT in bed.volcano.job("single")["metadata"]["annotations"], "it is written")
    bed.volcano.until("single", "Running")
    job = bed.volcano.job("single")
    assert job["metadata"]["uid"] == uid
    amounts = job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"]
    assert amounts["limits"] == amounts["requests"] == {"huawei.com/Ascend910": "4"}
    assert bed.size("single") == (1, 1)
    bed.sees(lambda: elastic.state("single")[0] in _STARTED, "it starts")


class Sized(NamedTuple):
    """A row of R60: a job, how many chips of n0, n1 and n2 are broken, and its size by hand."""

    replicas: int
    cards: int
    least: str
    broken: tuple[int, int, int]
    size: tuple[int, int] | None


SIZED = {
    "the original size, beside a spare node": Sized(2, 8, "1", (1, 0, 0), (2, 8)),
    "the largest number of pods": Sized(3, 8, "1", (1, 0, 0), (2, 8)),
    "the largest number of smaller pods": Sized(6, 4, "1", (1, 5, 0), (3, 4)),
    "just the smallest number of pods": Sized(6, 4, "5", (0, 4, 0), (5, 4)),
    "fewer than the smallest number of pods": Sized(3, 8, "2", (1, 1, 0), None),
    "half the chips of one pod": Sized(1, 8, "1", (1, 1, 1), (1, 4)),
    "a quarter of the chips of one pod": Sized(1, 8, "1", (8, 5, 8), (1, 2)),
    "one chip": Sized(1, 4, "1", (7, 8, 8), (1, 1)),
    "no chip": Sized(1, 8, "1", (8, 8, 8), None),
}


@pytest.mark.timeout(240)
def test_the_size_that_is_advised_is_the_one_that_is_written(bed: Bed, elastic: Elastic) -> None:
    """It is asked for after the last pod has ended, while the job is left alone.

    Seven rows start a job; ten starts within an hour are allowed in a cluster.
    """
    for number, (what, row) in enumerate(SIZED.items()):
        name = f"sized-{number}"
        bed.train(name, row.replicas, row.cards, least=row.least)
        for node, count in zip(bed.nodes, row.broken, strict=True):
            if count:
                bed.fault(node, tuple(range(count)))
        bed.leave(name, alone=True)
        bed.volcano.evict(name)
        bed.volcano.until(name, "Terminated")
        bed.sees(lambda name=name: not bed.volcano.pods(name), what)  # type: ignore[misc]
        advised = bed.advised(name)
        assert advised == row.size, what
        bed.leave(name, alone=False)
        if advised is None:
            bed.sees(partial(_is, elastic, name, "waiting-for-room"), what)
            assert KEPT not in _annotations(bed, name), what
        else:
            bed.sees(lambda name=name: KEPT in _annotations(bed, name), what)  # type: ignore[misc]
            bed.volcano.until(name, "Running")
        size = (bed.size(name)[0], bed.chips(name))
        assert size == (advised or (row.replicas, row.cards)), what
        _clean(bed)


def _is(elastic: Elastic, name: str, state: str) -> bool:
    return elastic.state(name)[0] == state


def test_it_waits_until_there_is_room(bed: Bed, elastic: Elastic) -> None:
    bed.train("waits", 2, least="2")
    for name in bed.nodes[1:]:
        bed.fault(name, (1,))
    bed.volcano.evict("waits", node="n1")
    bed.sees(lambda: elastic.state("waits")[0] == "waiting-for-room", "it waits")
    bed.sees(lambda: "there is room for" in elastic.state("waits")[1], "the reason has it")
    bed.sees(lambda: "ElasticWaitingForRoom" in dict(bed.events("waits")), "an Event")
    shown, listed_jobs = _vigil(bed, "show", "default/waits"), _vigil(bed, "list")
    for one in (shown, listed_jobs):
        assert elastic.state("waits")[1] in one, "people read the same"
    assert "CardUnhealthy on n1 (kept since 20" in shown
    assert "by the scheduler's record" in shown
    assert "record" in listed_jobs
    shown, listed_jobs = (
        run_verb(*("--lang", "zh", "elastic", *words, "--kubeconfig", str(bed.plane.kubeconfig)))[
            1
        ].decode()
        for words in (("show", "default/waits"), ("list",))
    )
    assert "  下一步    有足够的资源后重新启动\n" in shown
    assert listed_jobs.startswith("任务           状态")
    assert bed.size("waits") == (2, 2)
    bed.sees(lambda: not bed.volcano.has_record("waits"), "the scheduler has taken it back")
    elastic.kill()
    elastic.start()
    bed.sees(lambda: elastic.state("waits")[0] == "waiting-for-room", "it waits still")
    bed.report("n2")
    bed.volcano.until("waits", "Running")
    assert bed.size("waits") == (2, 2)


def test_it_waits_until_its_queue_is_open(bed: Bed, elastic: Elastic) -> None:
    bed.train("queued", 2)
    set_queue(bed.plane, "Closed")
    try:
        before = bed.volcano.job("queued")["spec"]
        bed.volcano.evict("queued")
        bed.sees(lambda: "queue default is Closed" in elastic.state("queued")[1], "it is named")
        bed.sees(lambda: "ElasticWaitingForRoom" in dict(bed.events("queued")), "an Event has it")
        nothing_happens_for(
            _SOON_SECONDS, because="the controller settles within _SETTLE_SECONDS, 0.02"
        )
        assert bed.volcano.job("queued")["spec"] == before
        assert KEPT not in _annotations(bed, "queued")
    finally:
        set_queue(bed.plane, "Open")
    bed.volcano.until("queued", "Running")
    assert KEPT in _annotations(bed, "queued")


def test_a_job_that_ended_without_a_fault_stays_ended(bed: Bed, elastic: Elastic) -> None:
    bed.has_history()
    bed.train("done", 2)
    bed.volcano.evict("done", reason="pod-failed")
    bed.volcano.until("done", "Terminated")
    bed.sees(lambda: elastic.state("done")[0] == "no-cause", "no cause")
    nothing_happens_for(
        _SOON_SECONDS, because="the controller settles within _SETTLE_SECONDS, 0.02"
    )
    assert bed.volcano.phase("done") == "Terminated"


def test_a_kill_between_the_two_writes_is_gone_over(bed: Bed, elastic: Elastic) -> None:
    """The right to the second write is missing meanwhile: that is named, and nothing is undone."""
    bed.train("killed", 2)
    with bed.without_right_to_status():
        bed.volcano.evict("killed")
        bed.sees(lambda: KEPT in _annotations(bed, "killed"), "the first write")
        bed.sees(lambda: elastic.state("killed")[0] == "refused", "the second is refused")
        assert "jobs/status" in elastic.state("killed")[1]
        bed.sees(lambda: "ElasticRefused" in dict(bed.events("killed")), "an Event has it")
        elastic.kill()
        assert bed.volcano.phase("killed") == "Terminated"
    elastic.start()
    bed.volcano.until("killed", "Running")
    kept = json.loads(_annotations(bed, "killed")[KEPT])
    assert (kept["start"], len(kept["starts_ms"])) == (1, 1)


def test_a_webhook_that_refuses_other_chips_leaves_the_job(bed: Bed, elastic: Elastic) -> None:
    bed.train("chips", 1)
    for name in bed.nodes:
        bed.fault(name, (0,))
    with bed.refusing_other_chips("chips"):
        before = bed.volcano.job("chips")["spec"]
        bed.volcano.evict("chips")
        bed.sees(lambda: elastic.state("chips")[0] == "refused", "the write is refused")
        assert "the chips of a job stay" in elastic.state("chips")[1]
        bed.sees(lambda: "ElasticRefused" in dict(bed.events("chips")), "an Event has it")
        assert bed.volcano.job("chips")["spec"] == before
        assert bed.volcano.phase("chips") == "Terminated"
        assert KEPT not in _annotations(bed, "chips")


def _annotations(bed: Bed, name: str) -> dict[str, str]:
    found: dict[str, str] = bed.volcano.job(name)["metadata"]["annotations"]
    return found


def _left(elastic: Elastic, name: str) -> list[str]:
    """Return the pods that the daemon waits for."""
    listed_ = elastic.state(name)[1].partition("pods that have not ended: ")[2]
    return [one.partition(" on ")[0] for one in listed_.split("; ") if one]


def test_a_size_that_the_owner_sets_is_the_original_from_then_on(
    bed: Bed, elastic: Elastic
) -> None:
    bed.train("owned", 3)
    bed.fault("n0", (3,))
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

    def original() -> str:
        jobs = json.loads(elastic.ask("/api/v1/elastic"))["jobs"]
        return next(str(job["original"]) for job in jobs if job["name"] == "owned")

    # The page may still show the round before.
    bed.sees(lambda: original() == "1 × 8", "the page has it")


def test_pods_that_failed_by_themselves_go_first(bed: Bed, elastic: Elastic) -> None:
    """A chip under a pod failed, and the pod with it; a start over that pod would fail at once."""
    bed.volcano.fails = {"self"}
    bed.plane.request("POST", JOBS, bed.fresh("self", 2))
    bed.sees(lambda: any(_failed(pod) for pod in bed.volcano.pods("self")), "a pod fails")
    pod = next(pod for pod in bed.volcano.pods("self") if _failed(pod))
    node = pod["spec"]["nodeName"]
    bed.uses(pod["metadata"]["name"], "Ascend910-3")
    bed.volcano.until("self", "Failed")
    bed.volcano.fails = set()
    bed.report(node, unhealthy=(3,))
    bed.sees(lambda: bed.size("self")[0] == 2 and not _any_failed(bed, "self"), "made anew")
    bed.volcano.until("self", "Running")
    bed.sees(lambda: elastic.state("self")[0] in _STARTED, "it starts")


def test_a_fault_under_another_pod_than_the_one_that_failed_is_the_cause(
    bed: Bed, elastic: Elastic
) -> None:
    """A link is down under one pod; the other one fails, and ends the job with both."""
    bed.volcano.fails, bed.volcano.holds = {"peer"}, {"peer-w-1"}
    bed.plane.request("POST", JOBS, bed.fresh("peer", 2))
    bed.sees(lambda: len([p for p in bed.volcano.pods("peer") if _is_bound(p)]) == 2, "it is bound")
    node = bed.volcano.pods("peer")[1]["spec"]["nodeName"]
    bed.uses("peer-w-1", "Ascend910-3")
    bed.report(node, network=(3,))
    bed.volcano.until("peer", "Failed")
    bed.sees(lambda: _left(elastic, "peer") == ["peer-w-1"], "the cause is found")
    bed.volcano.fails = bed.volcano.holds = set()
    bed.sees(lambda: KEPT in _annotations(bed, "peer"), "it is started again")
    assert f"NETWORK on {node}" in _annotations(bed, "peer")[KEPT]
    bed.volcano.until("peer", "Running")
    bed.sees(lambda: elastic.state("peer")[0] in _STARTED, "it starts")


def _is_bound(pod: dict[str, Any]) -> bool:
    return "nodeName" in pod["spec"]


def test_a_job_over_a_network_fault_is_ended_and_starts_again(bed: Bed, elastic: Elastic) -> None:
    """Volcano leaves it alone. The link is down for 20 s, and its pods end with their grace."""
    uid = bed.train("cut", 2)
    pod = next(pod for pod in bed.volcano.pods("cut") if pod["spec"]["nodeName"] == "n0")
    bed.uses(pod["metadata"]["name"], "Ascend910-3")
    bed.report("n0", network=(3,))
    waits = "NETWORK on n0: it has not stood for 20 s"
    bed.sees(lambda: waits in elastic.state("cut")[1], "the fault is seen")
    bed.sees(lambda: KEPT in _annotations(bed, "cut"), "it has ended", seconds=40)
    bed.volcano.until("cut", "Running")
    kept = json.loads(_annotations(bed, "cut")[KEPT])
    assert (kept["cause"], kept["size"]["replicas"]) == ("NETWORK on n0", 2)
    assert CAUSE not in _annotations(bed, "cut")
    assert bed.volcano.job("cut")["metadata"]["uid"] == uid
    bed.sees(lambda: "ElasticEnd" in dict(bed.events("cut")), "an Event has it")
    assert "npu_vigil_elastic_ends_total 1.0" in elastic.ask("/metrics")


def test_pods_on_a_dead_node_are_deleted_by_force(bed: Bed, elastic: Elastic) -> None:
    """Of three pods one hangs on a node that is silent and NotReady."""
    item = bed.fresh("hangs", 3)
    item["spec"]["tasks"][0]["template"]["spec"]["terminationGracePeriodSeconds"] = 1
    bed.plane.request("POST", JOBS, item)
    bed.volcano.until("hangs", "Running")
    pod = next(pod for pod in bed.volcano.pods("hangs") if pod["spec"]["nodeName"] == "n2")
    bed.volcano.holds = {pod["metadata"]["name"]}
    try:
        with bed.grace_over_time(2), bed.dead("n2"):
            bed.volcano.evict("hangs", reason="NodeUnhealthy", node="n2")
            bed.sees(lambda: KEPT in _annotations(bed, "hangs"), "its pod is gone, and it starts")
    finally:
        bed.volcano.holds = set()
    bed.sees(lambda: "ElasticPodsDeleted" in dict(bed.events("hangs")), "an Event has it")
    assert pod["metadata"]["name"] in dict(bed.events("hangs"))["ElasticPodsDeleted"]
    assert "npu_vigil_elastic_deleted_pods_total 1.0" in elastic.ask("/metrics")


def _failed(pod: dict[str, Any]) -> bool:
    found: bool = pod["status"]["phase"] == "Failed"
    return found


def _any_failed(bed: Bed, name: str) -> bool:
    return any(_failed(pod) for pod in bed.volcano.pods(name))


def test_off_and_conditions(bed: Bed, elastic: Elastic) -> None:
    bed.train("off", 2, least=" 2")
    bed.sees(lambda: elastic.state("off")[0] == "conditions", "a condition does not hold")
    bed.sees(lambda: any("' 2'" in text for _, text in bed.events("off")), "an Event has it")
    annotations = {"minReplicas": "1", SWITCH: "off"}
    bed.plane.request("PATCH", f"{JOBS}/off", {"metadata": {"annotations": annotations}})
    bed.volcano.evict("off")
    bed.volcano.until("off", "Terminated")
    bed.sees(lambda: "elastic on" in elastic.state("off")[1], "it is off")
    nothing_happens_for(
        _SOON_SECONDS, because="the controller settles within _SETTLE_SECONDS, 0.02"
    )
    assert bed.volcano.phase("off") == "Terminated"


def test_a_dry_run_writes_its_lease_only(bed: Bed, elastic: Elastic) -> None:
    """By the API server's own audit log."""
    before = len(bed.plane.audit())
    bed.train("dry", 2)
    bed.volcano.evict("dry")
    bed.sees(lambda: elastic.state("dry")[0] == "ready", "it would write")
    bed.sees(lambda: "dry run, nothing is written" in elastic.log.read_text(), "the log has it")
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


def test_states_and_reasons_are_shown_to_operators(bed: Bed, elastic: Elastic) -> None:
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
    _vigil(bed, "restore", "default/asked")
    assert "at its original size only" in _vigil(bed, "show", "default/asked")
    assert SWITCH not in bed.volcano.job("asked")["metadata"]["annotations"]
    uid = bed.volcano.job("asked")["metadata"]["uid"]
    _vigil(bed, "restore", "default/asked", "--now", "--yes")
    bed.sees(lambda: KEPT in bed.volcano.job("asked")["metadata"]["annotations"], "it starts")
    bed.volcano.until("asked", "Running")
    job = bed.volcano.job("asked")
    assert job["metadata"]["uid"] == uid
    assert RESTORE not in job["metadata"]["annotations"]
    bed.sees(lambda: elastic.state("asked")[0] in _STARTED, "it starts")


def test_a_job_that_is_none(bed: Bed) -> None:
    """As a process: the exit status is that of the command."""
    where = ("--kubeconfig", str(bed.plane.kubeconfig))
    for name, status, text in (("asked", 2, "NAMESPACE/NAME"), ("default/nobody", 3, "not found")):
        done = subprocess.run(
            [sys.executable, "-m", "vigil", "elastic", "show", name, *where],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, text in done.stderr) == (status, True), done.stderr


def test_a_job_that_would_not_start_again_is_not_ended_to_restore_it(bed: Bed) -> None:
    """Its labels are missing, or it is switched off: nothing is written, and each reason given."""
    other = bed.fresh("other", 1)
    other["metadata"]["labels"] = {}
    bed.plane.request("POST", JOBS, other)
    bed.train("left", 2)
    bed.leave("left", alone=True)
    bed.volcano.until("other", "Running")
    before = {name: bed.volcano.job(name) for name in ("other", "left")}
    for name, texts in (
        ("other", ("fault-scheduling", "elastic-scheduling")),
        ("left", ("vigil elastic on default/left",)),
    ):
        for options in (("--now", "--yes"), ()):
            with pytest.raises(ConfigurationError) as error:
                _vigil(bed, "restore", f"default/{name}", *options)
            assert all(text in str(error.value) for text in texts)
    assert bed.plane.request("GET", COMMANDS)["items"] == []
    assert {name: bed.volcano.job(name) for name in before} == before
    _clean(bed)


def _vigil(bed: Bed, *arguments: str) -> str:
    where = ("--kubeconfig", str(bed.plane.kubeconfig))
    done = CliRunner().invoke(app, ["elastic", *arguments, *where])
    if isinstance(done.exception, ConfigurationError):
        raise done.exception
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout
