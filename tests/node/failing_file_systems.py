"""File systems that really fail: a real agent, the log of this kernel, loop devices. Needs root.

    python -m tests.node.failing_file_systems

``make test-node`` runs it first. XFS and EXT4 are shut down by the ioctl of ``xfs_io -x -c
shutdown``, and EXT4 is made to find an error. Each is mounted twice, unmounted lazily while a file
is open, mounted again while the kernel still holds it, and mounted anew. Then XFS is frozen below a
probe, which hangs in the kernel. Exit status: 0 all held, 1 one did not.
"""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from contract.codes.host_codes import FILE_SYSTEM_ERRORS, FILE_SYSTEM_FAILED, READ_ONLY
from dcmi_shim.emulator.install import install
from tests.end_to_end.node import HOST_CHECKS, Node
from tests.parts.deadlines import let_time_pass
from tests.parts.places import Folder

if TYPE_CHECKING:
    from collections.abc import Callable

_PERIOD_SECONDS = 2.0
_DEADLINE_SECONDS = 2.0
_SOON_SECONDS = 2.0
_CHECK_SECONDS = _PERIOD_SECONDS + _SOON_SECONDS
_MEGABYTES = 320
_SHUTDOWN = 0x8004587D
_WITHOUT_LOG_FLUSH = 2
SOURCES = {"file-systems", "kernel-log"}


def run(*command: str) -> str:
    """Run a program; return its output. Raises ``CalledProcessError``."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


class Disk:
    """A file system of ``kind`` on a loop device, mounted at ``at`` and at ``also``."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.kind = kind
        image = directory / f"{kind}.img"
        with image.open("wb") as file:
            file.truncate(_MEGABYTES << 20)
        run(f"mkfs.{kind}", "-q", str(image))
        self.device = run("losetup", "--find", "--show", str(image))
        self.name = Path(self.device).name
        self.at, self.also = directory / kind, directory / f"{kind}-also"
        for place in (self.at, self.also):
            place.mkdir()
        self.mount()

    def mount(self) -> None:
        """Mount it at both places."""
        options = ("-o", "errors=remount-ro") if self.kind == "ext4" else ()
        run("mount", *options, self.device, str(self.at))
        run("mount", "--bind", str(self.at), str(self.also))

    def unmount(self, *options: str) -> None:
        """Unmount it at both places."""
        for place in (self.also, self.at):
            run("umount", *options, str(place))

    def shut_down(self) -> None:
        """Let it fail all I/O from now on."""
        folder = os.open(self.at, os.O_RDONLY)
        try:
            fcntl.ioctl(folder, _SHUTDOWN, struct.pack("I", _WITHOUT_LOG_FLUSH))
        finally:
            os.close(folder)

    def find_error(self) -> None:
        """Let EXT4 find an error, after which it accepts no writes."""
        Path(f"/sys/fs/ext4/{self.name}/trigger_fs_error").write_text("1\n")

    def fails(self) -> bool:
        """Return whether a file cannot be made, as a user sees it."""
        try:
            (self.at / "file").write_text("x")
        except OSError:
            return True
        return False

    def close(self) -> None:
        """Give it up."""
        for place in (self.also, self.at):
            subprocess.run(["umount", "-l", str(place)], check=False, capture_output=True)
        run("losetup", "--detach", self.device)


class Stand:
    """The agent and what it shows of file systems."""

    def __init__(self, directory: Path) -> None:
        install(directory / "built/driver", directory / "built/emulator")
        self.node = Node(directory / "node", directory / "built", Folder(directory / "store"))
        environment = self.node.environment
        for check in HOST_CHECKS[1:]:
            environment[f"VIGIL_{check}_ENABLED"] = "false"
        for check in ("FILE_SYSTEMS", "KERNEL_LOG"):
            del environment[f"VIGIL_{check}_ENABLED"]
        environment["VIGIL_FILE_SYSTEMS_PERIOD_SECONDS"] = str(_PERIOD_SECONDS)
        environment["VIGIL_FILE_SYSTEMS_DEADLINE_SECONDS"] = str(_DEADLINE_SECONDS)
        environment["VIGIL_BMC_ENABLED"] = "false"

    def start(self) -> None:
        """Start the agent; return when both sources answer."""
        self.node.start()
        self.node.up()
        self.node.wait(lambda: set(self.node.status()["answered"]) >= SOURCES, "both answer")

    def codes(self) -> list[str]:
        """Return all codes that hold, of whatever."""
        return sorted(fault["code"] for fault in self.node.status()["faults"])

    def holds(self, codes: list[str], what: str, within_seconds: float) -> None:
        """Wait until exactly ``codes`` hold, and print how long it took."""
        seconds = self.node.wait(lambda: self.codes() == codes, f"{what}: {codes}")
        print(f"{seconds:6.2f} s  {what}: {', '.join(codes) or 'no fault'}")
        assert seconds <= within_seconds, f"{what} took {seconds:.1f} s"

    def stays(self, codes: list[str], what: str) -> None:
        """Let two checks pass, after each of which exactly ``codes`` hold."""
        end = time.monotonic() + 2 * _CHECK_SECONDS
        while time.monotonic() < end:
            assert self.codes() == codes, f"{what}: {self.codes()}"
            let_time_pass(0.2)
        print(f"        {what}: {', '.join(codes) or 'no fault'} stays")


