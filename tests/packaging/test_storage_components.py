"""The components for shared storage: the agent finds the status files where it looks for them."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

import pytest

from collectors.storage.collector import StorageSection
from tests.parts.kustomize import MANIFESTS, build_with

if TYPE_CHECKING:
    from pathlib import Path


OVERLAYS = sorted(f"overlays/{folder.name}" for folder in (MANIFESTS / "overlays").iterdir())


@pytest.mark.server
@pytest.mark.parametrize("overlay", ["base", *OVERLAYS])
def test_both_files_of_the_host(overlay: str, tmp_path: Path) -> None:
    items = build_with(tmp_path, overlay, "dpc-storage", "dtfs-storage")
    (agent,) = (item for item in items if item["kind"] == "DaemonSet")
    pod = agent["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    paths = {volume["name"]: volume["hostPath"] for volume in pod["volumes"]}
    storage = StorageSection()
    for file, on_host in (storage.dpc_file, "/proc/odcs"), (storage.dtfs_file, "/proc/dtfs"):
        name = mounts[str(PurePath(file).parent)]
        assert paths[name] == {"path": on_host, "type": "Directory"}
