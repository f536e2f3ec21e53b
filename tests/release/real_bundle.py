"""Bundles on a machine without a network: installed, upgraded, returned from, removed, and refused.

The machine is this one's file system below an overlay, in namespaces of mounts and network of its
own: what ``install`` writes is gone afterwards. systemd does not run there, so that restarts of
services are not tested. Needs root and the package index.
"""

from __future__ import annotations

import json
import platform
import shlex
import shutil
import sys
import tarfile
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from release.build import LOCK_NAME, Source, build_bundle, build_python
from release.build import Target as BundleTarget
from release.bundle import ARCHITECTURES, PYTHONS, bundle_name, check_wheels, fetch_wheels
from tests.outside.situations import BEFORE
from tests.parts.tree import ROOT
from tests.release.keys import new_key
from tests.release.machine import run_on_machine
from tests.release.trees import COMMIT, EPOCH, VERSION, copy_tree
from vigil.main import _VERBS

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.server
_NEXT = "0.1.1"
_TARGET = BundleTarget(platform.machine(), f"3.{sys.version_info.minor}")
_NAME, _NEXT_NAME = bundle_name(VERSION, *_TARGET), bundle_name(_NEXT, *_TARGET)


class Bundles(NamedTuple):
    """Two signed releases in ``folder``, unpacked, and the key of another signer."""

    folder: Path
    signers: Path


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Bundles:
    folder = tmp_path_factory.mktemp("bundles")
    key, signers = new_key(folder, "key")
    _, others = new_key(folder, "others")
    given = folder / "given"
    given.mkdir()
    shutil.copy(signers, given / "signers")
    shutil.copy(others, given / "other-signers")
    for version in (VERSION, _NEXT):
        tree = copy_tree(folder / f"tree-{version}")
        project = tree / "pyproject.toml"
        project.write_text(project.read_text().replace(f'"{VERSION}"', f'"{version}"', 1))
        source = Source(tree, version, COMMIT, EPOCH)
        output = folder / f"dist-{version}"
        output.mkdir()
        build_bundle(source, _TARGET, build_python(source, output), output, key)
        with tarfile.open(output / f"{bundle_name(version, *_TARGET)}.tar.gz") as archive:
            archive.extractall(given, filter="data")
    return Bundles(given, signers)


@pytest.fixture
def on_machine(bundles: Bundles, tmp_path: Path) -> Callable[[str], str]:
    """Return a function that runs a script on a new machine with the bundles in ``/given``."""

    def run(script: str) -> str:
        folder, given = tmp_path / "machine", tmp_path / "given"
        folder.mkdir()
        # A copy: scripts change the bundles.
        shutil.copytree(bundles.folder, given)
        python = Path(sys.executable).resolve().parent
        whole = f"PATH={python}:$PATH; cd /given; exec 2>&1; {textwrap.dedent(script)}"
        command = f"exec chroot . sh -c {shlex.quote(whole)}"
        return run_on_machine(folder, Path("/"), given, command)

    return run


def test_a_release_is_installed_upgraded_returned_from_and_removed(
    on_machine: Callable[[str], str],
) -> None:
    shown = on_machine(f"""
        mkdir -p /var/lib/npu-vigil; echo state > /var/lib/npu-vigil/kept
        {_NAME}/install --signers signers || exit
        vigil --version
        echo 'node_name = "kept"' > /etc/npu-vigil/agent.toml
        {_NEXT_NAME}/install --signers signers | tail -n 1; vigil --version
        {_NEXT_NAME}/install --roll-back; vigil --version
        {_NEXT_NAME}/install --roll-back; vigil --version
        {_NAME}/install --signers signers | tail -n 1; vigil --version
        {_NAME}/install --roll-back; vigil --version
        grep -c ExecStart /etc/systemd/system/npu-vigil-agent.service
        {_NAME}/install --uninstall
        cat /var/lib/npu-vigil/kept /etc/npu-vigil/agent.toml
        ls -d /opt/npu-vigil* /usr/local/bin/vigil
        ls -d /etc/systemd/system/npu-vigil*
    """)
    current = "is current; docs/installation.md in /opt/npu-vigil/share/doc explains the next steps"
    lines = [line for line in shown.splitlines() if "No such file" not in line]
    start = lines.index(f"{_NAME} {current}")
    assert lines[start + 1 :] == [
        *(f"vigil {VERSION}", f"{_NEXT_NAME} {current}", f"vigil {_NEXT}"),
        *(f"{_NAME} is current", f"vigil {VERSION}"),
        *(f"{_NEXT_NAME} is current", f"vigil {_NEXT}"),
        *(f"{_NAME} {current}", f"vigil {VERSION}"),
        *(f"{_NEXT_NAME} is current", f"vigil {_NEXT}"),
        *("1", "removed; /etc/npu-vigil and the state in /var/lib remain", "state"),
        'node_name = "kept"',
    ]


def test_a_removal_keeps_what_a_package_of_the_distribution_has_too(
    on_machine: Callable[[str], str],
) -> None:
    shown = on_machine(f"""
        {_NAME}/install --signers signers >/dev/null || exit
        mkdir -p /usr/lib/npu-vigil; {_NAME}/install --uninstall >/dev/null
        ls /usr/lib/sysusers.d/npu-vigil.conf
        rm -r /usr/lib/npu-vigil; {_NAME}/install --uninstall >/dev/null
        [ -e /usr/lib/sysusers.d/npu-vigil.conf ] || echo gone
    """)
    # systemd-sysusers may report the user and the group before.
    assert shown.splitlines()[-2:] == ["/usr/lib/sysusers.d/npu-vigil.conf", "gone"]


