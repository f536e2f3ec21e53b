"""Calls that hang, are slow or fail; calls of two threads at once."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from ctypes import create_string_buffer
from typing import TYPE_CHECKING

import pytest

from contract.errors import ConfigurationError
from tests.dcmi_shim.emulator.driver import Call, wait_until
from tests.parts.deadlines import let_time_pass, nothing_happens_for, patience

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.dcmi_shim.emulator.conftest import Server


def test_a_call_hangs_on_one_chip_until_it_is_cleared(a3: Server) -> None:
    a3.emulator.hang("get_device_health", chip=3)
    stuck = Call(lambda: a3.driver.health(1, 1))
    nothing_happens_for(0.1, because="a call answers within milliseconds")
    assert stuck.is_alive()
    assert a3.driver.health(1, 0) == 0
    assert a3.driver.codes(1, 1) == []
    a3.emulator.clear("dcmi_get_device_health", chip=2)
    nothing_happens_for(0.02, because="a call that is let go answers within milliseconds")
    assert stuck.is_alive()
    a3.emulator.clear("dcmi_get_device_health", chip=3)
    stuck.join(patience(5))
    assert stuck.answer == 0


@pytest.mark.parametrize("how", ["clear", "reset", "start"])
def test_clear_reset_and_start_end_a_hanging_call(a2: Server, how: str) -> None:
    a2.emulator.hang("dcmi_init")
    stuck = Call(a2.driver.init)
    nothing_happens_for(0.05, because="a call answers within milliseconds")
    assert stuck.is_alive()
    ends: dict[str, Callable[[], None]] = {
        "clear": lambda: a2.emulator.clear("init"),
        "reset": a2.emulator.reset,
        "start": a2.emulator.start,
    }
    ends[how]()
    stuck.join(patience(5))
    assert stuck.answer == 0


@pytest.mark.slow
def test_a_slow_call(a2: Server) -> None:
    seconds = patience(0.5)
    a2.emulator.slow("get_device_health", round(1000 * seconds), chip=2)
    begin = time.monotonic()
    assert a2.driver.health(1) == 0
    assert time.monotonic() - begin < seconds
    begin = time.monotonic()
    assert a2.driver.health(2) == 0
    assert seconds <= time.monotonic() - begin < patience(3)


def test_a_slow_call_is_cut_short(a2: Server) -> None:
    a2.emulator.slow("get_device_health", 60_000)
    stuck = Call(lambda: a2.driver.health(0))
    let_time_pass(0.05)
    a2.emulator.reset()
    stuck.join(patience(5))
    assert stuck.answer == 0


def test_sampling_ends_with_a_reset(a2: Server) -> None:
    out = create_string_buffer((2000).to_bytes(4, "little"), 88)
    sampling = Call(lambda: int(a2.driver.library.dcmi_get_pcie_link_bandwidth_info(0, 0, out)))
    let_time_pass(0.05)
    a2.emulator.reset()
    sampling.join(patience(5))
    assert sampling.answer == 0


def test_a_failing_call(a2: Server) -> None:
    a2.emulator.fail("get_device_health", -8005, chip=2)
    a2.emulator.fail("get_device_health", -8255)
    assert [a2.driver.health(card) for card in (1, 2)] == [-8255, -8005]
    a2.emulator.clear("get_device_health")
    assert [a2.driver.health(card) for card in (1, 2)] == [0, 0]


def test_a_slow_call_that_fails(a2: Server) -> None:
    a2.emulator.slow("get_device_health", 100)
    a2.emulator.fail("get_device_health", -8005)
    begin = time.monotonic()
    assert a2.driver.health(0) == -8005
    assert time.monotonic() - begin >= 0.1
    assert a2.emulator.status()["hooks"] == [
        {
            "function": "dcmi_get_device_health",
            "chip": None,
            "hang": False,
            "slow_ms": 100,
            "return_code": -8005,
        }
    ]


def test_hooks_reach_calls_by_card_by_id_and_unsupported_ones(a3: Server) -> None:
    a3.emulator.fail("get_device_num_in_card", -8008, chip=7)
    a3.emulator.fail("get_device_phyid_from_logicid", -8009, chip=6)
    a3.emulator.fail("get_memory_info", -8010, chip=5)
    a3.emulator.fail("dcmiv2_init", -8011)
    out = create_string_buffer(64)
    library = a3.driver.library
    assert [library.dcmi_get_device_num_in_card(card, out) for card in (2, 3)] == [0, -8008]
    assert [library.dcmi_get_device_phyid_from_logicid(id_, out) for id_ in (5, 6)] == [0, -8009]
    assert [library.dcmi_get_memory_info(2, device, out) for device in (0, 1)] == [-8255, -8010]
    assert library.dcmiv2_init() == -8011


def test_wrong_hooks(a2: Server) -> None:
    with pytest.raises(ConfigurationError, match="'get_weather' is not a function"):
        a2.emulator.hang("get_weather")
    with pytest.raises(ConfigurationError, match="dcmi_init is not about a chip"):
        a2.emulator.hang("init", chip=0)
    with pytest.raises(ConfigurationError, match="8 is not a chip"):
        a2.emulator.hang("get_device_health", chip=8)
    with pytest.raises(ConfigurationError, match="-1 is not a chip"):
        a2.emulator.clear("get_device_health", chip=-1)
    for code in (0, 5, -(2**31) - 1):
        with pytest.raises(ConfigurationError, match="return_code"):
            a2.emulator.fail("get_device_health", code)
    for delay_ms in (0, -1, 3_600_001):
        with pytest.raises(ConfigurationError, match="delay_ms"):
            a2.emulator.slow("get_device_health", delay_ms)
    assert a2.emulator.status()["hooks"] == []


def test_calls_of_two_threads_at_once_are_counted(a2: Server) -> None:
    assert a2.emulator.status()["concurrent_calls"] == 0
    a2.emulator.hang("get_device_voltage")
    out = create_string_buffer(4)
    stuck = Call(lambda: int(a2.driver.library.dcmi_get_device_voltage(0, 0, out)))

    def is_counted() -> bool:
        # Until the other thread is in its call, this one is alone.
        assert a2.driver.health(0) == 0
        return a2.emulator.status()["concurrent_calls"] == 1

    wait_until(is_counted)
    assert a2.driver.health(1) == 0
    assert a2.emulator.status()["concurrent_calls"] == 2
    a2.emulator.clear("get_device_voltage")
    stuck.join(patience(5))
    assert a2.driver.health(0) == 0
    assert a2.emulator.status()["concurrent_calls"] == 2


def test_calls_of_two_threads_at_once_abort_when_asked_to(a2: Server) -> None:
    program = """
import ctypes, sys, threading, time
library = ctypes.CDLL(sys.argv[1])
assert library.dcmi_init() == 0
out = ctypes.create_string_buffer(64)
call = lambda: library.dcmi_get_device_voltage(0, 0, out)
threading.Thread(target=call, daemon=True).start()
time.sleep(0.2)
call()
"""
    a2.emulator.hang("get_device_voltage")
    result = subprocess.run(
        [sys.executable, "-c", program, a2.library],
        env={**os.environ, "VIGIL_EMULATOR_CONCURRENT": "abort"},
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    assert result.returncode == -6
    assert "dcmi_get_device_voltage entered while another thread is in a call" in result.stderr
