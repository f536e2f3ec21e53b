"""``vigil uninstall`` after a real aggregator wrote, on each store."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from contract.documents.device_taints import Device, DeviceEffect, TaintRule, rule_body, rule_name
from contract.documents.elastic_job import CAUSE, LEASE, RESTORE, SWITCH, PersistedJob
from contract.documents.elastic_job import KEPT as KEPT_ON_JOB
from contract.documents.node_info import FaultDevice
from contract.names import CLUSTER_LABEL, CLUSTER_NAMESPACE, LEADER_LEASE, device_info_name
from stores.address import open_store
from stores.base import Beat, Selection
from tests.aggregator.daemon import Daemon
from tests.aggregator.fleet import Fleet
from tests.aggregator.nodes import faulty, node_report, published, report
from tests.elastic.jobs import size, vcjob, with_kept
from tests.parts.controlplane import LEASES
from tests.parts.deadlines import patience, time_passes, until
from tests.parts.definitions import VCJOBS
from tests.parts.device_objects import RULES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from stores.base import Store
    from tests.parts.broker import Broker
    from tests.parts.controlplane import ControlPlane

pytestmark = pytest.mark.daemon

INTERVAL = patience(0.4)
TOUCH_SECONDS = patience(1.0)
"""For so long the documents without faults are there to be seen."""
LEASE_SECONDS = 2
DEVICES = "cluster-info-device-0"
NODES = "cluster-info-node-cm"
EVERYTHING = Selection()
DEVICE = Device("npu.huawei.com", "n1", "npu-3")
DEVICE_RULE = TaintRule(
    device=DEVICE,
    value="SeparateNPU",
    effect=DeviceEffect.NO_SCHEDULE,
    node="n1",
    chip=3,
    name=rule_name(DEVICE),
)
KEPT = {"kube-root-ca.crt", "extension-apiserver-authentication"}


class Place:
    """A store, and the options by which the verb finds it."""

    def __init__(self, url: str, plane: ControlPlane | None = None) -> None:
        self.plane = plane
        self.store: Store = open_store(url, plane.kubeconfig if plane else None)
        where = () if plane is None else ("--kubeconfig", str(plane.kubeconfig))
        self.options = ("--store", url, *where)

    async def uninstall(self, *arguments: str) -> tuple[int, str]:
        """Exit status and output."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("VIGIL_", "KUBE"))}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "vigil", "uninstall", *self.options, *arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=clean | {"VIGIL_TOUCH_PERIOD_SECONDS": str(TOUCH_SECONDS)},
        )
        output, _ = await process.communicate()
        assert process.returncode is not None
        assert b"Traceback" not in output, output.decode()
        return process.returncode, output.decode()

    async def documents(self) -> set[str]:
        """Return the names of all documents, except those that are kept."""
        return {one.name for one in await self.store.list(EVERYTHING)} - KEPT

    async def entries(self) -> dict[str, Any] | None:
        """Return the entries of cluster-info-device by node; ``None`` without it."""
        found = await self.store.get(CLUSTER_NAMESPACE, DEVICES)
        return None if found is None else published(found.data[DEVICES])


@pytest.fixture(
    params=["directory", "broker", pytest.param("kubernetes", marks=pytest.mark.apiserver)]
)
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """Yield each kind of store in turn."""
    if request.param == "directory":
        place = Place(f"directory:{tmp_path / 'store'}")
    elif request.param == "broker":
        broker: Broker = request.getfixturevalue("broker")
        place = Place(broker.url)
    else:
        place = Place("kubernetes:", request.getfixturevalue("control_plane"))
    yield place
    await place.store.close()


async def fill(place: Place, daemon: Daemon, *nodes: str) -> None:
    """Let an aggregator publish faulty nodes, and end it and them."""
    part = FaultDevice("CPU", 0, ["0000001D"], "SeparateFault")
    for node in nodes:
        await place.store.put(report(node, faulty(update_time=int(time.time()))))
        await place.store.put(node_report(node, [part], "UnHealthy"))
    async with Fleet(place.store, nodes, INTERVAL).beating():
        await asyncio.to_thread(daemon.start)

        async def are_published() -> bool:
            return set(await place.entries() or ()) == set(nodes)

        await until(are_published, "all nodes are published", 30, 0.1)
    # Where a Lease leads, the next step would wait until it runs out.
    await asyncio.to_thread(daemon.stop if place.plane else daemon.kill)


