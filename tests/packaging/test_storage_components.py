"""The components for shared storage: the agent finds the status files where it looks for them."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

import pytest

from agent.config import Storage
from tests.parts.kustomize import MANIFESTS, build

if TYPE_CHECKING:
    from pathlib import Path


OVERLAYS = sorted(f"overlays/{folder.name}" for folder in (MANIFESTS / "overlays").iterdir())


@pytest.mark.parametrize("overlay", ["base", *OVERLAYS])
def test_both_files_of_the_host(overlay: str, tmp_path: Path) -> None:
    root = MANIFESTS.resolve()
    up = "../" * (len(tmp_path.resolve().parts) - 1)
    kustomization = tmp_path / "kustomization.yaml"
    kustomization.write_text(
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"
        f"resources: [{up}{str(root)[1:]}/{overlay}]\n"
        f"components: [{up}{str(root)[1:]}/components/dpc-storage,"
        f" {up}{str(root)[1:]}/components/dtfs-storage]\n"
    )
    (agent,) = (item for item in build(str(tmp_path)) if item["kind"] == "DaemonSet")
    pod = agent["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    paths = {volume["name"]: volume["hostPath"] for volume in pod["volumes"]}
    storage = Storage()
    for file, on_host in (storage.dpc_file, "/proc/odcs"), (storage.dtfs_file, "/proc/dtfs"):
        name = mounts[str(PurePath(file).parent)]
        assert paths[name] == {"path": on_host, "type": "Directory"}
