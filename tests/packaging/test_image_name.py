"""The README's two lines: what is pushed is what is deployed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.parts.helm import rendered
from tests.parts.kustomize import build

pytestmark = pytest.mark.server

ROOT = Path(__file__).parents[2]
_DOCKER = """#!/bin/sh
echo "$@" >> "{asked}"
"""


def copy_of_manifests(place: Path) -> Path:
    """Return a checkout with the manifests only, and a docker that writes down what it is asked."""
    shutil.copytree(ROOT / "daemonset", place / "daemonset")
    programs = place / "programs"
    programs.mkdir()
    docker = programs / "docker"
    docker.write_text(_DOCKER.format(asked=place / "asked"))
    docker.chmod(0o755)
    return place


def run(place: Path, command: str) -> subprocess.CompletedProcess[str]:
    """Run a line of the README there."""
    environment = os.environ | {"PATH": f"{place / 'programs'}:{os.environ['PATH']}"}
    return subprocess.run(
        ["bash", "-c", command],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def images(place: Path, folder: str) -> set[str]:
    """Return the images of all containers of a folder of kustomize, or of the chart."""
    is_chart = folder.endswith("/chart")
    items = rendered("helm4", {}, place / folder) if is_chart else build(str(place / folder))
    pods: list[dict[str, Any]] = [
        item["spec"]["template"]["spec"]
        for item in items
        if item["kind"] in ("DaemonSet", "Deployment")
    ]
    return {container["image"] for pod in pods for container in pod["containers"]}


@pytest.mark.parametrize("document", ["README.md", "docs/installation.md"])
def test_the_image_that_is_pushed_is_deployed(document: str, tmp_path: Path) -> None:
    text = (ROOT / document).read_text()
    (push, apply) = re.findall(r"^(daemonset/push-image .*)\n(kubectl apply -k .*)$", text, re.M)[0]
    place = copy_of_manifests(tmp_path)
    done = run(place, push)
    assert done.returncode == 0, done.stderr
    name = push.split()[1]
    asked = (place / "asked").read_text().split()
    assert asked[asked.index("-t") + 1] == name
    assert "--push" in asked
    assert images(place, apply.split()[-1]) == {name}
    assert images(place, "daemonset/chart") == {name}


def test_a_base_by_its_digest_reaches_the_build(tmp_path: Path) -> None:
    place = copy_of_manifests(tmp_path)
    base = "registry.example/python@sha256:" + "0" * 64
    done = run(place, f"daemonset/push-image host:5000/a/b:1.2 --build-arg BASE={base}")
    assert done.returncode == 0, done.stderr
    assert f"--build-arg BASE={base}" in (place / "asked").read_text()
    assert images(place, "daemonset/base") == {"host:5000/a/b:1.2"}


@pytest.mark.parametrize("wrong", ["", "npu-vigil", "host:5000/npu-vigil", "a/b@sha256:1"])
def test_an_image_without_a_tag_is_refused(wrong: str, tmp_path: Path) -> None:
    place = copy_of_manifests(tmp_path)
    done = run(place, f"daemonset/push-image {wrong}")
    assert done.returncode == 2
    assert "usage: daemonset/push-image" in done.stderr
    assert not (place / "asked").exists()
    assert images(place, "daemonset/base") == {"npu-vigil:0.1.0"}
    assert images(place, "daemonset/chart") == {"npu-vigil:0.1.0"}
