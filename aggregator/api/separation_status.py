"""Status of manual separation (``docs/spec/clusterd.md#3.9``), for people and metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aggregator.processors.frequent_fault_separation import SeparationPolicy
from aggregator.processors.separation_documents import POLICY_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aggregator.processors.chains import ProcessorEngine


class SeparatingCode(msgspec.Struct, frozen=True):
    """A code that came too often, the last time at ``at_ms``. ``until_ms`` is when it stops to
    count against its chip, ``null``: never by itself. Both are wall times.
    """

    code: str
    at_ms: int
    until_ms: int | None


class SeparatedChip(msgspec.Struct, frozen=True):
    """A chip in manual separation. ``shown_in``: the stores in whose ``clusterd-manual-info-cm`` it
    was seen, so that its absence there is its release.
    """

    node: str
    chip: str
    codes: tuple[SeparatingCode, ...]
    shown_in: tuple[str, ...]


class CountedCode(msgspec.Struct, frozen=True):
    """How often a code came on a chip within the window of the policy, and when last (wall)."""

    node: str
    chip: str
    code: str
    times: int
    last_at_ms: int


class UnreadStatus(msgspec.Struct, frozen=True):
    """A document of manual separation, or one node in it, that cannot be read; its last good
    content stays in force.
    """

    store: str
    place: str
    reason: str


class SeparationStatus(msgspec.Struct, frozen=True):
    """Manual separation as it is now.

    ``listed``: every store has listed its documents of it. ``waiting`` new faults wait for their 30
    s, ``lost`` ones were not counted because too many waited, ``left_out`` nodes have no room in
    the persistent state.
    """

    listed: bool
    policy: SeparationPolicy
    chips: tuple[SeparatedChip, ...]
    counted: tuple[CountedCode, ...]
    waiting: int
    lost: int
    left_out: int
    problems: tuple[UnreadStatus, ...]


def separation_status(
    processing: ProcessorEngine,
    stores: Sequence[str],
    chips: tuple[SeparatedChip, ...],
    counted: tuple[CountedCode, ...],
) -> SeparationStatus:
    """Return the status now; ``stores`` are URLs in their order.

    What grows with the number of nodes is in ``all_separated`` and ``all_counted``.
    """
    separation, windows = processing.separation, processing.windows
    return SeparationStatus(
        listed=processing.listed,
        policy=separation.policy,
        chips=chips,
        counted=counted,
        waiting=windows.size,
        lost=windows.lost_total,
        left_out=sum(processing.state.left_out.values()),
        problems=tuple(
            UnreadStatus(stores[store], _place(place), reason)
            for (store, place), reason in sorted(processing.documents.problems.items())
        ),
    )


def all_separated(processing: ProcessorEngine, stores: Sequence[str]) -> Iterator[SeparatedChip]:
    """Yield the chips that are in manual separation. The iteration may be paused."""
    separation = processing.separation
    free_ms = separation.policy.free_ms
    for node in sorted(separation.chips):
        for chip, separated in sorted(separation.chips.get(node, {}).items()):
            codes = (
                SeparatingCode(code, at_ms, None if free_ms is None else at_ms + free_ms)
                for code, at_ms in sorted(separated.codes.items())
            )
            shown_in = tuple(stores[number] for number in separated.shown if number < len(stores))
            yield SeparatedChip(node, chip, tuple(codes), shown_in)


def all_counted(processing: ProcessorEngine, now_ms: int) -> Iterator[CountedCode]:
    """Yield what is counted; ``now_ms`` is wall time. The iteration may be paused."""
    window_ms = processing.separation.policy.window_ms
    for node, chips in sorted(processing.separation.counts.items()):
        for chip, codes in sorted(chips.items()):
            for code, times in sorted(codes.items()):
                if times:
                    recent = sum(now_ms - at_ms < window_ms for at_ms in times)
                    yield CountedCode(node, chip, code, recent, times[-1])


def _place(place: str) -> str:
    return place if place == POLICY_NAME else f"node {place}"
