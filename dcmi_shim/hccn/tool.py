"""Asks ``hccn_tool`` about the network of the chips (``docs/spec/dcmi.md#7``).

The tool is searched below the driver root before each run, so one that is installed later is found.
It fails when two run at once: one ``HccnTool`` runs one at a time, and tries again when another
program is running it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from contract.errors import ToolFailed
from contract.record import Record
from dcmi_shim.hccn.answers import (
    parse_counters,
    parse_link,
    parse_link_ups,
    parse_optical,
    parse_speed,
)
from dcmi_shim.hccn.tables import (
    parse_port_enabled,
    parse_ports,
)
from dcmi_shim.library.discovery import DEFAULT_DRIVER_ROOT, ownership_problems
from dcmi_shim.tool import Tool, check_tool, tool_environment

if TYPE_CHECKING:
    from collections.abc import Callable

    from dcmi_shim.library.discovery import VendorPaths

NAME = "hccn_tool"
_IN_ROOT = Path("tools") / NAME
# The low byte of the tool's internal code 0x300B (dcmi#7.6).
_BUSY_STATUS = 11
_BUSY_SECONDS = 0.15
_TRIES_WHILE_BUSY = 4
# The tool needs the driver's libraries (dcmi#7.1).
_LIBRARIES = ("lib64/driver", "lib64/common", "lib64")
Answer = TypeVar("Answer", covariant=True)


class ToolQuestion(Record, Generic[Answer], frozen=True):
    """One command and the parser of its answer."""

    words: tuple[str, ...]
    parse: Callable[[str, int], Answer]


LINK = ToolQuestion(("-link", "-g"), parse_link)
SPEED = ToolQuestion(("-speed", "-g"), parse_speed)
LINK_UPS = ToolQuestion(("-link_stat", "-g"), parse_link_ups)
COUNTERS = ToolQuestion(("-stat", "-g"), parse_counters)
OPTICAL = ToolQuestion(("-optical", "-g"), parse_optical)

A5_PORTS = ToolQuestion(("-dev_info",), parse_ports)
A5_COUNTERS = ToolQuestion(("-stat",), parse_counters)
A5_PORT_ENABLED = ToolQuestion(("-port_info",), parse_port_enabled)


class HccnTool:
    """The tool of the driver in ``paths``."""

    def __init__(self, paths: VendorPaths) -> None:
        root = DEFAULT_DRIVER_ROOT if paths.driver_root is None else paths.driver_root
        self.path = root.absolute() / _IN_ROOT
        self._libraries = [root.absolute() / directory for directory in _LIBRARIES]
        self._paths = paths
        self._tool = Tool(NAME)

    async def query(
        self, question: ToolQuestion[Answer], chip: int, deadline_seconds: float
    ) -> Answer:
        """Query the chip with the physical id ``chip``. Raises ``ToolError``."""
        printed = await self._run(("-i", str(chip), *question.words), deadline_seconds)
        return question.parse(printed, chip)

    async def query_a5(
        self,
        question: ToolQuestion[Answer],
        logic_id: int,
        deadline_seconds: float,
        *,
        port: tuple[int, int] | None = None,
    ) -> Answer:
        """Query a chip of an A5, or its ``port`` (UDie, port). Raises ``ToolError``."""
        place = () if port is None else ("-u", str(port[0]), "-p", str(port[1]))
        # Here ``-i`` takes the logic id; on earlier chips it takes the physical one (dcmi#7.1).
        arguments = ("-g", *question.words, "-i", str(logic_id), *place)
        return question.parse(await self._run(arguments, deadline_seconds), logic_id)

    async def _run(self, arguments: tuple[str, ...], deadline_seconds: float) -> str:
        trusts = self._paths.trust_driver
        check_tool(self.path, trust_driver=trusts)
        libraries = [
            directory
            for directory in self._libraries
            if directory.is_dir() and (trusts or not ownership_problems(directory))
        ]
        environment = tool_environment(self._paths.environment, libraries)
        for tries_left in reversed(range(_TRIES_WHILE_BUSY)):
            try:
                return await self._tool.run(self.path, arguments, environment, deadline_seconds)
            except ToolFailed as error:
                if not (tries_left and _is_busy(error)):
                    raise
                await asyncio.sleep(_BUSY_SECONDS)
        raise AssertionError("the last try returns or raises")


def _is_busy(error: ToolFailed) -> bool:
    """Return whether another program, such as the vendor's exporter, was running the tool."""
    # The tool prints this error on standard output (dcmi#7.6).
    return error.status == _BUSY_STATUS and "busy" in error.stdout + error.stderr
