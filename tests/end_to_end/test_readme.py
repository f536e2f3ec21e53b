"""What the README shows on a laptop leads to faults that a person and the cluster see."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documented_commands import blocks_of_commands
from tests.parts.processes import free_ports, program

_FIRST_PORTS = ("9820", "1884")
_END = """
kill %1
wait %1
"""
_ENDED = """
kill $(jobs -p)
wait
"""
_ENDS_WITH_1 = r"""status=0
\1 || status=$?
test "$status" = 1"""


def _waiting(block: str) -> str:
    """Return a block that waits for each document that it shows, in place of some seconds."""
    wait = r"until grep -qs {} \1 2> /dev/null; do sleep 0.1; done\ncat \1"
    block = re.sub(r"&& sleep 10\ncat (\S+)", "\n" + wait.format("2C000031"), block)
    return re.sub(r"sleep 10 && cat (\S+)", wait.format("80E01801"), block)


@pytest.mark.daemon
@pytest.mark.server
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_commands_for_a_laptop_show_the_faults(tmp_path: Path) -> None:
    first, second = (
        _waiting(block.text)
        for block in blocks_of_commands()
        if (block.document, block.headings[-1]) == ("README.md", "On a laptop")
    )
    # A fault holds, so this verb ends with 1.
    first, faults = re.subn(r"^(vigil faults \S+ \S+).*", _ENDS_WITH_1, first, flags=re.MULTILINE)
    assert faults == 1
    script = first + _END + second + _ENDED
    assert "sleep 10" not in script
    for usual, port in zip(_FIRST_PORTS, free_ports(2), strict=True):
        script = script.replace(usual, str(port))
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("VIGIL_", "COLUMNS"))}
    folders = (Path(sys.executable).parent, program("mosquitto").parent, os.environ["PATH"])
    done = subprocess.run(
        ["bash", "-emc", script],
        cwd=tmp_path,
        env=clean | {"PATH": ":".join(map(str, folders)), "VIGIL_BMC_PERIOD_SECONDS": "0.2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("laptop ")]
    assert "80E01801" in row
    assert row.endswith("Multi-bit ECC errors when accessing the HBM")
    documents = [line for line in done.stdout.splitlines() if line.startswith("{")]
    device, node, *cluster = documents
    assert "80E01801" in device
    assert "2C000031" in node
    assert "80E01801" in "".join(cluster)
