"""All collectors. Adding one is a file and a line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from collectors.bmc import Bmc
from collectors.chip_faults import ChipFaults
from collectors.hang import Hang
from collectors.links import Links
from collectors.network_health import NetworkHealth
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
}
"""Name of a source to what makes its collector; its section of the configuration are arguments."""
