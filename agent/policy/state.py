"""The state of the policy: an immutable value that the journal can store and restore.

Times are epoch milliseconds of the host's clock. Values that cannot contain themselves are not
tracked by the garbage collector (``gc=False``): there are many, and each event makes new ones.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import replace

from contract.codes.levels import ChipLevel, Severity, is_device_fault, most_serious
from contract.documents.isolation_request import IsolationRequest
from contract.listed_chips import ListedChip
from contract.observation import NODE, Observation, Subject, chip_subject
from contract.pages.agent_status import Upgrade

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

T = TypeVar("T", bound=msgspec.Struct)

CHIP_SOURCE = "chip-faults"
"""The source that reads a chip itself: without its answer nothing is known of the chip."""

SETTLE_MS = 5_000
"""Milliseconds after a start in which no rule acts: the first audits are answered by then."""

LINK_SOURCE = "links"
"""The source that asks the tool for links: the second source of their codes."""


class Fault(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A code that holds on a subject now.

    ``level`` is a word of the subject's kind (``ChipLevel``, ``SwitchLevel``, ``NodeLevel``); it is
    empty for a code of a switch or a host part that is in no table. ``serial`` and ``raised_at_ms``
    are the driver's, of the latest occurrence. A fault that is ``once`` has no recovery: it ends
    when readers had time to see it. ``revision`` is the state's when the episode began, and
    ``acknowledged_at_ms`` when a store first had it. ``unconfirmed_at_ms``: it may be over since
    then, because a recovery looked older than the occurrence, or because its last source does not
    report it any more while another may still find it. ``sources`` report it now, where that is
    not ``source`` alone.
    """

    code: str
    episode: str
    source: str
    level: str
    because: str
    first_seen_ms: int
    revision: int
    severity: Severity | None = None
    raised_at_ms: int | None = None
    serial: int | None = None
    once: bool = False
    acknowledged_at_ms: int | None = None
    unconfirmed_at_ms: int | None = None
    sources: tuple[str, ...] | None = None

    @property
    def reported_by(self) -> tuple[str, ...]:
        """The sources that report it now.

        Empty while the last one has taken it back and that is unconfirmed.
        """
        return (self.source,) if self.sources is None else self.sources

    @property
    def device_fault(self) -> bool:
        """Whether elastic training counts it as a device fault (``docs/spec/consumers.md#5.3``).

        A fault that the tool for links reports is one, whatever its severity.
        """
        return is_device_fault(self.severity) or LINK_SOURCE in self.reported_by


