"""What each chip's own network check finds: a reading for metrics, no fault.

It has the driver's event ``81078603`` beside it, and the link as ``hccn_tool`` sees it; those make
faults. NPU exporter shows it as ``npu_chip_info_network_status`` (``docs/spec/dcmi.md#4.3``, 9.3).
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, ClassVar, NoReturn

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


class NetworkHealthCollector:
    """The collector of network checks. A chip that gives no answer has no reading."""

    name = "network-health"
    settings: ClassVar[type[Section]] = Section
    about_chips = True
    period_seconds = 5.0
    deadline_seconds = 2.0

    def __init__(self, _: Section, options: AgentOptions) -> None:
        self.enabled = options.npu_exporter_names

    async def run(self, surroundings: CollectorContext) -> NoReturn:
        """Show until cancelled."""
        without: set[int] = set()
        while True:
            for chip in await self._chips(surroundings):
                if chip.physical_id not in without and not await _show(surroundings, chip):
                    without.add(chip.physical_id)
                surroundings.progress()
            await asyncio.sleep(self.period_seconds)

    async def _chips(self, surroundings: CollectorContext) -> tuple[Chip, ...]:
        while True:
            surroundings.progress()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.period_seconds):
                    return (await surroundings.driver.inventory()).chips


async def _show(surroundings: CollectorContext, chip: Chip) -> bool:
    """Ask ``chip`` and show the answer; ``False`` when it will never have one."""
    value: float | None = None
    supported = True
    try:
        value = float(await surroundings.driver.network_health(chip) in _REACHED)
    except DriverCallError as error:
        supported = error.return_code not in (UNSUPPORTED, SYMBOL_MISSING)
    except DriverError:
        pass
    surroundings.show(chip_subject(chip.physical_id), NETWORK, value)
    return supported
