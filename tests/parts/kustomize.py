"""The manifests as an operator gets them: built by the real kustomize."""

from __future__ import annotations

import subprocess
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tests.parts.controlplane import assets, path_of
from tests.parts.processes import built_program

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.parts.controlplane import ControlPlane

_MODULE = Path(__file__).parent.parent / "kustomize"
MANIFESTS = Path(__file__).parent.parent.parent / "daemonset"


def build(folder: str) -> list[dict[str, Any]]:
    """Build ``daemonset/<folder>`` with kustomize; return its objects."""
    sources = [_MODULE / name for name in ("go.mod", "go.sum")]
    kustomize = built_program("kustomize", sources, assets())
    result = subprocess.run(
        [kustomize, "build", MANIFESTS / folder], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    items = yaml.load_all(result.stdout, yaml.CSafeLoader)
    return [item for item in items if item is not None]


def build_with(directory: Path, folder: str, *components: str) -> list[dict[str, Any]]:
    """Build an operator's kustomization of ``folder`` and components in ``directory``.

    Returns its objects.
    """
    # kustomize takes no absolute paths.
    up = "../" * (len(directory.resolve().parts) - 1)
    root = f"{up}{str(MANIFESTS.resolve())[1:]}"
    kustomization = {
        "resources": [f"{root}/{folder}"],
        "components": [f"{root}/components/{component}" for component in components],
    }
    (directory / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return build(str(directory))


def apply(plane: ControlPlane, folder: str) -> list[dict[str, Any]]:
    """Apply the objects of ``daemonset/<folder>`` in their order, as kubectl does; return them.

    Where the server refuses one of them, those before it are deleted again.
    """
    items = build(folder)
    try:
        for item in items:
            plane.apply(item)
    except BaseException:
        take_back(plane, items)
        raise
    return items


def take_back(plane: ControlPlane, items: Iterable[dict[str, Any]]) -> None:
    """Delete applied objects but for namespaces, which no controller here would end.

    What stays would change later tests on the same API server, so it is an error.
    """
    refused = []
    for item in items:
        if item["kind"] != "Namespace":
            status, answer = plane.ask("DELETE", path_of(item))
            if status // 100 != 2 and status != HTTPStatus.NOT_FOUND:
                refused.append((path_of(item), status, answer))
    assert refused == []


def object_of(items: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    """Return the only object of this kind and name."""
    [found] = [i for i in items if i["kind"] == kind and i["metadata"]["name"] == name]
    return found


def aggregator_container(items: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the container of the aggregator's Deployment."""
    deployment = object_of(items, "Deployment", "npu-vigil-aggregator")
    [found] = deployment["spec"]["template"]["spec"]["containers"]
    return dict(found)
