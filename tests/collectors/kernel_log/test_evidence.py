"""What the kernel shows beside its log, on files in the form of those in ``/proc`` and ``/sys``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from collectors.kernel_log.evidence import KernelEvidence
from collectors.kernel_log.messages import Suppressed
from contract.codes.host_codes import (
    DRIVER_ERROR,
    FILE_SYSTEM_ERRORS,
    HARD_LOCKUP,
    HUNG_TASK,
    RCU_STALL,
    SOFT_LOCKUP,
)

if TYPE_CHECKING:
    from pathlib import Path

HOLD = 300.0
LINE = Suppressed("", "Future hung task reports are suppressed, see sysctl ...")


class Kernel:
    """The settings of a kernel below a directory."""

    def __init__(self, place: Path, **settings: int) -> None:
        self.proc = place / "proc"
        self.rcu = place / "rcu"
        (self.proc / "sys/kernel").mkdir(parents=True)
        self.rcu.mkdir()
        for name, value in settings.items():
            self.set(name, value)

    def set(self, name: str, value: int) -> None:
        folder = self.rcu if name.startswith("rcu_") else self.proc / "sys/kernel"
        (folder / name).write_text(f"{value}\n")

    def cpus(self, *rows: tuple[int, int, int]) -> None:
        """Write user time, system time and idle time of each CPU, in ticks."""
        lines = [
            f"cpu{i} {user} 0 {system} {idle} 0 0 0 0 0 0"
            for i, (user, system, idle) in enumerate(rows)
        ]
        (self.proc / "stat").write_text("\n".join(["cpu  1 0 1 1 0 0 0 0 0 0", *lines, "intr 1"]))

    def evidence(self) -> KernelEvidence:
        return KernelEvidence(HOLD, self.proc, self.rcu)


def test_counted_down_warnings_are_blindness_without_any_line(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path, hung_task_warnings=0, hung_task_timeout_secs=120)
    evidence = kernel.evidence()
    assert "kernel.hung_task_warnings is 0" in evidence.silenced(0)[HUNG_TASK]
    kernel.set("hung_task_warnings", 10)
    evidence.refresh()
    assert evidence.silenced(60) == {}
    kernel.set("hung_task_warnings", -1)
    evidence.refresh()
    assert evidence.silenced(120) == {}, "-1 is no limit"


def test_a_kernel_that_counts_hung_tasks_is_not_blind(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path, hung_task_warnings=0, hung_task_detect_count=12)
    evidence = kernel.evidence()
    assert evidence.silenced(0) == {}
    assert evidence.newly_hung() == 0
    kernel.set("hung_task_detect_count", 14)
    evidence.observe_suppressed(LINE, (), 0)
    assert evidence.silenced(0) == {}
    assert evidence.newly_hung() == 2
    assert evidence.newly_hung() == 0


def test_the_line_is_blindness_until_the_setting_is_read_again(tmp_path: Path) -> None:
    evidence = Kernel(tmp_path, hung_task_warnings=10).evidence()
    evidence.observe_suppressed(LINE, (), 0)
    assert HUNG_TASK in evidence.silenced(0)
    evidence.refresh()
    assert evidence.silenced(60) == {}


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("hung_task_timeout_secs", 0, HUNG_TASK),
        ("rcu_cpu_stall_suppress", 1, RCU_STALL),
        ("soft_watchdog", 0, SOFT_LOCKUP),
        ("watchdog", 0, SOFT_LOCKUP),
    ],
)
def test_reports_that_are_turned_off_are_blindness(
    tmp_path: Path, name: str, value: int, code: str
) -> None:
    evidence = Kernel(tmp_path, hung_task_detect_count=0, **{name: value}).evidence()
    assert name in evidence.silenced(0)[code]


def test_a_kernel_without_these_settings_is_not_blind(tmp_path: Path) -> None:
    assert Kernel(tmp_path).evidence().silenced(0) == {}


def test_a_rate_limit_is_blindness_for_as_long_as_a_message_counts(tmp_path: Path) -> None:
    evidence = Kernel(tmp_path).evidence()
    evidence.observe_suppressed(Suppressed("buffer_io_error", "buffer_io_error: 9 ..."), (), 0)
    evidence.observe_suppressed(Suppressed("devdrv_x", "devdrv_x: 9 ..."), (), 0)
    assert list(evidence.silenced(HOLD - 1)) == [FILE_SYSTEM_ERRORS]
    assert evidence.silenced(HOLD) == {}
    for function in ("net_ratelimit", "devdrv_x"):
        evidence.observe_suppressed(Suppressed(function, function), {DRIVER_ERROR}, 400)
    assert evidence.silenced(401)[DRIVER_ERROR].endswith("(devdrv_x)")


def test_silence_is_longer_than_the_pause_between_two_reports(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path, hung_task_timeout_secs=120, rcu_cpu_stall_timeout=60)
    evidence = kernel.evidence()
    assert {evidence.silence_seconds(code) for code in (HUNG_TASK, RCU_STALL, DRIVER_ERROR)} == {
        HOLD
    }
    kernel.set("hung_task_timeout_secs", 1200)
    kernel.set("rcu_cpu_stall_timeout", 300)
    assert evidence.silence_seconds(HUNG_TASK) == 1260
    assert evidence.silence_seconds(RCU_STALL) == 963


def test_a_lockup_ends_when_its_cpu_leaves_the_kernel(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path)
    kernel.cpus((10, 10, 10), (10, 10, 10))
    evidence = kernel.evidence()
    assert evidence.can_end(HARD_LOCKUP), "no CPU is named"
    evidence.record_lockup(HARD_LOCKUP, (0, 1))
    kernel.cpus((900, 10, 10), (10, 99999, 10))
    assert not evidence.can_end(HARD_LOCKUP), "CPU 1 is in the kernel all the time"
    assert evidence.locked_cpus() == {HARD_LOCKUP: [1]}
    kernel.cpus((900, 10, 10), (10, 99999, 12))
    assert evidence.can_end(HARD_LOCKUP)
    assert evidence.locked_cpus() == {}


def test_a_lockup_ends_with_its_cpu_and_not_without_any_figures(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path)
    kernel.cpus((10, 10, 10), (10, 10, 10))
    evidence = kernel.evidence()
    evidence.record_lockup(SOFT_LOCKUP, (1,))
    (kernel.proc / "stat").unlink()
    assert not evidence.can_end(SOFT_LOCKUP)
    kernel.cpus((10, 10, 10))
    assert evidence.can_end(SOFT_LOCKUP), "it was taken offline"
