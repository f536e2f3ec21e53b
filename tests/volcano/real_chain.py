"""From the driver to the job at its new size: every program is the real one but the scheduler.

Emulated driver, agent, aggregator, eviction as recorded, Volcano's job controller, ``vigil
elastic``.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from contract.documents.elastic_job import CAUSE, KEPT
from tests.advisor.player import recorded
from tests.parts.deadlines import let_time_pass, nothing_happens_for
from tests.parts.volcano import CHIPS, JOBS, PODS
from tests.volcano.changes import Change, Changes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.elastic.bed import Elastic
    from tests.volcano.site import Site

pytestmark = [pytest.mark.server, pytest.mark.daemon, pytest.mark.timeout(240)]

CRITICAL = "80E18005"
"""The third time within a day on the same chip it stays, so each test has a chip of its own."""
_OTHER_CRITICAL = "80C98001"
"""Has no such limit."""
_OWN_GRACE = 20
_QUOTAS = "/api/v1/namespaces/default/resourcequotas"
_STARTS = 8
_QUIET_SECONDS = 3
"""In which another start would be made."""


@pytest.fixture(scope="module")
def site(whole_site: Site) -> Site:
    return whole_site


@pytest.fixture
def elastic(site: Site, request: pytest.FixtureRequest) -> Iterator[Elastic]:
    """Run a daemon that acts, with the parts that Volcano has not."""
    name = request.node.name.partition("[")[0]
    daemon = site.elastic(name, "--act", "--network-faults")
    daemon.start()
    yield daemon
    daemon.stop()
    site.clean()


def _train(site: Site, name: str, replicas: int, action: str = "TerminateJob") -> str:
    """Create a job whose pods have a grace of their own; returns its uid when it runs."""
    item = site.fresh(name, replicas, action=action)
    item["spec"]["tasks"][0]["template"]["spec"]["terminationGracePeriodSeconds"] = _OWN_GRACE
    uid: str = site.plane.request("POST", JOBS, item)["metadata"]["uid"]
    site.volcano.until(name, "Running")
    return uid


def _deletions(changes: Changes, name: str) -> dict[str, int]:
    """Return the pods of a job that were deleted at its eviction, with their grace."""
    found: dict[str, int] = {}
    for one in changes.all("pod", "MODIFIED", lambda one: one.name.startswith(f"{name}-w-")):
        if "deletionTimestamp" in one.item["metadata"]:
            found.setdefault(one.name, one.item["metadata"]["deletionGracePeriodSeconds"])
    return found


def _is_evicted_as_recorded(site: Site, changes: Changes, name: str, recording: str) -> None:
    """Compare with the recording: all pods of the job, each with its own grace; and the cause."""
    rows = recorded(recording)["observed"]
    deleted = [row for row in rows if row["kind"] == "pod-delete" and row["by"] == "scheduler"]
    bound = {row["pod"] for row in rows if row["kind"] == "pod-bound"}
    assert {row["pod"] for row in deleted} == bound
    assert all("requested_grace_seconds" not in row for row in deleted)
    (decision,) = (
        one for one in site.around.evictions if one["job"].startswith(f"default/{name}-")
    )
    assert decision["action"] == "EVICT"
    before = {pod["name"] for pod in decision["pods"]}
    assert _deletions(changes, name) == dict.fromkeys(before, _OWN_GRACE)


def _started_again(
    site: Site, changes: Changes, name: str, uid: str, replicas: int, cards: int
) -> float:
    """Wait until a job runs at its new size; returns the seconds from last pod to PodGroup."""
    write = changes.first(
        "job", "MODIFIED", lambda one: one.name == name and _is_ours(one.item), 60
    )
    group = changes.first(
        "group",
        "ADDED",
        lambda one: one.name == f"{name}-{uid}" and one.revision > write.revision,
    )
    site.volcano.until(name, "Running")
    site.sees(lambda: len(site.volcano.pods(name)) == replicas, "it has its pods")
    job = site.volcano.job(name)
    assert job["metadata"]["uid"] == uid
    assert site.size(name) == (replicas, replicas)
    assert group.item["spec"]["minMember"] == replicas
    used = [
        pod["metadata"]["annotations"]["huawei.com/AscendReal"].split(",")
        for pod in site.volcano.pods(name)
    ]
    assert [len(one) for one in used] == [cards] * replicas
    amounts = job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"]
    assert amounts["limits"][CHIPS] == str(cards)
    gone = changes.all(
        "pod",
        "DELETED",
        lambda one: one.name.startswith(f"{name}-w-") and one.revision < group.revision,
    )
    assert write.revision > gone[-1].revision, "it is written while a pod lives"
    return group.at - gone[-1].at


def _is_ours(job: dict[str, Any]) -> bool:
    return KEPT in job["metadata"].get("annotations", {})


def _avoids(site: Site, name: str, node: str) -> None:
    nodes = {pod["spec"]["nodeName"] for pod in site.volcano.pods(name)}
    assert node not in nodes


def test_a_device_fault_under_a_job_of_three_hosts(site: Site, elastic: Elastic) -> None:
    uid = _train(site, "device", 3)
    node = site.node_of("device-w-1")
    with Changes(site.plane) as changes:
        site.breaks(node, 3, CRITICAL)
        _started_again(site, changes, "device", uid, 2, 8)
        _is_evicted_as_recorded(site, changes, "device", "resched-grace-vcjob")
    _avoids(site, "device", node)
    kept = site.volcano.job("device")["metadata"]["annotations"][KEPT]
    assert f"CardUnhealthy on {node}" in kept


def test_a_device_fault_under_a_job_of_one_host(site: Site, elastic: Elastic) -> None:
    """Each host has lost a chip, so eight do not fit, and four do."""
    uid = _train(site, "chips", 1)
    node = site.node_of("chips-w-0")
    with Changes(site.plane) as changes:
        for other in site.nodes:
            if other != node:
                site.breaks(other, 0, CRITICAL)
        site.breaks(node, 0, CRITICAL)
        _started_again(site, changes, "chips", uid, 1, 4)
        _is_evicted_as_recorded(site, changes, "chips", "resched-grace-vcjob")


def test_a_silent_node_under_a_job_of_three_hosts(site: Site, elastic: Elastic) -> None:
    """Its kubelet goes on; a node without one is another component's."""
    uid = _train(site, "silent", 3)
    node = site.node_of("silent-w-2")
    with Changes(site.plane) as changes:
        site.agents[node].kill()
        site.sees(lambda: site.is_lost(node), "cluster-info has the node as unhealthy")
        _started_again(site, changes, "silent", uid, 2, 8)
        _is_evicted_as_recorded(site, changes, "silent", "resched-node-not-ready")
    _avoids(site, "silent", node)
    kept = site.volcano.job("silent")["metadata"]["annotations"][KEPT]
    assert f"NodeUnhealthy on {node}" in kept


