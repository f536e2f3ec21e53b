"""What the README shows on a laptop leads to a fault that a person sees."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.parts.processes import free_ports
from tests.parts.tree import ROOT

_BLOCK = re.compile(r"## On a laptop\n\n```\n(.*?vigil faults [^\n]*\n)", re.DOTALL)
_AFTER = """
status=$?
kill %1
wait
exit $status
"""


@pytest.mark.daemon
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_commands_for_a_laptop_show_the_fault(tmp_path: Path) -> None:
    found = _BLOCK.search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert found is not None
    (port,) = free_ports(1)
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("VIGIL_", "COLUMNS"))}
    done = subprocess.run(
        ["bash", "-mc", found[1].replace("9820", str(port)) + _AFTER],
        cwd=tmp_path,
        env=clean | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("laptop ")]
    assert "80E01801" in row
    assert row.endswith("Multi-bit ECC errors when accessing the HBM")
