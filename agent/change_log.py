"""Logs changes of faults on this node; one that takes a chip or the node out is a warning."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from agent.policy.state import ChangeKind, ChipState
from agent.policy.transaction import level_of
from contract.codes.chip_codes import is_network
from contract.codes.levels import takes_out
from contract.plural import plural
from pacing.waiting import BEHIND_SECONDS
from service.log.paced_lines import NAMED, PacedLines
from service.log.shortened import shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agent.policy.state import Change, PolicyState

log = logging.getLogger("agent.faults")

_MAX_WARNINGS, _MAX_OTHERS = 16, 8
"""Lines a minute: a node has 16 chips at most, and each of them may fail at once."""
_TAKES_NOTHING = frozenset({ChangeKind.ENDED, ChangeKind.RELEASED, ChangeKind.REPEATED})


class ChangeLog:
    """Logs changes as they are made, and once the faults that hold at a start."""

    def __init__(self) -> None:
        self._warnings = PacedLines(
            log, logging.WARNING, _MAX_WARNINGS, many="%d changes take chips or the node out: %s"
        )
        self._others = PacedLines(log, logging.INFO, _MAX_OTHERS, many="%d more changes: %s")
        self._waiting: list[Change] = []

    def log_soon(self, changes: Iterable[Change]) -> None:
        """Log these once their document is on its way."""
        if not self._waiting:
            asyncio.get_running_loop().call_later(BEHIND_SECONDS, self._log_waiting)
        self._waiting += changes

    def _log_waiting(self) -> None:
        changes, self._waiting = self._waiting, []
        for change in changes:
            lines = self._warnings if _is_warning(change) else self._others
            lines.add((_text(change),), _fields(change))

    def log_faults_at_start(self, state: PolicyState) -> None:
        """Log the faults that hold when the process starts."""
        standing = sorted(_held(state))
        if standing:
            texts = [text for _, text in standing]
            log.warning(
                "%s at the start: %s",
                plural(len(texts), "fault"),
                shortened(texts, NAMED, separator="; "),
            )

    def flush(self) -> None:
        """Log the changes that wait, also those that the pace holds back."""
        self._log_waiting()
        self._warnings.flush()
        self._others.flush()


def _is_warning(change: Change) -> bool:
    if change.kind in _TAKES_NOTHING:
        return False
    return takes_out(change.new_level, is_network=is_network(change.code))


def _fields(change: Change) -> dict[str, object]:
    """Return the fields of a line about ``change`` (``service.log.setup.FAULT_FIELDS``)."""
    level = change.new_level or change.old_level
    chip = change.subject.id if change.subject.kind == "chip" else None
    fields = {"chip": chip, "code": change.code, "fault_level": level}
    return {name: value for name, value in fields.items() if value is not None}


def _text(change: Change) -> str:
    severity = "severity unknown" if change.severity is None else change.severity.word
    return (
        f"{change.subject} {change.code} ({severity}) {change.kind}: "
        f"{change.old_level or 'nothing'} -> {change.new_level or 'nothing'} ({change.because})"
    )


def _held(state: PolicyState) -> Iterator[tuple[bool, str]]:
    """Yield every fault that holds as ``(is_mild, text)``, to be sorted with the serious ones
    first.

    ``is_mild`` is whether the fault leaves the chip or node in service.
    """
    for subject, subject_state in state.subjects():
        codes = dict.fromkeys(subject_state.faults)
        if isinstance(subject_state, ChipState):
            codes |= dict.fromkeys(upgrade.code for upgrade in subject_state.upgrades)
        for code in codes:
            level = level_of(subject_state, code)
            is_mild = not takes_out(level, is_network=is_network(code))
            yield is_mild, f"{subject} {code} {level or 'without a level'}"