def test_a_silent_node_under_a_job_of_one_host(site: Site, elastic: Elastic) -> None:
    """The other hosts have lost a chip each, so it goes on with four on one of them."""
    uid = _train(site, "alone", 1)
    node = site.node_of("alone-w-0")
    with Changes(site.plane) as changes:
        for other in site.nodes:
            if other != node:
                site.breaks(other, 7, CRITICAL)
        site.agents[node].kill()
        site.sees(lambda: site.is_lost(node), "cluster-info has the node as unhealthy")
        _started_again(site, changes, "alone", uid, 1, 4)
        _is_evicted_as_recorded(site, changes, "alone", "resched-node-not-ready")
    _avoids(site, "alone", node)


def test_a_network_fault_under_a_job_of_three_hosts(site: Site, elastic: Elastic) -> None:
    """Volcano ends no job for it (consumers#2.4); the pods keep their grace all the same."""
    uid = _train(site, "network", 3)
    node = site.node_of("network-w-0")
    with Changes(site.plane) as changes:
        site.cuts(node, 2)
        changes.first("job", "MODIFIED", _is_terminating, 60)
        _started_again(site, changes, "network", uid, 2, 8)
        pods = [f"network-w-{number}" for number in range(3)]
        assert _deletions(changes, "network") == dict.fromkeys(pods, _OWN_GRACE)
    assert not [one for one in site.around.evictions if "/network-" in one["job"]]
    _avoids(site, "network", node)
    assert node in site.volcano.job("network")["metadata"]["annotations"][KEPT]