async def test_faults_end_first_and_nothing_is_left(place: Place, tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "aggregator", *place.options)
    await fill(place, daemon, "n1", "n2")
    before = await place.documents()
    assert {DEVICES, NODES, device_info_name("n1")} <= before
    status, output = await place.uninstall()
    assert (status, "nothing was changed: add --yes" in output) == (0, True), output
    assert f"mindx-dl/{DEVICES} would lose its faults first" in output
    assert await place.documents() == before
    working = asyncio.create_task(place.uninstall("--yes"))
    seen_healthy, last_faulty = False, time.monotonic()
    async with asyncio.timeout(patience(60)):
        while True:
            asked = time.monotonic()
            if (entries := await place.entries()) is None:
                break
            lists = [entry["DeviceList"] for entry in entries.values()]
            is_healthy = all(one["huawei.com/Ascend910-Fault"] == "[]" for one in lists)
            if not is_healthy:
                last_faulty = asked
            elif not seen_healthy:
                assert set(entries) == {"n1", "n2"}, "an entry that is left out is a ghost"
                nodes = await place.store.get(CLUSTER_NAMESPACE, NODES)
                seen_healthy = True
                assert nodes is not None
            await time_passes(0.05)
    assert seen_healthy
    # The faults ended after they were seen last; a poll may see that late.
    assert time.monotonic() - last_faulty > TOUCH_SECONDS
    status, output = await working
    assert status == 0, output
    assert await place.documents() == set()
    assert await place.store.beats() == ()
    if place.plane is not None:
        names = [one["metadata"]["name"] for one in place.plane.request("GET", LEASES)["items"]]
        assert names == [], f"{LEADER_LEASE} goes too"
    assert "state directories" in output


@pytest.mark.parametrize("place", ["directory"], indirect=True)
async def test_a_running_daemon_is_named_and_nothing_is_changed(
    place: Place, tmp_path: Path
) -> None:
    daemon = Daemon(tmp_path / "aggregator", *place.options)
    await fill(place, daemon, "n1")
    before = await place.documents()
    async with Fleet(place.store, ["n1"], INTERVAL).beating():
        status, output = await place.uninstall("--yes")
    assert (status, "the agent of n1 still runs" in output) == (1, True), output
    assert await place.documents() == before


@pytest.mark.apiserver
async def test_documents_of_the_vendors_programs_stay(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    place = Place("kubernetes:", control_plane)
    try:
        await fill(place, Daemon(tmp_path / "aggregator", *place.options), "n1", "n2", "n3")
        node = {"metadata": {"name": "n1"}}
        control_plane.request("POST", "/api/v1/nodes", node)
        with_plugin = {"status": {"allocatable": {"huawei.com/Ascend910": "8"}}}
        control_plane.ask("PATCH", "/api/v1/nodes/n1/status", with_plugin)
        there = f"/api/v1/namespaces/kube-system/configmaps/{device_info_name('n1')}"
        control_plane.ask("PATCH", there, {"data": {"ManuallySeparateNPU": "Ascend910-7"}})
        before = control_plane.request("GET", there)["data"]
        other = f"/api/v1/namespaces/kube-system/configmaps/{device_info_name('n2')}"
        change = {"data": {"ManuallySeparateNPU": "Ascend910-6"}}
        control_plane.ask("PATCH", f"{other}?fieldManager=device-plugin", change)
        status, output = await place.uninstall("--yes")
        assert status == 0, output
        assert await place.documents() == {device_info_name("n1"), device_info_name("n2")}
        assert control_plane.request("GET", there)["data"] == before
        assert (
            f"kube-system/{device_info_name('n1')} stays: a Device Plugin is registered" in output
        )
        assert f"kube-system/{device_info_name('n2')} stays: device-plugin wrote it last" in output
    finally:
        await place.store.close()


@pytest.mark.parametrize(
    "place",
    ["directory", pytest.param("kubernetes", marks=pytest.mark.apiserver)],
    indirect=True,
)
async def test_an_aggregator_that_leads_is_named(place: Place, tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "aggregator", *place.options)
    daemon.environment["VIGIL_LEADER_LEASE_SECONDS"] = str(LEASE_SECONDS)
    try:
        await place.store.put(report("n1", faulty(update_time=int(time.time()))))
        await place.store.beat(Beat("n1", "host", INTERVAL, 1))
        await asyncio.to_thread(daemon.start)
        status, output = await place.uninstall("--yes")
        assert (status, "the aggregator" in output) == (1, True), output
        assert device_info_name("n1") in await place.documents()
        assert await place.store.list(Selection(CLUSTER_NAMESPACE, label=CLUSTER_LABEL))
    finally:
        await asyncio.to_thread(daemon.stop)


OF_VCJOBS = VCJOBS.place("default")


@pytest.fixture
async def training(control_plane: ControlPlane) -> AsyncIterator[Place]:
    """Install the kind of Volcano's jobs on an API server; yield that server."""
    VCJOBS.install(control_plane)
    place = Place("kubernetes:", control_plane)
    yield place
    await place.store.close()
    VCJOBS.uninstall(control_plane)


def _train(plane: ControlPlane, name: str, **annotations: str) -> None:
    """Create a job with two of the three pods that it had."""
    job = with_kept(vcjob(name, 3), PersistedJob(size(3), size(2), "CardUnhealthy on n0", 1, 1))
    for field in ("uid", "resourceVersion", "creationTimestamp"):
        del job["metadata"][field]
    job["metadata"]["annotations"] |= {"owner/note": "kept"} | annotations
    plane.request("POST", OF_VCJOBS, job)


def _lease(plane: ControlPlane, **fields: object) -> None:
    metadata = {"name": LEASE, "namespace": "mindx-dl"}
    plane.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "mindx-dl"}})
    plane.request("POST", LEASES, {"metadata": metadata, "spec": fields})


