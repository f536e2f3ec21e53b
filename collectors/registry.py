"""All collectors. Adding one is a file and a line here (``docs/extending.md``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
    from collections.abc import Mapping, Sequence

    from collectors.base import Collector


COLLECTORS: Sequence[type[Collector[Any]]] = (
    ChipFaultsCollector,
    BmcCollector,
    NetworkHealthCollector,
    SwitchCollector,
    LinksCollector,
    HangCollector,
    StorageCollector,
    # Before the kernel's log is read: they receive what it reports.
    FileSystemsCollector,
    MemoryCollector,
    KernelLogCollector,
    HostClockCollector,
)

GAUGES: Mapping[str, str] = {
    name: text for make in COLLECTORS for name, text in make.gauges.items()
}
"""The readings that ``/metrics`` shows, with their HELP texts."""