def _is_terminating(one: Change) -> bool:
    found: bool = one.item["status"]["state"]["phase"] == "Terminating"
    return found


def test_a_network_fault_under_a_job_of_one_host(site: Site, elastic: Elastic) -> None:
    """Such a job needs no network: it goes on, and starts there again when it ends by itself."""
    uid = _train(site, "inside", 1)
    node = site.node_of("inside-w-0")
    before = site.plane.request("GET", f"{PODS}/inside-w-0")["metadata"]["uid"]
    site.cuts(node, 2)
    assert site.volcano.phase("inside") == "Running"
    change = {"status": {"phase": "Failed"}}
    site.plane.request("PATCH", f"{PODS}/inside-w-0/status", change)
    site.sees(lambda: _is_ours(site.volcano.job("inside")), "the size is written")
    site.sees(lambda: _another_runs(site, "inside-w-0", before), "another pod runs", 60)
    site.volcano.until("inside", "Running")
    job = site.volcano.job("inside")
    assert (job["metadata"]["uid"], site.size("inside")) == (uid, (1, 1))
    assert f"NETWORK on {node}" in job["metadata"]["annotations"][KEPT]


def test_a_pod_fails_while_the_link_of_another_one_is_down(site: Site, elastic: Elastic) -> None:
    """The controller ends the other pod for that, and with it what shows the fault."""
    item = site.fresh("peers", 2)
    item["spec"]["policies"].append({"event": "PodFailed", "action": "TerminateJob"})
    uid = site.plane.request("POST", JOBS, item)["metadata"]["uid"]
    site.volcano.until("peers", "Running")
    site.around.graces = {"peers-w-0": 4}
    node = site.node_of("peers-w-0")
    site.cuts(node, 2)
    with Changes(site.plane) as changes:
        change = {"status": {"phase": "Failed"}}
        site.plane.request("PATCH", f"{PODS}/peers-w-1/status", change)
        changes.first("job", "MODIFIED", lambda one: _is_ours(one.item), 60)
        # Size 0 removes the pod that failed.
        site.sees(lambda: site.size("peers") == (2, 2) and _all_run(site, "peers", 2), "it runs")
        commands = changes.all("command", "ADDED", lambda _: True)
    assert not commands, "it was ended by a Command"
    job = site.volcano.job("peers")
    assert job["metadata"]["uid"] == uid
    assert f"NETWORK on {node}" in job["metadata"]["annotations"][KEPT]
    _avoids(site, "peers", node)


@pytest.mark.timeout(420)
def test_a_quota_that_is_used_up_is_named_and_nothing_is_started_over_and_over(
    site: Site, elastic: Elastic
) -> None:
    """The controller ends a job of which no pod can be made after 15 tries, 3 minutes."""
    _train(site, "quota", 2)
    node = site.node_of("quota-w-0")
    hard = {"pods": "0"}
    quota = {"metadata": {"name": "none"}, "spec": {"hard": hard}}
    made = site.plane.request("POST", _QUOTAS, quota)
    used = made | {"status": {"hard": hard, "used": {"pods": "0"}}}
    site.plane.request("PUT", f"{_QUOTAS}/none/status", used)
    try:
        site.agents[node].kill()
        site.sees(lambda: _is_ours(site.volcano.job("quota")), "it is started again", 90)
        site.sees(lambda: elastic.state("quota")[0] == "no-cause", "it has ended again", 300)
        assert "a quota is used up" in elastic.state("quota")[1]
        assert "exceeded quota: none" in str(site.events("quota"))
        nothing_happens_for(3, because="another start would follow the end at once")
        job = site.volcano.job("quota")
        assert job["status"]["state"]["phase"] == "Terminated"
        assert msgspec.json.decode(job["metadata"]["annotations"][KEPT])["start"] == 1
    finally:
        site.plane.request("DELETE", f"{_QUOTAS}/none")


