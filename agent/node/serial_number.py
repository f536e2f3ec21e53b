"""The serial number of the server: read from its BMC, for the Node and for pages.

Upstream asks once, a while after the start, and writes the answer as it is (``noded#4.2``, D-16).
Here the BMC is asked until it answers, and only a printable answer counts.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from collectors.bmc import BmcSection
from contract.errors import BmcError, ToolError
from contract.pages.agent_status import SerialNumberStatus
from dcmi_shim.ipmi.bmc import Ipmi
from dcmi_shim.library.discovery import VendorPaths
from service.log.ongoing_failure import OngoingFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent.config import AgentConfiguration

log = logging.getLogger("agent.serial_number")

ANNOTATION = "product-serial-number"
_MAX_PAUSE_SECONDS = 60.0


class SerialNumber:
    """Asks for the number until the BMC returns it; that of a running server does not change."""

    def __init__(self, ipmi: Ipmi, period_seconds: float) -> None:
        self._ipmi = ipmi
        self._pause_seconds = period_seconds
        self._on_found: list[Callable[[], None]] = []
        self._trouble = OngoingFailure(
            log, "the serial number of the server is not known: %s; asked again"
        )
        self.number: str | None = None

    def notify(self, on_found: Callable[[], None]) -> None:
        """Call ``on_found`` when the number becomes known."""
        self._on_found.append(on_found)

    def status(self) -> SerialNumberStatus:
        """Return the serial number and why it is not known."""
        return SerialNumberStatus(self.number, self._trouble.reason)

    async def run(self) -> NoReturn:
        """Ask until it is known, then wait until cancelled."""
        while not await self._is_found():
            await asyncio.sleep(self._pause_seconds)
            max_seconds = max(self._pause_seconds, _MAX_PAUSE_SECONDS)
            self._pause_seconds = min(2 * self._pause_seconds, max_seconds)
        # The end of a root task would end the agent (``agent/daemon.py``).
        while True:
            await asyncio.Event().wait()

    async def _is_found(self) -> bool:
        try:
            self.number = await self._ipmi.serial_number()
        except (BmcError, ToolError) as error:
            self._trouble.record_failure(str(error))
            return False
        if self.number is None:
            self._trouble.record_failure(
                "the BMC returns none: neither serial number nor manufacturer are set"
            )
            return False
        log.info("the serial number of the server is %s", self.number)
        self._trouble.end()
        for on_found in self._on_found:
            on_found()
        return True


def serial_number_of(
    configuration: AgentConfiguration, environment: Mapping[str, str]
) -> SerialNumber | None:
    """Return the reader of the serial number.

    ``None`` unless we own node-info and may ask the BMC.
    """
    bmc = configuration.settings_of(BmcSection)
    if "node-info" not in configuration.documents or not bmc.enabled:
        return None
    paths = VendorPaths(configuration.driver_root, configuration.trust_driver, environment)
    ipmi = Ipmi(Path(bmc.device), paths, bmc.deadline_seconds)
    return SerialNumber(ipmi, bmc.period_seconds)
