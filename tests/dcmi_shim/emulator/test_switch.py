"""The on-board switches through their library's C ABI (``docs/spec/dcmi.md#6``)."""

from __future__ import annotations

import ctypes
import queue
import subprocess
import threading
import time
from contextlib import closing
from ctypes import byref, c_char, c_ubyte, c_uint, c_uint16, c_uint64
from typing import TYPE_CHECKING, Any

import pytest

from contract.codes.levels import Severity
from contract.errors import ConfigurationError, EmulatorError
from dcmi_shim.emulator.control import Emulator
from dcmi_shim.emulator.install import LIBRARY, SWITCH_LIBRARY, install
from dcmi_shim.emulator.switch_faults import EmulatedSwitchFault, code_of
from tests.dcmi_shim.emulator.conftest import Watcher
from tests.dcmi_shim.emulator.driver import wait_until
from tests.parts.deadlines import nothing_happens_for, patience

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.dcmi_shim.emulator.conftest import Server

PORT_FAILS = EmulatedSwitchFault(code_of("[0x00f1fef5,155912,cpu,na]"), chip=2, port=3, peer_port=4)
PORT_DOWN = EmulatedSwitchFault(code_of("[0x08520003,na,L2,na]"), chip=2, port=47, peer_port=65535)
CHIP_FAILS = EmulatedSwitchFault(code_of("[0x00f103b6,155909,na,na]"), chip=6)
EXPORTED = {
    "lq_dcmi_init",
    "lq_dcmi_subscribe_fault_event",
    "lq_dcmi_get_fault_info",
    "lq_dcmi_get_version",
    "lq_dcmi_get_fault_nums",
}


class Event(ctypes.Structure):
    _fields_ = (
        ("type", c_uint),
        ("sub_type", c_uint),
        ("peer", c_uint16),
        ("peer_port", c_uint16),
        ("chip", c_uint16),
        ("port", c_uint16),
        ("severity", c_ubyte),
        ("assertion", c_ubyte),
        ("reserve", c_char * 6),
        ("serial", c_uint),
        ("notification", c_uint),
        ("raised", c_uint64),
        ("param", c_ubyte * 40),
        ("info", c_char * 32),
    )


class Filter(ctypes.Structure):
    _fields_ = (
        ("flag", c_uint),
        ("type", c_uint),
        ("sub_type", c_uint),
        ("severity", c_ubyte),
        ("chip", c_uint),
    )


Handler = ctypes.CFUNCTYPE(None, ctypes.POINTER(Event))


class Switches:
    """The library in this process, which initialises it once."""

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))
        self.before = self.listed(1)
        self.init = self.library.lq_dcmi_init()

    def listed(self, room: int = 128) -> list[tuple[int, ...]] | int:
        """Return the listed faults, or the return code.

        A fault is type, sub-type, peer, its port, chip, port and severity.
        """
        count = c_uint(99)
        events = (Event * room)()
        code = int(self.library.lq_dcmi_get_fault_info(room, byref(count), events))
        if code != 0:
            return code
        assert all(event.assertion == 1 and event.raised for event in events[: count.value])
        return [
            (e.type, e.sub_type, e.peer, e.peer_port, e.chip, e.port, e.severity)
            for e in events[: count.value]
        ]

    def number(self) -> int:
        count = c_uint(99)
        assert self.library.lq_dcmi_get_fault_nums(byref(count)) == 0
        return count.value


@pytest.fixture(scope="module")
def opened(built_a3: Server) -> Switches:
    built_a3.emulator.start("a3")
    return Switches(built_a3.library.with_name(SWITCH_LIBRARY.name))


@pytest.fixture
def switches(opened: Switches, a3: Server) -> Switches:
    return opened


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("switch") / "watch_switch"
    source = str(__file__).replace("test_switch.py", "watch_switch.c")
    command = ["gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o", str(built), source]
    subprocess.run([*command, "-ldl"], check=True)
    return built


