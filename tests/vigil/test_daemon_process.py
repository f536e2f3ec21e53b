"""Threads of a daemon share one arena of the C library."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_CODE = """
import ctypes, threading
from vigil.daemon_process import daemon_process
with daemon_process():
    threads = [threading.Thread(target=bytearray, args=(10_000,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ctypes.CDLL(None).malloc_stats()
"""


@pytest.mark.parametrize(
    ("given", "is_one"), [({}, True), ({"MALLOC_ARENA_MAX": "8"}, False)], ids=["own", "given"]
)
def test_threads_share_one_arena_unless_the_environment_has_another_number(
    given: dict[str, str], is_one: bool
) -> None:
    environment = {k: v for k, v in os.environ.items() if k not in ("MALLOC_ARENA_MAX",)}
    found = subprocess.run(
        [sys.executable, "-c", _CODE],
        env=environment | given,
        check=True,
        capture_output=True,
        text=True,
    )
    assert (found.stderr.count("Arena ") == 1) is is_one, found.stderr
