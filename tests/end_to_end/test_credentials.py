"""Agent and aggregator while the certificates of their API server, and their own, are replaced."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.aggregator.daemon import Daemon
from tests.end_to_end.node import Node
from tests.parts.controlplane import CHIEF_TOKEN, LEASES, ControlPlane
from tests.parts.deadlines import patience
from tests.parts.places import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.apiserver

FAULT = "80E01801"
LEASE = f"{LEASES}/npu-vigil-node-1"
CLUSTER_INFO = "/api/v1/namespaces/mindx-dl/configmaps/cluster-info-device-0"
BACK_SECONDS = 10.0
"""From the new file on."""
REFUSED = "client.credentials: store kubernetes: "
GOOD_AGAIN = "the credentials are good again"
IN_POD = "tests.end_to_end.in_pod"


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """Yield an API server for this module only, as its tests replace the CA."""
    directory = tmp_path / "plane"
    directory.mkdir()
    with ControlPlane(directory) as plane:
        yield plane


class Kubeconfig:
    """A kubeconfig beside copies of the files that it names."""

    program = "vigil"

    def __init__(self, directory: Path, plane: ControlPlane) -> None:
        self._directory = directory
        self._plane = plane
        directory.mkdir()
        content = json.loads(plane.kubeconfig.read_text())
        content["clusters"][0]["cluster"]["certificate-authority"] = "ca.crt"
        user = {"client-certificate": "admin.crt", "client-key": "admin.key"}
        content["users"][0]["user"] = user
        self._content = json.dumps(content)
        self.options = ["--store", "kubernetes:", "--kubeconfig", str(directory / "config")]
        self.environment: dict[str, str] = {}
        self.spoil()

    def spoil(self) -> None:
        """Write an incomplete kubeconfig, as an editor that is killed does."""
        (self._directory / "config").write_text(self._content[:-80])

    def update(self) -> None:
        """Copy the files of the API server, one after the other."""
        (self._directory / "config").write_text(self._content)
        for name in ("ca.crt", "admin.crt", "admin.key"):
            (self._directory / name).write_bytes((self._plane.directory / name).read_bytes())


class Pod:
    """The files of a service account as the kubelet sets them."""

    program = IN_POD

    def __init__(self, directory: Path, plane: ControlPlane) -> None:
        self._directory = directory
        self._plane = plane
        directory.mkdir()
        self.options = ["--store", "kubernetes:"]
        self.environment = {
            "SERVICE_ACCOUNT": str(directory),
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(plane.port),
        }
        self.spoil()
        for name in ("ca.crt", "token"):
            (directory / name).symlink_to(f"..data/{name}")

    def spoil(self) -> None:
        """Write half of a CA file."""
        self._replace((self._plane.directory / "ca.crt").read_bytes()[:-50])

    def update(self) -> None:
        """Copy the files of the API server."""
        self._replace((self._plane.directory / "ca.crt").read_bytes())

    def _replace(self, authority: bytes) -> None:
        """Replace the target of ``..data`` by new files."""
        volume = self._directory / f"..{time.monotonic_ns()}"
        volume.mkdir()
        (volume / "ca.crt").write_bytes(authority)
        # Some tools that write tokens end them with a line feed.
        (volume / "token").write_text(f"{CHIEF_TOKEN}\n")
        draft = self._directory / "..data_tmp"
        draft.symlink_to(volume.name)
        draft.replace(self._directory / "..data")


class Started(Cluster):
    """How the daemons are started."""

    def __init__(self, plane: ControlPlane, files: Kubeconfig | Pod) -> None:
        super().__init__(plane)
        self.files = files

    @property
    def options(self) -> list[str]:
        return self.files.options


@pytest.fixture(params=[Kubeconfig, Pod])
def files(request: pytest.FixtureRequest, plane: ControlPlane, tmp_path: Path) -> Kubeconfig | Pod:
    """Return each place of both daemons' credentials in turn."""
    made: Kubeconfig | Pod = request.param(tmp_path / "files", plane)
    return made


