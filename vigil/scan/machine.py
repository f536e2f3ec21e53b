"""Checks of this machine: user, kernel log, clock, state directory, and shared storage.

Also whether the address for pages is free, and whether the ClusterD for faults of storage answers.
"""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from agent.state_dir import is_claimed
from collectors.clock_programs import clock_answers, running_keepers
from collectors.host_clock import is_synchronised, kernel_clock
from collectors.kernel_log.collector import KernelLogSection
from collectors.kernel_log.device import DEFAULT_DEVICE, opened
from collectors.kernel_log.evidence import KernelEvidence
from collectors.storage.collector import StorageSection, check_once
from collectors.storage.status_parser import DPC, DTFS
from contract.sentences import joined, sentence
from pacing.abandonable_thread import AbandonableThread
from service.pages.daemon_pages import LISTEN_NAME
from vigil.scan.findings import no_answer, not_applicable, ok, problem, warning

if TYPE_CHECKING:
    from agent.config import AgentConfiguration
    from collectors.storage.status_parser import Instances, StorageClient
    from vigil.scan.findings import Check

USER, KERNEL_LOG, CLOCK = "user", "kernel-log", "clock"
_LOG_SECONDS = 5.0
_CLOCK_SECONDS = 0.5
# The kernel's own limit of a record (``CONSOLE_EXT_LOG_MAX``); a shorter buffer fails with EINVAL.
_MAX_RECORD_BYTES = 8192
STATE_DIR, AGENT, LISTEN = "state-dir", "agent", "listen"
_STATE_DIR_SECONDS = 5.0
_FREE_BYTES = 128 << 20
"""Twice the journal at its largest, with what SQLite needs beside it."""
CLUSTERD = "clusterd"
_FILE_SECONDS = 5.0
_CONNECT_SECONDS = 5.0


def check_user(configuration: AgentConfiguration) -> Check:
    """Check whether the driver will talk to us."""
    user = os.geteuid()
    if user == 0:
        return ok(USER, "root", facts={"uid": 0})
    finding = sentence("user {user}, not root", user=user)
    if configuration.trust_driver:
        return ok(
            USER,
            sentence("{finding}; --trust-driver declares this to be development", finding=finding),
            facts={"uid": user},
        )
    advice = sentence(
        "run it as root, as the unit and the DaemonSet do: the driver answers no other user"
    )
    return problem(USER, finding, advice, facts={"uid": user})


async def check_kernel_log(configuration: AgentConfiguration) -> Check:
    """Check whether the kernel's log can be read, and whether the kernel reports all kinds.

    A record of the device is read. What is in a pipe is left to the agent, which reads it once.
    """
    section = configuration.settings_of(KernelLogSection)
    if not section.enabled:
        return not_applicable(KERNEL_LOG, sentence("kernel_log.enabled is false"))
    path = section.device

    def read() -> str:
        with opened(path) as log:
            if log.is_pipe:
                return sentence(
                    "{path} is a pipe, read in place of the kernel's log {device}",
                    path=path,
                    device=DEFAULT_DEVICE,
                )
            try:
                os.read(log.descriptor, _MAX_RECORD_BYTES)
            # Opened non-blocking: an empty log is not an error.
            except BlockingIOError:
                return sentence("{path} can be read, and is empty", path=path)
            # EPIPE of /dev/kmsg: the record was overwritten before it was read.
            except BrokenPipeError:
                return sentence("{path} can be read; it was overrun meanwhile", path=path)
            return sentence("{path} can be read", path=path)

    try:
        readable = await AbandonableThread(read, "scan").result(_LOG_SECONDS)
    except TimeoutError:
        return problem(
            KERNEL_LOG,
            sentence("{path} hangs", path=path),
            sentence("the kernel does not answer; see the console"),
        )
    except OSError as error:
        advice = sentence("in a container: give it the device /dev/kmsg")
        if error.errno in (errno.EPERM, errno.EACCES):
            advice = sentence(
                "run as root with the capability CAP_SYSLOG, as unit and DaemonSet have it, "
                "in a container also with the device /dev/kmsg"
            )
        return problem(
            KERNEL_LOG,
            sentence("{path} cannot be read: {reason}", path=path, reason=error.strerror),
            advice,
        )
    silenced = KernelEvidence(section.hold_seconds).silenced(0.0)
    facts: dict[str, object] = {"pipe": "is a pipe" in readable, "not_reported": sorted(silenced)}
    if silenced:
        reasons = "; ".join(silenced.values())
        advice = sentence(
            "set them, for good in /etc/sysctl.d; such faults are not seen until then"
        )
        return warning(
            KERNEL_LOG,
            f"{readable}, but {reasons}",
            advice,
            facts,
        )
    return ok(KERNEL_LOG, readable, facts=facts)


