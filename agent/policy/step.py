"""The state machine of the policy: from reports to faults and levels, with the time passed in.

``step`` is a pure function: state, inputs and a time lead to a state and its changes. Each input is
one transition, and so is each deadline that passes before it, in the order of time. ``episodes``
has the effects of an observation, ``upgrade_rules`` the rules that raise levels, ``chips`` what a
list of chips changes. The rules are those of ``docs/packages/agent.md`` ("The policy").
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from msgspec.structs import replace

from agent.policy.chips import forgotten, listed, restored
from agent.policy.episodes import (
    RETURN_WINDOW_MS,
    begin_held_back,
    end,
    held_back_until_ms,
    observed,
    waiting_for_tool,
)
from agent.policy.state import (
    CHIP_SOURCE,
    LINK_SOURCE,
    SETTLE_MS,
    Acknowledged,
    Adopted,
    Blindness,
    Change,
    ChipsListed,
    ChipsRemembered,
    ChipState,
    ClockSetBack,
    Configured,
    Ended,
    Fault,
    Forgotten,
    PolicyState,
    Released,
    SubjectState,
    times_capped,
)
from agent.policy.transaction import RuleContext, Transaction, all_judged_again, without
from agent.policy.upgrade_rules import (
    adopt_upgrade,
    duration_release_ms,
    duration_upgrade_ms,
    frequency_release_ms,
    judged_by_tables,
    release_by_duration,
    release_by_frequency,
    release_by_operator,
    remove_upgrade,
    upgrade_by_duration,
)
from contract.codes.policies import FAULT_DURATION, FAULT_FREQUENCY
from contract.names import DEVICE_INFO_PREFIX, NODE_INFO_PREFIX
from contract.observation import (
    Gap,
    HealthRead,
    Observation,
    Report,
    SourceAnswered,
    SourceBlind,
    Subject,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from contract.codes.catalogue import Catalogue
    from contract.pages.agent_status import Upgrade

StepInput: TypeAlias = (
    Observation | SourceBlind | SourceAnswered | HealthRead | Adopted | Released | ChipsRemembered
)
"""The inputs that are about one subject."""

InputToAll: TypeAlias = Acknowledged | Configured | ClockSetBack | ChipsListed
"""The inputs that may be about each subject."""

Input: TypeAlias = (
    Report
    | Acknowledged
    | Adopted
    | Released
    | Configured
    | ClockSetBack
    | ChipsListed
    | ChipsRemembered
    | Forgotten
)


class PolicyCall(NamedTuple):
    """One call of ``step`` that the journal has in the row ``sequence``."""

    inputs: Sequence[Input]
    changes: Sequence[Change]
    tables: Catalogue
    sequence: int


def step(
    state: PolicyState, inputs: Sequence[Input], now_ms: int, tables: Catalogue
) -> tuple[PolicyState, tuple[Change, ...]]:
    """Return the state and its changes after ``inputs``, in their order, and all time until
    ``now_ms``.

    How the inputs are batched makes no difference. Returns the same object when nothing changed.
    """
    machine = StateMachine(state, tables)
    for item in inputs:
        machine.transition(item)
    return machine.end(now_ms), tuple(machine.changes)


def next_deadline_ms(state: PolicyState, tables: Catalogue) -> int | None:
    """Return when ``step`` must be called without an input (epoch ms); ``None`` for never."""
    everything = chain(state.chips.values(), state.others.values())
    return _deadline_ms_of(everything, tables, state.settled_at_ms)


class StateMachine(Transaction):
    """One call of ``step``: a transition for each input and for each deadline that passes.

    ``judge(s, c)`` is the level of code ``c`` on subject ``s`` by the tables and the health word,
    raised by the upgrades of ``c`` on ``s``. Before and after each transition, for all ``s`` and
    ``c``::

        faults[c].code = c  and  faults[c].level = judge(s, c)
        faults[c].revision <= revision
        faults[c].acknowledged_at_ms is set  =>  faults[c].once
        faults[c].once  =>  faults[c].unconfirmed_at_ms is not set
        upgrades are in order of (code, kind), none twice
        upgrade.kind = FaultDuration  =>  (gone_since_ms is set  <=>  no lasting fault of the code)
        |counters[c].occurred_ms| < Times(c),  and 0 while the frequency rule has upgraded c
        episodes in faults = episodes that began or returned - episodes that ended
        reasons in upgrades = reasons that were added - reasons that were released

    and after the call no deadline is overdue::

        next_deadline_ms is None  or  next_deadline_ms > now_ms

    So a process may end after any transition. Whoever continues with the stored state, and with
    the inputs behind it, gets the same states and changes.
    """

    def __init__(self, state: PolicyState, tables: Catalogue) -> None:
        super().__init__(state, tables, state.revision)
        self._before = state
        self._subjects = dict(state.subjects())
        self._named = state.named
        self._deadline_ms = self._next_deadline_ms()

    def transition(self, item: Input) -> None:
        """Apply ``item``, after all deadlines until its time."""
        at_ms = _time_of(item)
        is_due = self._deadline_ms is not None and self._deadline_ms <= at_ms
        # What the tables of ``Configured`` make overdue changes with it, not when others held.
        if is_due and not isinstance(item, Configured):
            self._subjects = _expire(self._subjects, at_ms, self)
            self._deadline_ms = self._next_deadline_ms()
        if isinstance(item, Observation):  # most inputs are: the checks below are for others
            self._change_subject(item)
        elif isinstance(item, Gap):
            pass  # an audit repairs what was missed
        elif isinstance(item, Forgotten):
            self._forget(item)
        # They may move each deadline, also to a later time, so there is no shortcut as in
        # ``_sooner``.
        elif isinstance(item, InputToAll):
            self._subjects = self._change_all(item)
            self._deadline_ms = self._next_deadline_ms()
        else:
            # The state must not wait for the name any more: the next read without it is not another
            # release.
            if isinstance(item, Released):
                self._remove_name(item.subject)
            self._change_subject(item)

    def end(self, now_ms: int) -> PolicyState:
        """Return the state after all time until ``now_ms``: the same object if nothing changed."""
        if self._deadline_ms is not None and self._deadline_ms <= now_ms:
            self._subjects = _expire(self._subjects, now_ms, self)
        state = self._stored()
        if self._named == self._before.named:
            return state
        return replace(state, named=self._named)

    def _change_subject(self, item: StepInput) -> None:
        before = self._subjects.get(item.subject) or self.state.of(item.subject)
        after = _apply(before, item, self)
        # The rules return the same object when nothing changed, so values need not be compared.
        if after is not before:
            self._subjects[item.subject] = after
            self.revision += 1
            self._deadline_ms = self._sooner(after, item)

    def _change_all(self, item: InputToAll) -> dict[Subject, SubjectState]:
        """Return the subjects after an input that may be about each of them."""
        subjects = self._subjects
        match item:
            case Configured():
                return self._judge_again(item.at_ms)
            case ClockSetBack():
                self.state = _set_back(self.state, item.at_ms)
                capped = {
                    subject: times_capped(current, item.at_ms)
                    for subject, current in subjects.items()
                }
                # One revision for one input, however many subjects it changed: it counts inputs.
                self.revision += capped != subjects
                return capped
            case Acknowledged():
                if item.named is not None:
                    self._named = item.named
                # No new revision: with one, each acknowledgement would ask for another write.
                return {
                    subject: _acknowledge(current, item)
                    # An acknowledgement of device-info proves nothing about faults that only
                    # node-info shows.
                    if _is_shown(subject, item.document)
                    else current
                    for subject, current in subjects.items()
                }
            case ChipsListed():
                return listed(subjects, item, self)

    def _judge_again(self, at_ms: int) -> dict[Subject, SubjectState]:
        """Return the subjects, all judged again by the tables of this call."""
        before = self._subjects
        judged = {
            subject: judged_by_tables(current, RuleContext(subject, at_ms, self))
            for subject, current in before.items()
        }
        # New rules may be overdue for long: what they change happens now, not in the past.
        judged = _expire(judged, at_ms, self, since_ms=at_ms)
        if any(current is not before[subject] for subject, current in judged.items()):
            self.revision += 1
        return judged

    def _forget(self, item: Forgotten) -> None:
        # Its deadline stays: one that is too early does no harm, as in ``_sooner``.
        current = self._subjects.pop(item.subject, self.state.of(item.subject))
        forgotten(current, item.because, RuleContext(item.subject, item.at_ms, self))
        self._remove_name(item.subject)
        self.revision += 1

    def _remove_name(self, subject: Subject) -> None:
        """Stop waiting for an operator to remove the name of a chip from our document."""
        self._named = tuple(chip for chip in self._named if chip != subject.id)

    def _next_deadline_ms(self) -> int | None:
        return _deadline_ms_of(self._subjects.values(), self.tables, self.state.settled_at_ms)

    def _sooner(self, current: SubjectState, item: StepInput) -> int | None:
        """Return the next deadline after ``item`` was applied; one that is too early does no
        harm.

        Only the code of ``item`` is looked at: each event would otherwise look at all codes of all
        chips.
        """
        deadline_ms, settled_ms = self._deadline_ms, self.state.settled_at_ms
        # These answers have no code, and may begin the deadlines of several: of faults that wait
        # for the tool, and of all on a chip that was silent.
        if isinstance(item, SourceAnswered) and item.source in (LINK_SOURCE, CHIP_SOURCE):
            due = _next_due(current, self.tables, settled_ms)
            due_ms = None if due is None else due.at_ms
        # The others begin no deadline: they end something, silence a chip, or change levels.
        elif not isinstance(item, Observation | Adopted):
            return deadline_ms
        else:
            due_ms = _due_ms_of(current, item.code, self.tables, settled_ms)
        if due_ms is None or deadline_ms is None:
            return due_ms if deadline_ms is None else deadline_ms
        return min(due_ms, deadline_ms)

    def _stored(self) -> PolicyState:
        """Return the state with the present subjects: the same object when nothing changed."""
        chips = {
            subject.id: current
            for subject, current in self._subjects.items()
            if isinstance(current, ChipState)
        }
        others = {
            str(subject): current
            for subject, current in self._subjects.items()
            # An empty state is that of a subject without an entry.
            if not isinstance(current, ChipState) and current != _EMPTY
        }
        old = self.state
        # Acknowledgements and most deadlines change subjects without a new revision.
        if self.revision == old.revision and chips == old.chips and others == old.others:
            return old
        return replace(old, revision=self.revision, chips=chips, others=others)


_EMPTY = SubjectState()


def _set_back(state: PolicyState, now_ms: int) -> PolicyState:
    """Return ``state`` at the earlier time ``now_ms``: no start is settled later than one of
    now.
    """
    settled_at_ms = min(state.settled_at_ms, now_ms + SETTLE_MS)
    if settled_at_ms == state.settled_at_ms:
        return state
    return replace(state, settled_at_ms=settled_at_ms)


def _is_shown(subject: Subject, document: str) -> bool:
    """Return whether faults of ``subject`` are shown in ``document`` (its name)."""
    return document.startswith(NODE_INFO_PREFIX if subject.kind == "host" else DEVICE_INFO_PREFIX)


def is_one_off_waiting(state: PolicyState, document: str) -> bool:
    """Return whether a one-off fault has yet to be acknowledged with ``document`` (its name)."""
    return any(
        fault.once and fault.acknowledged_at_ms is None
        for subject, current in state.subjects()
        if _is_shown(subject, document)
        for fault in current.faults.values()
    )


def _time_of(item: Input) -> int:
    if isinstance(item, Observation):
        return item.seen_at_ms
    return item.since_ms if isinstance(item, SourceBlind) else item.at_ms


def _acknowledge(current: SubjectState, item: Acknowledged) -> SubjectState:
    for fault in current.faults.values():
        # A write that was rendered before the event does not show it.
        shown = fault.once and fault.revision <= item.state_revision
        if shown and fault.acknowledged_at_ms is None:
            fault = replace(fault, acknowledged_at_ms=item.at_ms)
            current = replace(current, faults=current.faults | {fault.code: fault})
    return current


def _apply(current: SubjectState, item: StepInput, draft: Transaction) -> SubjectState:
    match item:
        case Observation():
            return observed(current, item, draft)
        case SourceAnswered():
            return _source_answered(current, item)
        case SourceBlind():
            return _source_blind(current, item)
        case HealthRead():
            return _health_read(current, item, draft)
        case ChipsRemembered():
            return restored(current)
        case Adopted():
            return adopt_upgrade(current, item, RuleContext(item.subject, item.at_ms, draft))
        case Released():
            return release_by_operator(current, RuleContext(item.subject, item.at_ms, draft))


def _source_blind(current: SubjectState, item: SourceBlind) -> SubjectState:
    blindness = Blindness(item.since_ms, item.reason, item.by_driver)
    if current.blind.get(item.source) == blindness:
        return current
    if item.source == LINK_SOURCE:
        # What only the tool can confirm stays while it gives no answer.
        current = waiting_for_tool(current, None)
    return replace(current, blind=current.blind | {item.source: blindness})


def _source_answered(current: SubjectState, item: SourceAnswered) -> SubjectState:
    if item.source == CHIP_SOURCE and isinstance(current, ChipState) and current.silent:
        # The first answers of other sources have the same time to come as after a start.
        current = replace(current, silent=False, settled_at_ms=item.at_ms + SETTLE_MS)
    elif item.source in current.answered and item.source not in current.blind:
        return current
    if item.source == LINK_SOURCE:
        current = waiting_for_tool(current, item.at_ms)
    answered = tuple(sorted({*current.answered, item.source}))
    return replace(current, answered=answered, blind=without(current.blind, item.source))


def _health_read(current: SubjectState, item: HealthRead, draft: Transaction) -> SubjectState:
    """Return ``current`` with the health word of its chip, which bounds the level of unlisted
    codes.
    """
    if not isinstance(current, ChipState) or (current.word, current.listed) == (
        item.word,
        item.codes,
    ):
        return current
    current = replace(current, word=item.word, listed=item.codes)
    context = RuleContext(item.subject, item.at_ms, draft)
    return all_judged_again(current, "the health word was read", context)


# What time alone changes. ``_next_due`` is called with every event, for every code of every chip:
# plain loops without allocations.

ONCE_VISIBLE_MS = 5_500
"""Milliseconds that a one-off fault stays after a store acknowledged it: no reader misses it.

