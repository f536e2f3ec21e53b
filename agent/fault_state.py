"""The fault state of this node, and the only way to change it: inputs go through the policy in
order.

Each input is journaled in the same turn of the event loop, so that a restart can replay it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import operator
from typing import TYPE_CHECKING

import msgspec

from agent.change_log import ChangeLog
from agent.journal.rows import RowKind, body_of, decoded, inputs_of, state_of, tables_of
from agent.policy.state import (
    SETTLE_MS,
    Acknowledged,
    ChangeKind,
    ClockSetBack,
    Configured,
    PolicyState,
    restarted,
    times_capped,
)
from agent.policy.step import Input, PolicyCall, next_deadline_ms, step
from agent.policy.transaction import level_of
from contract.codes.levels import ChipLevel, NodeLevel, SwitchLevel
from contract.errors import ConfigurationError, JournalError
from contract.observation import Observation
from contract.operator_rules.fault_configuration import FaultTexts, catalogue_of
from pacing.waiting import shared_pause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import NoReturn, TypeAlias

    from agent.journal.file import RestoredJournal
    from agent.journal.journal import Journal
    from agent.policy.state import Change
    from contract.codes.catalogue import Catalogue

    ChangeCallback: TypeAlias = Callable[[PolicyCall], None]

log = logging.getLogger("agent.fault_state")

SHIPPED = FaultTexts()
"""The fault configuration before an operator's was read."""

# A restart replays the inputs since the last snapshot.
_INPUTS_PER_SNAPSHOT = 256
_SET_BACK_MS = 1_000
"""A clock that goes back by less is only being corrected (milliseconds)."""
_CLOCK_SECONDS = 10.0
"""How often the clock is looked at: a node whose faults stay may have no input for hours."""

_sequence = operator.attrgetter("sequence")


def configured_by(restored: RestoredJournal) -> FaultTexts:
    """Return the fault configuration that was in force at the end of the journal."""
    for row in reversed(restored.fault_configurations):
        with contextlib.suppress(JournalError, ConfigurationError):
            texts = decoded(row, FaultTexts)
            catalogue_of(texts)
            return texts
    return SHIPPED


def restored_state(
    restored: RestoredJournal, node: str, boot_id: str, shipped: Catalogue, machine: str = ""
) -> PolicyState:
    """Return the state at the end of the journal, as the last process of this node left it.

    Each input is judged by the tables that were in force then; ``shipped`` are those before the
    first fault configuration. A journal of another node or machine, or one whose snapshot cannot be
    decoded, gives no state. Any other row that cannot be decoded is left out: audits find its
    faults again, but a separation is in no audit.
    """
    fresh = PolicyState(node=node, boot_id=boot_id, machine=machine)
    state, tables = fresh, shipped
    if restored.snapshot is not None:
        try:
            state = state_of(restored.snapshot)
        except JournalError as error:
            log.error(
                "the journal's snapshot cannot be decoded (%s); starting from audits alone", error
            )
            return fresh
    if state.node != node:
        log.warning("the journal is of node %s; starting from audits alone", state.node)
        return fresh
    if machine and state.machine and state.machine != machine:
        log.warning(
            "the journal is of another machine: its chips (%d) are not used, nor is what else "
            "it has of the hardware. The state of the published document stays in force",
            len(state.chips),
        )
        return fresh
    for row in sorted((*restored.fault_configurations, *restored.inputs), key=_sequence):
        try:
            if row.kind == RowKind.FAULT_CONFIGURATION:
                tables = tables_of(row)
            else:
                state, _ = step(state, inputs_of(row), row.at_ms, tables)
        except JournalError as error:
            log.error("the journal: %s; the row is left out, audits find its faults again", error)
    state = restarted(state, boot_id)
    return msgspec.structs.replace(state, machine=machine) if machine else state


class EpisodeCounts:
    """Count the fault episodes that began since the start of the process, by level.

    A fault that is over before the next scrape has no sample of its own: it is seen here.
    """

    def __init__(self) -> None:
        levels = (*ChipLevel, *SwitchLevel, *NodeLevel)
        # All from the start: a rate needs the value before the first episode.
        self.by_level: dict[str, int] = dict.fromkeys(map(str, levels), 0)
        del self.by_level[ChipLevel.NORMAL_NPU]
        self.last_at_ms: dict[str, int] = {}
        """When the last episode of a level began; none for a level without an episode."""

    def count_held(self, state: PolicyState) -> None:
        """Record when the faults that hold at a start began, without counting them again."""
        for _, subject_state in state.subjects():
            for code, fault in subject_state.faults.items():
                self._record(level_of(subject_state, code), fault.first_seen_ms)

    def count(self, changes: Iterable[Change]) -> None:
        """Count those of ``changes`` that began an episode."""
        for change in changes:
            if change.kind is ChangeKind.BEGAN and change.new_level in self.by_level:
                self.by_level[change.new_level] += 1
                self._record(change.new_level, change.at_ms)

    def _record(self, level: str | None, at_ms: int) -> None:
        if level in self.by_level:
            self.last_at_ms[level] = max(at_ms, self.last_at_ms.get(level, 0))


