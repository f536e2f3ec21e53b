"""A release of the chart on a real node, by one version of Helm.

Each command waits until the pods are as it left them. The cluster has neither kube-proxy nor
CoreDNS: for ``helm test`` a real name server has the addresses of the pods of each Service.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.node.cluster import NAME_SERVER
from tests.parts.deadlines import patience
from tests.parts.helm import CHART, helm
from tests.parts.processes import Running, program

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.node.cluster import Cluster

_NAME = "npu-vigil"
_DOMAIN = "mindx-dl.svc.cluster.local"
_SECONDS = 180.0
"""For a command that starts pods anew."""


class Release:
    """The release on ``cluster``; ``version`` is ``helm3`` or ``helm4``."""

    def __init__(self, version: str, cluster: Cluster) -> None:
        self._version = version
        self._cluster = cluster

    def install(self, values: Mapping[str, Any]) -> None:
        """Install the chart, and wait until all pods are ready."""
        self._run("install", CHART, "--wait", values=values)

    def upgrade(self, values: Mapping[str, Any]) -> None:
        """Upgrade to other values, and wait until all pods are ready."""
        self._run("upgrade", CHART, "--wait", values=values)

    def roll_back(self) -> None:
        """Return to the first revision, and wait until all pods are ready."""
        self._run("rollback", "1", "--wait")

    def uninstall(self) -> None:
        """Uninstall the release, and wait until its objects are gone."""
        self._run("uninstall", "--wait")

    def test(self) -> str:
        """Run ``helm test``, which must succeed; return how many daemons answered."""
        records = [
            f"--host-record={_NAME}-{component}.{_DOMAIN},{pod['status']['podIP']}"
            for component in ("agent", "aggregator")
            for pod in self._cluster.pods(component)
        ]
        # Without a domain of its own it would answer REFUSED to the first name that a pod tries.
        options = ["--local=/cluster.local/", f"--listen-address={NAME_SERVER}", *records]
        options += ["--keep-in-foreground", "--bind-interfaces", "--no-resolv", "--no-hosts"]
        options += ["--conf-file=/dev/null", "--pid-file", "--user=root"]
        log = self._cluster.directory / "name-server.log"
        name_server = Running([program("dnsmasq"), *options], log)
        try:
            output = self._run("test")
        finally:
            name_server.stop()
        assert "Phase:          Succeeded" in output, output
        return f"{len(records)} daemons are ready"

    def _run(self, verb: str, *options: str | Path, values: Mapping[str, Any] | None = None) -> str:
        """Run a command of Helm that must not fail; return what it printed."""
        kubeconfig = f"--kubeconfig={self._cluster.plane.kubeconfig}"
        timeout = f"--timeout={patience(_SECONDS):.0f}s"
        done = helm(self._version, verb, _NAME, *options, kubeconfig, timeout, values=values)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout
