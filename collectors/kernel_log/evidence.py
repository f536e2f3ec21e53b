"""Whether the kernel still reports what its log does not show: its settings, counters and CPUs.

A fault that ends because its message is not repeated ends only if the kernel could repeat it:

* ``kernel.hung_task_warnings`` counts down to 0 with each report of a hung task, and then the
  kernel reports none until it is restarted or the value is set. ``hung_task_detect_count`` (Linux
  6.16) counts on. ``kernel.hung_task_timeout_secs`` 0 turns the check off.
* ``rcu_cpu_stall_suppress`` turns reports of RCU stalls off; a stall that lasts is reported again
  after three times ``rcu_cpu_stall_timeout`` and 3 s.
* ``kernel.soft_watchdog`` 0 turns reports of soft lockups off. Before Linux 5.13 a soft lockup is
  reported once however long it lasts, and a hard lockup always is. So a lockup ends when its CPU
  ran programs or was idle again, which ``/proc/stat`` shows.
* A function whose messages exceed the kernel's rate limit reports only how many were suppressed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from contract.codes.host_codes import (
    DRIVER_ERROR,
    FILE_SYSTEM_ERRORS,
    HARD_LOCKUP,
    HUNG_TASK,
    RCU_STALL,
    SOFT_LOCKUP,
)

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from collectors.kernel_log.messages import Suppressed

_PROC = Path("/proc")
_RCU = Path("/sys/module/rcupdate/parameters")
_LOCKUPS = (SOFT_LOCKUP, HARD_LOCKUP)
_MIN_TICKS = 2
"""Ticks of 10 ms outside of the kernel from which a CPU counts as running again."""

_USUAL_REPEAT_SECONDS = 300.0
"""The default of ``hold_seconds``: the kernel's own defaults repeat a message within it."""

_MARGIN_SECONDS = 60.0
_CPU_ROW = re.compile(r"^cpu(\d+) (\d+) (\d+) \d+ (\d+)", re.MULTILINE | re.ASCII)
_OF_FILE_SYSTEMS = re.compile(
    r"^(?:buffer_io_error|quiet_error|EXT[234]-fs|_*ext4_|_*jbd2_|xfs_|_*btrfs_)"
)
_OF_OTHERS = re.compile(r"^(?:net_ratelimit|show_signal_msg|kauditd_|audit_|warn_alloc|print_req_)")


