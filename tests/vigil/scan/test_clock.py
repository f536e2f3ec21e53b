"""An unsynchronised clock is a warning, and one that old readers compare is a problem."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from agent.config import AgentConfiguration
from vigil.exit_status import ExitStatus
from vigil.scan import machine
from vigil.scan.findings import CheckState, lines, report

if TYPE_CHECKING:
    from typing import Any


@pytest.mark.parametrize(
    ("synchronised", "generation", "state"),
    [
        (True, "lease", CheckState.OK),
        (False, "lease", CheckState.WARNING),
        (False, "cm-v5", CheckState.PROBLEM),
        (None, "lease", CheckState.NOT_APPLICABLE),
    ],
)
def test_the_clock(
    monkeypatch: pytest.MonkeyPatch, synchronised: bool | None, generation: Any, state: CheckState
) -> None:
    monkeypatch.setattr(machine, "is_synchronised", lambda: synchronised)
    heartbeat = {"generation": generation}
    configuration = msgspec.convert(
        {"node_name": "n", "store": "directory:/x", "heartbeat": heartbeat}, AgentConfiguration
    )
    check = machine.check_clock(configuration)
    assert check.state is state
    assert (check.means is ExitStatus.OK) is (state is not CheckState.PROBLEM)
    if state is CheckState.WARNING:
        shown = list(lines(report("n", (check,))))
        assert shown[0].startswith("warning  clock ")
        assert shown[-1] == "n: 1 warning: clock"
