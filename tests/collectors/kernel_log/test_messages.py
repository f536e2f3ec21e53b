"""Which messages of the kernel report a fault."""

from __future__ import annotations

import pytest

from collectors.kernel_log.messages import (
    DRIVER_PATTERNS,
    FileSystemMessage,
    MessageMatch,
    Messages,
    Suppressed,
)
from contract.codes.host_codes import (
    DRIVER_ERROR,
    FILE_SYSTEM_ERRORS,
    FILE_SYSTEM_FAILED,
    HARD_LOCKUP,
    HUNG_TASK,
    KERNEL_OOPS,
    MEMORY_ERROR,
    NETWORK_DEVICE_HELD,
    OOM_KILL,
    RCU_STALL,
    READ_ONLY,
    SOFT_LOCKUP,
)
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
        (
            1,
            "BUG: unable to handle kernel NULL pointer dereference at 0000000000000008",
            KERNEL_OOPS,
        ),
        (1, "BUG: kernel NULL pointer dereference, address: 0000000000000010", KERNEL_OOPS),
        (1, "BUG: unable to handle page fault for address: ffffa0b1c2d3e4f5", KERNEL_OOPS),
        (
            1,
            "Unable to handle kernel paging request at virtual address ffff8000deadbeef",
            KERNEL_OOPS,
        ),
        (0, "Internal error: Oops: 0000000096000004 [#1] SMP", KERNEL_OOPS),
        (0, "Internal error: Oops - BUG: 0 [#1] PREEMPT SMP", KERNEL_OOPS),
        (4, "Oops: 0002 [#2] SMP NOPTI", KERNEL_OOPS),
        (4, "general protection fault: 0000 [#1] SMP PTI", KERNEL_OOPS),
        (4, "Oops: general protection fault, probably for 0xdead0000: 0000 [#1] SMP", KERNEL_OOPS),
        (2, "kernel BUG at fs/ext4/inode.c:2721!", KERNEL_OOPS),
        (0, "NMI watchdog: Watchdog detected hard LOCKUP on cpu 27", HARD_LOCKUP),
        (0, "watchdog: CPU28: Watchdog detected hard LOCKUP on cpu 28", HARD_LOCKUP),
        (3, "INFO: rcu_sched self-detected stall on CPU", RCU_STALL),
        (3, "rcu: INFO: rcu_preempt self-detected stall on CPU", RCU_STALL),
        (3, "rcu: INFO: rcu_sched detected stalls on CPUs/tasks:", RCU_STALL),
        (3, "rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 3-... }", RCU_STALL),
        (
            0,
            "unregister_netdevice: waiting for eth0.7 to become free. Usage count = 2",
            NETWORK_DEVICE_HELD,
        ),
        (
            3,
            "Memory failure: 0x79d6c8: recovery action for dirty LRU page: Recovered",
            MEMORY_ERROR,
        ),
        (3, "mce: Uncorrected hardware memory error in user-access at 79d6c8440", MEMORY_ERROR),
        (
            0,
            "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_Ha#0 (channel:1 slot:0)",
            MEMORY_ERROR,
        ),
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
        (6, "NET: Registered PF_ALG protocol family"),
        (6, DETAILS),
        (5, DEVICE_ABNORMAL),
        (3, "oom_reaper: reaped process 4242 (train.py), now anon-rss:0kB, file-rss:0kB"),
        (6, "a program talks of [ascend] [ERROR] things"),
        (4, "python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0"),
        (6, "EXT4-fs (sda1): re-mounted 1234 ro. Quota mode: none."),
        (5, "XFS (loop0): Mounting V5 Filesystem 94488009-4f4e-4192-ad51-14020b60eb95"),
        (5, "XFS (loop0): Unmounting Filesystem"),
        (
            4,
            "EXT4-fs warning (device loop0): ext4_clear_journal_err:9: Filesystem error recorded "
            "from previous mount: IO failure",
        ),
        (4, "EXT4-fs (sda1): error count since last fsck: 3"),
        (4, "EXT4-fs (sda1): last error at time 1700000000: ext4_journal_check_start:61"),
        (6, "BTRFS info (device sda): bdev /dev/sda errs: wr 0, rd 2, flush 0, corrupt 0, gen 0"),
        (6, "BTRFS info (device loop0): last unmount of filesystem 961067eb"),
        (6, "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_Ha#0 (channel:1 slot:0)"),
        (6, "Kernel panic is not what this line reports"),
        (4, "traps: python3[77] general protection fault ip:7f00 sp:7ffd error:0 in libc.so.6"),
        (6, "audit: 3 callbacks suppressed by something else"),
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
    assert list(MESSAGES.matches(2, text)) == [FileSystemMessage(READ_ONLY, device, text)]


