"""The recordings of Volcano, played session by session through the advisor.

Compared are deletions with their grace, bindings, pods that stay unbound, and the reasons counted
in messages. No recorded deletion reaches the advisor before it has decided.
"""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.advisor.player import PLAYED_AGAIN, RECORDINGS, recorded
from tests.advisor.recordings import played

_ADMITTED = ("Inqueue", "Running", "Unknown")
_REASONS = {
    r"Insufficient [^ ,]+": "Insufficient",
    r"node is unhealthy": "NodeUnhealthy",
    r"node health status is PreSeparate": "PreSeparate",
    r"NodePredicate failed, cardSubHealthy=\w+ andswitchSubHealthy=\w+, but [^,]+": "SubHealth",
    r"node corresponding not in session": "NotInFaultTable",
    r"node\(s\) didn't match Pod's node affinity/selector": "Selector",
    r"NPUResourceShortage: [^,]+, req<\d+>, idle<\d+>": "FreeCards",
    r"getUsableTopFromNode don't have [^ ,]+": "FreeCards",
    r"node<[^>]+> don't have resource<[^>]+-NetworkUnhealthy>": "NetworkCards",
}
_LATE_MS = 300
"""An input that came so shortly before a session may be seen in the next one."""


def test_all_recordings_are_there() -> None:
    assert len(RECORDINGS) == 105
    observed = [row for name in RECORDINGS for row in recorded(name)["observed"]]
    by_scheduler = [row for row in observed if row["by"] == "scheduler"]
    assert sum(row["kind"] == "pod-delete" for row in by_scheduler) == 110
    assert sum(row["kind"] == "pod-bound" for row in by_scheduler) == 294
    assert sum(row.get("reason") == "FailedScheduling" for row in by_scheduler) == 55


@pytest.mark.parametrize("name", PLAYED_AGAIN)
def test_pods_are_deleted_bound_and_left_unbound_as_foretold(name: str) -> None:
    _same_deletions(name)
    _bound_where_accepted(name)
    _unbound_for_a_reason(name)


def _same_deletions(name: str) -> None:
    """Check that the same pods are deleted with the same grace."""
    early: set[tuple[str, int]] = set()
    for one in played(name):
        session = one.session
        reported = {
            (f"{pod.namespace}/{pod.name}", pod.grace_seconds) for pod in one.report.deletions
        }
        deleted = {
            (row["pod"], row["effective_grace_seconds"])
            for row in session.observed
            if row["kind"] == "pod-delete"
        }
        assert deleted - reported <= early, f"not foretold at {session.at_ms} ms"
        assert early <= deleted, f"did not come by {session.at_ms} ms"
        early = reported - deleted
        if early:
            assert session.at_ms - session.last_input_ms <= _LATE_MS, (
                f"{sorted(early)} foretold at {session.at_ms} ms did not come"
            )
    assert not early


def _bound_where_accepted(name: str) -> None:
    """Check that pods are bound where placement accepts them."""
    for one in played(name):
        for row in one.session.observed:
            if row["kind"] == "pod-bound":
                found = one.placement(row["pod"])
                assert found is not None, f"{row['pod']} does not wait at {row['at_ms']} ms"
                assert row["node"] in found[0], (row["pod"], found[1].get(row["node"]))


def _unbound_for_a_reason(name: str) -> None:
    """Check that each pod that stays unbound is refused, or its gang is short."""
    before: dict[str, bool] = {}
    for one in played(name):
        if one.session.first:
            before = {}
            continue
        bound = {row["pod"] for row in one.session.observed if row["kind"] == "pod-bound"}
        groups = {group.key: group for group in one.snapshot.podgroups}
        gangs = {f"{gang.namespace}/{gang.name}": gang for gang in one.report.gangs}
        now: dict[str, bool] = {}
        for pod in one.snapshot.pods:
            group = groups.get(f"{pod.namespace}/{pod.group}")
            key = f"{pod.namespace}/{pod.name}"
            found = one.placement(key)
            if group is None or found is None or key in bound or group.phase not in _ADMITTED:
                continue
            now[pod.uid] = bool(found[0]) and gangs[group.key].fits
            assert not (now[pod.uid] and before.get(pod.uid)), (
                f"{key} can be placed on {found[0]} and is not bound for two sessions,"
                f" at {one.session.at_ms} ms"
            )
        before = now


@pytest.mark.slow
def test_reasons_are_those_of_recorded_messages() -> None:
    compared = 0
    for name in RECORDINGS:
        for one in played(name):
            for row in one.session.observed:
                if row.get("reason") != "FailedScheduling":
                    continue
                counted = _counted(row["message"])
                if not counted:
                    continue
                compared += 1
                found = one.placement(row["about"].removeprefix("Pod "))
                assert found is not None
                reasons = Counter(why.partition(": ")[0] for why in found[1].values())
                waiting = sum(len(group.pods) for group in one.report.placement)
                assert waiting > 1 or not found[0], (name, row["at_ms"], found)
                rest = counted - reasons
                assert rest.total() == len(found[0]), (name, row["at_ms"], row["message"], found)
                assert rest.keys() <= {"FreeCards", "Insufficient"}, (name, row["at_ms"], rest)
    assert compared == 35


def _counted(message: str) -> Counter[str]:
    """Return how many nodes a message names for each reason; nothing for other messages."""
    head = re.search(r"0/(\d+) nodes are unavailable: ", message)
    if head is None:
        return Counter()
    found: Counter[str] = Counter()
    rest = message[head.end() :].rstrip(".")
    while rest:
        for pattern, reason in _REASONS.items():
            match = re.match(rf"(\d+) {pattern}(?:, |$)", rest)
            if match:
                found[reason] += int(match[1])
                rest = rest[match.end() :]
                break
        else:
            raise AssertionError(f"no reason is known for {rest!r}")
    assert found.total() == int(head[1])
    return found