class KernelEvidence:
    """What the kernel shows beside its log, of which ``proc`` and ``rcu`` are places.

    ``hold_seconds`` is how long a message counts. Times are seconds of a monotonic clock.
    """

    def __init__(self, hold_seconds: float, proc: Path = _PROC, rcu: Path = _RCU) -> None:
        self._hold_seconds = hold_seconds
        self._proc = proc
        self._kernel = proc / "sys/kernel"
        self._rcu = rcu
        self._settings: dict[str, str] = {}
        self._is_line_unconfirmed = False
        self._suppressed: dict[str, tuple[str, float]] = {}
        self._locked: dict[str, dict[int, int]] = {}
        self.hung_tasks = self._hung_tasks()
        """The hung tasks that the kernel counted and that are accounted for; ``None``: no count."""
        self.refresh()

    def refresh(self) -> None:
        """Read the kernel's settings."""
        self._is_line_unconfirmed = False
        self._read_settings()

    def _read_settings(self) -> None:
        reasons: dict[str, str] = {}
        if _number(self._kernel / "hung_task_timeout_secs") == 0:
            reasons[HUNG_TASK] = (
                "hung tasks are not reported: kernel.hung_task_timeout_secs is 0; "
                "sysctl -w kernel.hung_task_timeout_secs=120 ends that"
            )
        elif self._is_counted_down() and self._hung_tasks() is None:
            reasons[HUNG_TASK] = (
                "further hung tasks are not reported: kernel.hung_task_warnings is 0; "
                "sysctl -w kernel.hung_task_warnings=10 ends that"
            )
        if _number(self._rcu / "rcu_cpu_stall_suppress"):
            reasons[RCU_STALL] = (
                "RCU stalls are not reported: rcupdate.rcu_cpu_stall_suppress is set"
            )
        for setting in ("watchdog", "soft_watchdog"):
            if _number(self._kernel / setting) == 0:
                reasons[SOFT_LOCKUP] = f"soft lockups are not reported: kernel.{setting} is 0"
        self._settings = reasons

    def observe_suppressed(self, message: Suppressed, lasting: Container[str], now: float) -> None:
        """Apply that the kernel suppressed messages; ``lasting`` holds the codes that hold."""
        if not message.function:
            self._read_settings()
            # Another kernel's log, or a value that was set since: the next ``refresh`` shows it.
            self._is_line_unconfirmed = not self._is_counted_down()
            return
        until = now + self._hold_seconds
        reason = f"messages are suppressed by the kernel's rate limit ({message.text})"
        if _OF_FILE_SYSTEMS.search(message.function):
            self._suppressed[FILE_SYSTEM_ERRORS] = (reason, until)
        elif DRIVER_ERROR in lasting and not _OF_OTHERS.search(message.function):
            # Any function may be one of the driver, whose first messages were not suppressed.
            self._suppressed[DRIVER_ERROR] = (reason, until)

    def silenced(self, now: float) -> Mapping[str, str]:
        """Return the codes that the kernel may not report at present, and why."""
        self._suppressed = {code: row for code, row in self._suppressed.items() if row[1] > now}
        reasons = {code: reason for code, (reason, _) in self._suppressed.items()}
        reasons |= self._settings
        if self._is_line_unconfirmed:
            reasons.setdefault(
                HUNG_TASK,
                "further hung tasks are not reported, as the kernel's log has it; "
                "see kernel.hung_task_warnings",
            )
        return reasons

    def silence_seconds(self, code: str) -> float:
        """Return how long ``code`` has to be silent to end."""
        repeat = 0.0
        if code == HUNG_TASK:
            # The kernel takes the timeout for an interval of 0, which is the default.
            names = ("hung_task_check_interval_secs", "hung_task_timeout_secs")
            repeat = next(filter(None, (_number(self._kernel / name) for name in names)), 0)
        elif code == RCU_STALL:
            repeat = 3 * (_number(self._rcu / "rcu_cpu_stall_timeout") or 0) + 3
        if repeat < _USUAL_REPEAT_SECONDS:
            return self._hold_seconds
        return max(self._hold_seconds, repeat + _MARGIN_SECONDS)

    def newly_hung(self) -> int:
        """Return how many hung tasks the kernel counted since the last call or message."""
        before, self.hung_tasks = self.hung_tasks, self._hung_tasks()
        if before is None or self.hung_tasks is None:
            return 0
        return max(0, self.hung_tasks - before)

    def record_hung_task(self) -> None:
        """Record that a message reported what the kernel has counted."""
        self.hung_tasks = self._hung_tasks()

    def record_lockup(self, code: str, cpus: Iterable[int]) -> None:
        """Record that ``cpus`` are locked up now."""
        ticks = self._ticks()
        # Only what a CPU runs from now on shows that this lockup is over.
        self._locked.setdefault(code, {}).update((cpu, ticks.get(cpu, 0)) for cpu in cpus)

    def locked_cpus(self) -> dict[str, list[int]]:
        """Return the CPUs of each lockup, to be saved."""
        return {code: sorted(cpus) for code, cpus in self._locked.items()}

    def can_end(self, code: str) -> bool:
        """Return whether the silence about ``code`` shows its end."""
        locked = self._locked.get(code)
        if not locked:
            return True
        ticks = self._ticks()
        # A CPU without a row was taken offline; no row at all shows nothing.
        stuck = {
            cpu: before
            for cpu, before in locked.items()
            if not ticks or (cpu in ticks and ticks[cpu] - before < _MIN_TICKS)
        }
        if stuck:
            self._locked[code] = stuck
            return False
        del self._locked[code]
        return True

    def _ticks(self) -> dict[int, int]:
        """Return the ticks that each CPU ran programs or was idle since boot."""
        try:
            text = (self._proc / "stat").read_text(encoding="ascii")
        except (OSError, ValueError):
            return {}
        return {int(row[1]): sum(map(int, row.group(2, 3, 4))) for row in _CPU_ROW.finditer(text)}

    def _is_counted_down(self) -> bool:
        return _number(self._kernel / "hung_task_warnings") == 0

    def _hung_tasks(self) -> int | None:
        return _number(self._kernel / "hung_task_detect_count")


def _number(path: Path) -> int | None:
    """Return a number that the kernel shows; ``None`` where it does not."""
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
