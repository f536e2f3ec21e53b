"""Checks of the state directory, of an agent that runs on it, and of the address of its pages."""

from __future__ import annotations

import errno
import os
import socket
from typing import TYPE_CHECKING

from agent.state_dir import is_claimed
from pacing.abandonable_thread import AbandonableThread
from service.pages.daemon_pages import LISTEN_NAME
from vigil.scan.findings import not_applicable, ok, problem

if TYPE_CHECKING:
    from pathlib import Path

    from agent.config import AgentConfiguration
    from vigil.scan.findings import Check

STATE_DIR, AGENT, LISTEN = "state-dir", "agent", "listen"
_SECONDS = 5.0
_FREE_BYTES = 128 << 20
"""Twice the journal at its largest, with what SQLite needs beside it."""


async def check_state_directory(configuration: AgentConfiguration) -> tuple[Check, ...]:
    """Check the state directory, whether an agent works on it, and whether the address is free."""
    directory = configuration.state_dir
    try:
        checks, runs = await AbandonableThread(lambda: _state_dir(directory), "scan").result(
            _SECONDS
        )
    except TimeoutError:
        advice = "give --state-dir a local disk; see dmesg for this one"
        hangs = problem(STATE_DIR, f"{directory} hangs: no answer in {_SECONDS:g} s", advice)
        return (hangs, not_applicable(AGENT, "not known"), _listen(configuration, None))
    address = _noted(directory) if runs else None
    return (*checks, _listen(configuration, address))


def _state_dir(directory: Path) -> tuple[tuple[Check, ...], bool]:
    runs = is_claimed(directory)
    agent = ok(
        AGENT, f"an agent works on {directory}" if runs else "none runs", facts={"runs": runs}
    )
    return (_directory(directory), agent), runs


def _directory(directory: Path) -> Check:
    there = directory
    while not there.exists() and there != there.parent:
        there = there.parent
    advice = (
        "give it a directory that can be written; without one the agent works, but forgets "
        "everything when it ends"
    )
    if not there.is_dir():
        return problem(STATE_DIR, f"{there} is no directory", advice)
    if not os.access(there, os.W_OK | os.X_OK):
        return problem(STATE_DIR, f"{there} cannot be written by user {os.geteuid()}", advice)
    room = os.statvfs(there)
    free = room.f_bavail * room.f_frsize
    found = f"{directory}, {free >> 20} MiB free"
    if free < _FREE_BYTES:
        advice = f"the journal needs up to {_FREE_BYTES >> 20} MiB; make room on this file system"
        return problem(STATE_DIR, found, advice, facts={"free_bytes": free})
    will = "" if there == directory else "; the agent will make it"
    return ok(STATE_DIR, found + will, facts={"free_bytes": free})


def _noted(directory: Path) -> str | None:
    """Return the address on which the running agent listens, from its file."""
    try:
        return (directory / LISTEN_NAME).read_text().strip().removeprefix("http://")
    except (OSError, UnicodeDecodeError):
        return None


def _listen(configuration: AgentConfiguration, used_by_agent: str | None) -> Check:
    address = configuration.listen
    if address is None:
        return not_applicable(LISTEN, "no --listen: health and metrics only on the agent's socket")
    host, _, port = address.rpartition(":")
    try:
        found = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, place = found[0]
        with socket.socket(family, kind, protocol) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(place)
    except OSError as error:
        is_port_of_agent = used_by_agent is not None and used_by_agent.rpartition(":")[2] == port
        if error.errno == errno.EADDRINUSE and is_port_of_agent:
            return ok(LISTEN, f"{address} is used by the agent that runs")
        text = f"{address} cannot be listened on: {error.strerror or error}"
        advice = "choose another --listen, or end whoever has it: ss -ltnp"
        return problem(LISTEN, text, advice)
    return ok(LISTEN, f"{address} is free")