@pytest.fixture
def watch(program: Path, a3: Server) -> Iterator[Callable[..., Watcher]]:
    started: list[Watcher] = []

    def start(flag: int = 0, kind: int = 0, sub: int = 0, severity: int = 0, chip: int = 0) -> Any:
        values = tuple(map(str, (flag, kind, sub, severity, chip)))
        library = a3.library.with_name(SWITCH_LIBRARY.name)
        started.append(Watcher(program, library, values))
        return started[-1]

    yield start
    for watcher in started:
        watcher.close()


@pytest.mark.slow
def test_only_the_a3_has_the_library(built_a2: Server, built_a3: Server) -> None:
    assert not built_a2.library.with_name(SWITCH_LIBRARY.name).exists()
    library = built_a3.library.with_name(SWITCH_LIBRARY.name)
    listing = subprocess.run(
        ["nm", "--dynamic", "--defined-only", library], capture_output=True, text=True, check=True
    ).stdout
    assert {line.split()[2] for line in listing.splitlines()} == EXPORTED


@pytest.mark.slow
def test_a_driver_that_becomes_an_a2_loses_the_library(tmp_path: Path) -> None:
    install(tmp_path, tmp_path / "emulator", "a3", without=["lq_dcmi_get_fault_nums"])
    library = tmp_path / LIBRARY.with_name(SWITCH_LIBRARY.name)
    assert not hasattr(ctypes.CDLL(str(library)), "lq_dcmi_get_fault_nums")
    install(tmp_path, tmp_path / "emulator", "a2")
    assert not library.exists()


@pytest.mark.slow
def test_initialisation(switches: Switches) -> None:
    assert (switches.before, switches.init) == (-8009, 0)
    assert switches.library.lq_dcmi_init() == -8017
    versions = c_uint(), c_uint()
    assert switches.library.lq_dcmi_get_version(byref(versions[0]), byref(versions[1])) == 0
    assert versions[0].value == versions[1].value != 0


@pytest.mark.slow
def test_no_switches_behind_the_library(tmp_path: Path) -> None:
    install(tmp_path, tmp_path / "emulator", "a3")
    with closing(Emulator(tmp_path / "emulator")) as emulator:
        emulator.start("a2")
        library = ctypes.CDLL(str(tmp_path / LIBRARY.with_name(SWITCH_LIBRARY.name)))
        assert library.lq_dcmi_init() == -8004
        with pytest.raises(ConfigurationError, match="no on-board switches"):
            emulator.switch_occur(PORT_FAILS)
        assert emulator.status()["switch"] is None


@pytest.mark.slow
def test_the_list_follows_shortly_after(a3: Server, switches: Switches) -> None:
    began = time.monotonic()
    a3.emulator.switch_occur(PORT_FAILS)
    a3.emulator.switch_occur(CHIP_FAILS, Severity.CRITICAL)
    # On a busy machine this look may be late.
    assert switches.listed() == [] or time.monotonic() - began > 0.04
    wait_until(lambda: switches.number() == 2)
    assert time.monotonic() - began > 0.04
    assert switches.listed() == [
        (0x00F1FEF5, 155912, 0, 4, 2, 3, 2),
        (0x00F103B6, 155909, 0xFFFF, 0, 6, 0xFFFF, 3),
    ]
    began = time.monotonic()
    a3.emulator.switch_recover(PORT_FAILS)
    assert switches.number() == 2 or time.monotonic() - began > 0.25
    wait_until(lambda: switches.number() == 1)
    assert time.monotonic() - began > 0.25
    with pytest.raises(EmulatorError, match="switch chip 2 port 3 has no fault"):
        a3.emulator.switch_recover(PORT_FAILS)
    a3.emulator.reset()
    assert switches.listed() == []


