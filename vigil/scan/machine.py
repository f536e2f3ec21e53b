"""Checks of this machine: user, kernel log, clock."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from collectors.clock_programs import clock_answers, running_keepers
from collectors.host_clock import is_synchronised, kernel_clock
from collectors.kernel_log.collector import KernelLogSection
from collectors.kernel_log.device import DEFAULT_DEVICE, opened
from collectors.kernel_log.evidence import KernelEvidence
from pacing.abandonable_thread import AbandonableThread
from vigil.scan.findings import not_applicable, ok, problem, warning

if TYPE_CHECKING:
    from agent.config import AgentConfiguration
    from vigil.scan.findings import Check

USER, KERNEL_LOG, CLOCK = "user", "kernel-log", "clock"
_DEVICE_SECONDS = 5.0
_CLOCK_SECONDS = 0.5
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
    """Check whether the kernel's log can be read, and whether the kernel reports all kinds.

    A record of the device is read. What is in a pipe is left to the agent, which reads it once.
    """
    section = configuration.settings_of(KernelLogSection)
    if not section.enabled:
        return not_applicable(KERNEL_LOG, "kernel_log.enabled is false")
    path = section.device

    def read() -> str:
        with opened(path) as log:
            if log.is_pipe:
                return f"{path} is a pipe, read in place of the kernel's log {DEFAULT_DEVICE}"
            try:
                os.read(log.descriptor, _LONGEST_RECORD)
            except BlockingIOError:
                return f"{path} can be read, and is empty"
            except BrokenPipeError:
                return f"{path} can be read; it was overrun meanwhile"
            return f"{path} can be read"

    try:
        readable = await AbandonableThread(read, "scan").result(_DEVICE_SECONDS)
    except TimeoutError:
        return problem(KERNEL_LOG, f"{path} hangs", "the kernel does not answer; see the console")
    except OSError as error:
        advice = "in a container: give it the device /dev/kmsg"
        if error.errno in (errno.EPERM, errno.EACCES):
            advice = (
                "run as root with the capability CAP_SYSLOG, as unit and DaemonSet have it, in a "
                "container also with the device /dev/kmsg"
            )
        return problem(KERNEL_LOG, f"{path} cannot be read: {error.strerror}", advice)
    silenced = KernelEvidence(section.hold_seconds).silenced(0.0)
    facts: dict[str, object] = {"pipe": "is a pipe" in readable, "not_reported": sorted(silenced)}
    if silenced:
        reasons = "; ".join(silenced.values())
        advice = "set them, for good in /etc/sysctl.d; such faults are not seen until then"
        return warning(KERNEL_LOG, f"{readable}, but {reasons}", advice, facts)
    return ok(KERNEL_LOG, readable, facts=facts)


def check_clock(configuration: AgentConfiguration) -> Check:
    """Check whether the kernel shows that the clock is synchronised, as the host check does.

    Nothing of ours compares the clocks of two hosts; readers of the old heartbeats do.
    """
    synchronised = is_synchronised()
    if synchronised is None:
        return not_applicable(CLOCK, "the kernel does not show the state of its clock")
    if not synchronised:
        found = "no program synchronises the clock: the kernel reports it as unsynchronised"
        if evidence := _clock_evidence():
            found = f"{found}; but {'; '.join(evidence)}"
        advice = "start chronyd or systemd-timesyncd (see timedatectl): times of faults are its own"
        if configuration.heartbeat.generation == "lease":
            return warning(CLOCK, found, advice, facts={"synchronised": False})
        advice = f"{advice}, and readers of old heartbeats compare the clocks of hosts"
        return problem(CLOCK, found, advice, facts={"synchronised": False})
    clock = kernel_clock()
    found = "synchronised"
    if clock is not None and clock.is_flagged:
        error_ms = clock.largest_error_us / 1000
        found += (
            f": a program renews its largest error ({error_ms:g} ms), and leaves STA_UNSYNC set"
        )
    return ok(CLOCK, found, facts={"synchronised": True})


def _clock_evidence() -> list[str]:
    """Return what programs that keep a clock answer, and which of them run and do not."""
    answers = clock_answers(_CLOCK_SECONDS)
    answering = {answer.program for answer in answers}
    silent = [name for name in running_keepers() if name not in answering]
    return [*map(str, answers), *(f"{name} runs" for name in silent)]
