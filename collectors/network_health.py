"""The result of each chip's own network check: a reading for metrics, no fault.

Faults come from the driver's event ``81078603``, and from the link as ``hccn_tool`` reports it. NPU
exporter shows the reading as ``npu_chip_info_network_status`` (``docs/spec/dcmi.md#4.3``, 9.3).
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, NoReturn

from collectors.base import Collector
from contract.errors import DriverCallError, DriverError
from contract.observation import chip_subject
from contract.settings import Section
from dcmi_shim.library.return_codes import SYMBOL_MISSING, UNSUPPORTED

if TYPE_CHECKING:
    from collectors.base import AgentOptions
    from dcmi_shim.values import Chip

NETWORK = "network_reached"
"""The reading: 1 when the chip reaches its network, else 0."""

# 6 is an initial state, which upstream accepts as good, too (device-plugin#2.6).
_REACHED = (0, 6)


class NetworkHealthCollector(Collector[Section]):
    """Shows the results of network checks. A chip that gives no answer has no reading."""

    name = "network-health"
    about_chips = True
    period_seconds = 5.0
    deadline_seconds = 2.0

    @classmethod
    def is_enabled(cls, _: Section, options: AgentOptions) -> bool:
        """Return whether metrics under NPU exporter's names are wanted: nothing else needs it."""
        return options.npu_exporter_names

    async def run(self) -> NoReturn:
        """Show readings until cancelled."""
        without: set[int] = set()
        while True:
            for chip in await self._chips():
                # A driver without this call never has an answer: it is not asked for it again.
                if chip.physical_id not in without and not await self._show(chip):
                    without.add(chip.physical_id)
                self.context.progress()
            await asyncio.sleep(self.period_seconds)

    async def _chips(self) -> tuple[Chip, ...]:
        while True:
            self.context.progress()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.period_seconds):
                    return (await self.context.driver.inventory()).chips

    async def _show(self, chip: Chip) -> bool:
        """Query ``chip`` and show the answer; return ``False`` when it will never have one."""
        value: float | None = None
        supported = True
        try:
            value = float(await self.context.driver.network_health(chip) in _REACHED)
        except DriverCallError as error:
            supported = error.return_code not in (UNSUPPORTED, SYMBOL_MISSING)
        except DriverError:
            pass
        self.context.show(chip_subject(chip.physical_id), NETWORK, value)
        return supported
