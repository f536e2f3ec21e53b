"""What the agent's pod sees of its host, by way of parents that every host has.

Driver and local time on a real host are in ``make test-node``.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import pytest

from release.image import dockerfile_settings
from tests.parts.kustomize import MANIFESTS, build

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.server

OVERLAYS = sorted(f"overlays/{folder.name}" for folder in (MANIFESTS / "overlays").iterdir())
REPLACED = (PurePath("/usr/local/Ascend/driver"), PurePath("/usr/local/dcmi"))
"""What an installer of the driver deletes and makes anew."""
FILES = tuple(map(PurePath, ("/etc/localtime", "/etc/machine-id", "/usr/share/zoneinfo/UTC")))
ALWAYS_THERE = ("/usr", "/etc", "/dev")


def agent_pod(folder: str) -> Any:
    (agent,) = (item for item in build(folder) if item["kind"] == "DaemonSet")
    return agent["spec"]["template"]["spec"]


def links_of_the_image() -> dict[PurePath, PurePath]:
    """Return the target of each link that daemonset/Dockerfile makes."""
    text = (MANIFESTS / "Dockerfile").read_text()
    links = dockerfile_settings(text, {"VERSION": "", "REVISION": "", "PATH": ""}).links
    return {PurePath(path): PurePath(target) for path, target in links.items()}


@pytest.mark.parametrize("overlay", ["base", *OVERLAYS])
def test_nothing_is_created_on_the_host_and_nothing_may_be_missing(overlay: str) -> None:
    """A hostPath without a type creates what is absent; one with a type stops the pod."""
    for volume in agent_pod(overlay)["volumes"]:
        path, kind = volume["hostPath"]["path"], volume["hostPath"].get("type")
        if path == "/var/lib/npu-vigil":
            assert kind == "DirectoryOrCreate", "the state of the agent is the host's to keep"
        else:
            assert (path, kind) in {(one, "Directory") for one in ALWAYS_THERE}


@pytest.mark.parametrize("overlay", ["base", *OVERLAYS])
def test_driver_replaced_on_the_host_is_seen_through_the_mounted_parent(overlay: str) -> None:
    pod = agent_pod(overlay)
    (container,) = pod["containers"]
    hosts = {volume["name"]: PurePath(volume["hostPath"]["path"]) for volume in pod["volumes"]}
    mounts = {PurePath(mount["mountPath"]): mount for mount in container["volumeMounts"]}
    (search,) = (
        variable["value"] for variable in container["env"] if variable["name"] == "LD_LIBRARY_PATH"
    )
    links = links_of_the_image()
    wanted = {*map(PurePath, search.split(":")), *FILES}
    seen = set()
    for path in wanted:
        link = next(one for one in (path, *path.parents) if one in links)
        inside = links[link] / path.relative_to(link)
        place = next(parent for parent in inside.parents if parent in mounts)
        mount = mounts[place]
        assert mount["readOnly"] is True
        assert "mountPropagation" not in mount
        on_host = hosts[mount["name"]] / inside.relative_to(place)
        assert on_host == path, "it is where the host has it"
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
    (driver,) = (mount for mount in container["volumeMounts"] if mount["name"] == "host-usr")
    assert driver == {
        "name": "host-usr",
        "mountPath": "/host/usr",
        "readOnly": True,
        "mountPropagation": "HostToContainer",
    }
