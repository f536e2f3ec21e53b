"""Rows of ``/api/v1/history`` have one form, whoever reported the change."""

from __future__ import annotations

import msgspec

from contract.codes.levels import Severity
from contract.documents.episodes import EpisodeEvent
from contract.observation import chip_subject
from contract.pages.changes import FaultChange
from contract.pages.history import HistoryEvent, HistoryPage, HistoryRow, history_event

BARE = EpisodeEvent(7, 0, "abc", "began", chip_subject(3), "80E01801", 1_800_000_000_000)


def row(**members: object) -> dict[str, object]:
    """Return a row as a client reads it."""
    shown = msgspec.json.encode(msgspec.convert({"number": 1, **_ROW, **members}, HistoryRow))
    found: dict[str, object] = msgspec.json.decode(shown)
    return found


_ROW = {"node": "n", "journal": "j", "received_at_ms": 5}


def test_no_member_is_left_out_and_a_severity_is_a_word() -> None:
    event = msgspec.structs.replace(BARE, severity=Severity.MAJOR, device_fault=True)
    for one, severity, device_fault in ((BARE, None, False), (event, "major", True)):
        found = row(event=msgspec.to_builtins(history_event(one)))
        assert found.keys() == set(HistoryRow.__struct_fields__)
        shown = found["event"]
        assert isinstance(shown, dict)
        assert shown.keys() == set(HistoryEvent.__struct_fields__)
        assert shown["subject"] == {"kind": "chip", "id": 3, "part": ""}
        assert (shown["severity"], shown["device_fault"]) == (severity, device_fault)
        assert (found["lost"], found["published"]) == (0, None)


def test_a_published_change_has_the_same_form() -> None:
    change = FaultChange("n", 5, "Ascend910-3", "80E01801", None, "RestartNPU")
    found = row(published=msgspec.to_builtins(change))
    shown = found["published"]
    assert isinstance(shown, dict)
    assert shown.keys() == set(FaultChange.__struct_fields__)
    assert (found["event"], shown["was"], shown["severity"]) == (None, None, None)


def test_an_event_shows_all_that_the_journal_has() -> None:
    assert HistoryEvent.__struct_fields__ == EpisodeEvent.__struct_fields__
    page = HistoryPage((), 0, False)
    assert msgspec.json.decode(msgspec.json.encode(page), type=HistoryPage) == page
