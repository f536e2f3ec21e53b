"""The chart as an operator gets it: rendered and installed by the real Helm 3 and Helm 4."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tests.parts.controlplane import assets
from tests.parts.kustomize import MANIFESTS
from tests.parts.processes import built_folder, program

if TYPE_CHECKING:
    from collections.abc import Mapping

_MODULE = Path(__file__).parent.parent / "helm"
CHART = MANIFESTS / "chart"
VERSIONS = ("helm3", "helm4")
# Helm renders for this release where it has no cluster; this build of Helm 3 would take 1.20.
_KUBERNETES = "--kube-version=1.36.0"
_NAMESPACE = "--namespace=mindx-dl"


def helm(
    version: str, *arguments: str | Path, values: Mapping[str, Any] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command of Helm that takes ``values``; return what it printed and its status."""
    sources = [_MODULE / name for name in ("go.mod", "go.sum")]
    path = program(version, assets(), built_folder("helm", sources))
    command = [path, _NAMESPACE, *arguments]
    if values is not None:
        command.append("--values=-")
    content = json.dumps(values)
    return subprocess.run(command, input=content, capture_output=True, text=True, check=False)


def lint(version: str, values: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
    """Run ``helm lint`` with every warning as an error."""
    return helm(version, "lint", "--strict", CHART, _KUBERNETES, values=values)


def template(
    version: str, values: Mapping[str, Any], *options: str, chart: Path = CHART
) -> subprocess.CompletedProcess[str]:
    """Run ``helm template`` without a cluster; an option goes before the default."""
    return helm(version, "template", "npu-vigil", chart, _KUBERNETES, *options, values=values)


def rendered(version: str, values: Mapping[str, Any], chart: Path = CHART) -> list[dict[str, Any]]:
    """Return the objects that ``helm template`` makes of values, hooks among them."""
    # Each caller may change its own.
    return [dict(item) for item in json.loads(_rendered(version, json.dumps(values), chart))]


@cache
def _rendered(version: str, values: str, chart: Path) -> str:
    done = template(version, json.loads(values), chart=chart)
    assert done.returncode == 0, done.stderr
    items = yaml.load_all(done.stdout, yaml.CSafeLoader)
    return json.dumps([item for item in items if item is not None])
