"""The steps of ``make test-node``, on a host of its own with a real kubelet and containerd.

Each overlay is installed by kubectl as in the README, and goes through what happens to a node. Each
version of Helm installs, tests, upgrades, rolls back and uninstalls the chart. After each step an
independent reader compares documents and heartbeat with the emulated hardware.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
import traceback
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import yaml

from contract.node_signals import CONDITION_TYPES, NPU_HEALTHY
from dcmi_shim.emulator.control import Emulator
from tests.node import truth
from tests.node.chart import Release
from tests.node.cluster import NODE, Cluster, wait_until
from tests.node.image import ROOT
from tests.parts.deadlines import patience
from tests.parts.helm import VERSIONS
from tests.parts.kustomize import MANIFESTS
from tests.parts.node_reader import NodeReader
from tests.parts.vendors_plugin import account_of, vendors_objects, write

if TYPE_CHECKING:
    from collections.abc import Callable

IMAGE, NEXT_IMAGE, PAUSE = "npu-vigil:0.1.0", "npu-vigil:0.1.1", "pause:1"
MOST_IMAGE_BYTES = 120_000_000
OVERLAYS = ("base", "overlays/beside-device-plugin", "overlays/with-clusterd-clients")
INSTALLATIONS = (*OVERLAYS, *VERSIONS)
"""What ``make test-node`` installs: overlays, and the chart by each version of Helm."""
_DRIVER = Path("/usr/local/Ascend/driver")
_LOCAL_TIME = Path("/etc/localtime")
_STATE = Path("/var/lib/npu-vigil")
_OF_26_1 = ""
_SEPARATED = "Ascend910-7"
_OF_THE_CLUSTER = (
    "/kube-root-ca.crt",
    "/extension-apiserver-authentication",
    "/cluster-info",
    "/kube-apiserver-legacy-service-account-token-tracking",
)
_FORBIDDEN = 403
_OK = 200
_UNAVAILABLE = 503
# The emulated ipmitool lies beside the driver.
_PATH = {"name": "PATH", "value": f"/opt/npu-vigil/bin:/usr/bin:/bin:{_DRIVER}/bin"}
_VOLUME = {"name": "emulator", "hostPath": {"path": str(truth.EMULATOR)}}
_MOUNT = {"name": "emulator", "mountPath": str(truth.EMULATOR)}
_OURS = (str(_STATE), str(truth.EMULATOR), "/usr/local/Ascend")
_OF_OTHERS = (
    *("/var/lib/kubelet", "/var/lib/cni", "/var/log", "/usr/libexec", "/opt/containerd"),
    *("/root", "/tmp", "/run", "/var/tmp"),
)
"""Where Kubernetes and these tests write."""


class NodeRuns:
    """One installation after the other on one cluster."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster = cluster
        self.plane = cluster.plane
        self.directory = directory
        self.begin = time.monotonic()
        self._written = directory / "host/written"

    def step(self, name: str, act: Callable[[], str | None]) -> None:
        """Do ``act`` and print its result."""
        began = time.monotonic()
        result = act()
        took = time.monotonic() - began
        print(
            f"{time.monotonic() - self.begin:6.1f} s  {name} ({took:.1f} s) {result or ''}",
            flush=True,
        )

    def every_overlay(self) -> str:
        """Let the API server judge each object of each overlay."""
        self.cluster.kubectl("apply", "-f", MANIFESTS / "base/namespaces.yaml")
        folders = [
            "base",
            *(f"overlays/{one.name}" for one in sorted((MANIFESTS / "overlays").iterdir())),
        ]
        for folder in folders:
            self.cluster.kubectl("apply", "--dry-run=server", "-k", MANIFESTS / folder)
        return ", ".join(folders)

    def run(self, overlay: str) -> None:
        """Install an overlay, let everything happen to it, and take it away."""
        has_driver = overlay != "base"
        has_plugin = overlay == "overlays/beside-device-plugin"
        place = self._kustomization(overlay)
        self._host(has_driver=has_driver, zone="Asia/Shanghai" if has_plugin else None)
        before = self._files()
        if has_plugin:
            self.step("the vendor's plugin writes device-info", self._plugin_may_write)
        self.step("install", lambda: self._install(place))
        if not has_driver:
            self.step("no driver", self._waits_for_a_driver)
            self.step("host unchanged", lambda: self._host_is_unchanged(before))
            self._install_driver()
        with NodeReader(self.plane) as reader:
            self.step("ready", self._ready)
            compared = self._comparison(reader)
            if has_plugin:
                self.step("the vendor's plugin is refused", self._plugin_is_refused)
            compared("fault", lambda: self._occur(3, "80E01801"))
            self.step("fault in kubectl describe node", lambda: self._described("80E01801"))
            self.step("fault of the server, local time", self._node_info)
            compared("container killed", self._kill_agent)
            compared("pod deleted", self._delete_pod)
            compared("image updated", lambda: self._update_image(place))
            compared("drained", self._drain)
            compared("driver replaced", self._replace_driver)
        self.step("host unchanged", lambda: self._host_is_unchanged(before))
        self.step("uninstall", lambda: self._uninstall(place, has_plugin=has_plugin))
        if has_plugin:
            self.step("the vendor's plugin works again", self._plugin_may_write)
            self._register_chips(0)

    def run_chart(self, version: str) -> None:
        """Install the chart by a version of Helm, change it, and take it away."""
        chart = Release(version, self.cluster)
        self._host(has_driver=True, zone=None)
        before = self._files()
        self.step("helm install", lambda: chart.install(_values(IMAGE)))
        with NodeReader(self.plane) as reader:
            self.step("ready", self._ready)
            compared = self._comparison(reader)
            compared("fault", lambda: self._occur(3, "80E01801"))
            self.step("condition of the Node", lambda: self._has_condition("False"))
            self.step("helm test", chart.test)
            compared("helm upgrade", lambda: self._upgrade(chart))
            compared("helm rollback", lambda: self._roll_back(chart))
            compared("end of the fault", lambda: self._recover(3, "80E01801"))
            self.step("condition of the Node", lambda: self._has_condition("True"))
            compared("another fault", lambda: self._occur(4, "80C98008"))
        self.step("host unchanged", lambda: self._host_is_unchanged(before))
        self.step("helm uninstall", lambda: self._uninstall_chart(chart))

    def _comparison(self, reader: NodeReader) -> Callable[[str, Callable[[], object]], None]:
        """Return a function that does a step and compares everything with the hardware after it."""
        since = time.monotonic()

        def compared(name: str, act: Callable[[], object]) -> None:
            def both() -> str:
                nonlocal since
                act()
                result = truth.compare(self.plane, reader, since, name)
                since = time.monotonic()
                return result

            self.step(name, both)

        return compared

    def _upgrade(self, chart: Release) -> None:
        chart.upgrade(_values(NEXT_IMAGE))
        assert self._agent_image() == NEXT_IMAGE

    def _roll_back(self, chart: Release) -> None:
        chart.roll_back()
        assert self._agent_image() == IMAGE

    def _agent_image(self) -> str:
        (pod,) = self.cluster.pods("agent")
        return str(pod["spec"]["containers"][0]["image"])

    def _conditions(self) -> dict[str, str]:
        """Return the status of each of our conditions of the Node."""
        conditions = self.plane.request("GET", f"/api/v1/nodes/{NODE}")["status"]["conditions"]
        return {c["type"]: c["status"] for c in conditions if c["type"] in CONDITION_TYPES}

    def _has_condition(self, status: str) -> str:
        wait_until(lambda: self._conditions().get(NPU_HEALTHY) == status, f"it is {status}")
        return f"{NPU_HEALTHY} is {status}"

    def _uninstall_chart(self, chart: Release) -> str:
        chart.uninstall()
        self._pods_have_ended()
        for name in ("mindx-dl", "cluster-system"):
            namespace = self.plane.request("GET", f"/api/v1/namespaces/{name}")
            assert namespace["status"]["phase"] == "Active", namespace
        assert self._conditions(), "no condition is left that uninstalling could remove"
        result = self._remove_documents(has_plugin=False)
        assert not self._conditions()
        return f"{result}, both namespaces stay"

    def _kustomization(self, overlay: str) -> Path:
        """Write an operator's kustomization of ``overlay``: where the emulator keeps its state."""
        place = self.directory / overlay.replace("/", "-")
        place.mkdir()
        shutil.copytree(MANIFESTS, place / "daemonset")
        period = {"name": "VIGIL_BMC_PERIOD_SECONDS", "value": "1"}
        container = {"name": "agent", "env": [_PATH, period], "volumeMounts": [_MOUNT]}
        patch = {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "npu-vigil-agent", "namespace": "mindx-dl"},
            "spec": {"template": {"spec": {"containers": [container], "volumes": [_VOLUME]}}},
        }
        (place / "kustomization.yaml").write_text(
            yaml.safe_dump(
                {
                    "resources": [f"daemonset/{overlay}"],
                    "patches": [{"patch": yaml.safe_dump(patch)}],
                }
            )
        )
        return place

    def _host(self, *, has_driver: bool, zone: str | None) -> None:
        # Another node: on one that remembers, a fault that comes again is isolated for good.
        shutil.rmtree(_STATE, ignore_errors=True)
        _LOCAL_TIME.unlink(missing_ok=True)
        if zone is not None:
            # As dpkg makes it; systemd's link is relative.
            _LOCAL_TIME.symlink_to(f"/usr/share/zoneinfo/{zone}")
        shutil.rmtree(_DRIVER.parent, ignore_errors=True)
        truth.EMULATOR.mkdir(exist_ok=True)
        if has_driver:
            self._install_driver()

    def _install_driver(self) -> None:
        command = [sys.executable, "-m", "vigil", "emulator", "install", str(_DRIVER)]
        environment = os.environ | {"VIGIL_EMULATOR_DIR": str(truth.EMULATOR)}
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)

    def _files(self) -> set[tuple[str, int]]:
        """Return the files that were written on the host, each with its kind.

        The kind of a device means that the file was removed.
        """
        found = {
            (f"/{file.relative_to(self._written)}", stat.S_IFMT(file.lstat().st_mode))
            for file in self._written.rglob("*")
        }
        # What is written below a directory of this machine shows the directory itself.
        above = {str(parent) for place in _OURS for parent in Path(place).parents}
        return {
            file
            for file in found
            if not file[0].startswith((*_OURS, *_OF_OTHERS)) and file[0] not in above
        }

    def _host_is_unchanged(self, before: set[tuple[str, int]]) -> str:
        new = self._files() - before
        assert not new, f"the pods made these files on the host: {sorted(new)}"
        return "no mount made anything"

    def _install(self, place: Path) -> str:
        self.cluster.kubectl("apply", "-k", place)
        images = {
            container["image"]
            for component in ("agent", "aggregator")
            for pod in self._pods(component, 1)
            for container in pod["spec"]["containers"]
        }
        assert images == {IMAGE}, images
        return ""

    def _pods(self, component: str, least: int) -> list[dict[str, Any]]:
        wait_until(lambda: len(self.cluster.pods(component)) >= least, f"pods of the {component}")
        return self.cluster.pods(component)

    def _ready(self) -> str:
        self.cluster.kubectl(
            "-n", "mindx-dl", "rollout", "status", "daemonset/npu-vigil-agent", "--timeout=120s"
        )
        self.cluster.kubectl(
            "-n",
            "mindx-dl",
            "rollout",
            "status",
            "deployment/npu-vigil-aggregator",
            "--timeout=120s",
        )
        log = self.cluster.logs("agent")
        assert "own-node-only" not in log, "the agent finds the policy not in force"
        return ""

    def _waits_for_a_driver(self) -> str:
        def names_reason() -> bool:
            with contextlib.suppress(OSError):
                status, text = _ask("/readyz")
                return status == _UNAVAILABLE and "driver" in text
            return False

        wait_until(names_reason, "the agent says that there is no driver")
        lease = f"/apis/coordination.k8s.io/v1/namespaces/mindx-dl/leases/npu-vigil-{NODE}"
        wait_until(lambda: self.plane.ask("GET", lease)[0] == _OK, "a heartbeat without a driver")
        (pod,) = self.cluster.pods("agent")
        (state,) = pod["status"]["containerStatuses"]
        assert state["restartCount"] == 0, "an agent without a driver ends"
        assert not Path("/usr/local/Ascend").exists(), "a directory was made where no driver is"
        return _ask("/readyz")[1].strip()

    def _described(self, code: str) -> str:
        """Wait until the real kubectl shows the Event about a fault with its node."""

        def shown() -> bool:
            lines = self.cluster.kubectl("describe", "node", NODE).splitlines()
            return any("device-plugin" in line and f"faultCodes:{code}" in line for line in lines)

        wait_until(shown, f"an Event about {code} in kubectl describe node", 30.0)
        return "an Event with it"

    def _occur(self, chip: int, code: str) -> None:
        with closing(Emulator(truth.EMULATOR)) as emulator:
            emulator.occur(chip, code)

    def _recover(self, chip: int, code: str) -> None:
        with closing(Emulator(truth.EMULATOR)) as emulator:
            emulator.recover(chip, code)

    def _node_info(self) -> str:
        _bmc("occur", "2C000031", "--device", "System")
        wait_until(lambda: truth.of_parts(self.plane) == [["2C000031"]], "the alarm in node-info")
        written: str = self.plane.request("GET", truth.NODE_INFO)["data"]["updateTime"]
        zone = "+08:00" if _LOCAL_TIME.is_symlink() else "Z"
        assert written.endswith(zone), f"updateTime {written} is not in the host's time zone {zone}"
        _bmc("clear")
        wait_until(lambda: not truth.of_parts(self.plane), "the end of the alarm in node-info")
        return written

    def _agent_process(self) -> psutil.Process:
        (agent,) = (
            process
            for process in psutil.process_iter(["cmdline"])
            if (process.info["cmdline"] or [])[1:3] == ["/opt/npu-vigil/bin/vigil", "agent"]
        )
        return agent

    def _restarts(self) -> int:
        (pod,) = self.cluster.pods("agent")
        return sum(one["restartCount"] for one in pod["status"].get("containerStatuses", ()))

    def _kill_agent(self) -> None:
        before = self._restarts()
        self._agent_process().send_signal(signal.SIGKILL)
        self._occur(4, "80C98008")
        wait_until(lambda: self._restarts() > before, "a restart of the container")

    def _delete_pod(self) -> None:
        (pod,) = self.cluster.pods("agent")
        self.cluster.kubectl("-n", "mindx-dl", "delete", "pod", pod["metadata"]["name"])
        self._occur(5, "80E01801")
        self._recover(3, "80E01801")

    def _update_image(self, place: Path) -> None:
        file = place / "daemonset/base/kustomization.yaml"
        old, new = (name.partition(":")[2] for name in (IMAGE, NEXT_IMAGE))
        file.write_text(file.read_text().replace(f'newTag: "{old}"', f'newTag: "{new}"'))
        self.cluster.kubectl("apply", "-k", place)
        self._ready()
        assert self._agent_image() == NEXT_IMAGE

    def _drain(self) -> None:
        agent = self._agent_process().pid
        self.cluster.kubectl(
            *("drain", NODE, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=10s"),
            # The second aggregator waits for a place that this cluster has not.
            "--disable-eviction",
        )
        self._occur(6, "80E01801")
        assert self._agent_process().pid == agent, "the drain took the agent away"
        self.cluster.kubectl("uncordon", NODE)
        self._ready()

    def _replace_driver(self) -> None:
        shutil.rmtree(_DRIVER)
        self._install_driver()
        self._occur(2, "80E01801")

    def _uninstall(self, place: Path, *, has_plugin: bool) -> str:
        label = "app.kubernetes.io/name=npu-vigil,!kubernetes.io/metadata.name"
        self.cluster.kubectl("delete", "-k", place, "-l", label)
        self._pods_have_ended()
        return self._remove_documents(has_plugin=has_plugin)

    def _pods_have_ended(self) -> None:
        wait_until(
            lambda: not self.cluster.pods("agent") and not self.cluster.pods("aggregator"),
            "the end of all pods",
        )

    def _remove_documents(self, *, has_plugin: bool) -> str:
        """Remove what is left by ``vigil uninstall``, which first shows what it would remove."""
        before = self._config_maps()
        assert truth.of_cluster_info(self.plane), "no fault stands that uninstalling could end"
        would = self._vigil_uninstall()
        assert "nothing was changed" in would
        assert self._config_maps() == before
        self._vigil_uninstall("--yes")
        device_info = f"kube-system/mindx-dl-deviceinfo-{NODE}"
        assert self._config_maps() == ({device_info} if has_plugin else set())
        if has_plugin:
            data = self.plane.request("GET", truth.DEVICE_INFO)["data"]
            assert data["ManuallySeparateNPU"] == _SEPARATED, data["ManuallySeparateNPU"]
        leases = self.plane.request(
            "GET", "/apis/coordination.k8s.io/v1/namespaces/mindx-dl/leases"
        )
        assert not leases["items"], leases["items"]
        return f"{len(before)} ConfigMaps went" + (", device-info stayed" if has_plugin else "")

    def _vigil_uninstall(self, *options: str) -> str:
        command = [sys.executable, "-m", "vigil", "uninstall", "--store", "kubernetes:", *options]
        command += ["--kubeconfig", str(self.plane.kubeconfig)]
        # Readers of cluster-info belong to these tests; it need not wait for others.
        environment = os.environ | {"VIGIL_TOUCH_PERIOD_SECONDS": "5"}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, cwd=ROOT
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _config_maps(self) -> set[str]:
        """Return the names of the ConfigMaps, except those of the cluster itself."""
        found = self.plane.request("GET", "/api/v1/configmaps")["items"]
        names = {f"{one['metadata']['namespace']}/{one['metadata']['name']}" for one in found}
        return {name for name in names if not name.endswith(_OF_THE_CLUSTER)}

    def _plugin_may_write(self) -> str:
        for item in vendors_objects(_OF_26_1):
            self.plane.apply(item)
        self._register_chips(8)
        assert self._plugin_writes() in (_OK, http.HTTPStatus.CREATED)
        return account_of(_OF_26_1)

    def _register_chips(self, number: int) -> None:
        """Set what the kubelet has of a Device Plugin; 0 chips when that is gone."""
        chips = {"huawei.com/Ascend910": str(number)}
        path = f"/api/v1/nodes/{NODE}/status"
        self.plane.request("PATCH", path, {"status": {"capacity": chips, "allocatable": chips}})

    def _plugin_is_refused(self) -> str:
        assert self._plugin_writes() == _FORBIDDEN
        return ""

    def _plugin_writes(self) -> int:
        """Write device-info as the vendor's account does; the status."""
        kubeconfig = self.plane.service_account("kube-system", account_of(_OF_26_1))
        name = f"mindx-dl-deviceinfo-{NODE}"
        return write(self.plane, kubeconfig, name, {"ManuallySeparateNPU": _SEPARATED})[0]


def _values(image: str) -> dict[str, Any]:
    """Return the values of the chart with an image on this node."""
    repository, _, tag = image.partition(":")
    agent = {
        "settings": {"bmc": {"period_seconds": 1}},
        "extraEnv": [_PATH],
        "extraVolumes": [_VOLUME],
        "extraVolumeMounts": [_MOUNT],
    }
    return {
        "image": {"repository": repository, "tag": tag},
        "agent": agent,
        "nodeConditions": {"enabled": True},
    }


def _ask(path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", 9820, timeout=patience(5))
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def _bmc(*arguments: str) -> None:
    command = [sys.executable, "-m", "vigil", "simulate", "bmc", *arguments]
    environment = os.environ | {"VIGIL_EMULATOR_DIR": str(truth.EMULATOR)}
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)


def main() -> int:
    """Run the tests in the directory and with the installations of the command line."""
    directory, installations = Path(sys.argv[1]), sys.argv[2].split(",")
    logs = directory / "cluster"
    logs.mkdir()
    with Cluster(logs) as cluster:
        node_runs = NodeRuns(cluster, directory)
        try:
            for name in (PAUSE, IMAGE, NEXT_IMAGE):
                cluster.import_image(directory / f"{name.replace(':', '-')}.tar")
            node_runs.step("every overlay", node_runs.every_overlay)
            for name in installations:
                print(f"--- {name}", flush=True)
                (node_runs.run_chart if name in VERSIONS else node_runs.run)(name)
        except Exception:
            traceback.print_exc()
            print(cluster.kubectl("get", "pods", "-A", "-o", "wide"))
            for component in ("agent", "aggregator"):
                print(f"--- {component}\n{cluster.logs(component)[-3000:]}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