It must be visible for 5 s in cluster-info, too, where it may appear later than it disappears.
"""

CONFIRMATION_MS = 6_000
"""Milliseconds in which an audit confirms a fault whose recovery looked older than its occurrence.

The link tool has as long to confirm a fault that the driver does not list. Both are asked 2 s after
the last event and answer within 2 s.
"""

# Sorts before all names: where a fault ends and a rule is due for its code at once, it ends first.
_ENDS = ""
_FORGOTTEN = "forgotten"
_BEGINS = "begins"


class _Due(NamedTuple):
    """``code`` changes at ``at_ms``: a fault ``_ENDS`` or is ``_FORGOTTEN``, an occurrence that was
    held back ``_BEGINS``, or a rule of this kind acts.

    Changes at the same time happen in the order of these tuples.
    """

    at_ms: int
    code: str
    action: str


def _next_due(current: SubjectState, tables: Catalogue, settled_ms: int) -> _Due | None:
    """Return the next change by time alone; rules wait until ``settled_ms``."""
    if isinstance(current, ChipState):
        due = _of_chip(current, current.faults.values(), current.upgrades, tables, settled_ms)
        return due if not current.held_back else _with_held_back(current, due)
    return _of_other(current)


def _due_ms_of(current: SubjectState, code: str, tables: Catalogue, settled_ms: int) -> int | None:
    """Return when time alone changes ``code`` (epoch ms).

    It may be the earlier time of another code.
    """
    if isinstance(current, ChipState):
        fault = current.faults.get(code)
        faults = () if fault is None else (fault,)
        of_code = (
            [upgrade for upgrade in current.upgrades if upgrade.code == code]
            if current.upgrades
            else ()
        )
        due = _of_chip(current, faults, of_code, tables, settled_ms)
        if current.held_back:
            due = _with_held_back(current, due)
    else:
        due = _of_other(current)
    return None if due is None else due.at_ms


def _deadline_ms_of(
    subjects: Iterable[SubjectState], tables: Catalogue, settled_ms: int
) -> int | None:
    """Return when time alone changes anything (epoch ms); ``None`` for never."""
    deadline_ms = None
    for current in subjects:
        due = _next_due(current, tables, settled_ms)
        if due is not None and (deadline_ms is None or due.at_ms < deadline_ms):
            deadline_ms = due.at_ms
    return deadline_ms


def _of_chip(
    current: ChipState,
    faults: Iterable[Fault],
    upgrades_of: Iterable[Upgrade],
    tables: Catalogue,
    settled_ms: int,
) -> _Due | None:
    """Return the first change due of some codes of a chip."""
    first = None
    policies = tables.durations
    for fault in faults:
        if fault.once or fault.unconfirmed_at_ms is not None:
            # No time ends what held on a silent chip, and a one-off event stays (decision 18).
            end_ms = None if current.silent else _end_ms(fault)
            if end_ms is None:
                continue
            # A one-off event waits for readers, not for answers, so settling does not matter for
            # it.
            action, at_ms = _ENDS, end_ms if fault.once else max(end_ms, current.settled_at_ms)
        elif fault.code in policies and current.upgrade_of(fault.code, FAULT_DURATION) is None:
            upgrade_ms = duration_upgrade_ms(fault, policies[fault.code])
            # The first answers after a start may show that it is over: a link that came back while
            # no agent ran is not isolated.
            action, at_ms = FAULT_DURATION, max(upgrade_ms, settled_ms, current.settled_at_ms)
        else:
            continue
        if first is None or (at_ms, fault.code, action) < first:
            first = _Due(at_ms, fault.code, action)
    for upgrade in upgrades_of:
        release_ms = None if current.silent else _release_ms(current, upgrade, tables)
        if release_ms is None:
            continue
        at_ms = max(release_ms, settled_ms, current.settled_at_ms)
        if first is None or (at_ms, upgrade.code, upgrade.kind) < first:
            first = _Due(at_ms, upgrade.code, upgrade.kind)
    return first


def _with_held_back(current: ChipState, due: _Due | None) -> _Due:
    """Return the earlier one of ``due`` and the first occurrence that is held back."""
    waiting = (
        _Due(held_back_until_ms(item), code, _BEGINS) for code, item in current.held_back.items()
    )
    first = min(waiting)
    return first if due is None or first < due else due


def _of_other(current: SubjectState) -> _Due | None:
    """Return the first change due of a subject that is not a chip.

    Its recoveries are forgotten when they have no effect any more: there are hundreds of switch
    ports, and each would be checked with every event for ever.
    """
    first = None
    for code, ended in current.ended.items():
        due = _Due(ended.at_ms + RETURN_WINDOW_MS, code, _FORGOTTEN)
        first = due if first is None or due < first else first
    for code, fault in current.faults.items():
        end_ms = _end_ms(fault)
        if end_ms is not None:
            due = _Due(end_ms, code, _ENDS)
            first = due if first is None or due < first else first
    return first


def _end_ms(fault: Fault) -> int | None:
    """Return when time alone ends ``fault`` (epoch milliseconds)."""
    if fault.once:
        shown_ms = fault.acknowledged_at_ms
        return None if shown_ms is None else shown_ms + ONCE_VISIBLE_MS
    unconfirmed_ms = fault.unconfirmed_at_ms
    return None if unconfirmed_ms is None else unconfirmed_ms + CONFIRMATION_MS


def _release_ms(current: ChipState, upgrade: Upgrade, tables: Catalogue) -> int | None:
    """Return when time alone ends ``upgrade`` (epoch milliseconds).

    An upgrade without a current reason ends at the last time that any rule could give
    (device-plugin#3.6). An operator's separation is released by an operator only.
    """
    if upgrade.request is not None:
        return None
    if upgrade.kind == FAULT_FREQUENCY:
        frequency = tables.frequencies.get(upgrade.code)
        return None if frequency is None else frequency_release_ms(current, upgrade, frequency)
    if upgrade.kind == FAULT_DURATION:
        duration = tables.durations.get(upgrade.code)
        return None if duration is None else duration_release_ms(upgrade, duration)
    longest_ms = tables.autofill_release_ms
    return None if longest_ms is None else upgrade.upgraded_at_ms + longest_ms + 1


def _expire(
    subjects: Mapping[Subject, SubjectState], now_ms: int, draft: Transaction, since_ms: int = 0
) -> dict[Subject, SubjectState]:
    """Return ``subjects`` after all changes by time up to ``now_ms``, none dated before
    ``since_ms``.
    """
    remaining = dict(subjects)
    settled_ms = draft.state.settled_at_ms
    # In the order of time, whatever the subject: the ids of episodes depend on the order, and a
    # call that comes late must give the same ids as one for each deadline.
    waiting: list[tuple[int, Subject, _Due]] = []
    for subject, current in subjects.items():
        due = _next_due(current, draft.tables, settled_ms)
        if due is not None and due.at_ms <= now_ms:
            waiting.append((due.at_ms, subject, due))
    heapify(waiting)
    while waiting:
        _, subject, due = heappop(waiting)
        remaining[subject] = current = _changed_by_time(
            subject, remaining[subject], due, draft, since_ms
        )
        # Each subject has one entry: a change may move or remove the others that would have
        # followed.
        next_due = _next_due(current, draft.tables, settled_ms)
        if next_due is not None and next_due.at_ms <= now_ms:
            heappush(waiting, (next_due.at_ms, subject, next_due))
    return remaining


def _changed_by_time(
    subject: Subject, current: SubjectState, due: _Due, draft: Transaction, since_ms: int
) -> SubjectState:
    """Return ``current`` after the change that is ``due``, not dated before ``since_ms``."""
    if due.action == _ENDS:
        # No rule defines this end, so it has its own time also after a new configuration.
        context = RuleContext(subject, due.at_ms, draft)
        return _end_by_time(current, current.faults[due.code], context)
    if due.action == _FORGOTTEN:
        return replace(current, ended=without(current.ended, due.code))
    assert isinstance(current, ChipState)
    if due.action == _BEGINS:
        current = begin_held_back(current, due.code, draft)
        draft.revision += 1  # as its report would have done
        return current
    context = RuleContext(subject, max(due.at_ms, since_ms), draft)
    return _apply_rule(current, due, context)


def _end_by_time(current: SubjectState, fault: Fault, context: RuleContext) -> SubjectState:
    """End a one-off fault that every reader could see, or an unconfirmed one that stayed so."""
    if fault.once:
        return end(current, fault, "a one-off event, published long enough to be seen", context)
    because = "its recovery looked older than it, but no audit has found it since"
    if not fault.reported_by:
        because = "the driver does not list it, and no other source has found it since"
    # Rules count the time without the fault from the report that proved right, not from now.
    current = end(current, fault, because, context, fault.unconfirmed_at_ms)
    # Unlike after a recovery, a list without it has proved the end: its return is another
    # occurrence.
    if not fault.reported_by:
        return current
    ended = Ended(context.at_ms, replace(fault, unconfirmed_at_ms=None))
    return replace(current, ended=current.ended | {fault.code: ended})


def _apply_rule(current: ChipState, due: _Due, context: RuleContext) -> ChipState:
    """Return ``current`` after the rule that is due upgraded or released its code."""
    tables, upgrade = context.draft.tables, current.upgrade_of(due.code, due.action)
    if due.action == FAULT_DURATION:
        policy = tables.durations[due.code]
        if upgrade is not None:
            return release_by_duration(current, upgrade, policy, context)
        return upgrade_by_duration(current, current.faults[due.code], policy, context)
    assert upgrade is not None
    if due.action == FAULT_FREQUENCY:
        return release_by_frequency(current, upgrade, tables.frequencies[due.code], context)
    because = "an isolation without a current reason ends as the last one that any rule could give"
    return remove_upgrade(current, upgrade, because, context)
