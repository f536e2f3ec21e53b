"""Which messages of the kernel report a fault."""

from __future__ import annotations

import pytest

from collectors.kernel_log.messages import DRIVER_PATTERNS, MessageMatch, Messages, Remounted
from contract.codes.host_codes import DRIVER_ERROR, HUNG_TASK, OOM_KILL, SOFT_LOCKUP
from tests.parts.kernel_log import DRIVER, HARMLESS, HUNG, KILLED, LOCKUP

MESSAGES = Messages(DRIVER_PATTERNS)
DEVICE_ABNORMAL = (
    "[ascend] [drv_pcie] [devdrv_sync_non_trans_msg_send 1239] <kworker/u385:0:15232:15232> "
    "Device is abnormal. (dev_id=5; msg_type=3; common_type=5)"
)
HOST_LOG = "[ascend] [devmm] [ERROR] [devmm_ioctl 662] <main:42394,42394> failed. (ret=-22)"
DETAILS = "[ascend] [devmm] [devmm_alloc 662] <main:42394,42394> Details. (status=0; proc_idx=3)"


@pytest.mark.parametrize(
    ("level", "text", "code"),
    [
        (0, LOCKUP, SOFT_LOCKUP),
        (0, "NMI watchdog: BUG: soft lockup - CPU#0 stuck for 23s! [swapper/0:0]", SOFT_LOCKUP),
        (3, HUNG, HUNG_TASK),
        (3, "INFO: task a b:1:9 blocked in I/O wait for more than 122 seconds.", HUNG_TASK),
        (3, KILLED, OOM_KILL),
        (3, "Memory cgroup out of memory: Killed process 9 (a (b)) total-vm:1kB", OOM_KILL),
        (3, "Killed process 9, UID 0, (java) total-vm:1kB, anon-rss:1kB", OOM_KILL),
        (5, DRIVER, DRIVER_ERROR),
        (5, HOST_LOG, DRIVER_ERROR),
        (3, DEVICE_ABNORMAL, DRIVER_ERROR),
        (3, f"some context\n{LOCKUP}\nModules linked in:", SOFT_LOCKUP),
    ],
)
def test_messages_with_a_fault(level: int, text: str, code: str) -> None:
    (matches,) = MESSAGES.matches(level, text)
    assert isinstance(matches, MessageMatch)
    assert matches.code == code
    assert matches.text in text


@pytest.mark.parametrize(
    ("level", "text"),
    [
        (6, HARMLESS),
        (6, DETAILS),
        (5, DEVICE_ABNORMAL),
        (3, "oom_reaper: reaped process 4242 (train.py), now anon-rss:0kB, file-rss:0kB"),
        (6, "a program talks of [ascend] [ERROR] things"),
        (4, "python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0"),
        (6, "EXT4-fs (sda1): re-mounted 1234 ro. Quota mode: none."),
        (6, ""),
    ],
)
def test_messages_without_a_fault(level: int, text: str) -> None:
    assert list(MESSAGES.matches(level, text)) == []


@pytest.mark.parametrize(
    ("text", "device"),
    [
        ("EXT4-fs (sda1): Remounting filesystem read-only", "sda1"),
        ("EXT4-fs (dm-0): error count 1: Remounting filesystem read-only", "dm-0"),
        ("BTRFS info (device nvme0n1p2 state EA): forced readonly", "nvme0n1p2"),
        ("BTRFS: error (device sdb) in btrfs_commit:2: errno=-5 (forced readonly)", "sdb"),
    ],
)
def test_kernel_message_names_the_device_made_read_only(text: str, device: str) -> None:
    assert list(MESSAGES.matches(2, text)) == [Remounted(device, text)]


def test_patterns_are_the_operators() -> None:
    own = Messages(("^<4>hisi_dma ",))
    assert [one[0] for one in own.matches(4, "hisi_dma 0000:7b:00.0: stuck")] == [DRIVER_ERROR]
    assert list(own.matches(5, DRIVER)) == []


def test_a_long_line_is_cut() -> None:
    (matches,) = MESSAGES.matches(3, DRIVER + "x" * 5000)
    assert len(matches.text) == 300