def test_an_installation_keeps_the_mode_of_the_folder_of_keys(
    on_machine: Callable[[str], str],
) -> None:
    shown = on_machine(f"""
        {_NAME}/install --signers signers >/dev/null || exit
        stat -c %a /etc/npu-vigil/pki; chmod 755 /etc/npu-vigil/pki
        {_NEXT_NAME}/install --signers signers >/dev/null
        stat -c %a /etc/npu-vigil/pki
    """)
    # systemd-sysusers may report the user and the group before.
    assert shown.splitlines()[-2:] == ["700", "755"]


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (f"{_NAME}/install", "name the keys that may sign a release"),
        (f"{_NAME}/install --signers other-signers", "is not valid for the keys"),
        (
            f"printf x >> {_NAME}/payload.tar.gz; {_NAME}/install --signers signers",
            "a file is missing or was changed",
        ),
        (
            f"rm {_NAME}/install_wheels.py; {_NAME}/install --signers signers",
            "a file is missing or was changed",
        ),
        (
            f"mv {_NAME} {_NEXT_NAME}x; mv {_NEXT_NAME}x {_NEXT_NAME.replace('0.1.1', '0.1.2')};"
            f"{_NEXT_NAME.replace('0.1.1', '0.1.2')}/install --signers signers",
            "the manifest is not of",
        ),
        (
            f"setpriv --reuid 65534 sh {_NAME}/install --signers signers",
            "refused  user: found 65534, needed 0 (root)",
        ),
        (
            "PATH=/usr/sbin:/usr/bin:/sbin:/bin; rm -f /usr/bin/python3*;"
            f"{_NAME}/install --signers signers",
            f"found no python{_TARGET.python}, needed Python {_TARGET.python}, or --interpreter",
        ),
        (
            f"mkdir -p /opt/npu-vigil/bin; {_NAME}/install --signers signers",
            "/opt/npu-vigil: found a directory, needed nothing or a link",
        ),
    ],
)
def test_nothing_is_written_where_an_installation_is_refused(
    on_machine: Callable[[str], str], script: str, reason: str
) -> None:
    shown = on_machine(
        f"({script}); echo status $?;"
        "ls -d /opt/npu-vigil-releases /etc/npu-vigil /usr/local/bin/vigil"
    )
    assert reason in shown
    assert "status 0" not in shown
    assert shown.count("cannot access") == 3


def test_each_verb_runs_from_the_wheels_alone(on_machine: Callable[[str], str]) -> None:
    calls = [f"{verb} --help" for verb in _VERBS]
    places = {
        "nothing": "/nothing",
        "empty": "/tmp",
        "repository": "/opt/npu-vigil/share/npu-vigil",
        "_": "' '",
    }
    commands = [
        shlex.join(("printf", "%s", call.text)) + f" | vigil {call.arguments.format(**places)}"
        for call in BEFORE
        if call.arguments.split()[0] in _VERBS
    ]
    commands += [f"vigil {call}" for call in calls]
    shown = on_machine(
        f"{_NAME}/install --signers signers >/dev/null || exit\n"
        + "\n".join(
            f"echo '=== {number}'; {command}; echo status $?"
            for number, command in enumerate(commands)
        )
    )
    parts = shown.split("=== ")[1:]
    assert len(parts) == len(commands)
    for part, command in zip(parts, commands, strict=True):
        assert "Traceback" not in part, f"{command}\n{part}"
        assert part.rstrip().rpartition("status ")[2] in ("0", "1", "2", "3"), command
    assert all(part.rstrip().endswith("status 0") for part in parts[-len(calls) :])


def test_a_relocatable_interpreter_takes_the_place_of_the_servers(
    on_machine: Callable[[str], str],
) -> None:
    # Debian's interpreter finds its library beside itself, and links no libpython.
    name = f"python{_TARGET.python}"
    shown = on_machine(f"""
        PATH=/usr/sbin:/usr/bin:/sbin:/bin
        mkdir -p /tmp/given/python/bin /tmp/given/python/lib
        cp /usr/bin/{name} /tmp/given/python/bin
        cp -r /usr/lib/{name} /tmp/given/python/lib
        tar -czf /tmp/python.tar.gz -C /tmp/given python
        rm -rf /tmp/given /usr/bin/python3* /usr/lib/python3* {sys.base_prefix}
        {_NAME}/install --signers signers --interpreter /tmp/python.tar.gz >/dev/null 2>&1 || exit
        rm /tmp/python.tar.gz
        /usr/local/bin/vigil --version --json
        readlink /opt/npu-vigil/bin/python3
    """)
    place = f"/opt/npu-vigil-releases/{_NAME}/interpreter/python/bin/{name}"
    assert shown.endswith(f"}}\n{place}\n"), shown
    assert json.loads(shown.removesuffix(f"{place}\n"))["commit"] == COMMIT


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_has_wheels_for_each_processor_and_python(
    tmp_path: Path, architecture: str, python: str
) -> None:
    lock = ROOT / LOCK_NAME
    wheels = fetch_wheels(lock, architecture, python, tmp_path)
    check_wheels(wheels, lock.read_text(encoding="utf-8"), architecture, python)
    assert len(wheels) > 40
