"""Which sources of an agent are blind in a container with few rights. Needs root.

    python -m tests.node.confined

``make test-node`` runs it. containerd and runc start each container on a host of its own (host.sh),
with the capabilities of the component ``without-privileged`` and containerd's default profile of
seccomp. Then a device, or the processes of the host, are taken away. containerd before 1.7 has no
CDI, so the devices are given to the container by name. Exit status: 0 all held, 1 one did not.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.packaging.blind_sources import RIGHTS, SOURCES
from tests.parts.processes import Running, program
from tests.parts.tree import ROOT

_UP_SECONDS = 30.0
_NOBODY = 65534
_NAMESPACE = "npu-vigil-confined"
"""Of containerd, and the name of the containers' cgroup."""

_KERNEL_LOG = "/dev/kmsg"
_DRIVER_NUMBER = os.makedev(240, 0)
"""A number for experiments: only the right to open the file is asked for."""

_DEFAULT_CAPABILITIES = (
    *(
        "chown",
        "dac_override",
        "fsetid",
        "fowner",
        "mknod",
        "net_raw",
        "setgid",
        "setuid",
        "setfcap",
        "setpcap",
    ),
    *("net_bind_service", "sys_chroot", "kill", "audit_write"),
)
"""What containerd gives each container."""

_CONFIGURATION = """version = 2
root = "{root}/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
"""


class Container(NamedTuple):
    """The rights of a container, and which sources are blind in it."""

    blind: set[str]
    taken: str = ""
    """A capability of the component that the container has not."""
    kernel_log: str = "given"
    """``given``; ``refused``: the file is there; ``absent``."""
    driver: str = "given"
    """``given``, or ``refused``: the file is there."""
    has_host_processes: bool = True
    text: str = ""
    """What the problem of the blind source names besides its file."""
    advice: str = ""
    """What ``vigil scan`` advises."""


_RIGHT = "run as root with the capability CAP_SYSLOG"
_DEVICE = "give it the device /dev/kmsg"
CONTAINERS = {
    "all rights": Container(set()),
    "no CAP_SYSLOG": Container({"kernel log"}, taken="syslog", text="CAP_SYSLOG", advice=_RIGHT),
    "no CAP_SYS_PTRACE": Container({"file systems"}, taken="sys_ptrace"),
    "no CAP_DAC_OVERRIDE": Container({"driver"}, taken="dac_override", text="CAP_DAC_OVERRIDE"),
    "no kernel log": Container(
        {"kernel log"}, kernel_log="absent", text="has to be mounted", advice=_DEVICE
    ),
    "kernel log refused": Container(
        {"kernel log"}, kernel_log="refused", text="CAP_SYSLOG", advice=_RIGHT
    ),
    "driver refused": Container({"driver"}, driver="refused", text="these device files"),
    "no processes of the host": Container({"hang"}, has_host_processes=False),
}


class Containerd:
    """containerd with the files of this host as the files of each container."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files = directory / "files"
        self._driver = directory / "driver/davinci_manager"
        for folder in (self._files, self._driver.parent):
            folder.mkdir()
        os.mknod(self._driver, stat.S_IFCHR | 0o600, _DRIVER_NUMBER)
        os.chown(self._driver, _NOBODY, _NOBODY)
        subprocess.run(["mount", "--bind", "/", str(self._files)], check=True)
        self._user = subprocess.Popen(["sleep", "infinity"], user=_NOBODY)
        configuration = directory / "containerd.toml"
        configuration.write_text(_CONFIGURATION.format(root=directory))
        self._running = Running(
            [program("containerd"), "--config", configuration], directory / "containerd.log"
        )
        self._ctr = (str(program("ctr")), "--namespace", _NAMESPACE)
        self._running.wait_until(
            lambda: (
                subprocess.run([*self._ctr, "version"], capture_output=True, check=False).returncode
                == 0
            ),
            _UP_SECONDS,
        )

    def close(self) -> None:
        """End containerd."""
        self._running.stop()
        self._user.kill()
        self._user.wait()

    def problems(self, container: Container) -> dict[str, str]:
        """Return the texts of the sources that are blind in a container."""
        sources = ("-c", SOURCES, str(self._driver.parent), str(self._user.pid))
        done = self._run(container, *sources)
        assert done.returncode == 0, done.stderr
        problems: dict[str, str] = json.loads(done.stdout)
        return problems

    def scanned(self, container: Container) -> str:
        """Return what ``vigil scan`` prints in a container."""
        places = ("--store=directory:/tmp/store", "--state-dir=/tmp/state")
        return self._run(container, "-m", "vigil", "scan", "--node-name=x", *places).stdout

    def _run(self, container: Container, *arguments: str) -> subprocess.CompletedProcess[str]:
        options = ["--rm", "--seccomp", "--net-host", f"--cwd={ROOT}"]
        given = [right for right in RIGHTS if right != container.taken]
        dropped = [name for name in _DEFAULT_CAPABILITIES if name not in given]
        options += [f"--cap-add=CAP_{right.upper()}" for right in given]
        options += [f"--cap-drop=CAP_{name.upper()}" for name in dropped]
        for file, way in (
            (_KERNEL_LOG, container.kernel_log),
            (str(self._driver), container.driver),
        ):
            if way == "given":
                options.append(f"--device={file}")
            elif way == "refused":
                options.append(f"--mount=type=bind,src={file},dst={file},options=bind")
        if container.has_host_processes:
            options.append("--with-ns=pid:/proc/1/ns/pid")
        files = ("--rootfs", str(self._files), "agent")
        return subprocess.run(
            [*self._ctr, "run", *options, *files, sys.executable, *arguments],
            capture_output=True,
            text=True,
            check=False,
        )


def check(directory: Path) -> None:
    """Run each container. Raises ``AssertionError`` where other sources are blind."""
    containerd = Containerd(directory)
    try:
        for name, container in CONTAINERS.items():
            problems = containerd.problems(container)
            assert problems.keys() == container.blind, (name, problems)
            assert container.text in "".join(problems.values()), (name, problems)
            if container.advice:
                scanned = " ".join(containerd.scanned(container).split())
                assert container.advice in scanned, (name, scanned)
            print(f"{name}: {', '.join(sorted(problems)) or 'nothing'} is blind", flush=True)
    finally:
        containerd.close()


def check_on_host() -> int:
    """Run ``check`` on a host of its own; return the exit status."""
    with tempfile.TemporaryDirectory(prefix="npu-vigil-confined-") as directory:
        host = [str(ROOT / "tests/node/host.sh"), directory]
        inside = [sys.executable, "-m", "tests.node.confined", directory]
        status = subprocess.run([*host, *inside], cwd=ROOT, check=False).returncode
    for group in Path("/sys/fs/cgroup").glob(f"*/{_NAMESPACE}"):
        group.rmdir()
    return status


if __name__ == "__main__":
    if len(sys.argv) > 1:
        check(Path(sys.argv[1]))
    else:
        sys.exit(check_on_host())
