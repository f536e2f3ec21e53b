"""A cluster with the real kube-scheduler and kube-controller-manager, and a real agent.

Nodes are objects without a kubelet. The cluster ends pods that are deleted, as a kubelet
acknowledges. The test writes ResourceSlices, as the vendor's driver does.
"""

from __future__ import annotations

import contextlib
import http.client
import threading
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from contract.documents.device_taints import Device, rule_name
from dcmi_shim.emulator.bmc import BmcAlarm
from tests.aggregator.daemon import Daemon
from tests.end_to_end.node import Node
from tests.node.cluster import kubernetes
from tests.parts import device_objects
from tests.parts.controlplane import ControlPlane
from tests.parts.deadlines import wait_until
from tests.parts.places import Cluster
from tests.parts.processes import Running

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from typing import Self

NODE = "n1"
CHIPS = 8
SERVER = "System"
"""The part of the server whose alarms concern the whole node."""
_PODS = "/api/v1/namespaces/default/pods"
_CLAIMS = f"{device_objects.API}/namespaces/default/resourceclaims"
_NODE = f"/api/v1/nodes/{NODE}"
_READY: dict[str, Any] = {
    "capacity": {"cpu": "64", "memory": "64Gi", "pods": "110"},
    "allocatable": {"cpu": "64", "memory": "64Gi", "pods": "110"},
    "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
}
_CONTAINER: dict[str, Any] = {"name": "train", "image": "any"}
_TOLERATION = {"key": "npu-vigil/fault", "operator": "Exists"}
_EFFECTS: tuple[dict[str, str], ...] = ({}, {"effect": "NoExecute"})
_PAGE = "/api/v1/scheduler-signals"
_STEP_SECONDS = 0.2
_SECONDS = 60.0
"""For a write of the aggregator and the answer of a controller, however busy the machine is."""


class PlainPlane(ControlPlane):
    """An API server of Kubernetes 1.36 without switches: it serves no DeviceTaintRules."""

    @override
    def _gates(self) -> tuple[str, ...]:
        return ()


