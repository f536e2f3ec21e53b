"""Subscriptions and reads of fault events (``docs/spec/dcmi.md#5.1``, 5.2, 5.7)."""

from __future__ import annotations

import queue
import time
from ctypes import byref
from typing import TYPE_CHECKING

import pytest

from contract.codes.levels import Severity
from dcmi_shim.emulator.control import Emulator
from dcmi_shim.emulator.install import LIBRARY, install
from tests.dcmi_shim.emulator.driver import Driver, Event, FaultEvent, Filter, Handler, wait_until
from tests.parts.deadlines import let_time_pass, patience

if TYPE_CHECKING:
    from pathlib import Path

    from tests.dcmi_shim.emulator.conftest import Server, Watchers


@pytest.mark.slow
def test_the_fields_of_an_event(a3: Server, watchers: Watchers) -> None:
    watcher = watchers.start(a3)
    assert watcher.return_code == 0
    before_ms = time.time_ns() // 1_000_000
    a3.emulator.occur(13, "0x81078603")
    event = watcher.event()
    assert event["thread"] == "fault_event_subscribe"[:15]
    assert before_ms <= event["raised"] <= time.time_ns() // 1_000_000
    assert event["name"] == (
        "deviceid=13, node type=port, node id=0-0, sensor type=0xC3, sensor name=0xC3, "
        f"event state=Link Down, time={event['raised']} ms, event assertion=1."
    )
    expected = {
        "type": 0,
        "code": "81078603",
        "deviceid": 13,
        "node_type": 0x83,
        "node_type_ex": 0,
        "severity": 1,
        "assertion": 1,
    }
    assert {key: event[key] for key in expected} == expected


@pytest.mark.slow
def test_a_node_type_that_does_not_fit_into_eight_bits(a2: Server, watchers: Watchers) -> None:
    watcher = watchers.start(a2)
    a2.emulator.occur(0, "8C084E00")
    event = watcher.event()
    assert (event["node_type"], event["node_type_ex"]) == (0x04, 0x604)
    assert "node type=adda" in event["name"]
    assert "event state=Heartbeat Lost" in event["name"]


def test_a_recovery_carries_time_and_serial_of_its_occurrence(
    a2: Server, watchers: Watchers
) -> None:
    watcher = watchers.start(a2)
    a2.emulator.occur(2, "80E18402")
    a2.emulator.occur(2, "80E01801", Severity.MINOR)
    let_time_pass(0.02)
    a2.emulator.recover(2, "80E18402")
    a2.emulator.once(2, "80C98006")
    hbm, ecc, recovery, one_off = (watcher.event() for _ in range(4))
    assert [hbm["severity"], ecc["severity"], one_off["severity"]] == [3, 1, 0]
    assert [e["assertion"] for e in (hbm, ecc, recovery, one_off)] == [1, 1, 0, 2]
    assert (recovery["serial"], recovery["raised"]) == (hbm["serial"], hbm["raised"])
    assert len({hbm["serial"], ecc["serial"], one_off["serial"]}) == 3
    numbers = [e["notify_serial"] for e in (hbm, ecc, recovery, one_off)]
    assert numbers == list(range(numbers[0], numbers[0] + 4))
    assert one_off["raised"] >= hbm["raised"] + 20
    assert len({e["address"] for e in (hbm, ecc, recovery, one_off)}) == 1


def test_delivery_takes_less_than_milliseconds(a2: Server, watchers: Watchers) -> None:
    watcher = watchers.start(a2)
    delays = []
    for _ in range(50):
        begin = time.monotonic_ns()
        a2.emulator.once(0, "80E18402")
        delays.append(watcher.event()["at_ns"] - begin)
    delays.sort()
    assert delays[25] < patience(2_000_000)


FILTERS: list[tuple[dict[str, int | str], list[str]]] = [
    ({}, ["80E18402", "80C98006", "81078603"]),
    ({"flag": 1, "code": "80C98006"}, ["80C98006"]),
    ({"flag": 2, "severity": 1}, ["80E18402", "81078603"]),
    ({"flag": 2, "severity": 3}, ["80E18402"]),
    ({"flag": 4, "node_type": 0x83}, ["81078603"]),
    ({"flag": 6, "severity": 3, "node_type": 0x83}, []),
    ({"flag": 7, "code": "80E18402", "severity": 2, "node_type": 0x70}, ["80E18402"]),
    ({"flag": 0, "code": "80C98006", "severity": 3}, ["80E18402", "80C98006", "81078603"]),
    ({"card": 2, "device": 0}, ["80C98006"]),
]


@pytest.mark.parametrize(("wanted", "expected"), FILTERS)
def test_filters(
    a2: Server, watchers: Watchers, wanted: dict[str, int | str], expected: list[str]
) -> None:
    watcher = watchers.start(a2, **wanted)  # type: ignore[arg-type]
    for chip, code in ((1, "80E18402"), (2, "80C98006"), (3, "81078603")):
        a2.emulator.occur(chip, code)
    assert [watcher.event()["code"] for _ in expected] == expected
    with pytest.raises(queue.Empty):
        watcher.event(timeout=0.1)


