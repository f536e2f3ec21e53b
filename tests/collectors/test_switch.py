"""The switch collector on real libraries, in real time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from collectors.switch import SwitchCollector, SwitchSection
from contract.codes.levels import Severity
from contract.documents.switch_info import SwitchPort, port_of, port_subject
from contract.observation import NODE, Observation
from dcmi_shim.emulator.control import Emulator
from dcmi_shim.emulator.install import SWITCH_LIBRARY, install
from dcmi_shim.emulator.switch_faults import EmulatedSwitchFault, code_of
from tests.collectors.scripted import RecordedReports, ScriptedDriver
from tests.parts import deadlines
from tests.parts.collector_context import collector_context
from tests.parts.deadlines import patience, stays, time_passes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from contract.observation import Subject

CODE = "[0x00f1fef5,155912,cpu,na]"
PORT = EmulatedSwitchFault(code_of(CODE), chip=2, port=3, peer_port=4)
PLACE = f"{port_subject(SwitchPort(2, 3, 0, 4))}"
WHOLE_CHIP = EmulatedSwitchFault(code_of("[0x00f103b6,155909,L2,na]"), chip=5)
SMALL_DRIVERS = Path(__file__).parents[1] / "dcmi_shim" / "drivers"
LIST = "lq_dcmi_get_fault_info"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Emulator]]:
    directory = tmp_path_factory.mktemp("a3")
    install(directory / "driver", directory / "emulator", "a3")
    emulator = Emulator(directory / "emulator")
    yield directory / "driver", emulator
    emulator.close()


@pytest.fixture
def hardware(built: tuple[Path, Emulator]) -> Emulator:
    built[1].reset()
    return built[1]


def wall_clock() -> int:
    return time.time_ns() // 1_000_000


@contextlib.asynccontextmanager
async def collecting(
    root: Path,
    period_seconds: float = 30.0,
    family: str = "Ascend910A3",
    tracked: Mapping[tuple[Subject, str], int] | None = None,
    driver: ScriptedDriver | None = None,
) -> AsyncIterator[RecordedReports]:
    driver = driver or ScriptedDriver()
    driver.family = family
    recorded = RecordedReports()
    around = collector_context(recorded, wall_clock, driver, tracked=tracked, driver_root=root)
    collector = SwitchCollector(SwitchSection(audit_period_seconds=period_seconds), around)
    task = asyncio.create_task(collector.run())
    try:
        yield recorded
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition: Callable[[], bool], seconds: float) -> float:
    begin = time.monotonic()
    await deadlines.until(condition, seconds=seconds)
    return time.monotonic() - begin


@pytest.mark.slow
async def test_occurrence_notice_and_recovery(
    built: tuple[Path, Emulator], hardware: Emulator
) -> None:
    async with collecting(built[0]) as recorded:
        await until(lambda: recorded.words() == ["node 0 answered"], 5)
        before_ms = wall_clock()
        hardware.switch_occur(PORT, Severity.CRITICAL)
        assert await until(lambda: f"{PLACE} occur {CODE}" in recorded.words(), 1) < patience(0.2)
        hardware.switch_once(WHOLE_CHIP)
        await until(lambda: len(recorded.words()) == 3, 1)
        hardware.switch_recover(PORT)
        await until(lambda: f"{PLACE} recover {CODE}" in recorded.words(), 1)
        # The audits that follow do not find fault with a list that lags.
        await stays(2.5, because="the list is asked for LAG_SECONDS, 2, after an event")
        words = recorded.words()
        assert words == [
            "node 0 answered",
            f"{PLACE} occur {CODE}",
            # A whole chip has no peer.
            "switch 5 65535/2/0 once [0x00f103b6,155909,na,na]",
            f"{PLACE} recover {CODE}",
        ]
    (occurred,) = recorded.batches[1][1]
    assert isinstance(occurred, Observation)
    assert occurred.source == "switch"
    assert occurred.severity is Severity.CRITICAL
    assert port_of(occurred.subject) == SwitchPort(2, 3, 0, 4)
    assert occurred.driver_raised_at_ms is not None
    assert before_ms <= occurred.driver_raised_at_ms <= occurred.seen_at_ms <= wall_clock()


@pytest.mark.slow
async def test_list_finds_faults_and_ends_that_events_did_not_report(
    built: tuple[Path, Emulator], hardware: Emulator
) -> None:
    hardware.switch_occur(PORT)
    await time_passes(0.1)
    gone = port_subject(SwitchPort(1, 1, 0, 1))
    async with collecting(built[0], 0.3, tracked={(gone, CODE): 1}) as recorded:
        await until(lambda: len(recorded.words()) == 3, 5)
        assert recorded.words() == [
            "node 0 answered",
            f"{gone} absent {CODE}",
            f"{PLACE} present {CODE}",
        ]
        present = recorded.batches[0][1][2]
        assert isinstance(present, Observation)
        assert present.severity is Severity.MAJOR
        assert present.driver_raised_at_ms is not None
        hardware.lose_next_event()
        hardware.switch_recover(PORT)
        assert await until(lambda: f"{PLACE} absent {CODE}" in recorded.words(), 3) < patience(1.5)


async def test_ports_and_repetitions(built: tuple[Path, Emulator], hardware: Emulator) -> None:
    ports = [EmulatedSwitchFault(PORT.code, 5, port, port) for port in range(3)]
    async with collecting(built[0]) as recorded:
        await until(lambda: recorded.words() == ["node 0 answered"], 5)
        for fault in (*ports, ports[0]):
            hardware.switch_occur(fault)
        hardware.switch_recover(ports[1])
        for fault in (ports[0], ports[2]):
            hardware.switch_recover(fault)
        await until(lambda: len(recorded.words()) == 7, 2)
        assert recorded.words()[1:] == [
            *(f"switch 5 {port}/0/{port} occur {CODE}" for port in range(3)),
            *(f"switch 5 {port}/0/{port} recover {CODE}" for port in (1, 0, 2)),
        ]


@pytest.mark.slow
async def test_many_more_faults_than_a_list_shows(
    built: tuple[Path, Emulator], hardware: Emulator
) -> None:
    async with collecting(built[0], 0.2) as recorded:
        await until(lambda: recorded.words() == ["node 0 answered"], 5)
        for chip in range(4):
            for port in range(48):
                hardware.switch_occur(EmulatedSwitchFault(PORT.code, chip, port))
        await until(lambda: len(recorded.words()) == 1 + 192, 3)
        await stays(2.6, because="the list is asked for LAG_SECONDS, 2, after an event")
        assert [word for word in recorded.words() if " occur " not in word] == ["node 0 answered"]
        for chip in range(4):
            for port in range(48):
                hardware.lose_next_event()
                hardware.switch_recover(EmulatedSwitchFault(PORT.code, chip, port))
        await until(lambda: len(recorded.words()) == 1 + 2 * 192, 3)


@pytest.mark.slow
async def test_a_list_that_hangs_is_blindness(
    built: tuple[Path, Emulator], hardware: Emulator
) -> None:
    hardware.switch_occur(PORT)
    async with collecting(built[0], 0.3) as recorded:
        await until(lambda: f"{PLACE} present {CODE}" in recorded.words(), 5)
        hardware.hang(LIST)
        await until(lambda: f"node 0 blind: {LIST} does not return" in str(recorded.words()), 3)
        other = EmulatedSwitchFault(PORT.code, 6, 6)
        hardware.switch_occur(other)
        await until(lambda: f"switch 6 6/0/0 occur {CODE}" in recorded.words(), 2)
        hardware.switch_recover(PORT)
        await stays(0.5, because="a recovery is reported at once")
        assert f"{PLACE} recover {CODE}" not in recorded.words()
        hardware.clear(LIST)
        await until(lambda: f"{PLACE} recover {CODE}" in recorded.words(), 15)
        assert recorded.words().count("node 0 answered") == 2
        assert str(recorded.words()).count(" blind: ") == 1


@pytest.mark.slow
async def test_a_library_that_comes_later(hardware: Emulator, tmp_path: Path) -> None:
    root = tmp_path / "driver"
    install(root, tmp_path / "emulator", "a3")
    library = root / "lib64" / "driver" / SWITCH_LIBRARY.name
    library.rename(tmp_path / "aside")
    async with collecting(root, 0.3) as recorded:
        await until(lambda: "no usable liblingqu-dcmi.so" in str(recorded.words()), 5)
        assert len(recorded.words()) == 1
        assert recorded.words()[0].startswith("node 0 blind: ")
        assert "\n" not in recorded.words()[0]
        (tmp_path / "aside").rename(library)
        await until(lambda: "node 0 answered" in recorded.words(), 8)


@pytest.mark.slow
async def test_without_the_list_function(tmp_path: Path) -> None:
    install(tmp_path / "driver", tmp_path / "emulator", "a3", without=[LIST])
    with contextlib.closing(Emulator(tmp_path / "emulator")) as emulator:
        async with collecting(tmp_path / "driver", 0.3) as recorded:
            await until(lambda: "the library has no such function" in str(recorded.words()), 5)
            emulator.switch_occur(PORT)
            emulator.switch_recover(PORT)
            # Nothing can confirm the recovery, now or later: it counts.
            await until(lambda: f"{PLACE} recover {CODE}" in recorded.words(), 1)
            await stays(0.7, because="two periods of the list, 0.3 s each")
            assert [word for word in recorded.words() if "blind" not in word] == [
                f"{PLACE} occur {CODE}",
                f"{PLACE} recover {CODE}",
            ]
            assert str(recorded.words()).count(" blind: ") == 1


@pytest.mark.slow
async def test_without_the_subscription(tmp_path: Path) -> None:
    without = ["lq_dcmi_subscribe_fault_event"]
    install(tmp_path / "driver", tmp_path / "emulator", "a3", without=without)
    with contextlib.closing(Emulator(tmp_path / "emulator")) as emulator:
        async with collecting(tmp_path / "driver", 0.3) as recorded:
            await until(lambda: "node 0 answered" in recorded.words(), 5)
            assert "no such function" in str(recorded.words())
            emulator.switch_occur(PORT)
            await until(lambda: f"{PLACE} present {CODE}" in recorded.words(), 1)


@pytest.mark.slow
async def test_the_library_crashes(built: tuple[Path, Emulator], hardware: Emulator) -> None:
    async with collecting(built[0], 0.3) as recorded:
        await until(lambda: recorded.words() == ["node 0 answered"], 5)
        status = hardware.status()["switch"]
        assert isinstance(status, dict)
        (process,) = status["processes"]
        os.kill(process["pid"], 9)
        await until(lambda: "ended by SIGKILL" in str(recorded.words()), 2)
        hardware.switch_occur(PORT)
        await until(lambda: f"{PLACE} " in str(recorded.words()), 2)


@pytest.mark.slow
async def test_nothing_is_logged_of_servers_without_switches(tmp_path: Path) -> None:
    async with collecting(tmp_path, 0.1, family="Ascend910B") as recorded:
        await stays(0.3, because="three periods of 0.1 s pass")
        assert recorded.words() == []


@pytest.mark.slow
async def test_tracked_chips_are_blind_until_the_driver_answers(tmp_path: Path) -> None:
    driver = ScriptedDriver()
    driver.ready.clear()
    remembered = {(port_subject(SwitchPort(1, 1, 0, 1)), CODE): 1}
    async with collecting(tmp_path, tracked=remembered, driver=driver) as recorded:
        await until(lambda: recorded.words() != [], 3)
        assert recorded.words() == [f"{NODE} blind: the driver has not answered since the start"]


@pytest.mark.slow
async def test_events_that_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "lib64" / "driver"
    place.mkdir(parents=True)
    command = ["gcc", "-shared", "-fPIC", "-O1", "-o", str(place / SWITCH_LIBRARY.name)]
    subprocess.run([*command, str(SMALL_DRIVERS / "switch.c"), "-lpthread"], check=True)
    monkeypatch.setenv("VIGIL_TEST_DRIVER", str(tmp_path))
    (tmp_path / "fault-1").touch()
    (tmp_path / "lie-noise").touch()
    async with collecting(tmp_path) as recorded:
        await until(lambda: "node 0 answered" in recorded.words(), 5)
        # A list counts, however strange the names in it.
        assert recorded.words()[1:] == [
            "switch 65535 65535/65535/65535 present [0xffffffff,na,na,na]"
        ]
        (tmp_path / "odd-events").touch()
        (tmp_path / "lie-noise").unlink()
        await until(lambda: f"switch 2 3/0/9 occur {CODE}" in recorded.words(), 3)
        gaps = [word for word in recorded.words() if word.startswith("gap")]
        assert gaps == [
            "gap: the driver sent an event without data",
            "gap: event [0xffffffff,na,na,na] on switch 65535 65535/65535/65535 "
            "with assertion 255: not possible",
            f"gap: event {CODE} on switch 2 3/0/9 with assertion 3: not possible",
        ]
        # Each of them has the list asked.
        await until(lambda: "switch 65535 65535/65535/65535 absent" in str(recorded.words()), 1)
