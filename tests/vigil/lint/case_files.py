"""The cases of lint: a right and a wrong manifest for each finding."""

from __future__ import annotations

from pathlib import Path

CASES = Path(__file__).parent / "cases"


NAMES = sorted(path.name.removesuffix(".wrong.yaml") for path in CASES.glob("*.wrong.yaml"))


DOES_WITHOUT = ("RESCHEDULING_OFF", "PROCESS_FAULT_NOT_HANDLED")


"""An ``info`` for each job without them; files about other codes may lack them."""
