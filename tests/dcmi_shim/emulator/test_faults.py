"""Error list, health and events belong together (``docs/spec/dcmi.md#5.5``, 5.6)."""

from __future__ import annotations

import time
from ctypes import byref, c_int, c_uint, create_string_buffer
from typing import TYPE_CHECKING

import pytest

from contract.codes.levels import Severity
from contract.errors import ConfigurationError, EmulatorError
from dcmi_shim.emulator.codes import parse_code, severity_of
from tests.dcmi_shim.emulator.driver import Driver, wait_until
from tests.parts.deadlines import let_time_pass, nothing_happens_for, patience

if TYPE_CHECKING:
    from tests.dcmi_shim.emulator.conftest import Server, Watchers


@pytest.mark.slow
def test_the_list_follows_the_events(a2: Server, watchers: Watchers) -> None:
    watcher = watchers.start(a2)
    # The delay begins with the change, and a watcher may be told of it later.
    began = time.monotonic()
    a2.emulator.occur(3, "80E18402")
    watcher.event()
    wait_until(lambda: a2.driver.codes(3) == ["80E18402"])
    assert 0.045 <= time.monotonic() - began < patience(2)
    assert a2.driver.health(3) == 3
    began = time.monotonic()
    a2.emulator.recover(3, "80E18402")
    watcher.event()
    wait_until(lambda: a2.driver.codes(3) == [])
    assert 0.295 <= time.monotonic() - began < patience(2)
    assert a2.driver.health(3) == 0


def test_a_one_off_event_never_enters_the_list(a2: Server) -> None:
    a2.emulator.once(3, "80E18402")
    nothing_happens_for(0.06, because="the list shows an event after its delay, 0.05 s")
    assert a2.driver.codes(3) == []
    assert a2.driver.health(3) == 0


def test_health_is_the_worst_severity(a3: Server) -> None:
    seen = []
    for code in ("80C98006", "81078603", "80E24E00", "80E01801"):
        a3.emulator.occur(9, code)
        wait_until(lambda code=code: code in a3.driver.codes(4, 1))  # type: ignore[misc]
        seen.append(a3.driver.health(4, 1))
    assert seen == [0, 1, 2, 3]
    assert a3.driver.codes(4, 1) == ["80C98006", "81078603", "80E24E00", "80E01801"]
    assert a3.driver.health(4, 0) == 0
    assert a3.driver.codes(4, 0) == []


@pytest.mark.parametrize(
    ("code", "severity"),
    [
        ("40F84E00", Severity.CRITICAL),
        ("4c4ba00c", Severity.MAJOR),
        ("0x80E18400", Severity.MINOR),
        ("0X80e01805", Severity.SUGGESTION),
        ("A4025021", Severity.MINOR),
    ],
)
def test_severities_are_those_of_the_drivers_list(code: str, severity: Severity) -> None:
    assert severity_of(parse_code(code)) is severity


@pytest.mark.slow
def test_a_fault_that_comes_back_before_it_has_left_the_list(a2: Server) -> None:
    a2.emulator.occur(0, "80E18402")

    def comes_back_in_time() -> bool:
        wait_until(lambda: a2.driver.codes(0) == ["80E18402"])
        began = time.monotonic()
        a2.emulator.recover(0, "80E18402")
        a2.emulator.occur(0, "80E18402")
        return time.monotonic() - began < 0.25

    # After 0.3 s it has left the list, and another one would begin.
    wait_until(comes_back_in_time)
    end = time.monotonic() + 0.4
    while time.monotonic() < end:
        assert a2.driver.codes(0) == ["80E18402"]
        let_time_pass(0.01)


@pytest.mark.slow
def test_the_same_fault_twice_is_announced_twice_and_recovers_once(
    a2: Server, watchers: Watchers
) -> None:
    watcher = watchers.start(a2)
    a2.emulator.occur(0, "80E18402")
    a2.emulator.occur(0, "80E18402", Severity.MINOR)
    first, second = watcher.event(), watcher.event()
    assert (first["serial"], first["raised"]) == (second["serial"], second["raised"])
    wait_until(lambda: a2.driver.codes(0) == ["80E18402"])
    assert a2.driver.health(0) == 1
    a2.emulator.recover(0, "80E18402")
    wait_until(lambda: a2.driver.codes(0) == [])
    with pytest.raises(EmulatorError, match="chip 0 has no fault 80E18402"):
        a2.emulator.recover(0, "80e18402")


