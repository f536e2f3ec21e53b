"""Plays a scenario on the emulated hardware."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from contract.errors import ConfigurationError, Problem

if TYPE_CHECKING:
    from dcmi_shim.emulator.control import Emulator
    from dcmi_shim.emulator.scenario import Scenario


def play(scenario: Scenario, emulator: Emulator) -> None:
    """Apply every step at its time, counted from now; returns after the last one.

    Raises ``ConfigurationError`` before the first step when the hardware is not what the scenario
    was written for, and ``EmulatorError`` at a step that is not possible.
    """
    running = emulator.status()["profile"]
    if running != scenario.profile:
        what = f"is {scenario.profile!r}, but the emulator runs {running!r}"
        raise ConfigurationError("scenario", [Problem("profile", what)])
    begin = time.monotonic()
    for step in scenario.steps:
        time.sleep(max(0.0, begin + step.at_ms / 1000 - time.monotonic()))
        step.apply(emulator)
