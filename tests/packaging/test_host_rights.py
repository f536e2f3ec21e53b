"""What host checks need of the manifests and of the unit."""

from __future__ import annotations

from configparser import RawConfigParser
from pathlib import Path
from typing import Any

import pytest

from tests.parts.kustomize import MANIFESTS, build

UNIT = Path(__file__).parents[2] / "systemd/npu-vigil-agent.service"
FOLDERS = ["base", *sorted(f"overlays/{one.name}" for one in (MANIFESTS / "overlays").iterdir())]


def agent_of(folder: str) -> dict[str, Any]:
    (pod,) = [
        item["spec"]["template"]["spec"] for item in build(folder) if item["kind"] == "DaemonSet"
    ]
    assert isinstance(pod, dict)
    return pod


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_pod_may_read_the_log_and_sees_the_mounts_of_the_host(folder: str) -> None:
    pod = agent_of(folder)
    (container,) = pod["containers"]
    assert "SYSLOG" in container["securityContext"]["capabilities"]["add"]
    assert pod["hostPID"] is True
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"]}
    assert paths[mounts["/dev"]] == "/dev", "there is /dev/kmsg"


def test_the_unit_takes_neither_away() -> None:
    unit = RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(UNIT.read_text(encoding="utf-8"))
    service = unit["Service"]
    assert service["ProtectKernelLogs"] == "no"
    assert "CapabilityBoundingSet" not in service
    assert "PrivateDevices" not in service