def test_a_list_is_cut_at_its_length(a3: Server, switches: Switches) -> None:
    for port in range(48):
        for chip in range(3):
            a3.emulator.switch_occur(EmulatedSwitchFault(PORT_FAILS.code, chip, port))
    wait_until(lambda: switches.number() == 144)
    full = switches.listed()
    assert isinstance(full, list)
    assert len(full) == 128
    assert switches.listed(5) == full[:5]


def test_wrong_arguments(switches: Switches) -> None:
    count = c_uint()
    get = switches.library.lq_dcmi_get_fault_info
    assert get(0, byref(count), (Event * 1)()) == -8001
    assert get(1, None, (Event * 1)()) == -8001
    assert get(1, byref(count), None) == -8001


def test_the_fields_of_an_event(a3: Server, watch: Callable[..., Watcher]) -> None:
    watcher = watch()
    assert watcher.return_code == 0
    before_ms = time.time_ns() // 1_000_000
    began_ns = time.monotonic_ns()
    a3.emulator.switch_occur(PORT_DOWN, Severity.MINOR)
    occurred = watcher.event()
    a3.emulator.switch_recover(PORT_DOWN)
    recovered = watcher.event()
    a3.emulator.switch_once(PORT_FAILS)
    notice = watcher.event()
    assert occurred["at_ns"] - began_ns < 50_000_000
    assert occurred["thread"] == "lq_dcmi_update"
    assert before_ms <= occurred["raised"] <= time.time_ns() // 1_000_000
    expected = {
        "type": 0x08520003,
        "sub_type": 0xFFFFFFFF,
        "peer": 2,
        "peer_port": 65535,
        "chip": 2,
        "port": 47,
        "severity": 1,
    }
    assert {key: occurred[key] for key in expected} == expected
    assert {key: recovered[key] for key in expected} == expected
    assert [event["assertion"] for event in (occurred, recovered, notice)] == [1, 0, 2]
    same = ("serial", "raised")
    assert [recovered[key] for key in same] == [occurred[key] for key in same]
    assert notice["serial"] != occurred["serial"]
    assert notice["notification"] == occurred["notification"] + 2


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({}, [2, 2, 6]),
        ({"flag": 1, "kind": 0x08520003}, [2]),
        ({"flag": 2, "sub": 155909}, [6]),
        ({"flag": 4, "severity": 2}, [2, 2]),
        ({"flag": 8, "chip": 6}, [6]),
        ({"flag": 15, "kind": 0x00F1FEF5, "sub": 155912, "severity": 2, "chip": 2}, [2]),
        ({"flag": 15, "kind": 0x00F1FEF5, "sub": 155912, "severity": 3, "chip": 2}, []),
        ({"flag": 0, "kind": 1, "sub": 1, "severity": 1, "chip": 1}, [2, 2, 6]),
    ],
)
def test_filters(
    a3: Server, watch: Callable[..., Watcher], wanted: dict[str, int], expected: list[int]
) -> None:
    watcher = watch(**wanted)
    a3.emulator.switch_occur(PORT_FAILS)
    a3.emulator.switch_occur(PORT_DOWN)
    a3.emulator.switch_occur(CHIP_FAILS, Severity.CRITICAL)
    assert [watcher.event()["chip"] for _ in expected] == expected
    with pytest.raises(queue.Empty):
        watcher.event(timeout=0.1)


@pytest.mark.parametrize("wanted", [{"flag": 4, "severity": 4}, {"flag": 8, "chip": 7}])
def test_filters_that_let_nothing_through(
    watch: Callable[..., Watcher], wanted: dict[str, int]
) -> None:
    assert watch(**wanted).return_code == -8015


