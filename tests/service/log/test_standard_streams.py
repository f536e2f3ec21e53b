"""Standard streams that are closed when the process starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("closed", [(2,), (0, 1, 2), (1,)])
def test_closed_standard_streams_are_opened(closed: tuple[int, ...]) -> None:
    program = """
import os, sys
for descriptor in map(int, sys.argv[1:]):
    os.close(descriptor)
from service.log.standard_streams import open_missing
open_missing()
assert [os.path.samefile(f"/proc/self/fd/{one}", os.devnull) for one in map(int, sys.argv[1:])]
pipe = os.pipe()
os._exit(0 if min(pipe) > 2 and all(os.get_inheritable(one) for one in range(3)) else 1)
"""
    numbers = [str(number) for number in closed]
    subprocess.run([sys.executable, "-c", program, *numbers], cwd=ROOT, check=True)
