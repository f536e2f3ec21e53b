"""What host checks need of the manifests and of the unit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from configparser import RawConfigParser
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import pytest

from tests.packaging.blind_sources import RIGHTS, SOURCES
from tests.parts.kustomize import MANIFESTS, build, build_with
from tests.parts.tree import ROOT
from tests.tiers import only_root

if TYPE_CHECKING:
    from configparser import SectionProxy
    from pathlib import Path

    from tests.parts.controlplane import ControlPlane

COMPONENT = "without-privileged"
UNIT = ROOT / "systemd/npu-vigil-agent.service"
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


def agent_without_privileges(directory: Path) -> dict[str, Any]:
    items = build_with(directory, "base", COMPONENT)
    (agent,) = [item for item in items if item["kind"] == "DaemonSet"]
    return agent


@pytest.mark.server
def test_component_leaves_three_capabilities_and_asks_for_devices(tmp_path: Path) -> None:
    template = agent_without_privileges(tmp_path)["spec"]["template"]
    (container,) = template["spec"]["containers"]
    context = container["securityContext"]
    assert context["privileged"] is False
    assert context["allowPrivilegeEscalation"] is False
    assert context["capabilities"]["drop"] == ["ALL"]
    assert context["capabilities"]["add"] == [right.upper() for right in RIGHTS]
    assert template["metadata"]["annotations"]["cdi.k8s.io/npu-vigil"] == "npu-vigil/host=all"


class DeviceNode(msgspec.Struct, forbid_unknown_fields=True):
    """A device file of CDI 0.5."""

    path: Annotated[str, msgspec.Meta(pattern="^/dev/[a-z0-9_]+$")]


class ContainerEdits(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """What a runtime adds to a container."""

    device_nodes: list[DeviceNode]


class Device(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """What a pod can request."""

    name: str
    container_edits: ContainerEdits


class CdiSpecification(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """The members of CDI 0.5 that the guide uses. Its schema permits no others."""

    cdi_version: Literal["0.5.0"]
    kind: Annotated[str, msgspec.Meta(pattern="^[a-z][a-z0-9-]*[a-z0-9]/[a-z][a-z0-9-]*$")]
    devices: list[Device]


@pytest.mark.server
def test_the_guide_lists_the_device_that_the_component_requests(tmp_path: Path) -> None:
    guide = (ROOT / "docs/installation.md").read_text(encoding="utf-8")
    texts = [text.partition("```")[0] for text in guide.split("```json\n")[1:]]
    (text,) = [text for text in texts if "cdiVersion" in text]
    specification = msgspec.json.decode(text, type=CdiSpecification)
    (device,) = specification.devices
    template = agent_without_privileges(tmp_path)["spec"]["template"]
    requested = template["metadata"]["annotations"]["cdi.k8s.io/npu-vigil"]
    assert requested == f"{specification.kind}={device.name}"
    paths = {node.path for node in device.container_edits.device_nodes}
    assert paths >= {"/dev/kmsg", "/dev/ipmi0", "/dev/davinci_manager"}


@pytest.mark.apiserver
def test_api_server_accepts_the_agent_without_privileges(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    agent = agent_without_privileges(tmp_path)
    plane, path = control_plane, "/apis/apps/v1/namespaces/default/daemonsets"
    agent["metadata"]["namespace"] = "default"
    accepted = plane.request("POST", f"{path}?dryRun=All&fieldValidation=Strict", agent)
    (container,) = accepted["spec"]["template"]["spec"]["containers"]
    assert container["securityContext"]["privileged"] is False


NODE = (
    *("unshare", "--pid", "--fork", "--mount-proc", "sh", "-c"),
    'setpriv --reuid=65534 --regid=65534 --clear-groups sleep 60 & "$@" $!; exit $?',
    "sh",
)
"""Runs a command beside a process of a user, with its id, below a first process as a host has."""

HIDDEN = ("unshare", "--mount", "sh", "-c", 'mount -o remount,hidepid=2 /proc && exec "$@"', "sh")
OWN_PROCESSES = ("unshare", "--pid", "--fork", "--mount-proc")


@only_root("only root has the capabilities of the agent")
@pytest.mark.parametrize(
    ("taken", "around", "blind"),
    [
        pytest.param((), (), set(), id="nothing", marks=pytest.mark.slow),
        pytest.param(("syslog",), (), {"kernel log"}, id="syslog"),
        pytest.param(
            ("sys_ptrace",), (), {"file systems"}, id="sys_ptrace", marks=pytest.mark.slow
        ),
        pytest.param(("dac_override",), (), {"driver"}, id="dac_override", marks=pytest.mark.slow),
        pytest.param(
            (), OWN_PROCESSES, {"hang"}, id="processes of the host", marks=pytest.mark.slow
        ),
        # Root has the group 0, which sees them all the same.
        pytest.param((), HIDDEN, set(), id="processes of others", marks=pytest.mark.slow),
    ],
)
def test_each_right_that_is_taken_away_blinds_its_source_alone(
    taken: tuple[str, ...], around: tuple[str, ...], blind: set[str], tmp_path: Path
) -> None:
    device = tmp_path / "davinci_manager"
    device.touch(0o600)
    os.chown(device, 65534, 65534)
    kept = ",".join(f"+{right}" for right in RIGHTS if right not in taken)
    command = [*NODE, *around, "setpriv", f"--bounding-set=-all,{kept}", "--no-new-privs"]
    command += [sys.executable, "-c", SOURCES, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    problems = json.loads(done.stdout)
    assert problems.keys() == blind
    for source, name, remedy in (
        ("kernel log", "/dev/kmsg", "CAP_SYSLOG"),
        ("driver", str(device), "CAP_DAC_OVERRIDE"),
    ):
        if source in problems:
            assert name in problems[source]
            assert remedy in problems[source]