@pytest.mark.parametrize(
    ("text", "code", "device"),
    [
        # Linux 4.19
        (
            "XFS (dm-4): xfs_do_force_shutdown(0x1) called from line 1788 of file fs/xfs/x.c. "
            " Return address = 000000009d022bf1",
            FILE_SYSTEM_FAILED,
            "dm-4",
        ),
        ("XFS (dm-4): I/O Error Detected. Shutting down filesystem", FILE_SYSTEM_FAILED, "dm-4"),
        (
            "XFS (sda3): Log I/O Error Detected.  Shutting down filesystem",
            FILE_SYSTEM_FAILED,
            "sda3",
        ),
        (
            "XFS (sdb): Corruption of in-memory data detected.  Shutting down filesystem",
            FILE_SYSTEM_FAILED,
            "sdb",
        ),
        (
            "XFS (sdb): User initiated shutdown received. Shutting down filesystem",
            FILE_SYSTEM_FAILED,
            "sdb",
        ),
        (
            "XFS (sdb): Please umount the filesystem and rectify the problem(s)",
            FILE_SYSTEM_FAILED,
            "sdb",
        ),
        ("XFS (sdb): xfs_log_force: error -5 returned.", FILE_SYSTEM_FAILED, "sdb"),
        (
            'XFS (sdb): metadata I/O error in "xlog_iodone" at daddr 0x64 len 64 error 5',
            FILE_SYSTEM_ERRORS,
            "sdb",
        ),
        # Linux 5.10 and 6.6
        (
            "XFS (nvme0n1p1): Metadata I/O Error (0x4) detected at xfs_trans_read_buf_map+0x1 "
            "(fs/xfs/xfs_trans_buf.c:1).  Shutting down filesystem.",
            FILE_SYSTEM_FAILED,
            "nvme0n1p1",
        ),
        (
            "XFS (sdb1): Log I/O Error (0x2) detected at xlog_ioend_work+0x6e/0x70 [xfs] "
            "(fs/xfs/xfs_log.c:1378).  Shutting down filesystem.",
            FILE_SYSTEM_FAILED,
            "sdb1",
        ),
        (
            "XFS (sdb1): Filesystem has been shut down due to log error (0x2).",
            FILE_SYSTEM_FAILED,
            "sdb1",
        ),
        (
            "XFS (sdb1): writeback error on inode 131, offset 0, sector 96",
            FILE_SYSTEM_ERRORS,
            "sdb1",
        ),
        (
            "XFS (dm-4): Internal error xfs_iunlink_remove at line 2038 of file fs/xfs/x.c.",
            FILE_SYSTEM_ERRORS,
            "dm-4",
        ),
        ("EXT4-fs (sda1): shut down requested (1)", FILE_SYSTEM_FAILED, "sda1"),
        ("Aborting journal on device dm-4-8.", FILE_SYSTEM_FAILED, "dm-4-8"),
        (
            "EXT4-fs error (device sda1): ext4_journal_check_start:61: Detected aborted journal",
            FILE_SYSTEM_FAILED,
            "sda1",
        ),
        (
            "EXT4-fs error (device sda1): ext4_journal_check_start:83: comm a: Detected "
            "aborted journal",
            FILE_SYSTEM_FAILED,
            "sda1",
        ),
        (
            "EXT4-fs error (device sda1): ext4_find_entry:935: comm ls: reading directory lblock 0",
            FILE_SYSTEM_ERRORS,
            "sda1",
        ),
        (
            "EXT4-fs warning (device sda1): ext4_end_bio:343: I/O error 10 writing to inode 12",
            FILE_SYSTEM_ERRORS,
            "sda1",
        ),
        ("EXT4-fs (dm-1): I/O error while writing superblock", FILE_SYSTEM_ERRORS, "dm-1"),
        (
            "JBD2: Detected IO errors while flushing file data on sda1-8",
            FILE_SYSTEM_ERRORS,
            "sda1-8",
        ),
        (
            "JBD2: Error -5 detected when updating journal superblock for sda1-8.",
            FILE_SYSTEM_ERRORS,
            "sda1-8",
        ),
        (
            "Buffer I/O error on dev sda1, logical block 1610612731, lost async page write",
            FILE_SYSTEM_ERRORS,
            "sda1",
        ),
        ("Buffer I/O error on device sda1, logical block 7", FILE_SYSTEM_ERRORS, "sda1"),
        (
            "BTRFS: error (device sdb state EA) in btrfs_commit:2418: errno=-5 IO failure "
            "(Error while writing out transaction)",
            FILE_SYSTEM_FAILED,
            "sdb",
        ),
        (
            "BTRFS error (device sdb: state A): Transaction aborted (error -28)",
            FILE_SYSTEM_FAILED,
            "sdb",
        ),
        (
            "BTRFS warning (device sdb): Skipping commit of aborted transaction.",
            FILE_SYSTEM_FAILED,
            "sdb",
        ),
        (
            "BTRFS error (device sdb): bdev /dev/sdb errs: wr 1, rd 0, flush 0, corrupt 0, gen 0",
            FILE_SYSTEM_ERRORS,
            "sdb",
        ),
    ],
)
def test_a_failing_file_system_is_named(text: str, code: str, device: str) -> None:
    assert list(MESSAGES.matches(3, text)) == [FileSystemMessage(code, device, text)]


