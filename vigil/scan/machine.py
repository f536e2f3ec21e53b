"""Checks of this machine: user, kernel log, clock."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

from collectors.host_clock import is_synchronised
from collectors.kernel_log.collector import KernelLogSection
from pacing.abandonable_thread import AbandonableThread
from vigil.scan.findings import not_applicable, ok, problem, warning

if TYPE_CHECKING:
    from agent.config import AgentConfiguration
    from vigil.scan.findings import Check

USER, KERNEL_LOG, CLOCK = "user", "kernel-log", "clock"
_DEVICE_SECONDS = 5.0
_LONGEST_RECORD = 8192


def check_user(configuration: AgentConfiguration) -> Check:
    """Check whether the driver will talk to us."""
    user = os.geteuid()
    if user == 0:
        return ok(USER, "root", facts={"uid": 0})
    found = f"user {user}, not root"
    if configuration.trust_driver:
        return ok(
            USER, f"{found}; --trust-driver declares this to be development", facts={"uid": user}
        )
    advice = "run it as root, as the unit and the DaemonSet do: the driver answers no other user"
    return problem(USER, found, advice, facts={"uid": user})


async def check_kernel_log(configuration: AgentConfiguration) -> Check:
    """Check whether the kernel's log can be read; a record of it is."""
    if not configuration.settings_of(KernelLogSection).enabled:
        return not_applicable(KERNEL_LOG, "kernel_log.enabled is false")
    path = Path(configuration.settings_of(KernelLogSection).device)

    def read() -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.read(descriptor, _LONGEST_RECORD)
        finally:
            os.close(descriptor)

    try:
        await AbandonableThread(read, "scan").result(_DEVICE_SECONDS)
    except TimeoutError:
        return problem(KERNEL_LOG, f"{path} hangs", "the kernel does not answer; see the console")
    except BlockingIOError:
        return ok(KERNEL_LOG, f"{path} can be read, and is empty")
    except OSError as error:
        if error.errno == errno.EPIPE:
            return ok(KERNEL_LOG, f"{path} can be read; it was overrun meanwhile")
        found = f"{path} cannot be read: {error.strerror}"
        advice = "in a container: give it the device /dev/kmsg"
        if error.errno in (errno.EPERM, errno.EACCES):
            advice = (
                "run as root with the capability CAP_SYSLOG, as unit and DaemonSet have it, in a "
                "container also with the device /dev/kmsg"
            )
        return problem(KERNEL_LOG, found, advice)
    return ok(KERNEL_LOG, f"{path} can be read")


def check_clock(configuration: AgentConfiguration) -> Check:
    """Check whether the kernel shows that the clock is synchronised.

    Nothing of ours compares the clocks of two hosts; readers of the old heartbeats do.
    """
    synchronised = is_synchronised()
    if synchronised is None:
        return not_applicable(CLOCK, "the kernel does not show the state of its clock")
    if not synchronised:
        found = "no program synchronises the clock: the kernel reports it as unsynchronised"
        advice = "start chronyd or systemd-timesyncd (see timedatectl): times of faults are its own"
        if configuration.heartbeat.generation == "lease":
            return warning(CLOCK, found, advice, facts={"synchronised": False})
        advice = f"{advice}, and readers of old heartbeats compare the clocks of hosts"
        return problem(CLOCK, found, advice, facts={"synchronised": False})
    return ok(CLOCK, "synchronised", facts={"synchronised": True})
