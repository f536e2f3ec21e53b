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
    from collectors.base import AgentOptions, CollectorContext
    from dcmi_shim.values import Chip

NETWORK = "network_reached"
"""The reading: 1 when the chip reaches its network, else 0."""

_REACHED = (0, 6)


class NetworkHealthCollector(Collector[Section]):
    """Shows the results of network checks. A chip that gives no answer has no reading."""

    name = "network-health"
    about_chips = True
    period_seconds = 5.0
    deadline_seconds = 2.0

    def __init__(self, section: Section, options: AgentOptions) -> None:
        super().__init__(section, options)
        self.enabled = options.npu_exporter_names

    async def run(self, context: CollectorContext) -> NoReturn:
        """Show readings until cancelled."""
        without: set[int] = set()
        while True:
            for chip in await self._chips(context):
                if chip.physical_id not in without and not await _show(context, chip):
                    without.add(chip.physical_id)
                context.progress()
            await asyncio.sleep(self.period_seconds)

    async def _chips(self, context: CollectorContext) -> tuple[Chip, ...]:
        while True:
            context.progress()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.period_seconds):
                    return (await context.driver.inventory()).chips


async def _show(context: CollectorContext, chip: Chip) -> bool:
    """Ask ``chip`` and show the answer; return ``False`` when it will never have one."""
    value: float | None = None
    supported = True
    try:
        value = float(await context.driver.network_health(chip) in _REACHED)
    except DriverCallError as error:
        supported = error.return_code not in (UNSUPPORTED, SYMBOL_MISSING)
    except DriverError:
        pass
    context.show(chip_subject(chip.physical_id), NETWORK, value)
    return supported
