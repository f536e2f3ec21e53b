"""All collectors. Adding one is a file and a line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from collectors.bmc import BmcCollector
from collectors.chip_faults.collector import ChipFaultsCollector
from collectors.file_systems.collector import FileSystemsCollector
from collectors.hang.collector import HangCollector
from collectors.host_clock import HostClockCollector
from collectors.kernel_log.collector import KernelLogCollector
from collectors.links.collector import LinksCollector
from collectors.memory.collector import MemoryCollector
from collectors.network_health import NetworkHealthCollector
from collectors.storage.collector import StorageCollector
from collectors.switch import SwitchCollector

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from collectors.base import Collector

COLLECTORS: Mapping[str, Callable[..., Collector]] = {
    ChipFaultsCollector.name: ChipFaultsCollector,
    BmcCollector.name: BmcCollector,
    NetworkHealthCollector.name: NetworkHealthCollector,
    SwitchCollector.name: SwitchCollector,
    LinksCollector.name: LinksCollector,
    HangCollector.name: HangCollector,
    StorageCollector.name: StorageCollector,
    # Before the kernel's log is read: they hear what it tells.
    FileSystemsCollector.name: FileSystemsCollector,
    MemoryCollector.name: MemoryCollector,
    KernelLogCollector.name: KernelLogCollector,
    HostClockCollector.name: HostClockCollector,
}
"""Name of a source to what makes its collector; its section of the configuration are arguments."""

ABOUT_CHIPS = frozenset(
    {ChipFaultsCollector.name, NetworkHealthCollector.name, LinksCollector.name, HangCollector.name}
)
"""The collectors that begin again when chips have other physical ids."""
