"""What packages are described as, and errors of nfpm.

A script stands for nfpm, which takes Go and a network: its package is the list that it is given.
``real_packages.py`` has the real one.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from release.packages import (
    NFPM_SUM,
    NFPM_VERSION,
    PackagerError,
    PackageSource,
    cached,
    package_names,
    packager,
    write_packages,
)
from tests.parts.tree import ROOT
from tests.release.trees import EPOCH, VERSION

if TYPE_CHECKING:
    from pathlib import Path

_PAGE = f"npu_vigil-{VERSION}.data/data/share/man/man1/vigil.1"
_NFPM = f"""#!/bin/sh
[ "$1" = --version ] && {{ echo "{NFPM_SUM}"; exit; }}
# package --packager FORMAT --config FILE --target FILE
cp "$5" "$7"
"""


@pytest.fixture
def source(tmp_path: Path) -> PackageSource:
    """Return this repository and a wheel with a program and a manual page."""
    record = f"npu_vigil-{VERSION}.dist-info/RECORD"
    wheel = tmp_path / f"npu_vigil-{VERSION}-py3-none-any.whl"
    lines = [f"{record},,"]
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("vigil/main.py", _PAGE):
            digest = base64.urlsafe_b64encode(hashlib.sha256(name.encode()).digest()).rstrip(b"=")
            archive.writestr(name, name)
            lines.append(f"{name},sha256={digest.decode()},{len(name)}")
        archive.writestr(record, "\n".join(lines))
    return PackageSource(ROOT, (wheel,), VERSION, EPOCH, "aarch64", "3.12")


def _use_nfpm(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    """Put ``script`` in the place of nfpm; return a folder for packages."""
    program = folder / "cache" / "npu-vigil" / f"nfpm-{NFPM_VERSION}" / "nfpm"
    program.parent.mkdir(parents=True)
    program.write_text(script)
    program.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    output = folder / "output"
    output.mkdir()
    return output


def test_names_of_packages_have_the_processor_as_each_distribution_names_it() -> None:
    assert package_names("1.2.3", "aarch64", "3.11") == (
        "npu-vigil_1.2.3-1.cp311_arm64.deb",
        "npu-vigil-1.2.3-1.cp311.aarch64.rpm",
    )
    assert package_names("1.2.3", "x86_64", "3.14") == (
        "npu-vigil_1.2.3-1.cp314_amd64.deb",
        "npu-vigil-1.2.3-1.cp314.x86_64.rpm",
    )


@pytest.mark.slow
def test_packages_have_their_scripts_requirements_modes_and_configuration(
    source: PackageSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = _use_nfpm(tmp_path, monkeypatch, _NFPM)
    write_packages(source, output)
    names = package_names(VERSION, "aarch64", "3.12")
    assert sorted(path.name for path in output.iterdir()) == sorted(names)
    deb, rpm = (json.loads((output / name).read_text()) for name in names)
    maintainer = "NPU Vigil maintainers <maintainers@npu-vigil.invalid>"
    assert (deb["arch"], deb["release"], deb["maintainer"]) == ("arm64", "1.cp312", maintainer)
    assert rpm["rpm"]["packager"] == maintainer
    assert "python3.12" in deb["depends"]
    assert "python(abi) = 3.12" in rpm["depends"]
    # %posttrans of the .rpm runs when the files of the release before are gone.
    assert set(deb["scripts"]) == {"preremove", "postremove", "postinstall"}
    assert set(rpm["scripts"]) == {"preremove", "postremove"}
    assert set(rpm["rpm"]["scripts"]) == {"posttrans"}
    entries: dict[str, Any] = {entry["dst"]: entry for entry in deb["contents"]}
    assert {entry["file_info"]["owner"] for entry in entries.values()} == {"root"}
    assert entries["/etc/npu-vigil/agent.toml"]["type"] == "config|noreplace"
    assert entries["/usr/lib/npu-vigil"]["type"] == "dir"
    command = entries["/usr/bin/vigil"]
    assert (command["type"], command["src"]) == ("symlink", "../lib/npu-vigil/bin/vigil")
    modes = {name: entry["file_info"]["mode"] for name, entry in entries.items()}
    assert modes["/usr/lib/npu-vigil/bin/vigil"] == 0o755
    assert modes["/usr/share/man/man1/vigil.1.gz"] == 0o644
    assert entries["/usr/share/doc/npu-vigil/copyright"]["packager"] == "deb"
    assert entries["/usr/share/licenses/npu-vigil/LICENSE"]["packager"] == "rpm"
    # Folders of other packages, and the one whose mode rpm would reset at each upgrade.
    assert entries.keys().isdisjoint({"/usr", "/usr/bin", "/etc", "/etc/npu-vigil/pki"})


@pytest.mark.slow
def test_an_error_of_nfpm_is_reported_and_leaves_no_file(
    source: PackageSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = 'if [ "$3" = rpm ]; then echo part >"$7"; echo "no space" >&2; exit 1; fi\n'
    output = _use_nfpm(tmp_path, monkeypatch, _NFPM.replace("cp ", f"{failing}cp "))
    _, rpm = package_names(VERSION, "aarch64", "3.12")
    with pytest.raises(PackagerError, match=rf"^nfpm cannot write {rpm}:\nno space$"):
        write_packages(source, output)
    assert list(output.iterdir()) == []


def test_another_nfpm_than_that_of_the_checksum_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _use_nfpm(tmp_path, monkeypatch, _NFPM.replace(NFPM_SUM, "h1:other"))
    with pytest.raises(PackagerError, match=rf"is not nfpm {NFPM_VERSION}: remove it$"):
        packager()


def test_a_missing_compiler_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(PackagerError, match=r"Go builds, and there is no program go$"):
        packager()


def test_the_cache_of_a_user_with_a_read_only_home_is_searched_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, other = tmp_path / "usual", tmp_path / "other"
    monkeypatch.setenv("XDG_CACHE_HOME", str(usual))
    monkeypatch.setattr("release.packages._READ_ONLY_HOME", other)
    place = other / f"npu-vigil-{os.getuid()}"
    place.mkdir(parents=True)
    (place / "base.tar").touch()
    assert cached("base.tar") == place / "base.tar"
    assert cached("nfpm") == usual / "npu-vigil" / "nfpm"
    # Another user may have made it.
    place.rename(other / "theirs")
    place.symlink_to(other / "theirs")
    assert cached("base.tar") == usual / "npu-vigil" / "base.tar"
