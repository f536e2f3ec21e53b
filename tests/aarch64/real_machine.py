"""The bundle and the image for aarch64, whose programs qemu runs.

The bundle is in a root of Debian 12 for aarch64.

The wheels are unpacked here, because qemu takes minutes to compile their bytecode, which is the
same for each processor. Everything else runs below the root: the checks of ``install``, gcc and the
agent. Needs root and the package index.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tarfile
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from release.build import Source, Target, build_bundle, build_python
from release.bundle import PAYLOAD_NAME, bundle_name
from release.image import image_name, write_image
from release.install_wheels import install, write_command
from release.packages import PackageSource
from tests.parts.deadlines import patience
from tests.parts.processes import cache_folders
from tests.parts.tree import ROOT
from tests.release.layers import read_layers
from tests.release.machine import run_on_machine
from tests.release.trees import COMMIT, EPOCH, VERSION, copy_tree

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.server
_TARGET = Target("aarch64", "3.11")
_NAME = bundle_name(VERSION, *_TARGET)
_EMULATION = str(ROOT / "tests" / "aarch64" / "emulation.sh")
_PLACE = Path("/opt/npu-vigil-releases", _NAME)
_CURRENT = Path("/opt/npu-vigil")
"""Where ``install`` puts a release, and the link that leads to it."""
_IMPORT = """
from importlib import import_module
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path
import platform

site = Path(find_spec("vigil").origin).parents[1]
objects = sorted(site.rglob("*.so"))
for path in objects:
    import_module(".".join((*path.relative_to(site).parent.parts, path.name.partition(".")[0])))
packages = sorted(packages_distributions())
for name in packages:
    import_module(name)
print(platform.machine(), len(objects), len(packages))
"""
# An audit of the fault lists would find the fault as well, half an hour later.
_FAULT = """
export VIGIL_EMULATOR_DIR=/tmp/emulator VIGIL_CHIP_FAULTS_AUDIT_PERIOD_SECONDS=1800
settings="--node-name test --driver-root /tmp/driver --trust-driver"
settings="$settings --state-dir /tmp/state --store directory:/tmp/store"
$below vigil emulator install /tmp/driver --profile a2 >/dev/null; echo installed $?
$below vigil scan $settings --json >scan.json; echo scan $?
grep -m 1 -o 910B3 scan.json
$below vigil agent $settings >log 2>&1 &
document=tmp/store/kube-system/mindx-dl-deviceinfo-test.json
for wait in $(seq {tenths}); do [ -e $document ] && break; sleep 0.1; done
grep -c 80E01801 $document
$below vigil simulate occur 3 80E01801 >/dev/null
for wait in $(seq {tenths}); do grep -q 80E01801 $document && break; sleep 0.1; done
grep -c 80E01801 $document
"""


class Bundle(NamedTuple):
    """The bundle, unpacked in ``given``, and a root of Debian that has its environment.

    ``image`` is the root of the image, which is made of the same wheels.
    """

    given: Path
    root: Path
    image: Path


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("aarch64")
    given, root, image, output = (folder / name for name in ("given", "root", "image", "output"))
    for each in (given, root, image, output):
        each.mkdir()
    source = Source(copy_tree(folder / "tree"), VERSION, COMMIT, EPOCH)
    build_bundle(source, _TARGET, build_python(source, output), output, None)
    with tarfile.open(output / f"{_NAME}.tar.gz") as archive:
        archive.extractall(given, filter="data")
    with tarfile.open(given / _NAME / PAYLOAD_NAME) as archive:
        archive.extractall(folder / "payload", filter="data")
    usual, other = (cache / "base-bookworm-arm64.tar" for cache in cache_folders())
    with tarfile.open(usual if usual.exists() else other) as archive:
        archive.extractall(root, filter="fully_trusted")
    environment = root / _PLACE.relative_to("/")
    environment.mkdir(parents=True)
    (root / _CURRENT.relative_to("/")).symlink_to(_PLACE)
    install(folder / "payload" / "wheels", environment, Path("/usr/bin/python3.11"), _TARGET.python)
    write_command(environment, _PLACE)
    if sys.version_info[:2] == (3, 11):
        compile_all = (sys.executable, "-I", "-m", "compileall", "-q", "-j", "0")
        subprocess.run([*compile_all, "-s", root, "-p", "/", environment / "lib"], check=True)
    wheels = tuple(sorted((folder / "payload" / "wheels").iterdir()))
    _unpack_image(PackageSource(source.tree, wheels, VERSION, EPOCH, *_TARGET), output, image)
    return Bundle(given, root, image)


def _unpack_image(source: PackageSource, output: Path, root: Path) -> None:
    bill = (output / f"npu-vigil-{VERSION}.cdx.json").read_bytes()
    write_image(source, COMMIT, bill, output)
    with tarfile.open(output / f"{image_name(VERSION, source.architecture)}.tar") as archive:
        for layer in read_layers(archive):
            with tarfile.open(fileobj=layer) as files:
                files.extractall(root, filter="fully_trusted")


@pytest.fixture
def on_machine(bundle: Bundle, tmp_path: Path) -> Callable[..., list[str]]:
    """Return a function that runs a script in the root; its output is in lines.

    ``$below`` in the script runs a command below the root, which may be another one.
    """

    def run(script: str, root: Path = bundle.root) -> list[str]:
        folder = tmp_path / "machine"
        folder.mkdir()
        # The shell is not emulated: qemu 7.2 loses the end of a child while a shell waits for it.
        path = f"{_CURRENT}/bin:/tmp/driver/bin:/usr/sbin:/usr/bin"
        below = f"below='chroot . env HOME=/root PATH={path}'"
        whole = f"set +e; exec 2>&1; {below}\n{textwrap.dedent(script)}"
        shown = run_on_machine(
            folder, root, bundle.given, whole, namespaces=(_EMULATION,), seconds=600
        )
        return shown.splitlines()

    return run


def test_install_accepts_the_machine_before_it_asks_for_keys(
    on_machine: Callable[..., list[str]],
) -> None:
    shown = on_machine(f"$below /given/{_NAME}/install; echo status $?")
    assert shown[0] == "ok       processor: aarch64"
    assert [line.partition(":")[0] for line in shown[1:6]] == [
        *("ok       C library", "ok       page size", "ok       user"),
        *("ok       free space", "ok       interpreter"),
    ]
    assert shown[6].startswith("install: name the keys that may sign a release")
    assert shown[7:] == ["status 2"]


def test_all_packages_and_shared_objects_are_imported(
    on_machine: Callable[..., list[str]],
) -> None:
    (shown,) = on_machine(f"$below python3 -c {shlex.quote(_IMPORT)}")
    machine, objects, packages = shown.split()
    assert machine == "aarch64"
    assert int(objects) >= 15
    assert int(packages) >= 45


def test_the_image_has_its_commit_and_its_interpreter(
    bundle: Bundle, on_machine: Callable[..., list[str]]
) -> None:
    shown = on_machine("$below vigil --version --json; echo status $?", bundle.image)
    assert shown[-1] == "status 0"
    assert json.loads("".join(shown[:-1]))["commit"] == COMMIT


def test_a_fault_reaches_the_document_by_event(on_machine: Callable[..., list[str]]) -> None:
    shown = on_machine(_FAULT.format(tenths=round(patience(60) * 10)))
    assert shown == ["installed 0", "scan 1", "910B3", "0", "1"]
