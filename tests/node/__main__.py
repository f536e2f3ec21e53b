"""``make test-node``: the manifests on a real node. Needs root; ends with 2 where it has not.

Before that, file systems of this machine's kernel really fail (``failing_file_systems``), and an
agent's sources are in containers with few rights (``confined``).

    python -m tests.node [--only NAME,...]

Builds the image, makes a host of its own (host.sh) and runs tests there. Nothing is left on this
machine. Exit status: 0 all steps held, 1 one did not, 2 no root.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

import typer
import typer.core
import typer.main

from tests.node import confined, failing_file_systems
from tests.node.image import ROOT, Images
from tests.node.node_runs import IMAGE, INSTALLATIONS, MOST_IMAGE_BYTES, NEXT_IMAGE, PAUSE
from vigil.main import app

PACKAGES = tuple(
    tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["root_packages"]
)

_NO_ROOT = 2
_VIGIL = ("/opt/npu-vigil/bin/vigil",)
_IMPORT_ALL = f"""
import importlib, pkgutil
modules = [
    found.name
    for package in {PACKAGES!r}
    for found in pkgutil.walk_packages(importlib.import_module(package).__path__, package + ".")
    if not found.name.endswith("__main__")
]
for name in modules:
    importlib.import_module(name)
print(len(modules), "modules")
"""


def main() -> int:
    """Run everything; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.node")
    parser.add_argument("--only", default=",".join(INSTALLATIONS), help="overlays, helm3, helm4")
    parser.add_argument("--keep", action="store_true", help="leave the logs and say where they are")
    options = parser.parse_args()
    if os.geteuid() != 0:
        print("make test-node needs root: it starts a kubelet and containerd", file=sys.stderr)
        return _NO_ROOT
    begin = time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="npu-vigil-node-"))
    try:
        print("file systems that fail:", flush=True)
        if failing_file_systems.main():
            return 1
        print("containers with few rights:", flush=True)
        if confined.check_on_host():
            return 1
        images = Images(directory)
        images.build_pause(PAUSE)
        images.build(IMAGE, NEXT_IMAGE)
        size = images.size(IMAGE)
        print(f"{time.monotonic() - begin:6.1f} s  image: {size / 1e6:.0f} MB above its base")
        assert size <= MOST_IMAGE_BYTES, "the image is too large"
        print(f"{time.monotonic() - begin:6.1f} s  in the image: {each_verb(images)}")
        for name in (PAUSE, IMAGE, NEXT_IMAGE):
            images.archive(name)
        host = [str(ROOT / "tests/node/host.sh"), str(directory)]
        node_runs = [sys.executable, "-m", "tests.node.node_runs", str(directory), options.only]
        done = subprocess.run([*host, *node_runs], cwd=ROOT, check=False)
        print(f"{time.monotonic() - begin:6.1f} s  in all, {load()}")
        return 1 if done.returncode else 0
    finally:
        remove_groups()
        if options.keep:
            print(f"logs: {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)


def each_verb(images: Images) -> str:
    """Run each verb in the image, and import every module; what was run."""
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    verbs = group.list_commands(typer.Context(group))
    for verb in verbs:
        status, output = images.run(IMAGE, *_VIGIL, verb, "--help")
        assert (status, "Usage:" in output) == (0, True), f"{verb}: {output}"
    status, modules = images.run(IMAGE, "/opt/npu-vigil/bin/python3", "-c", _IMPORT_ALL)
    assert status == 0, modules
    # What has no driver, no cluster and no configuration ends as it does anywhere.
    place = "--store=directory:/tmp/store"
    for expected, text, arguments in (
        (3, "libdcmi.so", ("scan", "--node-name=x", place, "--state-dir=/tmp/state")),
        (2, "does not run in a pod", ("uninstall", "--store=kubernetes:")),
        (0, "nothing was changed", ("uninstall", place)),
        (1, "nothing is known of x", ("forget", "x", place)),
        (2, "no-such-file", ("validate", "/tmp/no-such-file")),
    ):
        status, output = images.run(IMAGE, *_VIGIL, *arguments)
        assert (status, text in output) == (expected, True), f"{arguments}: {status} {output}"
    return f"{modules.strip()}, {', '.join(map(str, verbs))}"


def remove_groups() -> None:
    """Remove the cgroups of containers that are gone; one that is in use refuses."""
    for place in Path("/sys/fs/cgroup").glob("*/k8s.io/*"):
        with contextlib.suppress(OSError):
            place.rmdir()


def load() -> str:
    """Return the load of this machine as text."""
    return f"load {os.getloadavg()[0]:.0f}"


if __name__ == "__main__":
    sys.exit(main())
