"""What a driver child sends, and what it has loaded to do so."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dcmi_shim.worker.outbox import json_of

_ROOT = Path(__file__).parents[3]
_LOADED = """
import sys
sys.path.append(sys.argv[1])
before = set(sys.modules)
from dcmi_shim.library import chip_calls, switch_calls
from dcmi_shim.worker import child
print(*sorted(name for name in set(sys.modules) - before if not name.startswith("dcmi_shim")))
"""
_EXPECTED = {
    *("__future__", "_ctypes", "_struct", "ctypes", "ctypes._endian"),
    *("_json", "select", "struct", "types"),
    # ``os`` and what it imports: it is loaded at the start where ``site`` is.
    *("_collections_abc", "_stat", "genericpath", "os", "os.path", "posixpath", "stat"),
}


@pytest.mark.parametrize(
    "value",
    [
        {"id": 2**63, "answer": -8012, "value": None},
        {"id": 3, "each": [{"answer": 0, "value": (1, [2, []])}, {}]},
        {"value": 0.1, "name": "Ascend 910B3"},
        'quote " backslash \\ slash / line \n null \0 delete \x7f',
        "é, 升腾, replaced \ufffd, 😀, largest \U0010ffff",
    ],
)
def test_a_message_is_what_a_reader_of_json_reads(value: object) -> None:
    assert json.loads(json_of(value)) == json.loads(json.dumps(value))


@pytest.mark.exec
def test_a_driver_child_loads_ctypes_and_little_else() -> None:
    command = [sys.executable, "-I", "-S", "-c", _LOADED, str(_ROOT)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert set(done.stdout.split()) - _EXPECTED == set()
