"""Wrong products, by which the judge is judged: each must be called wrong, the right one never.

The launcher puts a mutant in the place of functions within a block. The product has no switch.
"""

from __future__ import annotations

import contextlib
import time
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest import mock

import msgspec

from agent.fault_state import FaultState
from agent.heartbeat.heartbeat import Heartbeat
from agent.own_documents import OwnDocument
from agent.publishing import chip_lists
from agent.publishing.device_info import DeviceInfoDocument
from agent.publishing.publisher import DocumentPublisher
from aggregator.liveness import lost_nodes
from aggregator.publish import document_writer
from collectors.chip_faults.chip_tracker import ChipQuery, ChipTracker
from collectors.chip_faults.collector import ChipFaultsCollector, _Watched
from contract.observation import Assertion, Observation
from service.election.leadership import LeaseElection
from stores.base import DocumentsListed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

_apply, _desired, _watched = (
    FaultState.apply_inputs,
    DeviceInfoDocument.desired,
    DocumentPublisher._watched,
)
_entry_of, _failed, _observed, _next = (
    chip_lists._entry_of,
    ChipTracker.observe_failure,
    lost_nodes._observed,
    _Watched.next,
)
_ENDS = (Assertion.RECOVER, Assertion.ABSENT)


def _apply_without_ends(state: FaultState, inputs: Any, event_ms: int | None = None) -> None:
    kept = [
        item for item in inputs if not (isinstance(item, Observation) and item.assertion in _ENDS)
    ]
    _apply(state, kept, event_ms)


def _desire_the_one_before(document: DeviceInfoDocument) -> Any:
    """Return the document before the present one."""
    members: Any = document
    made = _desired(document)
    history = members.__dict__.setdefault("made_before", [])
    if made is not None and (not history or history[-1] is not made):
        history.append(made)
    return made if len(history) < 2 else history[-2]


def _watch_lists_alone(publisher: DocumentPublisher, event: Any) -> None:
    if isinstance(event, DocumentsListed):
        _watched(publisher, event)


def _next_by_events_alone(watched: _Watched, query: ChipQuery) -> float:
    """Return when ``query`` is due: the code list once at the start, and because of events."""
    if query is ChipQuery.CODES and watched.queried_at[query] > float("-inf"):
        checks = (watched.tracker.next_check(query), watched.settled_at)
        waiting = [at for at in checks if at is not None and at > watched.queried_at[query]]
        return min(waiting, default=float("inf"))
    return _next(watched, query)


def _entry_by_the_first_code(kind: str, name: str, codes: Any) -> Any:
    """Return an entry in which each code has the level of the first one."""
    levels = [entry.fault_level for entry in codes.values()]
    same = {
        code: msgspec.structs.replace(entry, fault_level=levels[0]) for code, entry in codes.items()
    }
    return _entry_of(kind, name, same)


def _progresses(_: Heartbeat) -> bool:
    return False


async def _wait_for_no_commit(_: OwnDocument) -> None:
    pass


def _ask_nothing_now(_: ChipFaultsCollector, chips: Any) -> None:
    """Leave the queries of ``chips`` due when they are; those of a new chip are due already."""


def _end_what_is_not_seen(
    tracker: ChipTracker, query: ChipQuery, reason: str, at: float, now_ms: int, **options: Any
) -> Any:
    """Take a failed list for an empty one."""
    if query is ChipQuery.CODES:
        return tracker.observe_codes((), at, now_ms)
    return _failed(tracker, query, reason, at, now_ms, **options)


def _observe_by_wall_clock(before: Any, beat: Any, now_ms: int, **options: Any) -> Any:
    """Return the heartbeat with an age by the difference of two hosts' clocks."""
    heartbeat = _observed(before, beat, now_ms, **options)
    age_ms = max(0, time.time_ns() // 1_000_000 - beat.beaten_at_ms)
    return msgspec.structs.replace(heartbeat, counts_from_ms=now_ms - age_ms)


async def _confirm_anything(_: LeaseElection) -> bool:
    return True


@contextlib.contextmanager
def _old_leader_writes() -> Iterator[None]:
    """Let each aggregator that has led write on, over whatever is there."""
    with contextlib.ExitStack() as stack:
        leads = property(lambda election: election.taken_total > 0)
        stack.enter_context(mock.patch.object(LeaseElection, "leads", leads))
        stack.enter_context(mock.patch.object(LeaseElection, "confirm", _confirm_anything))
        stack.enter_context(
            mock.patch.object(document_writer, "compares_versions", return_value=False)
        )
        yield


def _patch(owner: Any, name: str, mutant: Any) -> Callable[[], AbstractContextManager[Any]]:
    return partial(mock.patch.object, owner, name, mutant)


MUTANTS: Mapping[str, Callable[[], AbstractContextManager[Any]]] = {
    "audit skipped": _patch(_Watched, "next", _next_by_events_alone),
    "recovery dropped": _patch(FaultState, "apply_inputs", _apply_without_ends),
    "no repair": _patch(DocumentPublisher, "_watched", _watch_lists_alone),
    "stale write": _patch(DeviceInfoDocument, "desired", _desire_the_one_before),
    "wrong level": _patch(chip_lists, "_entry_of", _entry_by_the_first_code),
    "heartbeat without progress": _patch(Heartbeat, "_is_withheld", _progresses),
    "acknowledged before committed": _patch(OwnDocument, "before_write", _wait_for_no_commit),
    "gap without audit": _patch(ChipFaultsCollector, "_ask_now", _ask_nothing_now),
    "recovery taken from a blind chip": _patch(
        ChipTracker, "observe_failure", _end_what_is_not_seen
    ),
    "liveness by wall clock": _patch(lost_nodes, "_observed", _observe_by_wall_clock),
    "an old leader writes on": _old_leader_writes,
}
