"""What host checks need of the manifests and of the unit."""

from __future__ import annotations

import subprocess
import sys
from configparser import RawConfigParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.parts.kustomize import MANIFESTS, build
from tests.tiers import only_root

if TYPE_CHECKING:
    from configparser import SectionProxy

UNIT = Path(__file__).parents[2] / "systemd/npu-vigil-agent.service"
FOLDERS = ["base", *sorted(f"overlays/{one.name}" for one in (MANIFESTS / "overlays").iterdir())]


def agent_of(folder: str) -> dict[str, Any]:
    (pod,) = [
        item["spec"]["template"]["spec"] for item in build(folder) if item["kind"] == "DaemonSet"
    ]
    assert isinstance(pod, dict)
    return pod


@pytest.mark.server
@pytest.mark.parametrize("folder", FOLDERS)
def test_the_pod_may_read_the_log_and_sees_the_mounts_of_the_host(folder: str) -> None:
    pod = agent_of(folder)
    (container,) = pod["containers"]
    assert "SYSLOG" in container["securityContext"]["capabilities"]["add"]
    assert pod["hostPID"] is True
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"]}
    assert paths[mounts["/dev"]] == "/dev", "there is /dev/kmsg"


def service_of_unit() -> SectionProxy:
    unit = RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(UNIT.read_text(encoding="utf-8"))
    return unit["Service"]


def test_the_unit_takes_neither_away() -> None:
    service = service_of_unit()
    assert service["ProtectKernelLogs"] == "no"
    for closes_devices in ("PrivateDevices", "DeviceAllow", "DevicePolicy", "ProtectClock"):
        assert closes_devices not in service


@only_root("only root has the capabilities of the agent")
def test_the_capabilities_of_the_unit_suffice() -> None:
    kept = service_of_unit()["CapabilityBoundingSet"].lower().replace("cap_", "+").split()
    # A process 1 of its own, with all capabilities, as a host has.
    command = ["unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", '"$@"; exit $?', "sh"]
    command += ["setpriv", f"--bounding-set=-all,{','.join(kept)}", "--no-new-privs"]
    looks = (
        "import os, pathlib\n"
        "os.close(os.open('/dev/kmsg', os.O_RDONLY | os.O_NONBLOCK))\n"
        "print(len(pathlib.Path('/proc/1/root/proc/1/mountinfo').read_text()) > 0)\n"
        "print(len(list(pathlib.Path('/proc/1/fd').iterdir())) > 0)\n"
        "print(pathlib.Path('/proc/self/status').read_text().split('CapEff:')[1].split()[0])\n"
    )
    done = subprocess.run(
        [*command, sys.executable, "-c", looks], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    first, second, effective = done.stdout.split()
    assert (first, second) == ("True", "True")
    assert int(effective, 16).bit_count() <= len(kept)