def _all_run(site: Site, name: str, count: int) -> bool:
    phases = [pod["status"]["phase"] for pod in site.volcano.pods(name)]
    return phases == ["Running"] * count


def _another_runs(site: Site, name: str, uid: str) -> bool:
    """Return whether a pod of this name runs that is not the one with ``uid``."""
    status, pod = site.plane.ask("GET", f"{PODS}/{name}")
    is_another = status == 200 and pod["metadata"]["uid"] != uid
    return is_another and pod["status"]["phase"] == "Running"


@pytest.mark.parametrize(
    ("action", "chip"), [("TerminateJob", 4), ("RestartJob", 5), ("AbortJob", 6)]
)
def test_nothing_is_written_before_the_last_of_two_pods_is_gone(
    site: Site, elastic: Elastic, action: str, chip: int
) -> None:
    """One pod saves for 1 s, the other one for 4 s; with ``RestartJob`` the job fails at once."""
    name = action.lower()
    uid = _train(site, name, 2, action)
    site.around.graces = {f"{name}-w-0": 4, f"{name}-w-1": 1}
    with Changes(site.plane) as changes:
        site.breaks(site.node_of(f"{name}-w-0"), chip, CRITICAL)
        _started_again(site, changes, name, uid, 2, 8)
        assert _deletions(changes, name) == site.around.graces
        early = changes.first("pod", "DELETED", lambda one: one.name == f"{name}-w-1")
        late = changes.first("pod", "DELETED", lambda one: one.name == f"{name}-w-0")
    assert late.at - early.at > 1.5, "they ended together"


def _ends_by_a_fault(site: Site, name: str, grace: int, chip: int) -> str:
    """Let a chip of the node of the second pod break; all pods end after ``grace`` (s)."""
    site.around.graces = {f"{name}-w-{number}": grace for number in range(3)}
    node = site.node_of(f"{name}-w-1")
    site.breaks(node, chip, _OTHER_CRITICAL)
    site.sees(
        lambda: any(one["job"].startswith(f"default/{name}-") for one in site.around.evictions),
        "it is evicted",
    )
    return node


def _is_started_once(site: Site, changes: Changes, name: str, uid: str, size: int) -> None:
    """Check that one start follows, with the fault as its cause, and nothing remains of it."""
    _started_again(site, changes, name, uid, size, 8)
    nothing_happens_for(_QUIET_SECONDS, because="another start would follow the end at once")
    annotations = site.volcano.job(name)["metadata"]["annotations"]
    kept = msgspec.json.decode(annotations[KEPT])
    assert kept["start"] == 1
    assert CAUSE not in annotations


_GRACES = pytest.mark.parametrize(("grace", "chip"), [(1, 0), (30, 1)])


@_GRACES
@pytest.mark.parametrize("after", [0.0, 0.06, 0.5])
def test_a_kill_at_the_end(
    site: Site, elastic: Elastic, grace: int, chip: int, after: float
) -> None:
    """It is there again at once; the scheduler takes its record back within a second."""
    name = f"killed-{grace}-{int(after * 100)}"
    uid = _train(site, name, 3)
    with Changes(site.plane) as changes:
        _ends_by_a_fault(site, name, grace, chip + 2 * int(after > 0) + 2 * int(after > 0.1))
        changes.first("job", "MODIFIED", lambda one: _is(one, name, "Terminated"), 60)
        let_time_pass(after)
        elastic.kill()
        elastic.start()
        _is_started_once(site, changes, name, uid, 2)


