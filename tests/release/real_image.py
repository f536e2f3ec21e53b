"""Images of a release: equal when they are built twice, and run by what buildah reads of them.

Needs root, buildah, the package index and the bases that ``tests/setup.sh release`` makes.
"""

from __future__ import annotations

import json
import platform
import struct
import tarfile
from importlib.util import cache_from_source
from typing import TYPE_CHECKING, NamedTuple

import pytest

from release.build import LOCK_NAME, Source, build_python
from release.bundle import ARCHITECTURES, fetch_wheels
from release.image import IMAGE_PYTHON, image_name, write_image
from release.manifest import sha256
from release.packages import PackageSource
from tests.node.image import Images
from tests.parts.tree import ROOT
from tests.release.layers import read_layers
from tests.release.trees import COMMIT, EPOCH, VERSION, copy_tree
from vigil.main import _VERBS

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.server
_LIBRARY = f"usr/lib/python{IMAGE_PYTHON}/"
_MAX_ABOVE_BASE_BYTES = 120_000_000
_EACH_VERB = """
for verb in {verbs}; do vigil $verb --help >/dev/null || echo failed $verb; done
vigil scan --node-name x --store directory:/tmp/store --state-dir /tmp/state >/dev/null; echo $?
readlink /etc/machine-id /usr/share/zoneinfo
ls -d /opt/npu-vigil/lib/python3.11/site-packages/vigil/__pycache__/main.cpython-311.pyc
"""


_OWN = platform.machine()


class Built(NamedTuple):
    """Two builds from copies of a tree at other paths; ``second`` has only this processor's."""

    first: Path
    second: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("images")
    output = Built(folder / "first", folder / "second")
    wheels = {name: folder / name for name in ARCHITECTURES}
    for name, place in wheels.items():
        place.mkdir()
        fetch_wheels(ROOT / LOCK_NAME, name, IMAGE_PYTHON, place)
    for place, architectures in ((output.first, ARCHITECTURES), (output.second, (_OWN,))):
        place.mkdir()
        python = folder / f"python-{place.name}"
        python.mkdir()
        tree = copy_tree(folder / "tree" / place.name / "tree")
        own = build_python(Source(tree, VERSION, COMMIT, EPOCH), python)
        bill = (python / f"npu-vigil-{VERSION}.cdx.json").read_bytes()
        for name in architectures:
            given = (own, *sorted(wheels[name].iterdir()))
            source = PackageSource(tree, given, VERSION, EPOCH, name, IMAGE_PYTHON)
            write_image(source, COMMIT, bill, place)
    return output


def test_two_builds_of_an_image_are_equal_to_the_byte(built: Built) -> None:
    for ending in ("tar", "cdx.json"):
        name = f"{image_name(VERSION, _OWN)}.{ending}"
        assert sha256(built.first / name) == sha256(built.second / name), name


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_bill_lists_the_packages_of_the_base(built: Built, architecture: str) -> None:
    name = image_name(VERSION, architecture)
    bill = json.loads((built.first / f"{name}.cdx.json").read_text())
    names = {each["name"] for each in bill["components"]}
    assert {"libc6", "python3.11", "ca-certificates", "npu-vigil", "aiohttp"} < names
    assert "gcc" not in names


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_an_image_has_valid_bytecode_of_the_standard_library(
    built: Built, architecture: str
) -> None:
    sources, bytecode = {}, {}
    with tarfile.open(built.first / f"{image_name(VERSION, architecture)}.tar") as archive:
        for layer in read_layers(archive):
            with tarfile.open(fileobj=layer) as files:
                for member in files:
                    name = member.name.removeprefix("./")
                    if not name.startswith(_LIBRARY):
                        continue
                    if name.endswith(".py") and member.isreg():
                        sources[cache_from_source(name)] = (int(member.mtime), member.size)
                    elif name.endswith(".pyc"):
                        file = files.extractfile(member)
                        assert file is not None
                        # The time and the size of the source are behind the magic number and flags.
                        bytecode[name] = struct.unpack("<8xII", file.read(16))
    assert len(sources) > 500
    assert {name: bytecode.get(name) for name in sources} == sources


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_base_has_nothing_of_the_machine_that_made_it(built: Built, architecture: str) -> None:
    with tarfile.open(built.first / f"{image_name(VERSION, architecture)}.tar") as archive:
        layer, _ = read_layers(archive)
        with tarfile.open(fileobj=layer) as files:
            members = {member.name: member for member in files}
    # A user of a container that is not root enters the root.
    assert members["."].mode == 0o755
    assert not {"./etc/hostname", "./etc/resolv.conf"} & members.keys()
    regular = {name for name, member in members.items() if member.isfile()}
    assert not [name for name in regular if name.startswith("./var/log/")]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_what_an_image_has_above_its_base_is_small(built: Built, architecture: str) -> None:
    with tarfile.open(built.first / f"{image_name(VERSION, architecture)}.tar") as archive:
        _, layer = read_layers(archive)
        with tarfile.open(fileobj=layer) as files:
            sizes = [member.size for member in files]
    assert len(sizes) > 1000
    assert sum(sizes) < _MAX_ABOVE_BASE_BYTES


def test_each_verb_runs_in_the_image(built: Built, tmp_path: Path) -> None:
    images = Images(tmp_path)
    name = images.pull(built.first / f"{image_name(VERSION, _OWN)}.tar")
    settings = images.settings(name)
    assert settings["config"]["Entrypoint"] == ["/opt/npu-vigil/bin/vigil"]
    assert settings["config"]["User"] == "9820:9820"
    search = f"PATH=/opt/npu-vigil/bin:/usr/bin; {_EACH_VERB.format(verbs=' '.join(_VERBS))}"
    status, shown = images.run(name, "sh", "-c", search)
    assert (status, shown.splitlines()) == (
        0,
        [
            *("3", "/host/etc/machine-id", "/host/usr/share/zoneinfo"),
            "/opt/npu-vigil/lib/python3.11/site-packages/vigil/__pycache__/main.cpython-311.pyc",
        ],
    )
    status, shown = images.run(name, *settings["config"]["Entrypoint"], "--version", "--json")
    assert (status, json.loads(shown)["commit"]) == (0, COMMIT)
