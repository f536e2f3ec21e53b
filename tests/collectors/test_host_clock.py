"""The host's clock: steps, and the loss of its synchronisation."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest

from collectors.boot import boot_id
from collectors.clock_programs import ClockAnswer, clock_answers, running_keepers
from collectors.host_clock import (
    ClockSection,
    HostClockCollector,
    KernelClock,
    is_synchronised,
    offset_seconds,
)
from contract.codes.host_codes import CLOCK_STEP, CLOCK_UNSYNCHRONISED, HOST_CLOCK
from contract.observation import Observation, host_subject
from tests.collectors.scripted import RecordedReports, ScriptedDriver, virtual_ms
from tests.parts.collector_context import SavedInMemory, collector_context
from tests.parts.deadlines import let_time_pass, patience, time_passes
from tests.parts.tasks import beside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from collectors.base import CollectorContext

ANSWERED = "node 0 answered"
STEP = f"host 0 Clock once {CLOCK_STEP}"
LOST = f"host 0 Clock present {CLOCK_UNSYNCHRONISED}"
FOUND = f"host 0 Clock absent {CLOCK_UNSYNCHRONISED}"


class Host:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.offset = 1_700_000_000.0
        self.synchronised: bool | None = False
        self.answers: list[ClockAnswer] = []

    def collector(self, around: CollectorContext) -> HostClockCollector:
        return HostClockCollector(
            ClockSection(),
            around,
            offset=lambda: self.offset,
            synchronised=lambda: self.synchronised,
            answers=lambda _: self.answers,
        )


@contextlib.asynccontextmanager
async def running(
    host: Host, memory: SavedInMemory | None = None, *, lost: bool = False
) -> AsyncIterator[RecordedReports]:
    """Run the collector; yield its reports."""
    recorded = RecordedReports()
    tracked = {(host_subject(HOST_CLOCK, 0), CLOCK_UNSYNCHRONISED): 1} if lost else {}
    around = collector_context(
        recorded, virtual_ms, ScriptedDriver(), saved_state=memory, tracked=tracked
    )
    async with beside(host.collector(around).run()):
        await time_passes(1)
        yield recorded


def texts(recorded: RecordedReports) -> list[str]:
    reports = (one for _, batch in recorded.batches for one in batch)
    return [one.text for one in reports if isinstance(one, Observation)]


@pytest.mark.looptime
async def test_steps_in_both_directions_have_their_size() -> None:
    host = Host()
    async with running(host) as recorded:
        for step in (9.9, 10.0, -3600.5, -9.0, 0.0):
            host.offset += step
            await asyncio.sleep(60)
    assert recorded.words() == [ANSWERED, STEP, STEP]
    assert texts(recorded) == [
        "the clock was set forward by 10.0 s",
        "the clock was set back by 3600.5 s",
    ]


@pytest.mark.looptime
async def test_a_step_between_two_readings() -> None:
    host, memory = Host(), SavedInMemory()
    async with running(host, memory):
        pass
    host.offset -= 60
    async with running(host, memory) as recorded:
        await asyncio.sleep(120)
    assert recorded.words() == [ANSWERED, STEP]
    assert memory.content is not None
    memory.content = memory.content.replace(boot_id().encode(), b"another")
    host.offset -= 60
    async with running(host, memory) as recorded:
        pass
    assert recorded.words() == [ANSWERED], "another boot has another offset"
    async with running(host, SavedInMemory(b"{")) as recorded:
        pass
    assert recorded.words() == [ANSWERED]


@pytest.mark.looptime
async def test_only_what_was_synchronised_can_lose_it() -> None:
    host, memory = Host(), SavedInMemory()
    async with running(host, memory) as recorded:
        await asyncio.sleep(60)
        assert recorded.words() == [ANSWERED]
        host.synchronised = True
        await asyncio.sleep(60)
    host.synchronised = None
    async with running(host, memory) as recorded:
        host.synchronised = False
        await asyncio.sleep(60)
        assert recorded.words() == [ANSWERED, LOST]
    async with running(host, memory, lost=True) as recorded:
        assert recorded.words() == [ANSWERED]
        host.synchronised = True
        await asyncio.sleep(60)
    assert recorded.words() == [ANSWERED, FOUND]


def test_the_clocks_of_this_machine() -> None:
    before = offset_seconds()
    let_time_pass(0.01)
    assert abs(offset_seconds() - before) < 0.005
    assert is_synchronised() in (True, False, None)


@pytest.mark.parametrize(
    ("flagged", "error_us", "synchronised"),
    [
        (False, 300, True),
        (False, 15_900_000, True),
        (True, 9_776, True),
        (True, 3_999_999, True),
        (True, 4_000_000, False),
        (True, 16_000_000, False),
        (True, -1, False),
    ],
)
def test_the_flag_alone_proves_nothing(flagged: bool, error_us: int, synchronised: bool) -> None:
    assert KernelClock(flagged, error_us).is_synchronised is synchronised


@pytest.mark.looptime
async def test_the_answers_of_other_programs_are_named() -> None:
    host = Host()
    host.synchronised = True
    async with running(host) as recorded:
        host.synchronised = False
        host.answers = [ClockAnswer("chronyd", False, 0), ClockAnswer("ntpd", True, 3)]
        await asyncio.sleep(60)
    assert texts(recorded) == [
        "the clock was synchronised in this boot and is not any more; "
        "chronyd answers that it is not synchronised; "
        "ntpd answers that it is synchronised (stratum 3)"
    ]


# Replies of chronyd 4.3 on its command port and its NTP port, with a time of its own and without.
TRACKED = (
    "060200000021000500000000000000000000000700000000000000007f7f0101"
    "0000000000000000000000000000000000000000000a0000000000006b0afd510bc3f632"
)
UNTRACKED = (
    "060200000021000500000000000000000000000700000000000000000000000000000000000000000000000000000000"
    "0000000000000003000000000000000000000000"
)
SERVED = (
    "240a00e700000000000000007f7f0101eeb57bd1328846e9"
    "0000000000000000eeb57bd25d8d70bdeeb57bd25d90c2f8"
)
UNSERVED = (
    "e40000e70001000000010000000000000000000000000000"
    "0000000000000000eeb57bd4e2703a0feeb57bd4e271bc68"
)


@contextlib.contextmanager
def program(reply: str, length: int) -> Iterator[tuple[int, list[bytes]]]:
    """Answer the first request on a port of this host with ``reply``; yield the port and it."""
    requests: list[bytes] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(patience(10))

        def answer() -> None:
            request, asker = server.recvfrom(1024)
            requests.append(request)
            server.sendto(bytes.fromhex(reply).ljust(length, b"\0"), asker)

        thread = threading.Thread(target=answer)
        thread.start()
        yield server.getsockname()[1], requests
        thread.join()


@pytest.mark.parametrize(
    ("tracking", "served", "answers"),
    [
        (
            TRACKED,
            SERVED,
            [
                "chronyd answers that it is synchronised (stratum 10)",
                "the NTP server of this host answers that it is synchronised (stratum 10)",
            ],
        ),
        (
            UNTRACKED,
            UNSERVED,
            [
                "chronyd answers that it is not synchronised",
                "the NTP server of this host answers that it is not synchronised",
            ],
        ),
        ("0603", "21", []),
    ],
)
def test_programs_are_asked(tracking: str, served: str, answers: list[str]) -> None:
    with program(tracking, 104) as (chrony, asked), program(served, 48) as (ntp, questions):
        assert list(map(str, clock_answers(5, chrony, ntp))) == answers
    assert [len(one) for one in (*asked, *questions)] == [104, 48]


def test_no_answer_is_no_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        assert clock_answers(0.05, port, port) == []
    for process, name in (("1", "systemd"), ("22", "chronyd"), ("x", "ntpd")):
        (tmp_path / process).mkdir()
        (tmp_path / process / "comm").write_text(f"{name}\n")
    # As of a process that ends meanwhile.
    monkeypatch.setattr(Path, "stat", Mock(side_effect=ProcessLookupError))
    assert running_keepers(tmp_path) == ["chronyd"]
