"""The BMC of this host: its active alarms and the server's serial number.

The device or ``ipmitool`` is searched again for each exchange.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from contract.errors import BmcError, ForeignBmc
from dcmi_shim.ipmi.alarms import reading
from dcmi_shim.ipmi.device import IpmiDevice, NoDevice
from dcmi_shim.ipmi.request import Request
from dcmi_shim.ipmi.serial_number import serial_number_exchange
from dcmi_shim.ipmi.tool import IpmiTool, NoTool

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from dcmi_shim.ipmi.alarms import Alarm
    from dcmi_shim.ipmi.request import Exchange
    from dcmi_shim.library.discovery import VendorPaths

T = TypeVar("T")

_COMMANDS_OF_A_READING = 6
_GET_DEVICE_ID = Request(0x06, 0x01, b"")
_MANUFACTURER_ID = slice(6, 9)


class Ipmi:
    """Asks the BMC, with one exchange at a time."""

    def __init__(self, device: Path, paths: VendorPaths, deadline_seconds: float) -> None:
        self._path = device
        self._device = IpmiDevice(device, deadline_seconds)
        self._tool = IpmiTool(paths, deadline_seconds)
        self._limit_seconds = _COMMANDS_OF_A_READING * deadline_seconds

    async def alarms(self, before: Collection[Alarm] | None) -> tuple[Alarm, ...]:
        """Return all active alarms, in the BMC's order; ``before`` is the reading before this one.

        Raises ``BmcError`` or ``ToolError`` unless the list is complete and consistent.
        """
        return await self._ask(lambda: reading(before))

    async def serial_number(self) -> str | None:
        """Return the server's serial number; ``None`` where the BMC has none.

        Raises ``BmcError`` or ``ToolError`` when it gives no answer. A BMC of Huawei may lack this
        command alone: only the list of alarms shows a BMC of another maker.
        """
        try:
            return await self._ask(serial_number_exchange)
        except ForeignBmc as error:
            raise BmcError(error.answer) from None

    async def manufacturer(self) -> int | None:
        """Return the number of the BMC's manufacturer (IANA; Huawei is 2011), as every BMC has it.

        ``None`` where the reply lacks it. Raises ``BmcError`` or ``ToolError`` without a reply.
        """

        def exchange() -> Exchange[int | None]:
            number = (yield _GET_DEVICE_ID)[_MANUFACTURER_ID]
            return int.from_bytes(number, "little") if len(number) == 3 else None

        return await self._ask(exchange)

    async def _ask(self, begin: Callable[[], Exchange[T]]) -> T:
        """Do an exchange through the device, or through ``ipmitool`` where there is no device."""
        try:
            return await self._device.read(begin(), self._limit_seconds)
        except NoDevice:
            pass
        try:
            # A new exchange: the one for the device may have begun.
            return await self._tool.read(begin(), self._limit_seconds)
        except NoTool:
            raise BmcError(
                f"neither {self._path} nor ipmitool is there; load the kernel modules ipmi_si and "
                "ipmi_devintf, or install ipmitool"
            ) from None
