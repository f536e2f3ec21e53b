"""Codes of the host checks, which MindCluster does not have.

They are in node-info beside the codes of the BMC, with names of parts of our own, which is legal
(``noded#10``, D-23). Eight digits from ``F0000001`` on: no BMC and no table of MindCluster
has codes that begin with ``F``. Each is ``NotHandleFault`` unless the fault configuration of the
node names it on another level.
"""

from __future__ import annotations

from typing import NamedTuple

FILE_SYSTEMS = "file-systems"
MEMORY = "memory"
KERNEL_LOG = "kernel-log"
CLOCK = "clock"

FILE_SYSTEM = "File System"
HOST_MEMORY = "Host Memory"
KERNEL = "Kernel"
NPU_DRIVER = "NPU Driver"
HOST_CLOCK = "Clock"

READ_ONLY = "F0000001"
FULL = "F0000002"
NO_INODES = "F0000003"
MEMORY_PRESSURE = "F0000004"
OOM_KILL = "F0000005"
SOFT_LOCKUP = "F0000006"
HUNG_TASK = "F0000007"
DRIVER_ERROR = "F0000008"
CLOCK_STEP = "F0000009"
CLOCK_UNSYNCHRONISED = "F000000A"
FILE_SYSTEM_FAILED = "F000000B"
FILE_SYSTEM_ERRORS = "F000000C"
KERNEL_OOPS = "F000000D"
HARD_LOCKUP = "F000000E"
RCU_STALL = "F000000F"
NETWORK_DEVICE_HELD = "F0000010"
MEMORY_ERROR = "F0000011"


class HostCode(NamedTuple):
    """The source of a code of a host check, and the part of the server that it is about.

    ``is_event``: it is reported once and has no end. The names are our own. ``remedy`` is what an
    operator does, at any level.
    """

    source: str
    part: str
    name: str
    name_zh: str
    remedy: str
    is_event: bool = False


HOST_CODES = {
    READ_ONLY: HostCode(
        FILE_SYSTEMS,
        FILE_SYSTEM,
        "file system became read-only",
        "文件系统变为只读",
        "Read the kernel log for the reason, check the disk, repair the file system (fsck) "
        "and mount it anew.",
    ),
    FULL: HostCode(
        FILE_SYSTEMS,
        FILE_SYSTEM,
        "file system full",
        "文件系统空间已满",
        "Delete or move files: df -h, du -xh --max-depth=2 MOUNT.",
    ),
    NO_INODES: HostCode(
        FILE_SYSTEMS,
        FILE_SYSTEM,
        "file system out of inodes",
        "文件系统inode耗尽",
        "Delete small files: df -i, du -x --inodes --max-depth=2 MOUNT.",
    ),
    MEMORY_PRESSURE: HostCode(
        MEMORY,
        HOST_MEMORY,
        "memory pressure",
        "内存压力过高",
        "Find the processes that use the memory and move or limit them.",
    ),
    OOM_KILL: HostCode(
        KERNEL_LOG,
        HOST_MEMORY,
        "process killed for want of memory",
        "内存不足导致进程被终止",
        "Read in the kernel log which process was killed, and raise its memory limit or use less.",
        is_event=True,
    ),
    SOFT_LOCKUP: HostCode(
        KERNEL_LOG,
        KERNEL,
        "soft lockup",
        "CPU软死锁",
        "Read the call trace in the kernel log. If the CPU does not come back, drain and "
        "restart the node.",
    ),
    HUNG_TASK: HostCode(
        KERNEL_LOG,
        KERNEL,
        "hung task",
        "任务挂起",
        "Read the call trace in the kernel log; mostly storage or a driver gives no answer.",
    ),
    DRIVER_ERROR: HostCode(
        KERNEL_LOG,
        NPU_DRIVER,
        "error of the NPU driver",
        "NPU驱动报错",
        "Compare it with the fault codes of the chips. Save the driver logs if it comes again.",
    ),
    CLOCK_STEP: HostCode(
        CLOCK,
        HOST_CLOCK,
        "clock was set",
        "系统时钟被修改",
        "Find out who set the clock. Times of faults before and after do not fit together.",
        is_event=True,
    ),
    CLOCK_UNSYNCHRONISED: HostCode(
        CLOCK,
        HOST_CLOCK,
        "clock lost its synchronisation",
        "系统时钟失去同步",
        "Start chronyd, ntpd or systemd-timesyncd again, and check its servers.",
    ),
    FILE_SYSTEM_FAILED: HostCode(
        FILE_SYSTEMS,
        FILE_SYSTEM,
        "file system shut down or without answer",
        "文件系统关闭或无响应",
        "Drain the node: all I/O of this file system fails. Unmount it everywhere, check the "
        "disk, repair it (xfs_repair, fsck) and mount it anew.",
    ),
    FILE_SYSTEM_ERRORS: HostCode(
        FILE_SYSTEMS,
        FILE_SYSTEM,
        "I/O or metadata errors of a file system",
        "文件系统I/O或元数据错误",
        "Check the disk (smartctl, multipath -ll). Then unmount the file system, repair it "
        "and mount it anew.",
    ),
    KERNEL_OOPS: HostCode(
        KERNEL_LOG,
        KERNEL,
        "kernel oops",
        "内核oops异常",
        "Save the kernel log, then drain and restart the node: its kernel can no longer be "
        "relied on.",
    ),
    HARD_LOCKUP: HostCode(
        KERNEL_LOG,
        KERNEL,
        "hard lockup",
        "CPU硬死锁",
        "Save the kernel log. Drain and restart the node, and look for errors of the CPU in "
        "the BMC.",
    ),
    RCU_STALL: HostCode(
        KERNEL_LOG,
        KERNEL,
        "RCU stall",
        "RCU停滞",
        "Read the call trace in the kernel log. If it comes again, drain and restart the node.",
    ),
    NETWORK_DEVICE_HELD: HostCode(
        KERNEL_LOG,
        KERNEL,
        "network device cannot be removed",
        "网络设备无法注销",
        "Pods can neither end nor start while it holds. Drain and restart the node; update "
        "its kernel if it comes again.",
    ),
    MEMORY_ERROR: HostCode(
        KERNEL_LOG,
        HOST_MEMORY,
        "uncorrectable memory error",
        "内存不可纠正错误",
        "Find the module in the kernel log (EDAC) or in the BMC, drain the node and replace it.",
    ),
}
"""Everything that host checks report."""
