"""All collectors. Adding one is a file and a line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from collectors.bmc import Bmc
from collectors.chip_faults.collector import ChipFaults
from collectors.file_systems.collector import FileSystems
from collectors.hang.collector import Hang
from collectors.host_clock import Clock
from collectors.kernel_log.collector import KernelLog
from collectors.links.collector import Links
from collectors.memory.collector import Memory
from collectors.network_health import NetworkHealth
from collectors.storage.collector import Storage
from collectors.switch import Switches

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from collectors.base import Collector

COLLECTORS: Mapping[str, Callable[..., Collector]] = {
    ChipFaults.name: ChipFaults,
    Bmc.name: Bmc,
    NetworkHealth.name: NetworkHealth,
    Switches.name: Switches,
    Links.name: Links,
    Hang.name: Hang,
    Storage.name: Storage,
    # Before the kernel's log is read: they hear what it tells.
    FileSystems.name: FileSystems,
    Memory.name: Memory,
    KernelLog.name: KernelLog,
    Clock.name: Clock,
}
"""Name of a source to what makes its collector; its section of the configuration are arguments."""

ABOUT_CHIPS = frozenset({ChipFaults.name, NetworkHealth.name, Links.name, Hang.name})
"""The collectors that begin again when chips have other physical ids."""
