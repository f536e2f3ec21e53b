"""Removes a chip from the state after an operator's request on this node.

A request is an empty file with the chip's name in ``<state_dir>/forget``: write access to that
folder is the permission, with any store. The agent decides it after the driver has listed its
chips, and deletes the file.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, NoReturn

from agent.policy.state import CHIP_SOURCE, ChipState, Forgotten
from contract.codes.chip_codes import CARD_DROP
from contract.documents.separation import chip_of
from contract.observation import chip_subject
from pacing.waiting import shared_pause
from service.files.private import private_directory, private_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agent.fault_state import FaultState
    from agent.publishing.device_info import DeviceInfoDocument

log = logging.getLogger("agent.forgetting")

_POLL_SECONDS = 2.5
BECAUSE = "an operator removed it from this node (vigil forget)"
_FOLDER = "forget"


def is_answering(state: ChipState) -> bool:
    """Return whether the chip has answered since the start, also at the last call."""
    return not state.silent and CHIP_SOURCE not in state.blind and CARD_DROP not in state.faults


def request_removal(state_dir: Path, name: str) -> Path:
    """Ask the agent with ``state_dir`` to forget the chip ``name``. Raises ``OSError``.

    Returns the file that is there until it is decided.
    """
    folder = state_dir / _FOLDER
    private_directory(folder)
    private_file(folder / name)
    return folder / name


class ChipRemoval:
    """Decide requests; ``on_forgotten`` is called with the physical id of each removed chip."""

    def __init__(
        self,
        state_dir: Path,
        fault_state: FaultState,
        document: DeviceInfoDocument,
        wall_clock: Callable[[], int],
        on_forgotten: Callable[[int], None],
    ) -> None:
        self._folder = state_dir / _FOLDER
        self._fault_state = fault_state
        self._document = document
        self._wall_clock = wall_clock
        self._on_forgotten = on_forgotten

    async def run(self) -> NoReturn:
        """Read and decide requests every ``_POLL_SECONDS`` until cancelled."""
        while True:
            # Before the first list, each chip looks as if it had been taken out.
            if self._document.inventory is not None:
                for name in await asyncio.to_thread(self._requests):
                    self._decide(name)
                    await asyncio.to_thread(self._remove, name)
            await asyncio.sleep(shared_pause(_POLL_SECONDS))

    def _requests(self) -> list[str]:
        with contextlib.suppress(OSError):
            return sorted(path.name for path in self._folder.iterdir())
        return []

    def _remove(self, name: str) -> None:
        try:
            (self._folder / name).unlink(missing_ok=True)
        except OSError as error:
            log.error("%s cannot be removed: %s", self._folder / name, error)

    def _decide(self, name: str) -> None:
        chip = chip_of(name)
        state = None if chip is None else self._fault_state.state.chips.get(chip)
        if chip is None or state is None or name != f"{self._document.device_type}-{chip}":
            log.warning("%s is not forgotten: no such chip is known", name)
        # With its next answer it would be remembered again.
        elif is_answering(state):
            log.warning("%s is not forgotten: the chip answers the driver's calls", name)
        else:
            log.warning("%s is forgotten: %s", name, BECAUSE)
            subject = chip_subject(chip)
            self._fault_state.apply_inputs([Forgotten(subject, self._wall_clock(), BECAUSE)])
            self._on_forgotten(chip)