@pytest.mark.parametrize(("grace", "chip"), [(1, 2), (30, 3)])
def test_an_orderly_end_before_that_of_the_job(
    site: Site, elastic: Elastic, grace: int, chip: int
) -> None:
    """It is there again 3 s after the end, when there is no record and no pod any more."""
    name = f"stopped-{grace}"
    uid = _train(site, name, 3)
    with Changes(site.plane) as changes:
        elastic.stop()
        _ends_by_a_fault(site, name, grace, chip)
        changes.first("job", "MODIFIED", lambda one: _is(one, name, "Terminated"), 60)
        let_time_pass(3)
        assert not site.around.has_record(name), "the record is gone"
        elastic.start()
        _is_started_once(site, changes, name, uid, 2)


@pytest.mark.parametrize(("grace", "chip"), [(1, 4), (30, 5)])
def test_the_leader_is_killed_at_the_end_and_another_one_leads(
    site: Site, elastic: Elastic, grace: int, chip: int
) -> None:
    name = f"taken-{grace}"
    second = site.elastic(f"{name}-second", "--act", "--network-faults")
    second.start()
    try:
        uid = _train(site, name, 3)
        with Changes(site.plane) as changes:
            _ends_by_a_fault(site, name, grace, chip)
            changes.first("job", "MODIFIED", lambda one: _is(one, name, "Terminated"), 60)
            elastic.kill()
            _is_started_once(site, changes, name, uid, 2)
    finally:
        second.stop()


@pytest.mark.parametrize("chip", [6, 7])
def test_a_restart_while_it_waits_for_room(site: Site, elastic: Elastic, chip: int) -> None:
    """The node recovers later, when nothing but the annotation shows that a fault was there."""
    name = f"waits-{chip}"
    item = site.fresh(name, 3, least="3")
    uid = site.plane.request("POST", JOBS, item)["metadata"]["uid"]
    site.volcano.until(name, "Running")
    with Changes(site.plane) as changes:
        _ends_by_a_fault(site, name, 1, chip)
        site.sees(lambda: elastic.state(name)[0] == "waiting-for-room", "it waits")
        elastic.stop() if chip == 6 else elastic.kill()
        let_time_pass(3)
        elastic.start()
        site.sees(lambda: elastic.state(name)[0] == "waiting-for-room", "it waits still")
        site.repair()
        _is_started_once(site, changes, name, uid, 3)


def _is(one: Change, name: str, phase: str) -> bool:
    return one.name == name and bool(one.item["status"]["state"]["phase"] == phase)


@pytest.mark.parametrize(
    ("replicas", "chip", "size"), [(3, 1, (2, 8)), (1, 2, (1, 4))], ids=["hosts", "chips"]
)
def test_the_size_that_is_advised_is_the_one_that_is_written(
    site: Site, elastic: Elastic, replicas: int, chip: int, size: tuple[int, int]
) -> None:
    """It is asked for after the last pod has ended, while no daemon acts."""
    elastic.stop()
    name = f"advised-{replicas}"
    uid = _train(site, name, replicas)
    nodes = [site.node_of(f"{name}-w-0")]
    if replicas == 1:
        nodes = [*(one for one in site.nodes if one not in nodes), *nodes]
    with Changes(site.plane) as changes:
        for node in nodes:
            site.breaks(node, chip, CRITICAL)
        site.volcano.until(name, "Terminated")
        site.sees(lambda: not site.volcano.pods(name), "its pods have ended")
        advised = site.advised(name)
        elastic.start()
        assert advised == size
        _started_again(site, changes, name, uid, *advised)


def test_a_podgroup_follows_the_last_pod_within_a_second(
    site: Site, elastic: Elastic, record_property: Callable[[str, object], None]
) -> None:
    """The median of eight starts, one after the other."""
    seconds = []
    for number in range(_STARTS):
        name = f"quick-{number}"
        uid = _train(site, name, 3, ("TerminateJob", "RestartJob", "AbortJob")[number % 3])
        with Changes(site.plane) as changes:
            site.breaks(site.node_of(f"{name}-w-1"), number, CRITICAL)
            seconds.append(_started_again(site, changes, name, uid, 2, 8))
        site.clean()
    median = statistics.median(seconds)
    record_property("last pod gone -> new PodGroup, p50", f"{median:.3f} s")
    assert median <= 1.0, seconds
