"""A node of a recording: the independent driver and tools of this room, and an agent on them."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from tests.acceptance.hardware import CODES, HEALTH, Chip, Hardware, SwitchFault
from tests.replay.real import CannotPlay

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.acceptance.daemons import Agent

_OF_8 = tuple(Chip(n, 0, n, n) for n in range(8))
PROFILES = {
    "a2": ("910B3", _OF_8),
    "a3": ("Ascend910", tuple(Chip(n // 2, n % 2, n, n) for n in range(16))),
    "910": ("910", _OF_8),
    "310p": ("310P3", _OF_8),
    "310": ("310", _OF_8),
}
"""Name of the chip and the ids of all."""
_WITHOUT_EVENTS = ("310p", "310")
_SUBSCRIBE = "dcmi_subscribe_fault_event"
_UNSUPPORTED = -8255
_LINK_DOWN = "81078603"
_RESET_FINISHED = "8C2FA009"
_NOT_READY = -8012
_NOT_APPLICABLE = 0xFFFFFFFF
_RECOVER, _OCCUR, _ONCE = 0, 1, 2
_OF_A_CHIP = (HEALTH, CODES, "dcmi_get_device_chip_info_v2", "dcmi_get_device_chip_info")
"""What fails where every call of a chip does."""


def make_hardware(root: Path, profile: str, library: Path, lingqu: Callable[[], Path]) -> Hardware:
    """Make the hardware of a profile; ``lingqu`` compiles the switch library of an A3."""
    name, chips = PROFILES[profile]
    hardware = Hardware(root, library, chips)
    hardware.write("name", name)
    if profile in _WITHOUT_EVENTS:
        hardware.command("answer", _SUBSCRIBE, value=_UNSUPPORTED)
    if profile == "a3":
        hardware.become_a3(lingqu())
        hardware.write("pod", "0")
        hardware.write("server", "0")
    return hardware


class RecordedNode:
    """The machine of ``tests.replay.real``: an agent that is not started, and its hardware."""

    def __init__(self, agent: Agent) -> None:
        self.name = agent.name
        self._agent = agent
        self._hardware = agent.hardware
        self._listed: dict[int, set[str]] = {chip: set() for chip in agent.hardware.chips}
        agent.environment["VIGIL_BMC_ENABLED"] = "false"

    def file(self, name: str, text: str) -> Path:
        directory = self._agent.directory / "fault-config"
        directory.mkdir(exist_ok=True)
        self._agent.environment["VIGIL_FAULT_CONFIG_DIR"] = str(directory)
        (directory / name).write_text(text)
        return directory / name

    def start(self) -> None:
        self._agent.start()

    def stop(self) -> None:
        if self._agent.runs:
            self._agent.stop()

    def kill(self) -> None:
        self._agent.kill()

    def do(self, step: dict[str, Any]) -> None:
        hardware = self._hardware
        chip = step.get("chip", -1)
        match step["do"]:
            case "occur":
                self._listed[chip].add(step["code"])
                hardware.occur(chip, step["code"], step["severity"])
            case "recover":
                self._recover(chip, step["code"])
            case "occur-without-event":
                self._list(chip, step["code"])
            case "recover-without-event":
                self._unlist(chip, step["code"])
            case "once":
                hardware.once(chip, step["code"], step["severity"])
            case "set-codes":
                self._become(chip, step["codes"])
            case "reset-chip":
                self._become(chip, step["codes_after"])
                hardware.once(chip, _RESET_FINISHED, 1)
            case "event-only":
                self._event(chip, step)
            case "burst":
                for _ in range(step["count"]):
                    self._event(chip, step)
            case "link":
                down = step["state"] == "DOWN"
                hardware.link(chip, step["state"])
                assertion = _OCCUR if down else _RECOVER
                hardware.event(chip, _LINK_DOWN, assertion, 1, raised=hardware.now_ms())
            case "link-without-event":
                hardware.link(chip, step["state"])
            case "hccn":
                hardware.tool(chip, _command(step["mode"], step["value"]))
            case "switch":
                self._switch(step)
            case _:
                self._trouble(step)

    def _trouble(self, step: dict[str, Any]) -> None:
        """Change the results of the driver's calls for a chip."""
        hardware, chip = self._hardware, step.get("chip", -1)
        match step["do"]:
            case "drop":
                for function in _OF_A_CHIP if step.get("hard") else (HEALTH,):
                    hardware.command("answer", function, chip, _NOT_READY)
            case "return":
                for function in _OF_A_CHIP:
                    hardware.forget("answer", function, chip)
            case "driver-error":
                for function in _OF_A_CHIP if step["function"] == "_all" else (step["function"],):
                    if step["rc"]:
                        hardware.command("answer", function, chip, step["rc"])
                    else:
                        hardware.forget("answer", function, chip)
            case "driver-hang":
                (hardware.command if step["on"] else hardware.forget)(
                    "hang", step["function"], chip
                )
            case "set" if step["field"] == "ip":
                pass  # only the Node shows addresses, and a directory has none
            case other:
                raise CannotPlay(f"this hardware cannot {other}")

    def _event(self, chip: int, step: dict[str, Any]) -> None:
        raised = self._hardware.now_ms()
        self._hardware.event(chip, step["code"], step["assertion"], step["severity"], raised=raised)

    def _list(self, chip: int, code: str) -> None:
        self._listed[chip].add(code)
        self._hardware.list_code(chip, code)

    def _unlist(self, chip: int, code: str) -> None:
        if code in self._listed[chip]:
            self._listed[chip].remove(code)
            self._hardware.unlist_code(chip, code)

    def _recover(self, chip: int, code: str) -> None:
        if code in self._listed[chip] and self._hardware.was_raised(chip, code):
            self._listed[chip].remove(code)
            self._hardware.recover(chip, code)
            return
        self._unlist(chip, code)
        self._hardware.event(chip, code, _RECOVER, raised=self._hardware.now_ms())

    def _become(self, chip: int, codes: list[str]) -> None:
        for code in sorted(self._listed[chip] - set(codes)):
            self._unlist(chip, code)
        for code in codes:
            self._list(chip, code)

    def _switch(self, step: dict[str, Any]) -> None:
        sub_type = step["sub_type"]
        fault = SwitchFault(
            int(step["event_type"], 16),
            _NOT_APPLICABLE if sub_type == -1 else sub_type,
            step["peer_device"],
            step["peer_port"],
            step["switch_chip"],
            step["switch_port"],
            step["severity"],
        )
        match step["assertion"]:
            case 1:
                self._hardware.switch_occur(fault)
            case 0:
                self._hardware.switch_recover(fault)
            case _:
                self._hardware.switch_once(fault)


def _command(mode: str, value: str) -> str | None:
    """Return the command that the link tool runs for a recorded failure; ``None`` to end it."""
    if value == "off":
        return None
    match mode.partition(".")[0]:
        case "error":
            status, _, text = value.partition(" stderr ")
            return f"echo {shlex.quote(text)} >&2; exit {status}"
        case "busy":
            return "echo 'the tool is busy'; exit 11"
        case "garbage":
            return "echo 'link status: sideways, or up, or'; exit 0"
        case "hang":
            return "exec sleep 3600"
        case other:
            raise CannotPlay(f"this link tool has no trouble {other}")
