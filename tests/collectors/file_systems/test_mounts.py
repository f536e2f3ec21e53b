"""Which mounts are file systems of the host."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from collectors.file_systems.host_mounts import OF_PODS, HostMounts
from collectors.file_systems.mounts import device_at, kinds_on_devices, local_file_systems

if TYPE_CHECKING:
    from pathlib import Path

KINDS = kinds_on_devices(
    "nodev\tsysfs\nnodev\ttmpfs\nnodev\toverlay\nnodev\tnfs4\n\text4\n\txfs\n\tsquashfs\n\tfuseblk\n"
    "\tbtrfs\n"
)
NODE = """\
22 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw,errors=remount-ro
23 22 0:21 / /proc rw,nosuid - proc proc rw
24 22 0:5 / /dev rw - devtmpfs udev rw
25 22 0:25 / /run rw - tmpfs tmpfs rw,size=99%
30 22 8:1 / /boot/efi ro,relatime - xfs /dev/sda1 rw
31 22 7:0 / /snap/core/1 ro,nodev - squashfs /dev/loop0 ro
32 22 0:40 / /home rw - nfs4 server:/home rw
33 22 8:17 / /media/stick rw - fuseblk /dev/sdb1 rw
34 22 253:3 / /with\\040space rw master:1 - ext4 /dev/mapper/vg-data ro,noatime
40 22 8:2 /var/lib/kubelet /var/lib/kubelet rw - ext4 /dev/sda2 rw
41 22 252:0 / /var/lib/kubelet/pods/1/volumes/rbd rw - ext4 /dev/rbd0 rw
42 22 8:2 /x /var/lib/kubelet/pods/1/volume-subpaths/x ro - ext4 /dev/sda2 rw
43 22 0:41 / /var/lib/containers/overlay/1/merged rw - overlay overlay rw,lowerdir=/a
44 22 0:50 / /tank rw - zfs tank rw
45 22 9:9 / /hidden rw - ext4 /dev/sdz rw
46 22 0:60 / /hidden rw - tmpfs tmpfs rw
"""


def test_only_those_on_devices_of_this_host() -> None:
    found = local_file_systems(NODE, KINDS, OF_PODS)
    seen = {one.mount_point: (one.kind, one.read_only) for one in found.values()}
    assert seen == {
        "/": ("ext4", False),
        "/boot/efi": ("xfs", False),
        "/snap/core/1": ("squashfs", True),
        "/with space": ("ext4", True),
        "/tank": ("zfs", False),
    }
    assert found[os.makedev(8, 2)].mounts == {22, 40}
    assert os.makedev(252, 0) in local_file_systems(NODE, KINDS, ())


def test_lines_that_make_no_sense_are_no_mounts() -> None:
    broken = "x\n1 2 a:b / / rw - ext4 /dev/sda rw\n1 2 8:1 / / rw - ext4\n - \n1 2 8:1 / - a b c\n"
    assert local_file_systems(broken, KINDS, ()) == {}
    assert kinds_on_devices("rubbish") == {"zfs"}


def test_a_container_sees_the_mounts_of_the_first_process(tmp_path: Path) -> None:
    for process, mountinfo in (("1", NODE), ("self", "")):
        (tmp_path / process).mkdir()
        (tmp_path / process / "mountinfo").write_text(mountinfo)
    (tmp_path / "filesystems").write_text("\text4\n")
    host = HostMounts(OF_PODS, tmp_path)
    assert host.read() == ({}, ""), "its root cannot be entered"
    (tmp_path / "1/root").mkdir()
    found, root = host.read()
    assert root == str(tmp_path / "1/root")
    assert {one.mount_point for one in found.values()} == {"/", "/with space", "/tank"}
    by_name = host.of_block_device("sda2")
    assert by_name is not None
    assert by_name.mount_point == "/"
    assert host.of_block_device("sdy") is None
    assert HostMounts(OF_PODS, tmp_path / "none").of_block_device("sda2") is None


def test_flags_of_ext4_after_an_error() -> None:
    text = "42 27 7:0 / /a rw - ext4 /dev/loop0 rw,errors=remount-ro,emergency_ro\n"
    (found,) = local_file_systems(text, {"ext4"}, ()).values()
    assert (found.read_only, found.shut_down) == (True, False)
    (found,) = local_file_systems(text.replace("emergency_ro", "shutdown"), {"ext4"}, ()).values()
    assert (found.read_only, found.shut_down) == (False, True)


def test_the_device_of_a_directory_is_that_of_the_nearest_mount() -> None:
    text = (
        "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 8:2 / /data rw - xfs /dev/sda2 rw\n"
        "3 2 8:3 / /data rw - xfs /dev/sda3 rw\n4 2 8:4 / /data/more rw - xfs /dev/sda4 rw\n"
    )
    for path, minor in (("/data/x", 3), ("/database", 1), ("/data/more", 4), ("/", 1)):
        assert device_at(text, path) == os.makedev(8, minor)
    assert device_at("", "/data") is None
