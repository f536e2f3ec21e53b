"""Forgets a chip: through the agent that runs, or else in the journal itself.

An agent that answers gets a request in its state directory, and its status shows what became of it.
Where none runs, the driver is asked whether the chip is still there. The journal then gets the rows
that the agent itself would append, under the lock of the state directory.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from agent.chip_removal import BECAUSE, request_removal
from agent.fault_state import configured_by, restored_state
from agent.journal.file import FILE_NAME, JournalFile, read_restored
from agent.journal.rows import JournalRow, RowKind, body_of
from agent.policy.chips import compared
from agent.policy.state import ChipsListed, Forgotten
from agent.policy.step import step
from agent.state_dir import SOCKET_NAME, claimed
from collectors.boot import boot_id, machine_digest
from contract.codes.catalogue import shipped
from contract.codes.families import FAMILIES
from contract.documents.separation import chip_of
from contract.errors import DriverCallError, DriverCallStuck, DriverError, StoreUnavailable
from contract.listed_chips import ListedChip
from contract.observation import chip_subject
from contract.operator_rules.fault_configuration import catalogue_of
from contract.pages.agent_status import AgentStatus
from contract.sentences import joined, sentence
from dcmi_shim.driver import Driver
from dcmi_shim.library.discovery import VendorPaths, find_library
from vigil.daemon_client import DaemonClient
from vigil.driver_session import driver_session, first_answer
from vigil.exit_status import ExitStatus, print_done, print_refusal
from vigil.reports.status_report import STATUS

if TYPE_CHECKING:
    from pathlib import Path

    from agent.policy.state import PolicyState

_PATIENCE_SECONDS = 10.0
_LIST_SECONDS = 15.0
_ANSWER_SECONDS = 5.0
_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class AgentPaths:
    """Where the agent keeps its state, and where its driver is."""

    state_dir: Path
    driver_root: Path | None
    trust_driver: bool


def forget_chip(node: AgentPaths, name: str, *, is_meant: bool) -> ExitStatus:
    """Forget the chip ``name``, or only show what would be forgotten; return the exit status."""
    # The journal logs for a daemon; a verb has its own lines.
    logging.disable(logging.CRITICAL)
    if not (node.state_dir / FILE_NAME).exists():
        text = sentence("{directory} has no journal of an agent", directory=node.state_dir)
        return print_refusal(text, ExitStatus.OUTSIDE)
    status = _status(node.state_dir)
    if status is not None:
        return _through_agent(node, name, status, is_meant=is_meant)
    return _in_journal(node, name, is_meant=is_meant)


def _through_agent(
    node: AgentPaths, name: str, status: AgentStatus, *, is_meant: bool
) -> ExitStatus:
    if status.driver.family is None:
        text = sentence("the driver has not listed its chips yet; nothing is forgotten")
        return print_refusal(text, ExitStatus.OUTSIDE)
    chips = {chip.device: chip for chip in status.chips}
    if name not in chips:
        return _unknown(name, sorted(chips))
    if chips[name].answers:
        return _answers(name)
    codes = [fault.code for fault in status.faults if fault.device == name]
    if not is_meant:
        return _would(name, codes)
    try:
        answer = request_removal(node.state_dir, name)
    except OSError as error:
        text = sentence(
            "{directory} cannot be written: {error}",
            directory=node.state_dir,
            error=error.strerror,
        )
        return print_refusal(text, ExitStatus.OUTSIDE)
    give_up = time.monotonic() + _PATIENCE_SECONDS
    # The agent deletes the request when it has taken it.
    while answer.exists():
        if time.monotonic() > give_up:
            text = sentence("the agent has not taken up {file}; it will when it can", file=answer)
            return print_refusal(text, ExitStatus.OUTSIDE)
        time.sleep(_POLL_SECONDS)
    # The agent deletes the request also where it refuses it, so its status is asked again.
    after = _status(node.state_dir)
    if after is None or any(chip.device == name for chip in after.chips):
        text = sentence("{name} is not forgotten: see the log of the agent", name=name)
        return print_refusal(text)
    return print_done(sentence("{name} is forgotten", name=name))


def _in_journal(node: AgentPaths, name: str, *, is_meant: bool) -> ExitStatus:
    # The lock of the state directory: no agent may begin while the journal is changed.
    with claimed(node.state_dir):
        remembered = read_restored(node.state_dir / FILE_NAME)
        last = remembered.snapshot or next(iter(remembered.inputs), None)
        if last is None or remembered.snapshot is None:
            text = sentence("the journal in {directory} has no snapshot", directory=node.state_dir)
            return print_refusal(text, ExitStatus.OUTSIDE)
        result = msgspec.json.decode(remembered.snapshot.body, type=_NamedNode)
        state = restored_state(remembered, result.node, boot_id(), shipped(), machine_digest())
        chip = chip_of(name)
        if chip is None or name not in _names(state):
            return _unknown(name, _names(state))
        try:
            if asyncio.run(_does_answer(node, state, chip)):
                return _answers(name)
        except (DriverError, TimeoutError) as error:
            text = sentence("the driver does not list its chips: {reason}", reason=str(error))
            return print_refusal(text, ExitStatus.OUTSIDE)
        if not is_meant:
            return _would(name, list(state.chips[chip].faults))
        now_ms = time.time_ns() // 1_000_000
        inputs = [Forgotten(chip_subject(chip), now_ms, BECAUSE)]
        _, changes = step(state, inputs, now_ms, catalogue_of(configured_by(remembered)))
        # Behind all rows, as the agent itself would append.
        sequence = remembered.last_sequence + 1
        file = JournalFile(node.state_dir / FILE_NAME)
        try:
            rows = [JournalRow(sequence, now_ms, RowKind.REPORTS, body_of(inputs))]
            if changes:
                rows.append(JournalRow(sequence + 1, now_ms, RowKind.CHANGES, body_of(changes)))
            file.write(rows)
        finally:
            file.close()
    text = sentence(
        "{name} is forgotten; the documents follow when the agent is started", name=name
    )
    return print_done(text)


class _NamedNode(msgspec.Struct):
    node: str


def _names(state: PolicyState) -> list[str]:
    family = None if state.server is None else FAMILIES.get(state.server.family)
    if family is None:
        return []
    return [
        family.device_name(chip) for chip, names in sorted(state.chips.items()) if names.was_read
    ]


async def _does_answer(node: AgentPaths, state: PolicyState, chip: int) -> bool:
    """Return whether the driver lists the chip, and it answers. Raises ``DriverError``."""
    library = find_library(VendorPaths(node.driver_root, node.trust_driver, os.environ))
    driver = Driver(library, lambda: time.time_ns() // 1_000_000)
    async with driver_session(driver) as ended:
        chips = await first_answer(driver.listed(), ended, _LIST_SECONDS)
        if chips is None:
            if ended.done():
                await ended
            raise TimeoutError(driver.trouble or "it does not answer")
        listed = [
            ListedChip(chip.physical_id, chip.logic_id, chip.device_id, chip.die, chip.serial)
            for chip in chips
        ]
        # Compared as the collector does: ids may have moved, so a number alone proves nothing.
        if chip in compared(dict(state.subjects()), ChipsListed(tuple(listed), "", 0)).missing:
            return False
        here = next((item for item in chips if item.physical_id == chip), None)
        # A chip that is listed and does not answer was taken out as well.
        for ask in (driver.health, driver.error_codes):
            try:
                if here is not None and await ask(here) is None:
                    return False
            except (DriverCallError, DriverCallStuck):
                return False
        return True


def _unknown(name: str, names: list[str]) -> ExitStatus:
    text = sentence(
        "no chip {name} is remembered; there are: {names}",
        name=name,
        names=joined("{before}, {part}", names or [sentence("none")]),
    )
    return print_refusal(text)


def _answers(name: str) -> ExitStatus:
    text = sentence("{name} answers: it is in the node, and is not forgotten", name=name)
    return print_refusal(text)


def _would(name: str, codes: list[str]) -> ExitStatus:
    if not codes:
        text = sentence("{name} would be forgotten; nothing was changed: add --yes", name=name)
        return print_done(text)
    text = sentence(
        "{name} would be forgotten and its faults {codes} end; nothing was changed: add --yes",
        name=name,
        codes=joined("{before}, {part}", codes),
    )
    return print_done(text)


def _status(state_dir: Path) -> AgentStatus | None:
    """Return the status page of the agent that runs; ``None`` where none answers."""
    client = DaemonClient(f"unix:{state_dir / SOCKET_NAME}", _ANSWER_SECONDS)
    try:
        return client.get(STATUS, AgentStatus)
    except StoreUnavailable:
        return None
