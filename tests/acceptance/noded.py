"""A server of a NodeD recording: the independent driver and BMC of this folder, and an agent."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from tests.acceptance.daemons import wait
from tests.replay.noded_real import fault_configuration_text, period_of

if TYPE_CHECKING:
    from tests.acceptance.bmc import Bmc
    from tests.acceptance.daemons import Agent

Way: TypeAlias = Literal["device", "tool"]
"""To the BMC: through the kernel's device, or ``ipmitool``."""
_TOOL = Path(__file__).parent / "driver" / "ipmitool.py"
_DEADLINE_SECONDS = 10.0
_START_SECONDS = 60.0
_SHORTEST_PERIOD_SECONDS = 0.1
"""An agent takes none that is shorter, however fast a recording is played."""


class RecordedServer:
    """See ``NodedMachine``. ``device`` is the library that stands in the kernel's place."""

    def __init__(self, agent: Agent, bmc: Bmc, device: Path, way: Way) -> None:
        self._agent = agent
        self._bmc = bmc
        tool = agent.hardware.tools / "ipmitool"
        tool.unlink()
        path = str(agent.directory / "ipmi0")
        agent.environment["VIGIL_BMC_DEVICE"] = path
        if way == "device":
            agent.environment |= {
                "LD_PRELOAD": str(device),
                "ACCEPTANCE_BMC": str(bmc.socket),
                "ACCEPTANCE_IPMI_DEVICE": path,
            }
        else:
            words = [sys.executable, "-I", "-S", str(_TOOL), str(bmc.socket)]
            tool.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
            tool.chmod(0o755)

    def prepare(self, name: str, speed: float) -> None:
        """Configure the agent and the BMC for the recording ``name``."""
        self._agent.environment |= {
            "VIGIL_BMC_PERIOD_SECONDS": str(max(period_of(name) / speed, _SHORTEST_PERIOD_SECONDS)),
            "VIGIL_BMC_DEADLINE_SECONDS": str(_DEADLINE_SECONDS / speed),
        }
        self._bmc.speed = speed
        if name.startswith("bmc-absent-unmodified"):
            self._bmc.do({"do": "bmc", "present": False})

    def bmc(self, step: dict[str, Any]) -> None:
        self._bmc.do(step)

    def file(self, step: dict[str, Any]) -> None:
        text = fault_configuration_text(step)
        directory = self._agent.directory / "fault-config"
        directory.mkdir(exist_ok=True)
        self._agent.environment["VIGIL_FAULT_CONFIG_DIR"] = str(directory)
        (directory / "NodeDConfiguration.json").write_text(text)

    def start(self, environment: dict[str, str]) -> None:
        if self._agent.runs:
            return
        self._agent.environment |= environment
        self._agent.start()

        def asks() -> bool:
            try:
                status = self._agent.status()
            except (AssertionError, OSError):
                assert self._agent.runs, f"the agent ended: {self._agent.logged()[-400:]}"
                return False
            return "bmc" in [*status["answered"], *(one["source"] for one in status["blind"])]

        wait(asks, "the agent asks the BMC", _START_SECONDS)

    def stop(self) -> None:
        if self._agent.runs:
            self._agent.stop()

    def kill(self) -> None:
        if self._agent.runs:
            self._agent.kill()