@pytest.mark.slow
def test_a_chip_lists_at_most_128_codes(a2: Server) -> None:
    codes = [f"{0xA0000001 + number:08X}" for number in range(128)]
    for code in codes:
        a2.emulator.occur(1, code)
    with pytest.raises(EmulatorError, match="128"):
        a2.emulator.occur(1, "80E18402")
    wait_until(lambda: a2.driver.codes(1) == codes)
    count = c_int(-5)
    some = (c_uint * 128)()
    function = a2.driver.library.dcmi_get_device_errorcode_v2
    assert function(1, 0, byref(count), some, 127) == -8001
    assert count.value == -5
    a2.emulator.recover(1, codes[0])
    a2.emulator.occur(1, "80E18402")
    wait_until(lambda: a2.driver.codes(1) == [*codes[1:], "80E18402"])


def test_a_lost_event(a2: Server, watchers: Watchers) -> None:
    watcher = watchers.start(a2)
    a2.emulator.lose_next_event()
    a2.emulator.occur(0, "80E18402")
    a2.emulator.occur(0, "80E01801")
    assert watcher.event()["code"] == "80E01801"
    wait_until(lambda: a2.driver.codes(0) == ["80E18402", "80E01801"])


@pytest.mark.slow
def test_a_change_without_any_trace(a2: Server, watchers: Watchers) -> None:
    watcher = watchers.start(a2)
    a2.emulator.lose_everything_next()
    a2.emulator.occur(0, "80E18402")
    a2.emulator.occur(0, "80E01801")
    assert watcher.event()["code"] == "80E01801"
    wait_until(lambda: a2.driver.codes(0) == ["80E01801"])
    a2.emulator.lose_everything_next()
    a2.emulator.recover(0, "80E01801")
    nothing_happens_for(0.35, because="the list shows a recovery after its delay, 0.3 s")
    assert a2.driver.codes(0) == ["80E01801"]


def test_card_drop(a3: Server) -> None:
    a3.emulator.drop(5)
    assert a3.driver.health(2, 1) == -8012
    assert a3.driver.codes(2, 1) == []
    assert a3.driver.health(2, 0) == 0
    a3.emulator.return_card(5)
    assert a3.driver.health(2, 1) == 0


def test_hard_card_drop(a3: Server) -> None:
    a3.emulator.drop(5, hard=True)
    out = create_string_buffer(4096)
    for name in ("type", "chip_info_v2", "health", "temperature", "hbm_info", "boot_status"):
        function = getattr(a3.driver.library, f"dcmi_get_device_{name}")
        assert function(2, 1, out) == -8012
        assert function(2, 0, out) == 0
    assert a3.driver.library.dcmi_get_device_phyid_from_logicid(5, out) == -8012
    assert a3.driver.library.dcmi_get_device_num_in_card(2, out) == 0
    a3.emulator.return_card(5)
    assert a3.driver.health(2, 1) == 0


def test_words_for_a_code(a2: Server) -> None:
    text = create_string_buffer(256)
    function = a2.driver.library.dcmi_get_device_errorcode_string
    assert function(0, 0, c_uint(0x8C084E00), text, 256) == 0
    expected = b"node type=adda, sensor type=Heartbeat Sensor, event state=Heartbeat Lost."
    assert text.value == expected
    assert function(0, 0, c_uint(0x8C084E00), text, len(expected)) == -8001


def test_two_processes_see_the_same_hardware(a2: Server, watchers: Watchers) -> None:
    one, other = watchers.start(a2), watchers.start(a2)
    a2.emulator.occur(6, "80E18402")
    assert one.event()["code"] == other.event()["code"] == "80E18402"
    again = Driver(a2.library)
    wait_until(lambda: again.codes(6) == ["80E18402"])


@pytest.mark.parametrize("chip", [-1, 8, 16, 2**32, -(2**40)])
def test_chips_that_are_not_there(a2: Server, chip: int) -> None:
    for change in (a2.emulator.drop, a2.emulator.return_card):
        with pytest.raises(ConfigurationError, match=f"chip: {chip} is not a chip"):
            change(chip)
    for raise_ in (a2.emulator.occur, a2.emulator.once, a2.emulator.recover):
        with pytest.raises(ConfigurationError, match="is not a chip"):
            raise_(chip, "80E18402")


@pytest.mark.parametrize("code", ["", "80E1840", "80E184022", "00000000", "80E1840G", "-0E18402"])
def test_codes_that_are_none(a2: Server, code: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a fault code"):
        a2.emulator.occur(0, code)


def test_reset_is_silent_and_complete(a2: Server) -> None:
    a2.emulator.occur(0, "80E18402")
    a2.emulator.drop(1)
    a2.emulator.fail("get_device_health", -8005, chip=2)
    wait_until(lambda: a2.driver.health(0) == 3)
    events = a2.emulator.status()["events"]
    a2.emulator.reset()
    assert [a2.driver.health(card) for card in range(3)] == [0, 0, 0]
    assert a2.driver.codes(0) == []
    assert a2.emulator.status()["events"] == events