class SchedulingSite:
    """One node with an agent, an aggregator and the programs of Kubernetes.

    ``gates`` are the feature gates of kube-scheduler and kube-controller-manager. ``options`` are
    settings of the aggregator.
    """

    def __init__(
        self, plane: ControlPlane, built: Path, options: Mapping[str, str], *gates: str
    ) -> None:
        self.plane = plane
        self._directory = directory = plane.directory
        self._gates = gates
        self._parts: dict[str, Running] = {}
        self._faults: dict[tuple[int | str, str], Callable[[], None]] = {}
        """By chip or part and code how a fault ends."""
        self._ends = threading.Event()
        self._endings = threading.Thread(target=self._end_pods, name="pods that are deleted")
        agent = directory / "agent"
        agent.mkdir()
        self.agent = Node(agent, built, Cluster(self.plane), NODE)
        self.agent.give_bmc(agent)
        self.agent.options += ["--heartbeat-interval-seconds", "1"]
        kubeconfig = str(self.plane.kubeconfig)
        self.aggregator = Daemon(
            directory / "aggregator", "--store", "kubernetes:", "--kubeconfig", kubeconfig
        )
        self.aggregator.environment = {f"VIGIL_{name}": value for name, value in options.items()}

    def __enter__(self) -> Self:
        self.plane.start()
        self._start("kube-controller-manager", *self._controller_options())
        self._start("kube-scheduler")
        self.plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": "mindx-dl"}})
        labels = {"kubernetes.io/hostname": NODE}
        self.plane.request("POST", "/api/v1/nodes", {"metadata": {"name": NODE, "labels": labels}})
        self.plane.request("PATCH", f"{_NODE}/status", {"status": _READY})
        # The API server taints what is new; the real controller takes that back.
        self.until(lambda: not self.taints(), "the Node has no taint")
        device_objects.publish(self.plane, NODE, {f"npu-{chip}": chip for chip in range(CHIPS)})
        selector = {"cel": {"expression": f'device.driver == "{device_objects.DRIVER}"'}}
        device_class = {"metadata": {"name": "npu"}, "spec": {"selectors": [selector]}}
        self.plane.request("POST", f"{device_objects.API}/deviceclasses", device_class)
        self._endings.start()
        self.agent.start()
        self.agent.healthy()
        self.aggregator.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self.aggregator.stop()
        self.agent.close()
        if self._endings.ident is not None:
            self._endings.join()
        for part in reversed(self._parts.values()):
            part.stop(patience_seconds=5.0)
        self.plane.stop()

    @property
    def controllers(self) -> Running:
        """Return the process of kube-controller-manager."""
        return self._parts["kube-controller-manager"]

    def _start(self, name: str, *options: str) -> None:
        arguments = [f"--kubeconfig={self.plane.kubeconfig}", "--leader-elect=false", *options]
        # Another cluster on this machine may have the port of their pages.
        arguments.append("--secure-port=0")
        arguments += [f"--feature-gates={gate}=true" for gate in self._gates]
        log = self._directory / f"{name}.log"
        self._parts[name] = Running([kubernetes(), name, *arguments], log)

    def _controller_options(self) -> Sequence[str]:
        return (
            # No kubelet renews a Lease here.
            "--node-monitor-grace-period=1h",
            f"--service-account-private-key-file={self._directory / 'server.key'}",
            f"--root-ca-file={self._directory / 'ca.crt'}",
        )

    def _end_pods(self) -> None:
        """End pods that are deleted, until this site ends."""
        while not self._ends.wait(_STEP_SECONDS):
            # A test may stop the API server.
            with contextlib.suppress(OSError, http.client.HTTPException):
                status, answer = self.plane.ask("GET", _PODS)
                for pod in answer["items"] if status == 200 else ():
                    if "deletionTimestamp" in pod["metadata"]:
                        name = pod["metadata"]["name"]
                        self.plane.ask("DELETE", f"{_PODS}/{name}?gracePeriodSeconds=0")

    def until(self, holds: Callable[[], bool], event: str, seconds: float = _SECONDS) -> None:
        """Wait until ``holds``; a failure shows the page of the aggregator."""
        wait_until(holds, lambda: f"{event}\n{self._page()}", seconds, _STEP_SECONDS)

    def warnings(self) -> str:
        """Return what the aggregator's ``/readyz`` shows."""
        return str(self.aggregator.ask("/readyz")[1])

    def _page(self) -> str:
        return str(self.aggregator.ask(_PAGE)) if self._endings.ident is not None else ""

    def run(
        self, pod: str, chips: Sequence[int] = (), *, count: int = 1, tolerates: bool = False
    ) -> None:
        """Create a pod; with ``chips`` it asks by claim for ``count`` of these.

        With ``tolerates`` the claim tolerates the taint of its devices, a pod without a claim that
        of its Node.
        """
        tolerations = [_TOLERATION] if tolerates else []
        if chips:
            attribute = f'device.attributes["{device_objects.DRIVER}"].physicId'
            expression = f"{attribute} in {list(chips)}"
            exactly = {
                "deviceClassName": "npu",
                "count": count,
                "selectors": [{"cel": {"expression": expression}}],
                # The controller that evicts takes into account those of its effect alone.
                "tolerations": [each | effect for each in tolerations for effect in _EFFECTS],
            }
            devices = {"requests": [{"name": "npu", "exactly": exactly}]}
            body = {"metadata": {"name": pod}, "spec": {"devices": devices}}
            self.plane.request("POST", _CLAIMS, body)
            self.share(pod, pod)
        else:
            spec = {"containers": [_CONTAINER], "tolerations": tolerations}
            self.plane.request("POST", _PODS, {"metadata": {"name": pod}, "spec": spec})

    def share(self, pod: str, claim: str) -> None:
        """Create a pod that uses a claim that exists."""
        spec = {
            "containers": [_CONTAINER | {"resources": {"claims": [{"name": "npu"}]}}],
            "resourceClaims": [{"name": "npu", "resourceClaimName": claim}],
        }
        self.plane.request("POST", _PODS, {"metadata": {"name": pod}, "spec": spec})

    def written(self, option: str) -> int:
        """Return how many writes of an option the aggregator has made since its start."""
        signals = self.aggregator.ask(_PAGE)[1]["signals"]
        outcomes = next(status["outcomes"] for status in signals if status["option"] == option)
        return int(outcomes["written"])

    def break_chip(self, chip: int, code: str) -> None:
        """Begin a fault in the emulated driver."""
        emulator = self.agent.emulator
        emulator.occur(chip, code)
        self._faults[chip, code] = lambda: emulator.recover(chip, code)

    def break_server(self, code: str) -> None:
        """Begin an alarm of the emulated BMC."""
        bmc = self.agent.emulator.bmc
        bmc.occur(BmcAlarm(code, SERVER))
        self._faults[SERVER, code] = lambda: bmc.recover(code, SERVER)

    def repair(self, part: int | str, code: str) -> None:
        """End a fault of a chip, or of ``SERVER``."""
        self._faults.pop((part, code))()

    def is_placed(self, pod: str) -> bool:
        """Return whether kube-scheduler has bound a pod that exists."""
        status, answer = self.plane.ask("GET", f"{_PODS}/{pod}")
        return status == 200 and answer["spec"].get("nodeName") == NODE

    def refusal(self, pod: str) -> str:
        """Return why kube-scheduler has not placed a pod; empty while it has not tried."""
        conditions = self.plane.request("GET", f"{_PODS}/{pod}")["status"].get("conditions", ())
        texts = (c["message"] for c in conditions if c.get("reason") == "Unschedulable")
        return next(texts, "")

    def is_gone(self, pod: str) -> bool:
        """Return whether a pod was deleted."""
        return bool(self.plane.ask("GET", f"{_PODS}/{pod}")[0] == 404)

    def chips_of(self, pod: str) -> set[str]:
        """Return the devices that the claim of a pod has."""
        status = self.plane.request("GET", f"{_CLAIMS}/{pod}")["status"]
        return {result["device"] for result in status["allocation"]["devices"]["results"]}

    def taints(self) -> list[tuple[str, str]]:
        """Return key and effect of each taint of the Node."""
        spec = self.plane.request("GET", _NODE).get("spec", {})
        return sorted((taint["key"], taint["effect"]) for taint in spec.get("taints", ()))

    def effect(self, chip: int) -> str | None:
        """Return the effect on the device of a chip; ``None`` without a rule."""
        rule = self._rule(chip)
        return None if rule is None else str(rule["spec"]["taint"]["effect"])

    def eviction(self, chip: int) -> tuple[str, str] | None:
        """Return status and reason of the answer to a rule as it is now; ``None`` without one."""
        rule = self._rule(chip)
        if rule is None:
            return None
        for condition in rule["status"].get("conditions", ()):
            if condition["observedGeneration"] == rule["metadata"]["generation"]:
                return condition["status"], condition["reason"]
        return None

    def _rule(self, chip: int) -> dict[str, Any] | None:
        name = rule_name(Device(device_objects.DRIVER, NODE, f"npu-{chip}"))
        status, answer = self.plane.ask("GET", f"{device_objects.RULES}/{name}")
        return answer if status == 200 else None

    def clean(self) -> None:
        """Delete all pods and claims, end all faults, and wait until the last taint is lifted."""
        for end_fault in self._faults.values():
            end_fault()
        self._faults.clear()
        pods = [pod["metadata"]["name"] for pod in self.plane.request("GET", _PODS)["items"]]
        for pod in pods:
            self.plane.ask("DELETE", f"{_PODS}/{pod}?gracePeriodSeconds=0")
        self.plane.request("DELETE", _CLAIMS)
        self.until(
            lambda: not self.taints() and all(self.effect(chip) is None for chip in range(CHIPS)),
            "no taint is left",
        )