def check_clock(configuration: AgentConfiguration) -> Check:
    """Check whether the kernel shows that the clock is synchronised, as the host check does.

    Nothing of ours compares the clocks of two hosts; readers of the old heartbeats do.
    """
    synchronised = is_synchronised()
    if synchronised is None:
        return not_applicable(CLOCK, sentence("the kernel does not show the state of its clock"))
    if not synchronised:
        finding = sentence(
            "no program synchronises the clock: the kernel reports it as unsynchronised"
        )
        # chrony and others may keep a clock without the kernel's flag.
        if evidence := _clock_evidence():
            finding = f"{finding}; but {'; '.join(evidence)}"
        advice = sentence(
            "start chronyd or systemd-timesyncd (see timedatectl): times of faults are its own"
        )
        if configuration.heartbeat.generation == "lease":
            return warning(CLOCK, finding, advice, facts={"synchronised": False})
        advice = sentence(
            "{advice}, and readers of old heartbeats compare the clocks of hosts", advice=advice
        )
        return problem(CLOCK, finding, advice, facts={"synchronised": False})
    clock = kernel_clock()
    finding = sentence("synchronised")
    if clock is not None and clock.is_flagged:
        error_ms = clock.largest_error_us / 1000
        finding = sentence(
            "synchronised: a program renews its largest error ({error} ms), and leaves STA_UNSYNC "
            "set",
            error=f"{error_ms:g}",
        )
    return ok(CLOCK, finding, facts={"synchronised": True})


def _clock_evidence() -> list[str]:
    """Return what programs that keep a clock answer, and which of them run and do not."""
    answers = clock_answers(_CLOCK_SECONDS)
    answering = {answer.program for answer in answers}
    silent = [name for name in running_keepers() if name not in answering]
    return [*map(str, answers), *(f"{name} runs" for name in silent)]


async def check_state_directory(configuration: AgentConfiguration) -> tuple[Check, ...]:
    """Check the state directory, whether an agent works on it, and whether the address is free."""
    directory = configuration.state_dir
    try:
        checks, runs = await AbandonableThread(lambda: _state_dir(directory), "scan").result(
            _STATE_DIR_SECONDS
        )
    except TimeoutError:
        advice = sentence("give --state-dir a local disk; see dmesg for this one")
        hangs = problem(
            STATE_DIR,
            no_answer(directory, _STATE_DIR_SECONDS),
            advice,
        )
        return (hangs, not_applicable(AGENT, sentence("not known")), _listen(configuration, None))
    # Only of an agent that runs: a file that is left behind names a port of another program.
    address = _noted(directory) if runs else None
    return (*checks, _listen(configuration, address))


def _state_dir(directory: Path) -> tuple[tuple[Check, ...], bool]:
    runs = is_claimed(directory)
    agent = ok(
        AGENT,
        sentence("an agent works on {directory}", directory=directory)
        if runs
        else sentence("none runs"),
        facts={"runs": runs},
    )
    return (_directory(directory), agent), runs


def _directory(directory: Path) -> Check:
    there = directory
    # The agent makes missing directories, so the nearest one that exists decides.
    while not there.exists() and there != there.parent:
        there = there.parent
    advice = sentence(
        "give it a directory that can be written; without one the agent works, but "
        "forgets everything when it ends"
    )
    if not there.is_dir():
        return problem(STATE_DIR, sentence("{there} is not a directory", there=there), advice)
    if not os.access(there, os.W_OK | os.X_OK):
        return problem(
            STATE_DIR,
            sentence("{there} cannot be written by user {user}", there=there, user=os.geteuid()),
            advice,
        )
    room = os.statvfs(there)
    free = room.f_bavail * room.f_frsize
    finding = sentence("{directory}, {free} MiB free", directory=directory, free=free >> 20)
    if free < _FREE_BYTES:
        advice = sentence(
            "the journal needs up to {size} MiB; make room on this file system",
            size=_FREE_BYTES >> 20,
        )
        return problem(STATE_DIR, finding, advice, facts={"free_bytes": free})
    if there != directory:
        finding = sentence("{finding}; the agent will make it", finding=finding)
    return ok(STATE_DIR, finding, facts={"free_bytes": free})


def _noted(directory: Path) -> str | None:
    """Return the address on which the running agent listens, from its file."""
    try:
        return (directory / LISTEN_NAME).read_text().strip().partition("://")[2]
    except (OSError, UnicodeDecodeError):
        return None


