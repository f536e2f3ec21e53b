"""IPMI commands through ``ipmitool raw``, for hosts where the device cannot be used."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from contract.errors import BmcError, ForeignBmc, ToolFailed, ToolInvalidOutput
from dcmi_shim.ipmi.device import UNKNOWN_COMMAND
from dcmi_shim.tool import Tool, check_tool, tool_environment

if TYPE_CHECKING:
    from dcmi_shim.ipmi.request import Exchange, Request
    from dcmi_shim.library.discovery import VendorPaths

T = TypeVar("T")
NAME = "ipmitool"
_REFUSED = re.compile(r"\brsp=0x([0-9a-f]{2})\b", re.IGNORECASE)


class NoTool(Exception):
    """There is no such program on ``PATH`` now."""


class IpmiTool:
    """``ipmitool`` on the ``PATH`` of the environment; it is searched for each exchange."""

    def __init__(self, paths: VendorPaths, deadline_seconds: float) -> None:
        self._environment = tool_environment(paths.environment)
        self._deadline_seconds = deadline_seconds
        self._trust_driver = paths.trust_driver
        self._tool = Tool(NAME)

    async def read(self, exchange: Exchange[T], limit_seconds: float) -> T:
        """Do a whole exchange. Each command has the deadline, all together ``limit_seconds``.

        Raises ``NoTool``, ``ToolError`` when a run fails, and ``BmcError`` (``ForeignBmc`` where
        the BMC does not know a command).
        """
        result = shutil.which(NAME, path=self._environment["PATH"])
        if result is None:
            raise NoTool
        path = Path(result)
        check_tool(path, trust_driver=self._trust_driver)
        end = time.monotonic() + limit_seconds
        request = next(exchange)
        while True:
            if time.monotonic() > end:
                raise BmcError(f"{path}: the list takes more than {limit_seconds:g} s")
            arguments = raw_arguments(request)
            try:
                printed = await self._tool.run(
                    path, arguments, self._environment, self._deadline_seconds
                )
            except ToolFailed as error:
                refused = _REFUSED.search(error.stderr)
                if refused is None or int(refused[1], 16) not in UNKNOWN_COMMAND:
                    raise
                raise ForeignBmc(str(error)) from None
            try:
                request = exchange.send(parse_raw(printed))
            except StopIteration as stop:
                return cast("T", stop.value)


def raw_arguments(request: Request) -> list[str]:
    """Return the arguments of ``ipmitool`` for ``request``."""
    content = (request.network_function, request.command, *request.data)
    return ["raw", *(f"0x{byte:02X}" for byte in content)]


def parse_raw(printed: str) -> bytes:
    """Return the reply that ``ipmitool raw`` printed: its bytes without the completion code.

    Raises ``ToolInvalidOutput`` when it printed anything else.
    """
    words = printed.split()
    try:
        if any(len(word) != 2 for word in words):
            raise ValueError
        return bytes.fromhex("".join(words))
    except ValueError:
        raise ToolInvalidOutput(f"{NAME} raw printed no reply, which is bytes", printed) from None