def test_subscriptions_of_one_process(a3: Server, switches: Switches) -> None:
    received: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
    handlers = [
        Handler(lambda event, number=number: received.put((number, event.contents.chip)))
        for number in range(17)
    ]
    subscribe = switches.library.lq_dcmi_subscribe_fault_event
    filters = [Filter(flag=1, type=0x00F1FEF5, sub_type=number) for number in range(16)]
    assert [subscribe(filters[number], handlers[number]) for number in range(15)] == [0] * 15
    assert subscribe(filters[15], handlers[15]) == -8014
    # The same filter again takes the place of the first.
    assert subscribe(filters[0], handlers[16]) == 0
    a3.emulator.switch_occur(PORT_FAILS)
    assert sorted(received.get(timeout=patience(5)) for _ in range(15)) == [
        (n, 2) for n in range(1, 15)
    ] + [(16, 2)]
    assert [subscribe(one, Handler()) for one in filters] == [0] * 15 + [-8016]
    a3.emulator.switch_recover(PORT_FAILS)
    with pytest.raises(queue.Empty):
        received.get(timeout=0.1)


@pytest.mark.slow
def test_no_more_than_fifteen_processes(
    a3: Server, switches: Switches, watch: Callable[..., Watcher]
) -> None:
    others = [watch() for _ in range(14)]
    assert [watcher.return_code for watcher in others] == [0] * 14
    assert watch().return_code == -8010
    others[0].kill()
    assert watch().return_code == 0
    status: Any = a3.emulator.status()["switch"]
    assert len(status["processes"]) == 15


def test_a_lost_event_and_a_lost_change(
    a3: Server, switches: Switches, watch: Callable[..., Watcher]
) -> None:
    watcher = watch()
    a3.emulator.lose_next_event()
    a3.emulator.switch_occur(PORT_FAILS)
    wait_until(lambda: switches.number() == 1)
    a3.emulator.lose_everything_next()
    a3.emulator.switch_occur(PORT_DOWN)
    a3.emulator.switch_occur(CHIP_FAILS)
    assert watcher.event()["chip"] == 6
    wait_until(lambda: switches.number() == 2)


@pytest.mark.slow
def test_announced_again(a3: Server, switches: Switches, watch: Callable[..., Watcher]) -> None:
    watcher = watch()
    a3.emulator.switch_occur(PORT_FAILS)
    a3.emulator.switch_occur(PORT_FAILS)
    first, second = watcher.event(), watcher.event()
    assert first["serial"] == second["serial"]
    wait_until(lambda: switches.number() > 0)
    assert switches.number() == 1
    a3.emulator.switch_recover(PORT_FAILS)
    assert watcher.event()["assertion"] == 0
    wait_until(lambda: switches.number() == 0)


def test_hooks(a3: Server, switches: Switches) -> None:
    a3.emulator.fail("lq_dcmi_get_fault_info", -8005)
    assert switches.listed() == -8005
    a3.emulator.clear("lq_dcmi_get_fault_info")
    a3.emulator.slow("lq_dcmi_get_fault_info", 60)
    began = time.monotonic()
    assert switches.listed() == []
    assert time.monotonic() - began > 0.05
    a3.emulator.clear("lq_dcmi_get_fault_info")
    a3.emulator.hang("lq_dcmi_get_fault_info")
    answers: list[object] = []
    stuck = threading.Thread(target=lambda: answers.append(switches.listed()))
    stuck.start()
    nothing_happens_for(0.05, because="a call answers within milliseconds")
    assert answers == []
    a3.emulator.reset()
    stuck.join(patience(5))
    assert answers == [[]]
    with pytest.raises(ConfigurationError, match="not about a chip"):
        a3.emulator.hang("lq_dcmi_get_fault_info", chip=1)


@pytest.mark.parametrize(
    ("chip", "port", "peer_port", "what"),
    [
        (7, 1, 1, "7 is not a valid switch chip; there are 0 to 6"),
        (1, 48, 1, "48 is not a valid port of a switch; there are 0 to 47"),
        (1, -1, 1, "-1 is not a valid port"),
        (1, 1, 65536, "more than 16 bits"),
    ],
)
def test_place_that_no_switch_has_is_refused(
    chip: int, port: int, peer_port: int, what: str
) -> None:
    with pytest.raises(ValueError, match=what):
        EmulatedSwitchFault(PORT_FAILS.code, chip, port, peer_port)
