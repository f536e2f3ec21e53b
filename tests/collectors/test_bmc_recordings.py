"""What the real NodeD asked a BMC and published of it, poll by poll (``vectors/bmc``).

Where it published a bad reply (D-09) our tracked state stays; everywhere else both are the same.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from collectors.bmc import BmcTracker
from contract.errors import BmcError
from contract.observation import Assertion, Observation
from dcmi_shim.ipmi.alarms import Alarm, reading
from tests.dcmi_shim.bmc_model import hold
from tests.vectors import VECTORS

RECORDINGS = [
    json.loads(line) for line in (VECTORS / "bmc" / "polls.jsonl").read_text().splitlines()
]

REFUSED = {
    "noded/reply-empty": {2: "no byte"},
    "noded/reply-length-not-multiple-of-15": {
        2: "its alarms take 14 bytes",
        4: "its alarms take 29 bytes",
    },
    "noded/reply-shifted-without-manufacturer": {2: "it begins with 01 00 01"},
    "noded/reply-too-short": {
        2: "it has 6 bytes",
        3: "it has 3 bytes",
        4: "it has 0 bytes",
    },
    "noded/reply-wrong-manufacturer": {
        1: "it begins with 57 01 00",
        2: "it begins with 00 00 00",
    },
    "noded/follow-up-page-malformed": {2: "from index 10 on is bad: its alarms take 28 bytes"},
    "noded/count-fields-lie": {
        1: "its count of alarms is 0, but it holds 1",
        2: "its count of alarms is 3, but it holds 1",
        3: "the total is 1, but 2 came",
        4: "its count of alarms is 1, but it holds 0",
        5: "its count of alarms is 1, but it holds 2",
    },
    "noded/index-overflow": {1: "its count of alarms is 255, but it holds 1"},
    "noded/completion-code-not-zero": {
        2: "completion code C1",
        3: "completion code C0",
        4: "completion code FF",
        5: "completion code D5",
    },
    "noded/bmc-hangs-during-poll": {2: "timeout"},
}
"""Polls, by their number in the recording, that are no reading for us, and why."""

PADDED = {"noded/reply-length-not-multiple-of-15": 5}
"""Polls with zeros behind whole alarms, which stand: NodeD takes them for no alarm (D-09)."""


def answer_of(poll: dict[str, Any], first: int) -> bytes:
    """Return what the shim gives to a reading: the reply after its completion code."""
    recorded = poll["replies"][str(first)]
    if recorded == "timeout":
        raise BmcError("timeout")
    reply = bytes.fromhex(recorded)
    if not reply:
        raise BmcError("no byte")
    if reply[0]:
        raise BmcError(f"completion code {reply[0]:02X}")
    return reply[1:]


def devices(upstream: list[list[Any]]) -> set[tuple[str, int, str]]:
    return {(kind, index, code) for kind, index, codes in upstream for code in codes}


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda found: str(found["recording"]))
def test_recording(recording: dict[str, Any]) -> None:
    name = recording["recording"]
    refused = REFUSED.get(name, {})
    published = {code for poll in recording["polls"] for _, _, code in devices(poll["upstream"])}
    tracker = BmcTracker("bmc", {})
    present: set[tuple[str, int, str]] = set()
    before: tuple[Alarm, ...] | None = None
    for number, poll in enumerate(recording["polls"]):
        if number in refused:
            with pytest.raises(BmcError, match=refused[number]):
                hold(reading(before), lambda first, poll=poll: answer_of(poll, first))  # type: ignore[misc]
            continue
        before, _ = hold(reading(before), lambda first, poll=poll: answer_of(poll, first))  # type: ignore[misc]
        for report in tracker.observe(before, now_ms=1_800_000_000_000):
            if isinstance(report, Observation):
                place = (report.subject.part, report.subject.id, report.code)
                if report.assertion is Assertion.PRESENT:
                    present.add(place)
                else:
                    present.remove(place)
        shown = {place for place in present if place[2] in published}
        if PADDED.get(name) == number:
            assert shown == {("System", 0, "2C000031")}
            assert devices(poll["upstream"]) == set()
            continue
        assert shown == devices(poll["upstream"]), f"{name}: poll {number}"


def test_every_refusal_is_of_a_recording() -> None:
    counted = Counter(recording["recording"] for recording in RECORDINGS)
    assert set(counted.values()) == {1}
    assert REFUSED.keys() <= counted.keys()
