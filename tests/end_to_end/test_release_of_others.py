"""``vigil isolate`` and ``vigil release`` with documents of other programs, and few rights."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from aggregator.processors import separation_documents
from contract.names import DEVICE_INFO_NAMESPACE
from tests.aggregator.nodes import faulty, report
from tests.end_to_end.isolation_site import CHIP, MANUAL
from tests.parts.deadlines import patience
from tests.parts.places import Folder
from tests.parts.verbs import run_vigil

if TYPE_CHECKING:
    from pathlib import Path

    from tests.end_to_end.isolation_site import Site
    from tests.parts.controlplane import ControlPlane

CONFIG_MAPS = f"/api/v1/namespaces/{DEVICE_INFO_NAMESPACE}/configmaps"


def config_map(plane: ControlPlane, manager: str) -> dict[str, str]:
    """Write device-info of node-1 as a program of this name; returns its data."""
    made = report("node-1", faulty())
    data = made.data | {MANUAL: CHIP}
    metadata = {"name": made.name, "labels": made.labels}
    plane.ask("POST", "/api/v1/namespaces", {"metadata": {"name": DEVICE_INFO_NAMESPACE}})
    body = {"metadata": metadata, "data": data}
    plane.request("POST", f"{CONFIG_MAPS}?fieldManager={manager}", body)
    return data


def stored(plane: ControlPlane) -> dict[str, str]:
    """Return the data of device-info of node-1."""
    data: dict[str, str] = plane.request("GET", f"{CONFIG_MAPS}/mindx-dl-deviceinfo-node-1")["data"]
    return data


@pytest.mark.apiserver
@pytest.mark.timeout(90)
def test_isolation_is_refused_where_the_device_plugin_writes(control_plane: ControlPlane) -> None:
    data = config_map(control_plane, "device-plugin")
    options = ("--store", "kubernetes:", "--kubeconfig", str(control_plane.kubeconfig))
    status, _, errors = run_vigil("isolate", "node-1", "0", "--reason", "why", "--yes", *options)
    assert status == 1
    assert "is written by 'device-plugin'" in errors
    assert stored(control_plane) == data


@pytest.mark.apiserver
@pytest.mark.timeout(90)
@pytest.mark.parametrize("token", ["stranger-token", "unknown-token"])
def test_missing_rights_are_named_and_nothing_is_changed(
    control_plane: ControlPlane, token: str
) -> None:
    data = config_map(control_plane, "npu-vigil")
    options = ("--store", "kubernetes:", "--kubeconfig", str(control_plane.kubeconfig_of(token)))
    for arguments in (("release", "node-1", "3"), ("isolate", "node-1", "0", "--reason", "why")):
        status, lines, errors = run_vigil(*arguments, "--yes", *options)
        assert (status, lines) == (3, [])
        assert "your account needs get and update of ConfigMaps" in errors
    assert stored(control_plane) == data


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Return a directory store with the device-info of node-1, which has one isolated chip."""
    place = Folder(tmp_path / "store")
    made = report("node-1", faulty())
    place.write(made.name, made.data | {MANUAL: CHIP})
    return place


@pytest.mark.timeout(60)
def test_without_an_agent_no_program_would_take_a_request(folder: Folder) -> None:
    status, _, errors = run_vigil(
        "isolate", "node-1", "0", "--reason", "why", "--yes", *folder.options
    )
    assert status == 1
    assert "no agent of NPU Vigil has a heartbeat for node-1" in errors


@pytest.mark.timeout(60)
def test_a_broken_document_is_named(folder: Folder) -> None:
    name = "mindx-dl-deviceinfo-node-1"
    data = folder.read(name)
    assert data is not None
    broken = data | {"DeviceInfoCfg": "{"}
    folder.write(name, broken)
    status, _, errors = run_vigil(
        "isolate", "node-1", "Ascend910-0", "--reason", "why", "--yes", *folder.options
    )
    assert status == 1
    assert "DeviceInfoCfg" in errors
    assert folder.read(name) == broken
    file = folder.root / separation_documents.NAMESPACE / f"{separation_documents.CHIPS_NAME}.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"labels": {}, "data": {"node-1": "{"}}))
    folder.write(name, data | {MANUAL: ""})
    status, _, errors = run_vigil("release", "node-1", "3", "--yes", *folder.options)
    assert status == 1
    assert separation_documents.CHIPS_NAME in errors


@pytest.mark.timeout(120)
def test_two_releases_at_once_and_both_documents(folder_site: Site) -> None:
    site, place = folder_site, folder_site.node.place
    assert isinstance(place, Folder)
    assert site.change("isolate", "node-1", "3", "--reason", "why", "--yes")[0] == 0
    file = place.root / separation_documents.NAMESPACE / f"{separation_documents.CHIPS_NAME}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    value = separation_documents.render_chips(
        {CHIP: {"80E18005": 1}, "Ascend910-5": {"80E18005": 1}}
    )
    site.aggregator.stop()
    file.write_text(json.dumps({"labels": {}, "data": {"node-1": value}}))
    site.aggregator.start()
    status, answer = site.change("release", "node-1", "3", "--dry-run")
    assert status == 0
    assert len(answer["holders"]) == 2, answer
    command = [sys.executable, "-m", "vigil", "release", "node-1", "3", "--yes", *place.options]
    both = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(2)
    ]
    try:
        shown = [one.communicate(timeout=patience(60))[0] for one in both]
    finally:
        for one in both:
            one.kill()
    assert [one.returncode for one in both] == [0, 0], shown
    assert site.document().data[MANUAL] == ""
    left = json.loads(file.read_text())["data"]["node-1"]
    assert set(separation_documents.read_chips("node-1", left)) == {"Ascend910-5"}
