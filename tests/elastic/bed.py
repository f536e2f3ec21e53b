"""A cluster to train in: API server, stand-in for Volcano, a real aggregator, a real daemon."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import urllib.request
from typing import TYPE_CHECKING, Any

from advisor.checks.ended_vcjobs import PODS_LEFT
from aggregator.advising.job_pods import BEFORE_MS
from contract.documents.elastic_job import OFF, SWITCH
from contract.names import CLUSTER_NAMESPACE
from stores.base import Beat
from stores.kubernetes_api.leases import whole
from tests.aggregator.daemon import Daemon
from tests.aggregator.nodes import report
from tests.contract.documents.node_documents import config
from tests.elastic.jobs import as_written, vcjob
from tests.parts.controlplane import LEASES
from tests.parts.deadlines import let_time_pass, patience, wait_until
from tests.parts.kustomize import build_with, take_back
from tests.parts.processes import Running
from tests.parts.volcano import CHIPS, JOBS
from tests.vigil.advise.cluster import node as node_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.parts.volcano import Volcano

_UP_SECONDS = 30.0
_EVENTS = "/api/v1/namespaces/default/events"


class Elastic:
    """``vigil elastic`` as a process."""

    def __init__(self, directory: Path, kubeconfig: Path, aggregator: str, *options: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.log = directory / "elastic.log"
        self._listen = directory / "listen"
        self._arguments = (
            *("--kubeconfig", str(kubeconfig), "--aggregator", aggregator),
            *("--state-dir", str(directory), "--listen", "127.0.0.1:0", *options),
        )
        self._process: Running | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._listen.unlink(missing_ok=True)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("VIGIL_")}
        environment["VIGIL_LEASE_SECONDS"] = "2"
        self._process = Running(
            [sys.executable, "-m", "vigil", "elastic", *self._arguments], self.log, environment
        )
        self._process.wait_until(self._listen.exists, _UP_SECONDS)

    def kill(self) -> None:
        """End it without warning."""
        assert self._process is not None
        self._process.kill()

    def stop(self) -> None:
        """End it if it runs."""
        if self._process is not None:
            self._process.stop()

    @property
    def url(self) -> str:
        """Return the URL of its pages."""
        return self._listen.read_text().strip()

    def ask(self, path: str) -> str:
        """Return a page."""
        with urllib.request.urlopen(self.url + path, timeout=patience(10)) as response:
            text: str = response.read().decode()
        return text

    def state(self, name: str) -> tuple[str, str]:
        """Return the state of a job and why."""
        found = json.loads(self.ask("/api/v1/elastic"))["jobs"]
        return next(((one["state"], one["why"]) for one in found if one["name"] == name), ("", ""))


class Bed:
    """``nodes`` nodes of eight chips, ``n0``, ``n1``, …, and an aggregator that advises."""

    def __init__(self, directory: Path, volcano: Volcano, nodes: int) -> None:
        """Create the namespaces and nodes, and start the daemons.

        Volcano's kinds are installed; the owner of ``volcano`` has entered it.
        """
        self.volcano = volcano
        plane = self.plane = volcano.plane
        self.directory = directory
        self._stamps: dict[str, int] = {}
        for namespace in ("mindx-dl", "volcano-system", "cluster-system"):
            # Another test may have left it: no controller here ends a namespace.
            plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        self.nodes = [f"n{index}" for index in range(nodes)]
        for name in self.nodes:
            one = node_object(name)
            del one["metadata"]["uid"]
            plane.request("POST", "/api/v1/nodes", one)
            plane.request("PATCH", f"/api/v1/nodes/{name}/status", {"status": one["status"]})
            # The API server taints what is new, and no controller here takes that back.
            plane.request("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": []}})
            self.join(name)
        parts = ("elastic", "elastic-network-faults", "elastic-dead-nodes")
        made = build_with(directory, "base", *parts)
        self._items = [i for i in made if i["metadata"]["name"].startswith("npu-vigil-elastic")]
        try:
            for item in self._items:
                plane.apply(item)
            self.account = plane.service_account("mindx-dl", "npu-vigil-elastic")
            """The kubeconfig of the account of the manifests."""
            self.aggregator = Daemon(
                directory / "aggregator",
                "--store",
                "kubernetes:",
                "--kubeconfig",
                str(plane.kubeconfig),
            )
            self.aggregator.environment["VIGIL_ADVICE_ENABLED"] = "true"
            self.aggregator.start()
            self._history_begins = time.monotonic()
        except BaseException:
            # Nobody has this object yet, so nobody would call ``stop``.
            take_back(plane, self._items)
            raise

    def has_history(self) -> None:
        """Wait until the aggregator would have recorded each fault that may end a job now."""
        let_time_pass(self._history_begins + BEFORE_MS / 1000 + 1 - time.monotonic())

    def join(self, node: str) -> None:
        """Publish that the chips of a node are healthy."""
        self.report(node)

    def report(
        self, node: str, unhealthy: tuple[int, ...] = (), network: tuple[int, ...] = ()
    ) -> None:
        """Publish what the agent of a node would about its chips."""
        # Readers drop what has no newer stamp.
        self._stamps[node] = max(int(time.time()), self._stamps.get(node, 0) + 1)
        data = config(unhealthy=unhealthy, network=network, update_time=self._stamps[node])
        document = report(node, data)
        body = {
            "metadata": {"name": document.name, "labels": document.labels},
            "data": document.data,
        }
        place = f"/api/v1/namespaces/{document.namespace}/configmaps"
        if self.plane.ask("POST", place, body)[0] == 409:
            self.plane.request("PUT", f"{place}/{document.name}", body)

    def fault(self, node: str, unhealthy: tuple[int, ...]) -> None:
        """Publish unhealthy chips of a node, and wait until cluster-info has them."""
        self.report(node, unhealthy)
        expected = ",".join(f"Ascend910-{number}" for number in unhealthy)
        place = f"/api/v1/namespaces/{CLUSTER_NAMESPACE}/configmaps/cluster-info-device-0"

        def is_published() -> bool:
            data = self.plane.request("GET", place)["data"]["cluster-info-device-0"]
            found = json.loads(data)[f"mindx-dl-deviceinfo-{node}"]["DeviceList"]
            return bool(found["huawei.com/Ascend910-Unhealthy"] == expected)

        self.sees(is_published, "cluster-info has the fault")

    def uses(self, pod: str, *chips: str) -> None:
        """Note on a pod which chips it uses, as the device plugin does."""
        annotations = {"huawei.com/AscendReal": ",".join(chips)}
        path = f"/api/v1/namespaces/default/pods/{pod}"
        self.plane.request("PATCH", path, {"metadata": {"annotations": annotations}})

    @contextlib.contextmanager
    def dead(self, node: str) -> Iterator[None]:
        """Let a node have beaten once and never again, and be NotReady for long."""
        beat = whole(Beat(node, f"host-{node}", 1.0, int(time.time() * 1000)))
        self.plane.request("POST", LEASES, beat)
        path = f"/api/v1/nodes/{node}"
        before = self.plane.request("GET", path)["status"]["conditions"]
        ready = {"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        self.plane.request("PATCH", f"{path}/status", {"status": {"conditions": [ready]}})
        lease = f"{LEASES}/npu-vigil-{node}"
        try:
            self.sees(lambda: self.lost == [node], "the aggregator has lost it")
            yield
        finally:
            self.plane.request("PATCH", f"{path}/status", {"status": {"conditions": before}})
            self.plane.request("DELETE", lease)

    @property
    def lost(self) -> list[str]:
        """Return the nodes that are silent for the aggregator."""
        found: list[str] = self.aggregator.ask("/api/v1/liveness")[1]["liveness"]["lost"]
        return found

    @contextlib.contextmanager
    def grace_over_time(self, seconds: int) -> Iterator[None]:
        """Configure the scheduler."""
        arguments = {"grace-over-time": str(seconds)}
        configurations = [{"name": "init-params", "arguments": arguments}]
        data = {"volcano-scheduler.conf": json.dumps({"configurations": configurations})}
        name, place = "volcano-scheduler-configmap", "/api/v1/namespaces/volcano-system/configmaps"
        self.plane.request("POST", place, {"metadata": {"name": name}, "data": data})
        try:
            yield
        finally:
            self.plane.request("DELETE", f"{place}/{name}")

    @contextlib.contextmanager
    def without_right_to_status(self) -> Iterator[None]:
        """Take the right to the second write away from the account for the length of the block."""
        path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/npu-vigil-elastic"
        rules = self.plane.request("GET", path)["rules"]
        fewer = [rule for rule in rules if "jobs/status" not in rule["resources"]]
        assert len(fewer) < len(rules)
        user = "system:serviceaccount:mindx-dl:npu-vigil-elastic"

        def may() -> bool:
            return self.plane.may(user, "patch", "batch.volcano.sh/jobs", subresource="status")

        assert may()
        self.plane.request("PATCH", path, {"rules": fewer})
        try:
            # The API server observes its own rules by a watch.
            self.sees(lambda: not may(), "the right is gone")
            yield
        finally:
            self.plane.request("PATCH", path, {"rules": rules})

    @contextlib.contextmanager
    def refusing_other_chips(self, job: str) -> Iterator[None]:
        """Refuse other pod templates, as Volcano's webhook does (consumers#2.9).

        ``job`` is one of a single task, by which it is seen that the policy works.
        """
        name, places = "chips-stay", "/apis/admissionregistration.k8s.io/v1"
        rule = {
            "apiGroups": ["batch.volcano.sh"],
            "apiVersions": ["*"],
            "operations": ["UPDATE"],
            "resources": ["jobs"],
        }
        validation = {
            "expression": "object.spec.tasks[0].template == oldObject.spec.tasks[0].template",
            "message": "the chips of a job stay",
        }
        policy = {"matchConstraints": {"resourceRules": [rule]}, "validations": [validation]}
        self.plane.request(
            "POST",
            f"{places}/validatingadmissionpolicies",
            {"metadata": {"name": name}, "spec": policy},
        )
        binding = {"policyName": name, "validationActions": ["Deny"]}
        bindings = f"{places}/validatingadmissionpolicybindings"
        self.plane.request("POST", bindings, {"metadata": {"name": name}, "spec": binding})
        try:
            spec = self.volcano.job(job)["spec"]
            spec["tasks"][0]["template"]["spec"]["containers"][0]["resources"] = {}
            path = f"{JOBS}/{job}?dryRun=All"
            change = {"spec": spec}
            self.sees(lambda: self.plane.ask("PATCH", path, change)[0] == 422, "it is refused")
            yield
        finally:
            self.plane.request("DELETE", f"{bindings}/{name}")
            self.plane.request("DELETE", f"{places}/validatingadmissionpolicies/{name}")

    def elastic(self, name: str, *options: str) -> Elastic:
        """Return a daemon with the account of the manifests, which is not started."""
        return Elastic(self.directory / name, self.account, self.aggregator.url, *options)

    def fresh(self, name: str, replicas: int, cards: int = 8, **options: Any) -> dict[str, Any]:
        """Return a job as its owner writes it."""
        return as_written(vcjob(name, replicas, cards, phase="", **options))

    def train(self, name: str, replicas: int, cards: int = 8, **options: Any) -> str:
        """Create a job and wait until it runs; returns its uid."""
        made = self.plane.request("POST", JOBS, self.fresh(name, replicas, cards, **options))
        self.volcano.until(name, "Running")
        uid: str = made["metadata"]["uid"]
        return uid

    def size(self, name: str) -> tuple[int, int]:
        """Return pods and minAvailable of a job."""
        spec = self.volcano.job(name)["spec"]
        return spec["tasks"][0]["replicas"], spec["minAvailable"]

    def chips(self, name: str) -> int:
        """Return for how many chips each pod of a job asks."""
        task = self.volcano.job(name)["spec"]["tasks"][0]
        return int(task["template"]["spec"]["containers"][0]["resources"]["limits"][CHIPS])

    def leave(self, name: str, *, alone: bool) -> None:
        """Disable elastic training for a job, or enable it again."""
        change = {"metadata": {"annotations": {SWITCH: OFF if alone else None}}}
        self.plane.request("PATCH", f"{JOBS}/{name}", change)

    def advised(self, name: str) -> tuple[int, int] | None:
        """Return pods and chips of each as the aggregator advises them for an ended job.

        It waits until the aggregator has seen the job as it is now, and the end of its pods.
        """
        version = int(self.volcano.job(name)["metadata"]["resourceVersion"])
        found: dict[str, Any] = {}

        def has_seen() -> bool:
            page = self.aggregator.ask(f"/api/v1/ended-jobs?sized=default/{name}")[1]["ended"]
            jobs = [] if page["not_known"] else page["jobs"]
            found.update(jobs[0] if jobs else {"version": 0})
            return bool(found["version"] >= version and found["advice"]["reason"] != PODS_LEFT)

        self.sees(has_seen, f"the aggregator has seen the end of {name}")
        replicas, cards = found["advice"]["replicas"], found["advice"]["cards"]
        return None if replicas is None else (replicas, cards)

    def events(self, name: str) -> list[tuple[str, str]]:
        """Return reasons and messages of the Events on a job."""
        found = self.plane.request("GET", _EVENTS)["items"]
        return [(e["reason"], e["message"]) for e in found if e["involvedObject"]["name"] == name]

    def sees(self, happened: Callable[[], bool], what: str, seconds: float = 20) -> None:
        """Wait for something."""
        wait_until(happened, what, seconds)

    def stop(self) -> None:
        """Stop the aggregator, and take back what was applied."""
        try:
            self.aggregator.stop()
        finally:
            take_back(self.plane, self._items)
