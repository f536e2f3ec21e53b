"""Packages in roots of Debian 12 without a network: installed, upgraded, downgraded and removed.

The root has no systemd, so units are not started there; daemons are. The ``.rpm`` is installed by
this machine's rpm, with a database in the root. A package of the test states what the root has.
Needs root and the package index.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import textwrap
from typing import TYPE_CHECKING, NamedTuple

import pytest

from release.build import LOCK_NAME, Source, build_python
from release.bundle import check_wheels, fetch_wheels
from release.packages import (
    PackageSource,
    package_names,
    packager,
    write_packages,
)
from tests.parts.deadlines import patience
from tests.parts.processes import cache_folders
from tests.parts.tree import ROOT
from tests.release.machine import run_on_machine
from tests.release.trees import COMMIT, EPOCH, VERSION, copy_tree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.server
_NEXT = "0.1.1"
_PYTHON = "3.11"
_DEB, _RPM = package_names(VERSION, platform.machine(), _PYTHON)
_NEXT_DEB, _NEXT_RPM = package_names(_NEXT, platform.machine(), _PYTHON)
_ARM = package_names(VERSION, "aarch64", _PYTHON)
_SYSTEM = {
    "name": "system",
    "arch": "all",
    "version": "1",
    "description": "What the root has",
    "maintainer": "Tests <tests@npu-vigil.invalid>",
    "provides": [
        *("/bin/sh", "/usr/bin/find", f"/usr/bin/python{_PYTHON}", "/usr/sbin/useradd"),
        *("libc.so.6(GLIBC_2.17)(64bit)", "libgcc_s.so.1(GCC_4.2.0)(64bit)"),
        *("libstdc++.so.6(GLIBCXX_3.4.19)(64bit)", f"python(abi) = {_PYTHON}"),
    ],
}
_USED = """
vigil --version
vigil --version --json | grep -c {commit}
getent passwd npu-vigil | cut -d: -f1,7
vigil scan --node-name test --state-dir /tmp/state --store directory:/tmp/store --json >/tmp/scan
echo scan $?
vigil agent --node-name test --state-dir /tmp/state --store directory:/tmp/store >/tmp/log 2>&1 &
for wait in $(seq {tenths}); do [ -e /tmp/state/agent.sock ] && break; sleep 0.1; done
[ -S /tmp/state/agent.sock ] && echo started
kill $!
wait $!
echo ended $?
"""
_IS_USED = [
    *(f"vigil {VERSION}", "1", "npu-vigil:/usr/sbin/nologin"),
    *("scan 3", "started", "ended 0"),
]


class Packages(NamedTuple):
    """Packages of two versions in ``given``, their wheels and trees, and the root of Debian."""

    given: Path
    root: Path
    sources: tuple[PackageSource, ...]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    folder = tmp_path_factory.mktemp("packages")
    given, root = folder / "given", folder / "root"
    given.mkdir()
    root.mkdir()
    usual, other = (cache / "base-bookworm-2.tar" for cache in cache_folders())
    with tarfile.open(usual if usual.exists() else other) as archive:
        archive.extractall(root, filter="fully_trusted")
    lock = ROOT / LOCK_NAME
    sources = []
    for version, architecture in (
        (VERSION, platform.machine()),
        (_NEXT, platform.machine()),
        (VERSION, "aarch64"),
    ):
        name = f"{version}-{architecture}"
        tree = copy_tree(folder / f"tree-{name}")
        project = tree / "pyproject.toml"
        project.write_text(project.read_text().replace(f'"{VERSION}"', f'"{version}"', 1))
        wheels = folder / f"wheels-{name}"
        wheels.mkdir()
        fetched = fetch_wheels(lock, architecture, _PYTHON, wheels)
        check_wheels(fetched, lock.read_text(encoding="utf-8"), architecture, _PYTHON)
        own = build_python(Source(tree, version, COMMIT, EPOCH), wheels)
        given_to = (version, EPOCH, architecture, _PYTHON)
        sources.append(PackageSource(tree, (own, *fetched), *given_to))
        write_packages(sources[-1], given)
    system = folder / "system.json"
    system.write_text(json.dumps(_SYSTEM))
    command = [str(packager()), "package", "--packager", "rpm", "--config", str(system)]
    subprocess.run([*command, "--target", given / "system.rpm"], check=True, capture_output=True)
    return Packages(given, root, tuple(sources))


@pytest.fixture
def on_machine(packages: Packages, tmp_path: Path) -> Callable[..., list[str]]:
    """Return a function that runs a script in a new root; its output is in lines.

    ``below`` in the script runs a script in the root.
    """

    def run(script: str, size_mib: int = 2000) -> list[str]:
        folder = tmp_path / "machine"
        folder.mkdir()
        function = 'below() { chroot . env HOME=/root PATH=/usr/sbin:/usr/bin sh -c "$1"; }\n'
        whole = f"set +e; exec 2>&1\n{function}{textwrap.dedent(script)}"
        return run_on_machine(folder, packages.root, packages.given, whole, size_mib).splitlines()

    return run


def _quoted(script: str) -> str:
    return "'" + script.replace("'", "'\\''") + "'"


_USE = f"below {_quoted(_USED.format(commit=COMMIT, tenths=round(patience(60) * 10)))}"


def test_a_deb_is_installed_upgraded_downgraded_and_removed(
    on_machine: Callable[..., list[str]],
) -> None:
    shown = on_machine(f"""
        below 'dpkg -i /given/{_DEB} >/dev/null; echo installed $?'
        {_USE}
        below 'echo "# kept" >> /etc/npu-vigil/agent.toml; mkdir -p /var/lib/npu-vigil'
        below 'echo state > /var/lib/npu-vigil/kept'
        below 'stat -c %a /etc/npu-vigil/pki; chmod 755 /etc/npu-vigil/pki'
        below 'dpkg -i /given/{_NEXT_DEB} >/dev/null; echo upgraded $?; vigil --version'
        below 'stat -c %a /etc/npu-vigil/pki'
        below 'dpkg -i /given/{_DEB} 2>&1 | grep -o downgrading; vigil --version'
        below 'sh /var/lib/dpkg/info/npu-vigil.postinst configure 0.1.1; echo again $?'
        below 'dpkg --verify npu-vigil'
        below 'dpkg -r npu-vigil >/dev/null; echo removed $?'
        below 'ls -d /usr/lib/npu-vigil /usr/bin/vigil'
        below 'tail -n 1 /etc/npu-vigil/agent.toml; cat /var/lib/npu-vigil/kept'
        below 'dpkg -P npu-vigil >/dev/null; echo purged $?'
        below 'ls /etc/npu-vigil; cat /var/lib/npu-vigil/kept'
    """)
    gone = "ls: cannot access '{}': No such file or directory"
    assert shown == [
        "installed 0",
        *_IS_USED,
        *("700", "upgraded 0", f"vigil {_NEXT}", "755"),
        *("downgrading", f"vigil {VERSION}", "again 0"),
        "??5?????? c /etc/npu-vigil/agent.toml",
        *("removed 0", gone.format("/usr/lib/npu-vigil"), gone.format("/usr/bin/vigil")),
        *("# kept", "state", "purged 0", gone.format("/etc/npu-vigil"), "state"),
    ]


def test_an_rpm_is_installed_upgraded_downgraded_and_removed(
    on_machine: Callable[..., list[str]],
) -> None:
    shown = on_machine(f"""
        package() {{ rpm --root "$PWD" "$@" 2>&1 | grep -v -e Alien -e "knowing what\\|you know"; }}
        rpm --root "$PWD" --initdb
        package -i given/{_RPM} | grep -c 'is needed by'
        package -i given/system.rpm
        package -i given/{_RPM}
        {_USE}
        below 'echo "# kept" >> /etc/npu-vigil/agent.toml; mkdir -p /var/lib/npu-vigil'
        below 'echo state > /var/lib/npu-vigil/kept'
        below 'stat -c %a /etc/npu-vigil/pki; chmod 755 /etc/npu-vigil/pki'
        package -U given/{_NEXT_RPM}
        below 'stat -c %a /etc/npu-vigil/pki'
        below 'vigil --version; ls -d /usr/lib/npu-vigil/lib/*/site-packages/npu_vigil-*'
        package -U --oldpackage given/{_RPM}
        below 'vigil --version; tail -n 1 /etc/npu-vigil/agent.toml'
        package -V npu-vigil
        package -e npu-vigil
        below 'ls -d /usr/lib/npu-vigil /usr/bin/vigil; ls /etc/npu-vigil'
        below 'cat /var/lib/npu-vigil/kept'
    """)
    gone = "ls: cannot access '{}': No such file or directory"
    site = f"/usr/lib/npu-vigil/lib/python{_PYTHON}/site-packages"
    saved = "/etc/npu-vigil/agent.toml saved as /etc/npu-vigil/agent.toml.rpmsave"
    assert shown == [
        "8",
        *_IS_USED,
        *("700", "755", f"vigil {_NEXT}", f"{site}/npu_vigil-{_NEXT}.dist-info"),
        *(f"vigil {VERSION}", "# kept", "S.5....T.  c /etc/npu-vigil/agent.toml"),
        f"warning: {saved}",
        *(gone.format("/usr/lib/npu-vigil"), gone.format("/usr/bin/vigil")),
        *("agent.toml.rpmsave", "state"),
    ]


def test_a_full_disk_leaves_an_installation_that_can_be_repeated(
    on_machine: Callable[..., list[str]],
) -> None:
    shown = on_machine(
        f"""
        below 'dd if=/dev/zero of=/filled bs=1M count=190 status=none'
        below 'dpkg -i /given/{_DEB} 2>&1 | grep -o -m 1 "No space left on device"'
        below 'ls -d /usr/bin/vigil; dpkg -s npu-vigil | grep ^Status'
        below 'rm /filled'
        below 'dd if=/dev/zero of=/filled bs=1M count=40 status=none'
        below 'dpkg -i /given/{_DEB} >/dev/null; echo installed $?'
        below 'vigil --version; dpkg -s npu-vigil | grep ^Status'
        """,
        size_mib=260,
    )
    environment = "/usr/lib/npu-vigil"
    assert shown == [
        "No space left on device",
        "ls: cannot access '/usr/bin/vigil': No such file or directory",
        "Status: install ok not-installed",
        "npu-vigil: less than 150 MiB are free, so bytecode is not written and vigil starts "
        f"slowly; make space and run {environment}/bin/python3 -m compileall -q {environment}/lib",
        *("installed 0", f"vigil {VERSION}", "Status: install ok installed"),
    ]


@pytest.mark.parametrize("architecture", ["aarch64", platform.machine()])
def test_packages_are_equal_to_the_byte_when_they_are_built_twice(
    packages: Packages, tmp_path: Path, architecture: str
) -> None:
    source = next(each for each in packages.sources if each.architecture == architecture)
    tree = shutil.copytree(source.tree, tmp_path / "another tree")
    for path in tree.rglob("*"):
        os.utime(path, (EPOCH + 999_999, EPOCH + 999_999))
    code = (
        "from pathlib import Path, PosixPath\n"
        "from release.packages import PackageSource, write_packages\n"
        f"write_packages({source._replace(tree=tree)!r}, Path({str(tmp_path)!r}))"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, umask=0o077, check=True)
    for name in package_names(source.version, architecture, _PYTHON):
        assert (tmp_path / name).read_bytes() == (packages.given / name).read_bytes(), name


def test_rpmlint_finds_nothing(packages: Packages) -> None:
    configuration = ROOT / "tests" / "release" / "rpmlint.toml"
    command = ["rpmlint", "--config", str(configuration), str(packages.given / _RPM)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "0 errors, 0 warnings" in done.stdout


def test_lintian_finds_nothing(packages: Packages) -> None:
    command = ["lintian", "--fail-on", "error,warning", "--allow-root", str(packages.given / _DEB)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_packages_name_processor_glibc_and_python(packages: Packages) -> None:
    fields = ["Architecture", "Depends"]
    shown = subprocess.run(
        ["dpkg-deb", "--field", packages.given / _ARM[0], *fields],
        capture_output=True,
        text=True,
        check=True,
    )
    needs = f"libc6 (>= 2.17), libgcc-s1, libstdc++6 (>= 4.8.1), passwd, python{_PYTHON}"
    assert shown.stdout == f"Architecture: arm64\nDepends: {needs}\n"
    shown = subprocess.run(
        ["rpm", "--query", "--package", "--queryformat", "%{ARCH}", packages.given / _ARM[1]],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout == "aarch64"