def _listen(configuration: AgentConfiguration, used_by_agent: str | None) -> Check:
    address = configuration.listen
    if address is None:
        return not_applicable(
            LISTEN, sentence("no --listen: health and metrics only on the agent's socket")
        )
    host, _, port = address.rpartition(":")
    try:
        finding = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, place = finding[0]
        with socket.socket(family, kind, protocol) as listener:
            # As the agent does, or a port in TIME_WAIT would look taken.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(place)
    except OSError as error:
        # By the port alone: one may name the host and the other its address.
        is_port_of_agent = used_by_agent is not None and used_by_agent.rpartition(":")[2] == port
        if error.errno == errno.EADDRINUSE and is_port_of_agent:
            return ok(LISTEN, sentence("{address} is used by the agent that runs", address=address))
        text = sentence(
            "{address} cannot be listened on: {reason}",
            address=address,
            reason=error.strerror or error,
        )
        advice = sentence("choose another --listen, or end whoever has it: ss -ltnp")
        return problem(LISTEN, text, advice)
    return ok(LISTEN, sentence("{address} is free", address=address))


async def check_storage(configuration: AgentConfiguration) -> tuple[Check, ...]:
    """Check whether the files of DPC and DTFS can be read, and whether ClusterD answers."""
    storage, any_owner = configuration.settings_of(StorageSection), configuration.trust_driver
    return (
        await _file(DPC, Path(storage.dpc_file), any_owner=any_owner),
        await _file(DTFS, Path(storage.dtfs_file), any_owner=any_owner),
        await _clusterd(configuration),
    )


async def _file(client: StorageClient, path: Path, *, any_owner: bool) -> Check:
    """Read the files as the collector does. A fault in it is not a problem of the set-up."""
    name = f"storage-{client.name.lower()}"

    def read() -> Instances | None:
        # A dangling link is there: it is to be reported, not to be taken for a host without the
        # client.
        is_there = os.path.lexists(path)
        return check_once(client, path, any_owner=any_owner) if is_there else None

    try:
        instances = await AbandonableThread(read, "scan").result(_FILE_SECONDS)
    except TimeoutError:
        advice = sentence(
            "the kernel module of {name} does not answer; see dmesg", name=client.name
        )
        return problem(
            name,
            no_answer(path, _FILE_SECONDS),
            advice,
        )
    except OSError as error:
        advice = sentence(
            "let root read it; faults of {name} are not seen until then", name=client.name
        )
        return problem(
            name,
            sentence("{path} cannot be read: {reason}", path=path, reason=error.strerror),
            advice,
        )
    except ValueError as error:
        advice = sentence(
            "only root may own and write it, and {name} alone fills it; its faults are "
            "not seen until then",
            name=client.name,
        )
        finding = str(error) if str(path) in str(error) else f"{path}: {error}"
        return problem(name, finding, advice)
    if instances is None:
        return not_applicable(
            name,
            sentence("there is no {path}: no {name} on this host", path=path, name=client.name),
        )
    raised = sorted(
        {
            flag.code
            for flags in instances.values()
            for flag, is_raised in zip(client.flags, flags, strict=True)
            if is_raised
        }
    )
    finding = sentence(
        "{path} can be read; instances: {instances}, raised: {raised}",
        path=path,
        instances=len(instances),
        raised=joined("{before}, {part}", raised or [sentence("none")]),
    )
    return ok(name, finding, facts={"instances": len(instances), "raised": raised})


async def _clusterd(configuration: AgentConfiguration) -> Check:
    address = configuration.settings_of(StorageSection).clusterd
    if address is None:
        return not_applicable(
            CLUSTERD, sentence("storage.clusterd is not given: faults go to the store")
        )
    if configuration.shadow or "node-info" not in configuration.documents:
        return not_applicable(
            CLUSTERD, sentence("node-info is not ours, so other programs report storage")
        )
    host, _, port = address.rpartition(":")

    def connect() -> None:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()

    try:
        await AbandonableThread(connect, "scan").result(2 * _CONNECT_SECONDS)
    except (OSError, TimeoutError) as error:
        reason = getattr(error, "strerror", None) or str(error) or sentence("no answer")
        advice = sentence(
            "is ClusterD started, and storage.clusterd its gRPC address? Faults of "
            "storage wait until it takes them"
        )
        return problem(
            CLUSTERD, sentence("{address}: {reason}", address=address, reason=reason), advice
        )
    return ok(CLUSTERD, sentence("{address} takes connections", address=address))