@pytest.fixture
def node(
    tmp_path: Path, built: Path, plane: ControlPlane, files: Kubeconfig | Pod
) -> Iterator[Node]:
    node = Node(tmp_path, built, Started(plane, files))
    node.environment |= files.environment
    node.environment["VIGIL_HEARTBEAT_INTERVAL_SECONDS"] = "1"
    node.start((sys.executable, "-m", files.program))
    yield node
    node.close()


@pytest.fixture
def aggregator(
    tmp_path: Path, files: Kubeconfig | Pod, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Daemon]:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    for name, value in files.environment.items():
        monkeypatch.setenv(name, value)
    daemon = Daemon(tmp_path / "aggregator", *files.options)
    daemon.program = files.program
    daemon.spawn()
    yield daemon
    daemon.stop()


@pytest.mark.timeout(150)
def test_files_that_are_wrong_at_the_start_and_a_replaced_ca_are_taken_up(
    plane: ControlPlane, files: Kubeconfig | Pod, node: Node, aggregator: Daemon
) -> None:
    node.up()
    for ask in (node.ask, aggregator.ask):
        node.wait(lambda ask=ask: ask("/readyz")[0] == 503, "it is not ready")  # type: ignore[misc]
        assert ask("/healthz")[0] == 200
    # A daemon is not ready before it has read them, either.
    node.wait(lambda: REFUSED in node.logged(), "the agent has read them")
    node.wait(lambda: REFUSED in aggregator.log.read_text(), "the aggregator has read them")
    files.update()
    node.healthy()
    node.wait(lambda: GOOD_AGAIN in node.logged(), "the agent has read good ones")
    node.wait(lambda: GOOD_AGAIN in aggregator.log.read_text(), "the aggregator has read good ones")
    for log in (node.logged(), aggregator.log.read_text()):
        assert log.count(REFUSED) == 2, log[-3000:]
        assert "read again soon" in log
    node.emulator.occur(1, FAULT)
    node.wait(lambda: shown(plane, 1), "the fault is in cluster-info", 40)
    pids = node.process.pid, aggregator.process.pid
    plane.replace_authority()
    node.emulator.occur(3, FAULT)
    # The log has what failed first, which may be that the API server was away.
    node.wait(
        lambda: "certificate verify failed" in json.dumps(node.ask("/readyz")[1]),
        "the old CA does not do",
    )
    lease = plane.request("GET", LEASE)["spec"]["renewTime"]
    files.update()
    began = time.monotonic()
    node.until(lambda now: now.codes(3) == {FAULT}, "the agent publishes", BACK_SECONDS)
    node.wait(
        lambda: plane.request("GET", LEASE)["spec"]["renewTime"] > lease, "it beats", BACK_SECONDS
    )
    node.wait(lambda: shown(plane, 3), "the aggregator publishes", BACK_SECONDS)
    assert time.monotonic() - began < patience(BACK_SECONDS)
    assert (node.process.status, aggregator.process.status) == (None, None)
    assert (node.process.pid, aggregator.process.pid) == pids
    for log in (node.logged(), aggregator.log.read_text()):
        assert "the certificates were replaced" in log, log[-3000:]
        assert CHIEF_TOKEN not in log


def shown(plane: ControlPlane, chip: int) -> bool:
    """Return whether cluster-info has a fault of this chip."""
    status, answer = plane.ask("GET", CLUSTER_INFO)
    data = answer["data"]["cluster-info-device-0"] if status == 200 else "{}"
    entry = json.loads(data).get("mindx-dl-deviceinfo-node-1")
    if entry is None:
        return False
    faults = json.loads(entry["DeviceList"]["huawei.com/Ascend910-Fault"])
    return f"Ascend910-{chip}" in {fault["npu_name"] for fault in faults}
