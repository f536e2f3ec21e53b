"""A link tool that follows the steps of a recording, run without a process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from contract.errors import ToolFailed
from dcmi_shim.hccn.tool import HccnTool

if TYPE_CHECKING:
    from dcmi_shim.library.discovery import VendorPaths


class RecordedTool:
    """The link of each chip by physical id, and for which chips the tool is in trouble."""

    def __init__(self) -> None:
        self.down: set[int] = set()
        self.trouble: dict[int, str] = {}

    def do(self, step: dict[str, Any]) -> None:
        """Do a step of the recording now."""
        chip = step["chip"]
        if step["do"] != "hccn":
            (self.down.add if step["state"] == "DOWN" else self.down.discard)(chip)
        elif step["value"] == "off":
            self.trouble.pop(chip, None)
        else:
            self.trouble[chip] = step["value"]

    def here(self, paths: VendorPaths) -> HccnTool:
        """Return the scripted tool that replaces the vendor's tool in the collector."""
        return _Scripted(self, paths)


class _Scripted(HccnTool):
    def __init__(self, tool: RecordedTool, paths: VendorPaths) -> None:
        super().__init__(paths)
        self._recorded = tool

    async def _run(self, arguments: tuple[str, ...], deadline_seconds: float) -> str:
        del deadline_seconds
        _, chip, *_ = arguments
        trouble = self._recorded.trouble.get(int(chip))
        if trouble is not None:
            raise ToolFailed(f"hccn_tool {' '.join(arguments)}", 1, "", trouble)
        return f"link status: {'DOWN' if int(chip) in self._recorded.down else 'UP'}\n"
