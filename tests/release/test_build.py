"""Wheel, sdist, chart and SBOM: equal when they are built twice, complete and valid."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import stat
from typing import TYPE_CHECKING, NamedTuple

import pytest

from release.archives import ArchiveMember, read_tar_gz, read_zip, tar_gz
from release.sbom import PRODUCT, bill_of_materials, read_lock
from tests.parts.tree import ROOT, files
from tests.release.trees import COMMIT, EPOCH, VERSION, build, copy_tree

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow
_WHEEL = f"npu_vigil-{VERSION}-py3-none-any.whl"
_SDIST = f"npu_vigil-{VERSION}.tar.gz"


class Built(NamedTuple):
    """Two builds of one source. The second is of a later day, another path, umask and file time."""

    first: Path
    second: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("release")
    first, second = copy_tree(folder / "tree"), copy_tree(folder / "another" / "tree of another")
    for path in second.rglob("*"):
        os.utime(path, (EPOCH + 999_999, EPOCH + 999_999))
        if path.is_file() and not path.stat().st_mode & stat.S_IXUSR:
            path.chmod(0o600)
    build(first, folder / "first")
    build(second, folder / "second", umask=0o077, later_seconds=86_400 * 3)
    return Built(folder / "first", folder / "second")


def test_two_builds_are_equal_to_the_byte(built: Built) -> None:
    names = sorted(path.name for path in built.first.iterdir())
    assert names == sorted(
        [_WHEEL, _SDIST, f"npu-vigil-{VERSION}.cdx.json", f"npu-vigil-{VERSION}.tgz"]
    )
    for name in names:
        assert (built.first / name).read_bytes() == (built.second / name).read_bytes(), name


def test_the_wheel_has_its_packages_bill_and_commit(built: Built) -> None:
    members = {member.name: member for member in read_zip((built.first / _WHEEL).read_bytes())}
    metadata = f"npu_vigil-{VERSION}.dist-info"
    bill = (built.first / f"npu-vigil-{VERSION}.cdx.json").read_bytes()
    assert members[f"{metadata}/sboms/npu-vigil.cdx.json"].data == bill
    assert members[f"{metadata}/commit"].data.decode().strip() == COMMIT
    packages = {name.partition("/")[0] for name in members if name.endswith(".py")}
    assert "vigil" in packages
    assert packages.isdisjoint({"release", "tests", "benchmarks"})
    sources = {name for name in files("*.py") if name.partition("/")[0] in packages}
    assert sources == {name for name in members if name.endswith(".py")}
    record = members[f"{metadata}/RECORD"].data.decode()
    assert len(record.splitlines()) == len(members)


def test_the_sdist_builds_the_same_wheel(built: Built, tmp_path: Path) -> None:
    for member in read_tar_gz((built.first / _SDIST).read_bytes()):
        path = tmp_path / member.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(member.data)
    tree = tmp_path / f"npu_vigil-{VERSION}"
    # The chart is not part of the sdist; only the wheel is compared.
    chart = tree / "daemonset" / "chart"
    chart.mkdir(parents=True)
    build(tree, tmp_path / "built")
    assert (tmp_path / "built" / _WHEEL).read_bytes() == (built.first / _WHEEL).read_bytes()


def test_the_bill_is_valid_and_of_what_is_installed() -> None:
    lock = read_lock((ROOT / "requirements.lock").read_text(encoding="utf-8"))
    bill = bill_of_materials(lock, COMMIT, EPOCH).decode()
    # Its import builds forty parsers, which takes each process that collects this file 3 s.
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(bill) is None
    content = json.loads(bill)
    for component in content["components"]:
        name = component["name"]
        assert component["version"] == importlib.metadata.version(name)
        (archive,) = component["externalReferences"]
        assert {each["content"] for each in archive["hashes"]} == lock[name][1]
        assert component["licenses"]
    # Without packaging's markers: each component's needs that have no condition are there.
    named = {component["name"] for component in content["components"]}
    for name in (PRODUCT, *named):
        for line in importlib.metadata.requires(name) or ():
            if ";" not in line:
                match = re.match(r"[\w.-]+", line)
                assert match is not None
                assert re.sub(r"[-_.]+", "-", match[0]).lower() in named, f"{name}: {line}"


def test_another_version_than_the_locked_is_refused() -> None:
    lock = read_lock((ROOT / "requirements.lock").read_text(encoding="utf-8"))
    lock["aiohttp"] = ("0.0.1", lock["aiohttp"][1])
    with pytest.raises(ValueError, match=r"aiohttp .* is installed, 0\.0\.1 is locked"):
        bill_of_materials(lock, COMMIT, EPOCH)


def test_members_of_a_tar_archive_are_in_order_and_of_root() -> None:
    members = [ArchiveMember("b", b"2", executable=True), ArchiveMember("a", b"1")]
    assert list(read_tar_gz(tar_gz(members, EPOCH))) == sorted(members)
    assert tar_gz(members, EPOCH) == tar_gz(reversed(members), EPOCH)
