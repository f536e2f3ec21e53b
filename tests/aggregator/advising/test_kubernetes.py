"""A real aggregator that advises, on a real API server."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from functools import partial
from pathlib import Path  # noqa: TC003  (a fixture names it)
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from typer.testing import CliRunner

from contract.errors import ConfigurationError
from stores.base import Document
from tests.advisor.controllers.motor_services import labels_of, rule_text
from tests.aggregator.advising.advised import post, reports, waiting
from tests.aggregator.nodes import T0, faulty, healthy, report
from tests.contract.documents.node_documents import config, fault
from tests.parts import pod_groups
from tests.parts.deadlines import patience
from tests.parts.definitions import ASCEND_JOBS, POD_GROUPS
from tests.parts.exposition import ADVISING, listed, scraped
from tests.vigil.advise import cluster
from vigil.main import app

if TYPE_CHECKING:
    from stores.base import Store
    from tests.aggregator.conftest import Make
    from tests.aggregator.daemon import Daemon
    from tests.parts.controlplane import ControlPlane

pytestmark = pytest.mark.apiserver

UID = "11111111-2222-3333-4444-666666666666"

_GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
_PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def kind() -> str:
    return "kubernetes"


def _deleted(daemon: Daemon) -> list[str]:
    upstream = reports(daemon).get("upstream", {"decisions": []})
    return sorted(pod["name"] for one in upstream["decisions"] for pod in one["pods"])


async def test_a_fault_is_published_and_advised_about(
    control_plane: ControlPlane, store: Store, make: Make
) -> None:
    """Jobs of Volcano and AscendJobs are not defined there: these are not known, the rest is."""
    pod_groups.install(control_plane)
    for name in ("n1", "n2", "n3"):
        post(control_plane, "/api/v1/nodes", cluster.node(name))
        await store.put(report(name, healthy()))
    group = cluster.podgroup("j", 2, {"fault-scheduling": "force"})
    group["spec"]["minResources"] = {"huawei.com/Ascend910": "16"}
    post(control_plane, _GROUPS, group)
    for number in (0, 1):
        pod = cluster.pod(f"j-{number}", f"n{number + 1}", "j", cluster.CHIPS)
        post(control_plane, _PODS, pod)
    daemon = make("kubernetes:", control_plane.kubeconfig)
    daemon.environment["VIGIL_ADVICE_ENABLED"] = "true"
    await asyncio.to_thread(daemon.start)
    daemon.process.wait_until(lambda: set(reports(daemon)) == {"upstream", "corrected"}, 20)
    assert _deleted(daemon) == []
    not_known = daemon.ask("/api/v1/advice")[1]["advice"]["not_known"]
    assert set(not_known) == {"vcjobs", "ascendjobs"}

    # Nothing else runs in this process meanwhile.
    url = f"{daemon.url}/api/v1/stream?node=n2"
    with urllib.request.urlopen(url, timeout=patience(20)) as stream:  # noqa: ASYNC210
        await store.put(report("n2", faulty(update_time=T0 + 1)))
        assert any(line == b"event: advice\n" for line in stream)

    daemon.process.wait_until(lambda: waiting(daemon) == ["default/j"], 20)
    # The scheduler's turn, which may not be later than 10 s.
    for number in (0, 1):
        control_plane.request("DELETE", f"{_PODS}/j-{number}?gracePeriodSeconds=0")
    record = {"JobID": "default/j", "TotalRescheduleTimes": 1, "RescheduleRecords": []}
    records = json.dumps({"default/j": record})
    await store.put(
        Document("mindx-dl", "job-reschedule-reason", {"recent-reschedule-records": records})
    )
    came = 'npu_vigil_advice_outcomes_total{outcome="came"}'
    daemon.process.wait_until(lambda: daemon.metric(came) == 2, 20)
    assert daemon.metric("npu_vigil_advice_outcomes_total{") == 2
    assert daemon.ask("/api/v1/advice")[1]["advice"]["missed"] == []

    assert daemon.ask("/api/v1/advice/default/j")[1]["podgroup"] == "j"
    assert daemon.ask("/api/v1/advice/default/other")[0] == 404

    for options in ([], ["--json"], ["--job", "default/j"], ["--node", "n2"]):
        shown = CliRunner().invoke(app, ["advise", "--server", daemon.url, *options])
        assert shown.exit_code in (0, 1), options
        assert "upstream" in shown.stdout, options
    for unknown in (["--job", "default/k"], ["--node", "n9"], ["--what-if", "n9 gone"]):
        other = CliRunner().invoke(app, ["advise", "--server", daemon.url, *unknown])
        assert isinstance(other.exception, ConfigurationError), unknown

    text = daemon.ask("/metrics")[1]
    series = {name: one for name, one in scraped(text).items() if "_advice_" in name}
    assert series.items() <= listed(ADVISING).items()
    pod_groups.uninstall(control_plane)


async def test_assumptions_on_a_server_and_on_its_dump_give_the_same_advice(
    control_plane: ControlPlane, store: Store, make: Make, tmp_path: Path
) -> None:
    """And the pages of a node and a job have a section on it."""
    pod_groups.install(control_plane)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "owner", "uid": UID}
    owned = {"ownerReferences": [{**owner, "controller": True}]}
    for name in ("n1", "n2"):
        post(control_plane, "/api/v1/nodes", cluster.node(name))
        await store.put(report(name, healthy()))
    group = cluster.podgroup("j", 1, {"fault-scheduling": "force"})
    pod = cluster.pod("j-0", "n2", "j", cluster.CHIPS)
    for path, item in ((_GROUPS, group), (_PODS, pod)):
        item["metadata"] |= owned
        post(control_plane, path, item)
    daemon = make("kubernetes:", control_plane.kubeconfig)
    daemon.environment["VIGIL_ADVICE_ENABLED"] = "true"
    await asyncio.to_thread(daemon.start)
    daemon.process.wait_until(lambda: set(reports(daemon)) == {"upstream", "corrected"}, 20)
    items = [
        {"kind": kind, **item}
        for kind, path in (
            ("Node", "/api/v1/nodes"),
            ("Pod", _PODS),
            ("PodGroup", _GROUPS),
            ("ConfigMap", "/api/v1/namespaces/mindx-dl/configmaps"),
        )
        for item in control_plane.request("GET", path)["items"]
    ]
    dump = tmp_path / "dump.json"
    dump.write_text(json.dumps({"kind": "List", "items": items}))

    def shown(*options: str) -> list[dict[str, Any]]:
        ran = CliRunner().invoke(app, ["advise", "--json", *options], catch_exceptions=False)
        assert ran.exit_code == 1, ran.stdout
        return [json.loads(line) for line in ran.stdout.splitlines()]

    assumed = ["--what-if", "chip 3 of n2 SeparateNPU"]
    for about in ([], ["--job", "default/owner"], ["--node", "n2"]):
        there = shown("--server", daemon.url, *assumed, *about)
        here = shown("--dump", str(dump), *assumed, *about)
        assert [one["profile"] for one in there] == ["upstream", "corrected"]
        for one, other in zip(there, here, strict=True):
            same = ("decisions", "deletions", "what_if") if about else ("decisions", "deletions")
            assert {name: one[name] for name in same} == {name: other[name] for name in same}
    assert _deleted(daemon) == [], "nothing is assumed in the advice itself"
    for text, refusal in (("x", "is none of"), ("n9 gone", "there is no Node n9")):
        status, answer = daemon.ask(f"/api/v1/advice/what-if?what_if={quote(text)}")
        assert (status, refusal in answer["error"]) == (400, True)
    many = "&".join(["what_if=heal+n1"] * 21)
    assert daemon.ask(f"/api/v1/advice/what-if?{many}")[0] == 400
    assert daemon.ask("/api/v1/advice/what-if?job=default/k")[0] == 404
    assert daemon.ask("/api/v1/advice/what-if?node=n9")[0] == 404

    await store.put(report("n2", faulty(update_time=T0 + 1)))
    daemon.process.wait_until(lambda: waiting(daemon) == ["default/j"], 20)
    sections = [
        daemon.ask(path)[1]["advice"] for path in ("/api/v1/nodes/n2", f"/api/v1/jobs/{UID}")
    ]
    for section in sections:
        assert set(section["not_known"]) == {"vcjobs", "ascendjobs"}
        upstream = section["reports"][0]
        assert [one["job"] for one in upstream["decisions"]] == ["default/j"]
        assert [one["unhealthy"] for one in upstream["node_verdicts"]] == [["Ascend910-3"]]
    assert sections[1]["podgroups"] == ["default/j"]
    about_n1 = daemon.ask("/api/v1/nodes/n1")[1]["advice"]["reports"][0]
    assert about_n1["decisions"] == []
    pod_groups.uninstall(control_plane)


async def test_each_outcome(control_plane: ControlPlane, store: Store, make: Make) -> None:
    """One job for each, of one pod; the test deletes what the scheduler and others would."""
    pod_groups.install(control_plane)
    for name in ("n1", "n2"):
        post(control_plane, "/api/v1/nodes", cluster.node(name))
        await store.put(report(name, healthy()))
    jobs = {
        "came": ("n1", 0, "grace"),
        "otherwise": ("n1", 1, "grace"),
        "did-not-come": ("n1", 2, "force"),
        "not-foretold": ("n2", 0, "force"),
        "by-others": ("n2", 1, "force"),
    }
    for job, (node, chip, value) in jobs.items():
        post(control_plane, _GROUPS, cluster.podgroup(job, 1, {"fault-scheduling": value}))
        pod = cluster.pod(f"{job}-0", node, job, [f"Ascend910-{chip}"])
        pod["spec"]["terminationGracePeriodSeconds"] = 77
        post(control_plane, _PODS, pod)
    daemon = make("kubernetes:", control_plane.kubeconfig)
    daemon.environment["VIGIL_ADVICE_ENABLED"] = "true"
    await asyncio.to_thread(daemon.start)
    daemon.process.wait_until(lambda: set(reports(daemon)) == {"upstream", "corrected"}, 20)
    cards = [fault(chip, "RestartNPU", "80E18402") for chip in (0, 1, 2)]
    await store.put(report("n1", config(cards, unhealthy=(0, 1, 2), update_time=T0 + 1)))
    daemon.process.wait_until(lambda: len(waiting(daemon)) == 3, 20)
    for job, grace in (("came", ""), ("otherwise", 0), ("not-foretold", 5), ("by-others", "")):
        query = "" if grace == "" else f"?gracePeriodSeconds={grace}"
        control_plane.request("DELETE", f"{_PODS}/{job}-0{query}")
    acted = ("came", "otherwise", "not-foretold")
    records = json.dumps({f"default/{job}": {"TotalRescheduleTimes": 1} for job in acted})
    await store.put(
        Document("mindx-dl", "job-reschedule-reason", {"recent-reschedule-records": records})
    )

    def outcomes() -> dict[str, Any]:
        found: dict[str, Any] = daemon.ask("/api/v1/advice/outcomes")[1]
        return found

    daemon.process.wait_until(lambda: sum(outcomes()["outcomes"].values()) == len(jobs), 30)
    found = outcomes()
    assert found["outcomes"] == {name.replace("-", "_"): 1 for name in jobs}
    shown = {(one["job"], one["outcome"], one["why"]) for one in found["missed"]}
    assert shown == {
        ("default/otherwise", "otherwise", "it ends with 0 s, and 77 s were foretold"),
        (
            "default/did-not-come",
            "did_not_come",
            "the pod stays, 0 s of grace were foretold",
        ),
        (
            "default/not-foretold",
            "not_foretold",
            "the scheduler has deleted it, and that was not foretold",
        ),
        ("default/by-others", "by_others", "the scheduler has no record"),
    }
    assert daemon.metric("npu_vigil_advice_outcomes_total{") == len(jobs)
    pod_groups.uninstall(control_plane)


async def test_whether_the_operator_makes_pods_follows_the_scaling_rule(
    control_plane: ControlPlane, store: Store, make: Make
) -> None:
    for kind in (POD_GROUPS, ASCEND_JOBS):
        kind.install(control_plane)
    labels = labels_of("g0")
    meta = {"name": "g0-0", "labels": labels}
    job = {"apiVersion": "mindxdl.gitee.com/v1", "kind": "AscendJob", "metadata": meta}
    job["spec"] = {"replicaSpecs": {"Master": {"replicas": 2}}}
    made = control_plane.request("POST", ASCEND_JOBS.place("default"), job)
    uid = made["metadata"]["uid"]
    group = cluster.podgroup(f"g0-0-{uid}", 2, labels)
    group["status"]["phase"] = "Inqueue"
    post(control_plane, _GROUPS, group)
    daemon = make("kubernetes:", control_plane.kubeconfig)
    daemon.environment["VIGIL_ADVICE_ENABLED"] = "true"
    await asyncio.to_thread(daemon.start)

    def answers(verdict: str, reason: str) -> bool:
        found = reports(daemon).get("upstream", {"create_advice": []})["create_advice"]
        return [(one["verdict"], one["reason"]) for one in found] == [(verdict, reason)]

    daemon.process.wait_until(lambda: answers("HOLD", "RULE_MISSING"), 20)
    for wanted, answer in ((1, ("ALLOW", "")), (0, ("HOLD", "AT_TARGET"))):
        rule = {"elastic_scaling.json": rule_text([{"g0": wanted}])}
        await store.put(Document("default", "rule", rule))
        daemon.process.wait_until(partial(answers, *answer), 20)
    assert set(daemon.ask("/api/v1/advice")[1]["advice"]["not_known"]) == {"vcjobs"}
    for kind in (POD_GROUPS, ASCEND_JOBS):
        kind.uninstall(control_plane)


async def test_nothing_is_advised_unless_that_is_wanted(
    control_plane: ControlPlane, make: Make
) -> None:
    daemon = make("kubernetes:", control_plane.kubeconfig)
    await asyncio.to_thread(daemon.start)
    answer = daemon.ask("/api/v1/advice")[1]
    assert (answer["enabled"], answer["advice"]) == (False, None)
    assert daemon.ask("/api/v1/advice/default/j")[0] == 404
    assert "_advice_" not in daemon.ask("/metrics")[1]
    refused = CliRunner().invoke(app, ["advise", "--server", daemon.url])
    assert isinstance(refused.exception, ConfigurationError)
    assert "set advice.enabled" in str(refused.exception)