def fail_and_mount_anew(
    stand: Stand, disk: Disk, fail: Callable[[], None], codes: list[str]
) -> None:
    """Let ``disk`` fail, try everything that is no new mount, and mount it anew."""
    stand.stays([], f"{disk.kind} works")
    with (disk.at / "open").open("w"):
        fail()
        stand.holds(codes, f"{disk.kind} fails", _SOON_SECONDS)
        assert disk.fails()
        disk.unmount("--lazy")
        stand.stays(codes[:1], f"{disk.kind} is unmounted lazily and in use")
        disk.mount()
        assert disk.fails(), "the kernel holds the same file system"
        stand.stays(codes, f"{disk.kind} is mounted again, and fails as before")
        disk.unmount()
    stand.holds([], f"{disk.kind} is dropped by the kernel", _CHECK_SECONDS)
    disk.mount()
    assert not disk.fails()
    stand.stays([], f"{disk.kind} is mounted anew")
    fail()
    stand.holds(codes, f"{disk.kind} fails again", _SOON_SECONDS)
    disk.unmount()
    disk.mount()
    stand.holds([], f"{disk.kind} is mounted anew at once", _CHECK_SECONDS)


def fail_unmounted(stand: Stand, disk: Disk) -> None:
    """Let a file system fail that has no mount at a path any more."""
    folder = os.open(disk.at, os.O_RDONLY)
    try:
        disk.unmount("--lazy")
        fcntl.ioctl(folder, _SHUTDOWN, struct.pack("I", _WITHOUT_LOG_FLUSH))
        stand.holds([FILE_SYSTEM_FAILED], f"{disk.kind} fails, unmounted lazily", _SOON_SECONDS)
        stand.stays([FILE_SYSTEM_FAILED], f"{disk.kind} is in use without a mount")
    finally:
        os.close(folder)
    stand.holds([], f"{disk.kind} is dropped by the kernel", _CHECK_SECONDS)
    disk.mount()


def fail_and_restart(stand: Stand, disk: Disk) -> None:
    """Mount a failed file system anew while no agent runs."""
    disk.shut_down()
    stand.holds([FILE_SYSTEM_FAILED], f"{disk.kind} fails", _SOON_SECONDS)
    stand.node.kill()
    stand.start()
    stand.stays([FILE_SYSTEM_FAILED], "the agent is started again")
    stand.node.kill()
    disk.unmount()
    disk.mount()
    stand.start()
    stand.holds([], "mounted anew while no agent ran", _CHECK_SECONDS)


def probe(stand: Stand, disk: Disk) -> None:
    """Find failures by a probe alone: without the kernel's log."""
    stand.node.kill()
    stand.node.environment["VIGIL_KERNEL_LOG_ENABLED"] = "false"
    stand.node.environment["VIGIL_FILE_SYSTEMS_PROBE_DIRECTORIES"] = str(disk.at)
    stand.node.start()
    stand.node.up()
    stand.stays([], "the probe works")
    run("fsfreeze", "--freeze", str(disk.at))
    try:
        stand.holds([FILE_SYSTEM_FAILED], "the probe hangs", 3 * _CHECK_SECONDS)
        stand.stays([FILE_SYSTEM_FAILED], "the probe hangs still")
        probes = [one for one in run("ps", "-eo", "args").splitlines() if ".npu-vigil-probe" in one]
        assert len(probes) <= 1, probes
    finally:
        run("fsfreeze", "--unfreeze", str(disk.at))
    stand.holds([], "the probe works again", 2 * _CHECK_SECONDS)
    disk.shut_down()
    stand.holds([FILE_SYSTEM_FAILED], "the probe fails", 2 * _CHECK_SECONDS)
    disk.unmount()
    disk.mount()
    stand.holds([], "mounted anew", _CHECK_SECONDS)


def main() -> int:
    """Run everything; the exit status."""
    with tempfile.TemporaryDirectory(prefix="npu-vigil-failing-") as name, ExitStack() as closing:
        directory = Path(name)
        stand = Stand(directory)
        closing.callback(stand.node.close)
        try:
            stand.start()
            xfs, ext4 = Disk("xfs", directory), Disk("ext4", directory)
            closing.callback(xfs.close)
            closing.callback(ext4.close)
            failed = [FILE_SYSTEM_FAILED]
            fail_and_mount_anew(stand, xfs, xfs.shut_down, failed)
            fail_unmounted(stand, xfs)
            fail_and_restart(stand, xfs)
            fail_and_mount_anew(stand, ext4, ext4.shut_down, failed)
            ext4.find_error()
            errors = [READ_ONLY, FILE_SYSTEM_FAILED, FILE_SYSTEM_ERRORS]
            stand.holds(errors, "ext4 finds an error", _SOON_SECONDS)
            stand.stays(errors, "ext4 accepts no writes")
            ext4.unmount()
            ext4.mount()
            stand.holds([], "ext4 is mounted anew", _CHECK_SECONDS)
            probe(stand, xfs)
        except BaseException:
            print(stand.node.logged()[-4000:])
            raise
    return 0


if __name__ == "__main__":
    sys.exit(main())