class Ended(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A recent recovery: an audit or a late event may still be about that fault.

    ``fault`` is ``None`` for a recovery of a code that did not hold.
    """

    at_ms: int
    fault: Fault | None = None
    raised_at_ms: int | None = None
    serial: int | None = None


class Blindness(msgspec.Struct, frozen=True, omit_defaults=True):
    """A source without an answer since ``since_ms``; ``reason`` and ``by_driver`` are its own."""

    since_ms: int
    reason: str
    by_driver: bool = False


class Counter(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """When a code with a frequency rule occurred on a chip, oldest first, and when it last ended.

    ``last_ms`` is the newest occurrence, also after an upgrade emptied ``occurred_ms``.
    ``recovered_ms`` is 0 as long as that one lasts.
    """

    occurred_ms: tuple[int, ...] = ()
    last_ms: int = 0
    recovered_ms: int = 0


class SubjectState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of one subject.

    ``faults`` are in order of arrival; ``blind`` and ``answered`` are by source.
    """

    faults: dict[str, Fault] = {}
    ended: dict[str, Ended] = {}
    blind: dict[str, Blindness] = {}
    answered: tuple[str, ...] = ()


class ChipState(SubjectState, frozen=True, omit_defaults=True):
    """The state of one chip. ``upgrades`` are in order of their codes and kinds.

    ``held_back`` are occurrences that wait for what may explain them (``episodes``). ``place``
    is the driver's last entry for it. ``silent``: it has not answered since the start, so no
    deadline and no other source ends its faults. From ``settled_at_ms`` on deadlines count again,
    because its first answers have shown by then what holds. ``word`` is the health word of a chip
    without events, read with the codes ``listed``, and ``None`` when the chip does not return it;
    with events both are ``None``.
    """

    upgrades: tuple[Upgrade, ...] = ()
    counters: dict[str, Counter] = {}
    held_back: dict[str, Observation] = {}
    place: ListedChip | None = None
    silent: bool = False
    settled_at_ms: int = 0
    word: int | None = None
    listed: tuple[str, ...] | None = None

    @property
    def level(self) -> ChipLevel:
        """The most serious level of its codes, known and unknown, and of its upgrades."""
        codes = [ChipLevel(fault.level) for fault in self.faults.values()]
        return most_serious([*codes, *(upgrade.level for upgrade in self.upgrades)])

    def upgrade_of(self, code: str, kind: str) -> Upgrade | None:
        """Return the upgrade of ``code`` by rules of ``kind``; ``None`` without one."""
        for upgrade in self.upgrades:
            if upgrade.code == code and upgrade.kind == kind:
                return upgrade
        return None

    @property
    def isolated(self) -> bool:
        """Whether an upgrade separates it until an operator or the upgrade's own rule
        releases it.
        """
        # By level, whatever rule gave it: an operator's release ends all reasons of this level
        # (device-plugin#3.6).
        level = ChipLevel.MANUALLY_SEPARATE_NPU
        return any(upgrade.level is level for upgrade in self.upgrades)

    @property
    def was_read(self) -> bool:
        """Whether the chip itself has ever answered; the link tool does not count."""
        return CHIP_SOURCE in self.answered


class ServerState(msgspec.Struct, frozen=True, omit_defaults=True):
    """What all chips of the node share, for a document when none of them is listed.

    ``super_pod`` are super-pod id, server index and rack id as they are written.
    """

    family: str
    super_pod: tuple[int, int, int] | None = None


class PolicyState(msgspec.Struct, frozen=True):
    """All chips, by physical id, and all other subjects, by their text (``subject_of``).

    ``revision`` counts the inputs that changed something. Time alone (the end of a one-off fault)
    does not count, so the same inputs lead to the same revision however they were batched.
    ``named`` are the chips that the last acknowledged document names in ``ManuallySeparateNPU``: an
    operator can remove only their names. ``settled_at_ms``: faults from before a start may have
    ended long ago; rules that wait for a time act from then on, when every source had time to
    answer. ``machine`` is the digest of the id of the machine that the chips are in, empty where
    unknown.
    """

    node: str
    boot_id: str
    revision: int = 0
    chips: dict[int, ChipState] = {}
    others: dict[str, SubjectState] = {}
    settled_at_ms: int = 0
    named: tuple[int, ...] = ()
    machine: str = ""
    server: ServerState | None = None

    def subjects(self) -> Iterator[tuple[Subject, SubjectState]]:
        """Yield every subject with its state: chips first, then the others, each in order of
        arrival.
        """
        for number, chip in self.chips.items():
            yield chip_subject(number), chip
        for text, other in self.others.items():
            yield subject_of(text), other

    def of(self, subject: Subject) -> SubjectState:
        """Return the state of ``subject``, an empty one without an entry."""
        if subject.kind == "chip":
            # A chip without an entry is a ``ChipState``, too: the rules recognise chips by this
            # type.
            return self.chips.get(subject.id, _UNKNOWN_CHIP)
        return self.others.get(str(subject), _UNKNOWN)


_UNKNOWN_CHIP = ChipState()
_UNKNOWN = SubjectState()


@lru_cache(maxsize=4096)
def subject_of(text: str) -> Subject:
    """Return the subject whose ``str`` is ``text``."""
    # At most twice, because the part may contain spaces, as in "Host Memory".
    kind, number, *part = text.split(" ", 2)
    return Subject(kind, int(number), *part)


class Acknowledged(msgspec.Struct, frozen=True, tag="acknowledged", omit_defaults=True):
    """A store has ``document`` (its name) as rendered from the state of ``state_revision``.

    ``named``: the chips that it names as separated; ``None`` for a kind that never names one.
    """

    document: str
    state_revision: int
    at_ms: int
    named: tuple[int, ...] | None = None


class Adopted(msgspec.Struct, frozen=True, tag="adopted", omit_defaults=True):
    """A document older than the journal has an upgrade of ``code`` of a chip, with its time.

    ``level`` is the document's; our own rule for the code decides where there is one. ``request``:
    an operator isolates the chip.
    """

    subject: Subject
    code: str
    kind: str
    upgraded_at_ms: int
    at_ms: int
    level: str = ""
    request: IsolationRequest | None = None


class ChipsListed(msgspec.Struct, frozen=True, tag="listed", omit_defaults=True):
    """The driver lists these chips, perhaps none, and no other ones.

    ``family`` and ``super_pod`` are those of ``ServerState``. ``is_first``: it is the first list of
    a process. A chip that was blind before it was so because there was no driver.
    """

    chips: tuple[ListedChip, ...]
    family: str
    at_ms: int
    super_pod: tuple[int, int, int] | None = None
    is_first: bool = False


class ChipsRemembered(msgspec.Struct, frozen=True, tag="remembered"):
    """A document that is older than the journal has this chip."""

    subject: Subject
    at_ms: int


class Forgotten(msgspec.Struct, frozen=True, tag="forgotten"):
    """This chip was removed from the node."""

    subject: Subject
    at_ms: int
    because: str


class Released(msgspec.Struct, frozen=True, tag="released"):
    """An operator removed the name of a chip from ``ManuallySeparateNPU``."""

    subject: Subject
    at_ms: int


class Configured(msgspec.Struct, frozen=True, tag="configured"):
    """From here on the fault configuration ``digest`` (``FaultTexts.digest``) is in force.

    It is the first input of its ``step``, which is given the tables of that configuration.
    """

    digest: str
    at_ms: int


class ClockSetBack(msgspec.Struct, frozen=True, tag="clock-set-back"):
    """The host's clock was set back, or is behind that of an earlier process: now is ``at_ms``."""

    at_ms: int


class ChangeKind(StrEnum):
    """What happened to an episode."""

    BEGAN = "began"
    RETURNED = "returned"
    CHANGED = "changed"
    REPEATED = "repeated"
    ENDED = "ended"
    UPGRADED = "upgraded"
    RELEASED = "released"


class Change(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """An episode began, returned after a wrong recovery, changed, or ended.

    ``REPEATED`` is a one-off event of a code that already held: a line in the history, without
    effect. A rule ``UPGRADED`` the code and ``RELEASED`` it, which can be long after the episode
    ended. A level is the one the code has on its subject, ``None`` where it has none. ``because``
    is for people; ``device_fault`` is that of ``Fault``. ``upgrade`` is the reason that a rule gave
    or that was released.
    """

    kind: ChangeKind
    subject: Subject
    code: str
    episode: str
    at_ms: int
    because: str
    old_level: str | None = None
    new_level: str | None = None
    severity: Severity | None = None
    device_fault: bool = False
    upgrade: Upgrade | None = None


def tracked(state: PolicyState, source: str) -> Mapping[tuple[Subject, str], int]:
    """Return the lasting faults of ``source`` with the time each was first seen, for its
    collector.
    """
    return {
        (subject, fault.code): fault.first_seen_ms
        for subject, subject_state in state.subjects()
        for fault in subject_state.faults.values()
        # A one-off event is in no list, so its collector must not miss it there.
        if source in fault.reported_by and not fault.once
    }


def recently_ended(state: PolicyState, source: str) -> Mapping[tuple[Subject, str], int]:
    """Return the lasting faults of ``source`` that recovered lately, with the time of each end."""
    return {
        (subject, code): ended.at_ms
        for subject, subject_state in state.subjects()
        for code, ended in subject_state.ended.items()
        if ended.fault is not None and source in ended.fault.reported_by and not ended.fault.once
    }


# What a start and a clock that was set back change in all times and answers.


def restarted(state: PolicyState, boot_id: str) -> PolicyState:
    """Return ``state`` for a process that begins on the boot ``boot_id``.

    The answers about the node as a whole were answers to another process: a document that may have
    to be deleted waits until its source has answered this one. So were those of each chip, which is
    silent until it answers.
    """
    others = {text: other for text, other in state.others.items() if text != str(NODE)}
    chips = {number: _silent(chip) for number, chip in state.chips.items()}
    return replace(state, boot_id=boot_id, others=others, chips=chips)


def _silent(chip: ChipState) -> ChipState:
    # Blindness of a silent chip means that a call of this process failed, and the chip is not free
    # then (decision 18).
    blind = {source: blindness for source, blindness in chip.blind.items() if source != CHIP_SOURCE}
    # Only chips that ever answered are remembered, so the others have nothing to keep
    # (decision 18).
    return replace(chip, silent=chip.was_read, blind=blind)


def times_capped(state: SubjectState, now_ms: int) -> SubjectState:
    """Return ``state`` with no time after ``now_ms``; the same object if it has none.

    A later time would delay its effect by as much as the clock was set back: a one-off fault would
    stay, an unconfirmed fault would not end, an occurrence that is held back would be shown hours
    late. A clock that is set forward makes all of it happen early, by the recorded times.
    """
    after = replace(
        state,
        faults={code: _fault_capped(fault, now_ms) for code, fault in state.faults.items()},
        ended={code: _ended_capped(ended, now_ms) for code, ended in state.ended.items()},
        blind={
            source: _capped(blindness, now_ms, "since_ms")
            for source, blindness in state.blind.items()
        },
    )
    if isinstance(state, ChipState):
        after = replace(
            after,
            upgrades=tuple(
                _capped(upgrade, now_ms, "upgraded_at_ms", "gone_since_ms")
                for upgrade in state.upgrades
            ),
            counters={
                code: _counter_capped(counter, now_ms) for code, counter in state.counters.items()
            },
            held_back={
                code: _capped(item, now_ms, "seen_at_ms") for code, item in state.held_back.items()
            },
            # The one time that may lie ahead: a chip that has just answered settles ``SETTLE_MS``
            # later.
            settled_at_ms=min(state.settled_at_ms, now_ms + SETTLE_MS),
        )
    return state if after == state else after


def _fault_capped(fault: Fault, now_ms: int) -> Fault:
    return _capped(fault, now_ms, "first_seen_ms", "acknowledged_at_ms", "unconfirmed_at_ms")


def _ended_capped(ended: Ended, now_ms: int) -> Ended:
    fault = None if ended.fault is None else _fault_capped(ended.fault, now_ms)
    return _capped(replace(ended, fault=fault), now_ms, "at_ms")


def _counter_capped(counter: Counter, now_ms: int) -> Counter:
    occurred_ms = tuple(min(at_ms, now_ms) for at_ms in counter.occurred_ms)
    counter = replace(counter, occurred_ms=occurred_ms)
    return _capped(counter, now_ms, "last_ms", "recovered_ms")


def _capped(value: T, now_ms: int, *times: str) -> T:
    """Return ``value`` with its ``times`` not after ``now_ms``."""
    # ``None`` and 0 mean that there is no such time.
    late: dict[str, Any] = {
        name: now_ms for name in times if (getattr(value, name) or now_ms) > now_ms
    }
    return replace(value, **late) if late else value
