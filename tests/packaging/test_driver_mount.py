"""The driver in the agent's pod: replaced on the host, it is found again."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import pytest

from tests.parts.kustomize import MANIFESTS, build

if TYPE_CHECKING:
    from pathlib import Path

OVERLAYS = sorted(f"overlays/{folder.name}" for folder in (MANIFESTS / "overlays").iterdir())
REPLACED = (PurePath("/usr/local/Ascend/driver"), PurePath("/usr/local/dcmi"))
"""What an installer of the driver deletes and makes anew."""


def agent_pod(folder: str) -> Any:
    (agent,) = (item for item in build(folder) if item["kind"] == "DaemonSet")
    return agent["spec"]["template"]["spec"]


@pytest.mark.parametrize("overlay", ["base", *OVERLAYS])
def test_parents_of_what_is_replaced_are_mounted(overlay: str) -> None:
    pod = agent_pod(overlay)
    (container,) = pod["containers"]
    hosts = {volume["name"]: PurePath(volume["hostPath"]["path"]) for volume in pod["volumes"]}
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    (search,) = (
        variable["value"] for variable in container["env"] if variable["name"] == "LD_LIBRARY_PATH"
    )
    seen = set()
    for directory in map(PurePath, search.split(":")):
        place = next(parent for parent in directory.parents if str(parent) in mounts)
        mount = mounts[str(place)]
        assert mount["readOnly"] is True
        assert "mountPropagation" not in mount
        on_host = hosts[mount["name"]] / directory.relative_to(place)
        for replaced in REPLACED:
            assert not hosts[mount["name"]].is_relative_to(replaced), "it would keep a deleted one"
            if on_host.is_relative_to(replaced):
                seen.add(replaced)
    assert seen == set(REPLACED)


def test_a_driver_that_is_a_mount_of_its_own(tmp_path: Path) -> None:
    up = "../" * (len(tmp_path.resolve().parts) - 1)
    root = str(MANIFESTS.resolve())[1:]
    (tmp_path / "kustomization.yaml").write_text(
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"
        f"resources: [{up}{root}/base]\ncomponents: [{up}{root}/components/mounted-driver]\n"
    )
    (container,) = agent_pod(str(tmp_path))["containers"]
    (driver,) = (mount for mount in container["volumeMounts"] if mount["name"] == "driver")
    assert driver == {
        "name": "driver",
        "mountPath": "/usr/local/Ascend",
        "readOnly": True,
        "mountPropagation": "HostToContainer",
    }