class FaultState:
    """Hold the state of the policy and the fault configuration by which it is judged.

    ``tables`` are those of ``texts``. ``on_change`` is called with the time of the event that
    changed the state (epoch milliseconds).
    """

    def __init__(
        self,
        state: PolicyState,
        tables: Catalogue,
        wall_clock: Callable[[], int],
        on_change: Callable[[int], None],
        texts: FaultTexts = SHIPPED,
    ) -> None:
        self.state = state
        self.tables = tables
        self.texts = texts
        self._wall_clock = wall_clock
        self._on_change = on_change
        self._journal: Journal | None = None
        self._inputs_since_snapshot = 0
        self._taken_at_ms = 0
        self._timer: asyncio.TimerHandle | None = None
        self._listener: ChangeCallback | None = None
        self._log = ChangeLog()
        self.episodes = EpisodeCounts()

    def listen(self, listener: ChangeCallback) -> None:
        """Call ``listener`` after each call of the policy."""
        self._listener = listener

    def start_journaling(self, journal: Journal) -> None:
        """Journal from here on, beginning with a snapshot, and judge by the tables of today."""
        self._journal = journal
        self.episodes.count_held(self.state)
        now_ms = self._wall_clock()
        settled_at_ms = now_ms + SETTLE_MS
        self.state = msgspec.structs.replace(self.state, settled_at_ms=settled_at_ms)
        # The settled time is in no input, so a replay takes it from this snapshot.
        self.snapshot()
        # The tables may differ from those of the last process, for instance in another release.
        inputs: list[Input] = [Configured(self.texts.digest, now_ms)]
        if any(
            times_capped(subject_state, now_ms) is not subject_state
            for _, subject_state in self.state.subjects()
        ):
            inputs.append(ClockSetBack(now_ms))
        self.apply_inputs(inputs)
        self._log.log_faults_at_start(self.state)

    def apply_inputs(self, inputs: Sequence[Input], event_ms: int | None = None) -> None:
        """Change the state by ``inputs``, journal them, and report the change.

        ``event_ms`` is the time of the event (epoch milliseconds); by default the earliest time at
        which an observation of ``inputs`` was made.
        """
        now_ms = self._wall_clock()
        if self._is_set_back(now_ms):
            log.warning("the host's clock was set back by %d ms", self._taken_at_ms - now_ms)
            # First, because it caps the stored times with which the other inputs are compared.
            inputs = (ClockSetBack(now_ms), *inputs)
        self._taken_at_ms = now_ms
        before = self.state
        self.state, changes = step(before, inputs, now_ms, self.tables)
        # Deadlines change the state without an input; the journal needs their changes, too.
        if inputs or self.state is not before:
            sequence = self._record(inputs, changes, now_ms)
            if self._listener is not None:
                self._listener(PolicyCall(inputs, changes, self.tables, sequence))
        self._set_timer()
        if self.state is not before:
            if event_ms is None:
                seen = [item.seen_at_ms for item in inputs if isinstance(item, Observation)]
                event_ms = min(seen, default=now_ms)
            self._on_change(event_ms)
        self.episodes.count(changes)
        if changes:
            # Behind the publishers, which ``_on_change`` has woken: readers wait for documents.
            self._log.log_soon(changes)

    async def follow_clock(self) -> NoReturn:
        """Correct the times of faults soon after the host's clock was set back, until cancelled.

        They were taken from a clock that was ahead, and readers show them.
        """
        while True:
            await asyncio.sleep(shared_pause(_CLOCK_SECONDS))
            if self._is_set_back(self._wall_clock()):
                self.apply_inputs(())

    def _is_set_back(self, now_ms: int) -> bool:
        return now_ms < self._taken_at_ms - _SET_BACK_MS

    def configure(self, texts: FaultTexts, tables: Catalogue) -> None:
        """Judge by ``tables``, which are those of ``texts``, from now on.

        Judge what is known again.
        """
        if texts == self.texts:
            return
        self.apply_inputs(())  # deadlines that passed are judged by the old rules
        self.texts, self.tables = texts, tables
        self._journal_texts()
        # Behind the texts in the journal, so that a replay judges this input by them.
        self.apply_inputs([Configured(texts.digest, self._wall_clock())])

    def complete_journal(self) -> None:
        """Make the journal complete after a gap: later rows need nothing from before it."""
        self._journal_texts()
        self.snapshot()

    def _journal_texts(self) -> None:
        assert self._journal is not None
        self._journal.append(
            [(RowKind.FAULT_CONFIGURATION, body_of(self.texts))], self._wall_clock()
        )

    def snapshot(self) -> None:
        """Journal the whole state, so that a restart needs no earlier row."""
        assert self._journal is not None
        self._inputs_since_snapshot = 0
        self._journal.append([(RowKind.SNAPSHOT, body_of(self.state))], self._wall_clock())

    def end(self) -> None:
        """Journal the last state and stop the timer of deadlines."""
        if self._timer is not None:
            self._timer.cancel()
        self._log.flush()
        self.snapshot()

    def _record(self, inputs: Sequence[Input], changes: tuple[Change, ...], now_ms: int) -> int:
        """Journal the inputs and their changes; return the sequence of the inputs."""
        assert self._journal is not None
        acknowledged = any(isinstance(item, Acknowledged) for item in inputs)
        rows = [(RowKind.ACKNOWLEDGED if acknowledged else RowKind.REPORTS, body_of(inputs))]
        if changes:
            rows.append((RowKind.CHANGES, body_of(changes)))
        sequence = self._journal.append(rows, now_ms) - len(rows) + 1
        self._inputs_since_snapshot += 1
        if self._inputs_since_snapshot >= _INPUTS_PER_SNAPSHOT:
            self.snapshot()
        return sequence

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline_ms = next_deadline_ms(self.state, self.tables)
        if deadline_ms is not None:
            seconds = max(0.0, (deadline_ms - self._wall_clock()) / 1000)
            self._timer = asyncio.get_running_loop().call_later(seconds, self.apply_inputs, ())
