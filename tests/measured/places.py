"""Where ``make coverage`` keeps what it measured; other programs look tests up there."""

from __future__ import annotations

import tomllib

from tests.parts.tree import ROOT

PRODUCT: tuple[str, ...] = tuple(
    tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "root_packages"
    ]
)
"""The packages that are measured, and changed by mutants."""

FOLDER = ROOT / ".measured"
DATA = FOLDER / "coverage.sqlite"
TIMES = FOLDER / "times.jsonl"
"""For each test a line ``[id, seconds]``."""

CONTEXT = "VIGIL_MEASURED_TEST"
"""The environment variable with the test that runs, for processes that it starts."""
