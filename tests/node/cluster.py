"""A whole cluster of one real node, for the process that runs on a host of its own (host.sh)."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.parts import deadlines
from tests.parts.controlplane import ControlPlane, assets
from tests.parts.processes import PartFailed, Running, built_program, program

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

NODE = "node-1"
_MODULE = Path(__file__).parent
_ADDRESS = "192.168.77.2"
NAME_SERVER = "10.0.0.1"
"""The address at which pods look for a name server."""
_SOCKET = "/run/containerd/containerd.sock"
_UP_SECONDS = 90.0
_LOOK_SECONDS = 0.2
_OK = 200


def kubernetes() -> Path:
    """Return the path of this folder's Go program, which ``tests/setup.sh node`` builds."""
    sources = [_MODULE / name for name in ("go.mod", "go.sum", "main.go")]
    return built_program("kubernetes", sources, assets())


class _Plane(ControlPlane):
    """An API server that pods reach at the address of the Service ``kubernetes``."""

    def _surroundings(self) -> tuple[str, ...]:
        return ("--bind-address=0.0.0.0", f"--advertise-address={NAME_SERVER}")


class Cluster:
    """API server, controllers, scheduler, containerd and kubelet, all logs in ``directory``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.plane = _Plane(directory, port=443)
        self._parts: list[Running] = []

    def __enter__(self) -> Self:
        self.plane.start()
        kubeconfig = f"--kubeconfig={self.plane.kubeconfig}"
        here = self.directory
        controllers = ["--use-service-account-credentials=true", "--leader-elect=false"]
        controllers += [f"--service-account-private-key-file={here / 'server.key'}"]
        controllers += [f"--root-ca-file={here / 'ca.crt'}"]
        self._start("kube-controller-manager", kubeconfig, *controllers)
        self._start("kube-scheduler", kubeconfig, "--leader-elect=false")
        self._start_containerd()
        self._start_kubelet(kubeconfig)
        return self

    def __exit__(self, *_: object) -> None:
        for part in reversed(self._parts):
            part.stop(patience_seconds=5.0)
        self.plane.stop()

    def _start(self, name: str, *options: str) -> Running:
        part = Running([kubernetes(), name, *options], self.directory / f"{name}.log")
        self._parts.append(part)
        return part

    def _start_containerd(self) -> None:
        network = self.directory / "network"
        network.mkdir()
        (network / "bridge.conflist").write_text(json.dumps(_NETWORK))
        configuration = self.directory / "containerd.toml"
        configuration.write_text(_CONTAINERD.format(root=self.directory, network=network))
        log = self.directory / "containerd.log"
        containerd = Running([program("containerd"), "--config", configuration], log)
        self._parts.append(containerd)
        containerd.wait_until(lambda: self._ctr("version").returncode == 0, _UP_SECONDS)

    def _start_kubelet(self, kubeconfig: str) -> None:
        configuration = self.directory / "kubelet.json"
        configuration.write_text(json.dumps(self._kubelet_configuration()))
        kubelet = self._start(
            "kubelet",
            kubeconfig,
            f"--config={configuration}",
            f"--root-dir={self.directory / 'kubelet'}",
            f"--node-ip={_ADDRESS}",
            f"--hostname-override={NODE}",
            "--node-labels=workerselector=dls-worker-node",
        )
        kubelet.wait_until(self._is_ready, _UP_SECONDS)

    def _kubelet_configuration(self) -> dict[str, Any]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": f"unix://{_SOCKET}",
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "failCgroupV1": False,
            "failSwapOn": False,
            "clusterDNS": [NAME_SERVER],
            "clusterDomain": "cluster.local",
            "cgroupDriver": "cgroupfs",
            "cgroupsPerQOS": False,
            "enforceNodeAllocatable": [],
            "podLogsDir": str(self.directory / "pods"),
            # The disk of the machine is no matter of this node.
            "evictionHard": {"memory.available": "1Mi"},
            "imageMinimumGCAge": "24h",
        }

    def _is_ready(self) -> bool:
        status, node = self.plane.ask("GET", f"/api/v1/nodes/{NODE}")
        if status != _OK:
            return False
        conditions = {one["type"]: one["status"] for one in node["status"]["conditions"]}
        return conditions.get("Ready") == "True"

    def _ctr(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [program("ctr"), "--address", _SOCKET, "--namespace", "k8s.io", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def import_image(self, archive: Path) -> None:
        """Make the image of an archive one that the kubelet has."""
        done = self._ctr("images", "import", archive)
        if done.returncode != 0:
            raise PartFailed(f"{archive} is no image: {done.stderr}")

    def kubectl(self, *arguments: str | Path) -> str:
        """Run the real kubectl as administrator; what it prints. ``PartFailed`` for an error."""
        command = [kubernetes(), "kubectl", f"--kubeconfig={self.plane.kubeconfig}", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise PartFailed(f"kubectl {' '.join(map(str, arguments))}: {done.stderr}")
        return done.stdout

    def pods(self, component: str) -> list[dict[str, Any]]:
        """Return the pods of ``agent`` or ``aggregator`` that are not about to end."""
        path = "/api/v1/namespaces/mindx-dl/pods?labelSelector=app.kubernetes.io/component%3D"
        found = self.plane.request("GET", path + component)["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def logs(self, component: str) -> str:
        """Return what the pods of a component printed."""
        files = (self.directory / "pods").glob(f"mindx-dl_npu-vigil-{component}-*/*/*.log")
        return "\n".join(file.read_text() for file in files)


def wait_until(holds: Callable[[], bool], what: str, seconds: float = _UP_SECONDS) -> float:
    """Wait until ``holds``; how long that took. Raises ``AssertionError`` with ``what``."""
    begin = time.monotonic()
    deadlines.wait_until(holds, what, seconds, _LOOK_SECONDS)
    return time.monotonic() - begin


_NETWORK: Mapping[str, Any] = {
    "cniVersion": "0.4.0",
    "name": "pods",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "pods0",
            "isGateway": True,
            "ipam": {
                "type": "host-local",
                "subnet": "10.1.0.0/24",
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
    ],
}

_CONTAINERD = """version = 2
root = "{root}/containerd"
state = "/run/containerd"
[plugins."io.containerd.grpc.v1.cri"]
  # This machine may have neither the right to lower the score nor AppArmor.
  restrict_oom_score_adj = true
  disable_apparmor = true
  sandbox_image = "docker.io/library/pause:1"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{network}"
"""
