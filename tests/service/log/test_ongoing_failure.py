"""A failure has one line when it begins and one when it ends."""

from __future__ import annotations

import logging

import pytest

from service.log.ongoing_failure import OngoingFailure, OngoingFailures

_log = logging.getLogger("tests.trouble")


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger=_log.name)
    return caplog


def test_a_failure_has_a_line_at_its_begin_and_at_its_end(lines: pytest.LogCaptureFixture) -> None:
    trouble = OngoingFailure(_log, "%s fails: %s", "%s works after %d s", "it", level=logging.ERROR)
    trouble.end(0)
    for reason in ("no answer", "refused"):
        trouble.record_failure(reason)
        assert trouble.reason == reason
    trouble.end(5)
    trouble.end(6)
    assert trouble.reason is None
    assert [(one.levelname, one.getMessage()) for one in lines.records] == [
        ("ERROR", "it fails: no answer"),
        ("WARNING", "it works after 5 s"),
    ]


def test_the_end_has_no_line_where_it_has_no_text(lines: pytest.LogCaptureFixture) -> None:
    trouble = OngoingFailure(_log, "100%% wrong: %s")
    trouble.record_failure("no answer")
    trouble.end()
    trouble.record_failure("no answer")
    assert [one.getMessage() for one in lines.records] == ["100% wrong: no answer"] * 2


def test_each_key_has_its_own_lines(lines: pytest.LogCaptureFixture) -> None:
    troubles = OngoingFailures[int](_log, "%s fails: %s", "%s works", lambda key: f"number {key}")
    for key in (1, 2, 1, 3):
        troubles.record_failure(key, "no answer")
    troubles.forget(3)
    assert troubles.reasons == {1: "no answer", 2: "no answer"}
    for key in (2, 2, 3):
        troubles.end(key)
    assert [one.getMessage() for one in lines.records] == [
        "number 1 fails: no answer",
        "number 2 fails: no answer",
        "number 3 fails: no answer",
        "number 2 works",
    ]
