"""What the image of a release takes from the Dockerfile, and bases that are missing.

``real_image.py`` builds images.
"""

from __future__ import annotations

import io
import json
import sys
import tarfile
from typing import TYPE_CHECKING

import pytest

from release.image import ImageError, base_root, dockerfile_settings
from release.sbom import bill_of_materials, image_bill, read_lock
from tests.parts.tree import ROOT
from tests.release.trees import COMMIT, EPOCH, VERSION

if TYPE_CHECKING:
    from pathlib import Path

_STATUS = """Package: tzdata
Version: 2026b-0+deb12u1
Architecture: all

Package: libc6
Version: 2.36-9+deb12u14
Architecture: {}
"""
_VARIABLES = {"VERSION": VERSION, "REVISION": COMMIT, "PATH": "/usr/bin"}


def test_the_settings_of_the_image_are_those_of_the_dockerfile() -> None:
    settings = dockerfile_settings((ROOT / "daemonset" / "Dockerfile").read_text(), _VARIABLES)
    labels = settings.config.pop("Labels")
    assert labels["org.opencontainers.image.version"] == VERSION
    assert labels["org.opencontainers.image.revision"] == COMMIT
    assert settings.config == {
        "Env": ["PATH=/opt/npu-vigil/bin:/usr/bin", "PYTHONDONTWRITEBYTECODE=1"],
        "User": "9820:9820",
        "Entrypoint": ["/opt/npu-vigil/bin/vigil"],
    }
    assert settings.links["/usr/share/zoneinfo"] == "/host/usr/share/zoneinfo"
    assert settings.links["/etc/machine-id"] == "/host/etc/machine-id"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("RUN apt-get update", "apt-get update is not a link"),
        ("RUN rm -rf /a /b && ln -s /c /a", "/b: removed, not linked"),
        ("COPY . .", r"COPY \. \. is not part of an image"),
        ("WORKDIR /src", "WORKDIR /src is not part of an image"),
    ],
)
def test_an_instruction_that_needs_a_builder_is_refused(line: str, reason: str) -> None:
    text = f"FROM a AS build\nRUN make\nFROM a\n# RUN make\n{line}\n"
    with pytest.raises(ValueError, match=reason):
        dockerfile_settings(text, _VARIABLES)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the cache, which is empty, for the Python of the image."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "version_info", (3, 11, 2))
    folder = tmp_path / "npu-vigil"
    folder.mkdir()
    return folder


def _write_base(path: Path, status: str | None) -> None:
    with tarfile.open(path, "w") as archive:
        archive.addfile(tarfile.TarInfo("./etc/passwd"))
        if status is not None:
            entry = tarfile.TarInfo("./var/lib/dpkg/status")
            entry.size = len(status)
            archive.addfile(entry, io.BytesIO(status.encode()))


@pytest.mark.usefixtures("cache")
def test_a_missing_base_is_named_with_its_folder(tmp_path: Path) -> None:
    with pytest.raises(ImageError) as refused:
        base_root("aarch64")
    assert f"for arm64 needs image-bookworm-arm64-2.tar in {tmp_path}/npu-vigil" in str(
        refused.value
    )
    assert "tests/setup.sh" in str(refused.value)


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (None, "is not the root of a Debian: .*dpkg/status"),
        ("", "has an empty list of packages"),
        (_STATUS.format("arm64"), "has packages for arm64, and the image is for amd64"),
    ],
)
def test_a_base_that_is_none_or_of_another_processor_is_refused(
    cache: Path, status: str | None, reason: str
) -> None:
    _write_base(cache / "base-bookworm-2.tar", status)
    with pytest.raises(ImageError, match=reason):
        base_root("x86_64")


def test_a_base_of_the_processor_is_accepted(cache: Path) -> None:
    base = cache / "base-bookworm-2.tar"
    _write_base(base, _STATUS.format("amd64"))
    assert base_root("x86_64") == base


def test_a_base_that_is_no_archive_is_refused(cache: Path) -> None:
    (cache / "base-bookworm-2.tar").write_text("no archive")
    with pytest.raises(ImageError, match="is not the root of a Debian"):
        base_root("x86_64")


def test_another_python_than_that_of_the_image_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 13, 0))
    with pytest.raises(ImageError, match=r"has bytecode of Python 3\.11"):
        base_root("x86_64")


@pytest.mark.slow
def test_the_bill_of_an_image_is_valid_and_has_the_packages_of_its_base() -> None:
    lock = read_lock((ROOT / "requirements.lock").read_text(encoding="utf-8"))
    product = bill_of_materials(lock, COMMIT, EPOCH)
    bill = image_bill(product, "image", [("libc6", "2.36-9+deb12u14", "arm64")])
    # Its import builds forty parsers, which takes each process that collects this file 3 s.
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(bill.decode()) is None
    content, given = json.loads(bill), json.loads(product)
    assert content["serialNumber"] != given["serialNumber"]
    purls = {each["purl"] for each in content["components"]}
    assert "pkg:deb/debian/libc6@2.36-9%2Bdeb12u14?arch=arm64" in purls
    assert {each["purl"] for each in given["components"]} < purls
    assert given["metadata"]["component"]["purl"] in purls
