"""The recordings in the profile ``corrected``: where it decides otherwise, and by which number.

Sources: ``docs/spec/consumers.md#7.6``, P10 and 8.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

import msgspec
import pytest

from advisor.advise import advise
from advisor.options import Profile
from advisor.scheduler_view.state import SchedulerState
from tests.advisor.player import PLAYED_AGAIN, RECORDINGS, options_of, recorded
from tests.advisor.recordings import played
from tests.compatibility import DOCUMENT

if TYPE_CHECKING:
    from advisor.report import AdviceReport

_ROW = re.compile(r"\| `volcano/([^`]+)` \| (deletions|placement|neither) \|.*\| (\d+) \|")


@cache
def rows() -> dict[str, tuple[str, int]]:
    """Return the rows of ``docs/compatibility.md``: what differs, and the number of consumers#8."""
    return {found[1]: (found[2], int(found[3])) for found in _ROW.finditer(DOCUMENT.read_text())}


def test_rows_name_recordings() -> None:
    assert len(rows()) == 11
    assert rows().keys() <= set(RECORDINGS)


def _deletions(report: AdviceReport) -> set[tuple[str, int]]:
    return {(pod.uid, pod.grace_seconds) for pod in report.deletions}


def _accepts(report: AdviceReport) -> dict[str, tuple[str, ...]]:
    return {pod.uid: group.accepts for group in report.placement for pod in group.pods}


@pytest.mark.parametrize("name", PLAYED_AGAIN)
def test_differences_have_their_number(name: str) -> None:
    options = msgspec.structs.replace(options_of(recorded(name)), profile=Profile.CORRECTED)
    state = SchedulerState(is_known=True)
    sections: set[int] = set()
    deletes_otherwise = places_otherwise = False
    for one in played(name):
        report, state = advise(one.snapshot, state, options)
        deletes_otherwise |= _deletions(report) != _deletions(one.report)
        places_otherwise |= _accepts(report) != _accepts(one.report)
        found = [row for row in report.findings if row.code == "UPSTREAM_DIVERGES"]
        assert all(row.section and row.text for row in found)
        sections |= {row.section for row in found}
    what, number = rows().get(name, ("nothing", 0))
    assert deletes_otherwise == (what == "deletions")
    assert places_otherwise or what != "placement"
    assert not places_otherwise or what in ("placement", "deletions")
    assert sections == ({number} - {0})
