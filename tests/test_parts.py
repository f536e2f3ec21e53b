"""The real programs that tests start do not outlive them."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.parts.controlplane import ControlPlane
from tests.parts.deadlines import wait_until

STARTS_ONE = """
import sys, time
from pathlib import Path
from tests.parts.processes import Running
print(Running(["sleep", "600"], Path(sys.argv[1])).pid, flush=True)
time.sleep(600)
"""


def lives(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def is_gone(pid: int, seconds: float = 5.0) -> bool:
    return wait_until(lambda: not lives(pid), f"{pid} is gone", seconds)


@pytest.mark.slow
def test_children_of_a_killed_test_process_end(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTS_ONE, str(tmp_path / "log")],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[1],
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert lives(pid)
        parent.kill()
    assert is_gone(pid)


@pytest.mark.apiserver
@pytest.mark.parametrize("error", [KeyboardInterrupt, AssertionError])
def test_a_control_plane_that_does_not_come_up_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """As when the time of a test is over while it is set up."""
    started: list[int] = []

    def comes_late(self: ControlPlane) -> bool:
        started.extend((self.apiserver_pid, self._etcd.pid if self._etcd is not None else 0))
        raise error

    monkeypatch.setattr(ControlPlane, "_apiserver_is_up", comes_late)
    with pytest.raises(error), ControlPlane(tmp_path):
        raise AssertionError("it is not up")
    apiserver, etcd = started
    assert is_gone(apiserver)
    assert is_gone(etcd)
