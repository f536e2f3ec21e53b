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


class HostCode(NamedTuple):
    """The source of a code of a host check, and the part of the server that it is about.

    ``is_event``: it is reported once and has no end. ``name`` is for people.
    """

    source: str
    part: str
    name: str
    is_event: bool = False


HOST_CODES = {
    READ_ONLY: HostCode(FILE_SYSTEMS, FILE_SYSTEM, "file system became read-only"),
    FULL: HostCode(FILE_SYSTEMS, FILE_SYSTEM, "file system full"),
    NO_INODES: HostCode(FILE_SYSTEMS, FILE_SYSTEM, "file system out of inodes"),
    MEMORY_PRESSURE: HostCode(MEMORY, HOST_MEMORY, "memory pressure"),
    OOM_KILL: HostCode(KERNEL_LOG, HOST_MEMORY, "process killed for want of memory", is_event=True),
    SOFT_LOCKUP: HostCode(KERNEL_LOG, KERNEL, "soft lockup"),
    HUNG_TASK: HostCode(KERNEL_LOG, KERNEL, "hung task"),
    DRIVER_ERROR: HostCode(KERNEL_LOG, NPU_DRIVER, "error of the NPU driver"),
    CLOCK_STEP: HostCode(CLOCK, HOST_CLOCK, "clock was set", is_event=True),
    CLOCK_UNSYNCHRONISED: HostCode(CLOCK, HOST_CLOCK, "clock lost its synchronisation"),
}
"""Everything that host checks report."""
