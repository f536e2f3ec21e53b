"""The recordings in the profile ``corrected``: where it decides otherwise, and by which number.

Sources: ``spec/consumers.md`` 7.6 P10 and section 8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from advisor.advise import advise
from advisor.options import Profile
from advisor.state import State
from tests.advisor.player import RECORDINGS, options_of, recorded
from tests.advisor.test_recordings import played

if TYPE_CHECKING:
    from advisor.report import Report

DELETIONS: dict[str, set[int]] = {
    "aibrix-shared-group-rank-0": {8},
    "m17-basedeviceinfos-missing": {5},
    "ome-deployment-container-exit": {7},
}
"""Recordings in which other pods are deleted, or in another session."""
PLACEMENT: dict[str, set[int]] = {
    "m09-chunk-blanked": {1},
    "m09-switch-entry-omitted": {1},
    "m17-basedeviceinfos-bad-json": {5},
    "m18-accelerator-label-missing": {14},
}
"""Recordings in which pods can go to other nodes."""
NEITHER: dict[str, set[int]] = {
    "m03-inner-key": {1},
    "m04-bad-fault-string": {16},
    "m09-entry-omitted-is-a-ghost": {1},
    "m11-deviceinfocfg-empty": {2},
}
"""Recordings in which the view of the cluster differs and no decision does."""


def _deletions(report: Report) -> set[tuple[str, int]]:
    return {(pod.uid, pod.grace_seconds) for pod in report.deletions}


def _accepts(report: Report) -> dict[str, tuple[str, ...]]:
    return {pod.uid: group.accepts for group in report.placement for pod in group.pods}


@pytest.mark.parametrize("name", RECORDINGS)
def test_differences_have_their_number(name: str) -> None:
    options = msgspec.structs.replace(options_of(recorded(name)), profile=Profile.CORRECTED)
    state = State(is_known=True)
    sections: set[int] = set()
    deletes_otherwise = places_otherwise = False
    for one in played(name):
        report, state = advise(one.snapshot, state, options)
        deletes_otherwise |= _deletions(report) != _deletions(one.report)
        places_otherwise |= _accepts(report) != _accepts(one.report)
        found = [row for row in report.findings if row.code == "UPSTREAM_DIVERGES"]
        assert all(row.section and row.text for row in found)
        sections |= {row.section for row in found}
    assert deletes_otherwise == (name in DELETIONS)
    assert places_otherwise == (name in PLACEMENT)
    assert sections == (DELETIONS | PLACEMENT | NEITHER).get(name, set())