def test_only_what_comes_after_the_subscription(a2: Server, watchers: Watchers) -> None:
    a2.emulator.occur(0, "80E18402")
    watcher = watchers.start(a2)
    a2.emulator.occur(0, "80E01801")
    assert watcher.event()["code"] == "80E01801"


@pytest.mark.parametrize(
    ("card", "device", "expected"), [(8, 0, -8001), (0, 1, -8007), (-1, 0, -8001), (0, -1, -8007)]
)
def test_subscribing_to_what_is_not_there(
    a2: Server, watchers: Watchers, card: int, device: int, expected: int
) -> None:
    assert watchers.start(a2, card, device).return_code == expected


def test_a_subscription_without_a_handler(a2: Server) -> None:
    function = a2.driver.library.dcmi_subscribe_fault_event
    assert function(-1, -1, Filter(), Handler()) == -8001


@pytest.mark.slow
def test_a_killed_subscriber_frees_its_place(a2: Server, watchers: Watchers) -> None:
    first = watchers.start(a2)
    rest = [watchers.start(a2) for _ in range(63)]
    assert [watcher.return_code for watcher in (first, *rest)] == [0] * 64
    assert watchers.start(a2).return_code == -8020
    first.kill()
    assert watchers.start(a2).return_code == 0
    a2.emulator.occur(0, "80E18402")
    assert {watcher.event()["code"] for watcher in rest} == {"80E18402"}


@pytest.mark.slow
def test_events_that_a_slow_handler_makes_the_queue_lose_are_counted(
    a2: Server, watchers: Watchers
) -> None:
    slow = watchers.start(a2, handler_ms=60_000)
    quick = watchers.start(a2)
    a2.emulator.once(0, "80E18402")
    slow.event()
    for _ in range(1500):
        a2.emulator.once(0, "80E18402")
        quick.event()
    subscribers = a2.emulator.status()["subscribers"]
    assert isinstance(subscribers, list)
    by_pid = {reader["pid"]: reader for reader in subscribers}
    assert by_pid[quick.process.pid]["dropped"] == 0
    behind = by_pid[slow.process.pid]
    assert (behind["waiting"], behind["dropped"]) == (1024, 1500 - 1024)
    slow.kill()


@pytest.mark.slow
def test_a_new_emulator_directory_under_a_subscriber(
    tmp_path: Path, a2: Server, watchers: Watchers
) -> None:
    """A subscriber follows the name of the state file, not the file that it once opened."""
    watcher = watchers.start(a2)
    (a2.emulator_dir / "state").unlink()
    a2.emulator.start("a2")
    a2.emulator.occur(0, "80E18402")
    assert watcher.event()["code"] == "80E18402"
    assert a2.driver.health(0) in (0, 3)


def test_a_start_keeps_subscribers(a2: Server, watchers: Watchers) -> None:
    watcher = watchers.start(a2)
    a2.emulator.start("a2")
    a2.emulator.occur(5, "80E18402")
    assert watcher.event()["deviceid"] == 5


@pytest.mark.slow
def test_reading_excludes_subscribing(tmp_path: Path) -> None:
    """In a library of its own, because a process may subscribe once."""
    install(tmp_path, tmp_path / "state")
    emulator = Emulator(tmp_path / "state")
    driver = Driver(tmp_path / LIBRARY)
    assert driver.init() == 0
    function = driver.library.dcmi_get_fault_event
    event = Event()
    for timeout_ms in (-2, 30001):
        assert function(-1, -1, timeout_ms, Filter(), byref(event)) == -8001
    assert function(-1, -1, 0, Filter(), None) == -8001
    begin = time.monotonic()
    assert driver.fault_event(50) == -8006
    assert time.monotonic() - begin >= 0.05
    emulator.occur(3, "80E18402")
    emulator.occur(4, "80E01801")
    first, second = driver.fault_event(0), driver.fault_event(-1)
    assert isinstance(first, FaultEvent)
    assert isinstance(second, FaultEvent)
    assert (first.code, first.deviceid, second.code) == (0x80E18402, 3, 0x80E01801)
    assert driver.fault_event(0) == -8006
    subscribe = driver.library.dcmi_subscribe_fault_event
    assert subscribe(-1, -1, Filter(), Handler(lambda _: None)) == -8020
    emulator.close()


@pytest.mark.slow
def test_subscribing_excludes_reading(tmp_path: Path) -> None:
    install(tmp_path, tmp_path / "state")
    emulator = Emulator(tmp_path / "state")
    driver = Driver(tmp_path / LIBRARY)
    assert driver.init() == 0
    seen: list[int] = []
    handler = Handler(lambda event: seen.append(event.contents.fault.code))
    subscribe = driver.library.dcmi_subscribe_fault_event
    assert subscribe(-1, -1, Filter(), handler) == 0
    assert subscribe(-1, -1, Filter(), handler) == -8020
    assert driver.fault_event(0) == -8020
    emulator.once(0, "80E18402")
    wait_until(lambda: seen == [0x80E18402])
    emulator.close()