@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("Future hung task reports are suppressed, see sysctl kernel.hung_task_warnings", ""),
        ("buffer_io_error: 118 callbacks suppressed", "buffer_io_error"),
        ("EXT4-fs error: 4 callbacks suppressed", "EXT4-fs error"),
    ],
)
def test_suppressed_messages_are_noticed(text: str, function: str) -> None:
    assert list(MESSAGES.matches(4, text)) == [Suppressed(function, text)]


@pytest.mark.parametrize(
    ("text", "device"),
    [
        (HARMLESS, "vda"),
        ("EXT4-fs (dm-0): mounted filesystem with ordered data mode. Opts: (null)", "dm-0"),
        ("XFS (loop0): Ending clean mount", "loop0"),
        ("XFS (sdb1): Ending recovery (logdev: internal)", "sdb1"),
        ("BTRFS info (device loop0): first mount of filesystem 961067eb", "loop0"),
    ],
)
def test_a_mount_is_noticed(text: str, device: str) -> None:
    assert list(MESSAGES.matches(6, text)) == [FileSystemMessage("", device, text)]


def test_a_lockup_names_its_cpu() -> None:
    (match,) = MESSAGES.matches(0, "watchdog: BUG: soft lockup - CPU#127 stuck for 22s! [x:1]")
    assert isinstance(match, MessageMatch)
    assert match.cpu == 127


def test_patterns_are_the_operators() -> None:
    own = Messages(("^<4>hisi_dma ",))
    assert [one[0] for one in own.matches(4, "hisi_dma 0000:7b:00.0: stuck")] == [DRIVER_ERROR]
    assert list(own.matches(5, DRIVER)) == []


def test_a_long_line_is_cut() -> None:
    (matches,) = MESSAGES.matches(3, DRIVER + "x" * 5000)
    assert len(matches.text) == 300