@pytest.mark.apiserver
async def test_elastic_jobs_lose_our_annotations_only(
    training: Place, control_plane: ControlPlane
) -> None:
    """The original size is in such an annotation alone, so it is printed."""
    _train(control_plane, "train", **{SWITCH: "off", RESTORE: "true", CAUSE: "{}"})
    _lease(control_plane, leaseDurationSeconds=1)
    status, output = await training.uninstall()
    assert status == 0, output
    assert "vcjob default/train would lose its annotations of npu-vigil/elastic" in output
    smaller = "vcjob default/train has 2 × 8 chips, its original size is 3 × 8 chips"
    assert smaller in output
    before = control_plane.request("GET", f"{OF_VCJOBS}/train")
    assert KEPT_ON_JOB in before["metadata"]["annotations"]
    status, output = await training.uninstall("--yes")
    assert (status, smaller in output) == (0, True), output
    job = control_plane.request("GET", f"{OF_VCJOBS}/train")
    assert job["metadata"]["annotations"] == {"minReplicas": "1", "owner/note": "kept"}
    assert job["spec"] == before["spec"]
    assert control_plane.request("GET", LEASES)["items"] == []


@pytest.mark.apiserver
async def test_elastic_training_that_still_runs_is_named(
    training: Place, control_plane: ControlPlane
) -> None:
    _train(control_plane, "train")
    _lease(control_plane, leaseDurationSeconds=1, holderIdentity="pod-1")
    working = asyncio.create_task(training.uninstall("--yes"))
    number = 0
    while not working.done():
        number += 1
        change = {"spec": {"leaseTransitions": number}}
        await asyncio.to_thread(control_plane.request, "PATCH", f"{LEASES}/{LEASE}", change)
        await time_passes(0.2)
    status, output = await working
    assert (status, "vigil elastic pod-1 still runs" in output) == (1, True), output
    job = control_plane.request("GET", f"{OF_VCJOBS}/train")
    assert KEPT_ON_JOB in job["metadata"]["annotations"]


@pytest.mark.apiserver
async def test_rules_of_ours_are_deleted(training: Place, control_plane: ControlPlane) -> None:
    rule = rule_body(DEVICE_RULE, "v1beta2")
    foreign = {"metadata": {"name": "site"}, "spec": {"taint": {"key": "site", "effect": "None"}}}
    for body in (rule, foreign):
        control_plane.request("POST", RULES, body)
    status, output = await training.uninstall()
    assert (status, f"DeviceTaintRule {DEVICE_RULE.name} would be deleted" in output) == (0, True)
    status, output = await training.uninstall("--yes")
    assert status == 0, output
    left = control_plane.request("GET", RULES)["items"]
    assert [item["metadata"]["name"] for item in left] == ["site"]
    control_plane.request("DELETE", RULES)
