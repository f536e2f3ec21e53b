"""How it stands with conditions and taints that the aggregator writes for schedulers."""

from __future__ import annotations

import msgspec

from contract.pages.aggregator_status import Page


class WaitingWrite(msgspec.Struct, frozen=True):
    """A difference of one object that is not written. ``reason`` is ``brake``, ``cap``,
    ``toleration``, ``conflict``, ``removed`` or ``eviction``.
    """

    target: str
    reason: str
    text: str


class SignalStatus(msgspec.Struct, frozen=True):
    """One option. ``outcomes`` counts writes by outcome since the start of the process.

    ``pending`` objects wait for their turn, the oldest for ``oldest_seconds``. ``held``: why
    nothing gets stricter now. ``would_write`` is what a dry run would have written.
    ``waiting_total`` counts objects by reason, ``waiting`` are the first hundred. ``problem``: why
    a write was refused last.
    """

    option: str
    dry_run: bool
    outcomes: dict[str, int]
    pending: int
    oldest_seconds: float | None
    held: str | None
    would_write: tuple[str, ...]
    waiting: tuple[WaitingWrite, ...]
    waiting_total: dict[str, int]
    problem: str | None


class SchedulerSignalsPage(Page, frozen=True):
    """The options that write conditions and taints; none where all of them are off."""

    signals: tuple[SignalStatus, ...]
