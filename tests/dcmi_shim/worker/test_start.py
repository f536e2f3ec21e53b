"""Opening the library: what can be used, what is refused, and what is waited for."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from contract.errors import DriverError, DriverGone, DriverNotFound
from dcmi_shim.driver import Driver
from dcmi_shim.library.discovery import FoundLibrary
from dcmi_shim.worker.process import start_process
from tests.dcmi_shim.conftest import PATIENT, QUICK, running
from tests.parts.deadlines import patience
from tests.parts.unread import UnreadPipe

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.dcmi_shim.conftest import SmallDriver


@pytest.mark.slow
async def test_a_driver_without_optional_functions(
    small_driver: Callable[[str], SmallDriver],
) -> None:
    plain = small_driver("plain")
    async with running(plain.library) as state:
        inventory = await state.driver.inventory()
        assert [chip.physical_id for chip in inventory.chips] == [0, 1]
        assert (inventory.family, inventory.chip_name) == ("Ascend910B", "910B3")
        assert inventory.board_id is None
        assert inventory.driver_version is None
        assert inventory.super_pod is None
        assert inventory.library == str(plain.library.path)
        assert await state.driver.health(inventory.chips[0]) == 0
        plain.command("fault-1")
        assert await state.driver.error_codes(inventory.chips[1]) == (0x80E01801,)
        assert await state.driver.error_codes(inventory.chips[0]) == ()
        assert state.driver.polling_reason is None


@pytest.mark.parametrize("suits", [True, False])
async def test_the_first_child_takes_a_process_that_suits_its_library(
    small_driver: Callable[[str], SmallDriver], tmp_path: Path, *, suits: bool
) -> None:
    library = small_driver("plain").library
    first = start_process(library if suits else replace(library, search=(tmp_path,)))
    driver = Driver(library, lambda: 0, PATIENT, first=first)
    running_driver = asyncio.create_task(driver.run())
    assert len((await driver.inventory()).chips) == 2
    assert (driver.child_pid == first.process.pid) is suits
    assert (first.process.poll() is None) is suits
    running_driver.cancel()
    await asyncio.wait([running_driver])


async def test_a_process_that_no_child_took_ends_with_the_driver(
    small_driver: Callable[[str], SmallDriver],
) -> None:
    library = small_driver("plain").library
    first = start_process(library)
    Driver(library, lambda: 0, first=first).close()
    assert first.process.wait(patience(5.0)) == -signal.SIGKILL


async def test_a_build_of_python_without_memfd_create_makes_calls(
    small_driver: Callable[[str], SmallDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "memfd_create")
    async with running(small_driver("plain").library) as state:
        chips = (await asyncio.wait_for(state.driver.inventory(), patience(3))).chips
        assert await state.driver.health_words(chips) == dict.fromkeys(chips, 0)


async def test_begins_are_read_once_for_several_calls_and_never_for_one(
    small_driver: Callable[[str], SmallDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(small_driver("plain").library, PATIENT) as state:
        chips = (await state.driver.inventory()).chips
        child = state.driver._supervisor.serving
        assert child is not None
        reads, read = [], os.read

        def counted(fd: int, size: int) -> bytes:
            reads.append(fd)
            return read(fd, size)

        monkeypatch.setattr(os, "read", counted)
        assert await state.driver.health(chips[0]) == 0
        assert reads.count(child._begins) == 0
        assert await state.driver.health_words(chips) == dict.fromkeys(chips, 0)
        assert reads.count(child._begins) == 1
        assert len(child.begun) == len(chips)


async def test_a_child_ignores_what_a_terminal_or_a_service_manager_sends(
    small_driver: Callable[[str], SmallDriver],
) -> None:
    async with running(small_driver("plain").library) as state:
        await state.driver.inventory()
        status = Path(f"/proc/{state.driver.child_pid}/status").read_text()
        (mask,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigIgn:"))
        ignored = {number for number in signal.Signals if int(mask, 16) >> (number - 1) & 1}
        names = ("SIGHUP", "SIGINT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGTERM")
        assert ignored >= {signal.Signals[name] for name in names}


@pytest.mark.slow
async def test_chatter_does_not_disturb(small_driver: Callable[[str], SmallDriver]) -> None:
    async with running(small_driver("chatty").library) as state:
        assert len((await state.driver.inventory()).chips) == 2


@pytest.mark.slow
async def test_chatter_that_is_not_read_does_not_disturb(
    small_driver: Callable[[str], SmallDriver],
) -> None:
    pipe = UnreadPipe()
    own = os.dup(2)
    os.dup2(pipe.writer, 2)
    try:
        async with running(small_driver("chatty").library) as state:
            assert len((await state.driver.inventory()).chips) == 2
    finally:
        os.dup2(own, 2)
        os.close(own)
        pipe.close()


@pytest.mark.slow
async def test_events_arrive_in_order_and_whole(
    small_driver: Callable[[str], SmallDriver],
) -> None:
    plain = small_driver("plain")
    async with running(plain.library) as state:
        await state.driver.inventory()
        plain.command("events")
        await state.until(lambda: len(state.events) >= 100)
        serials = [event.serial for event in state.events]
        assert serials == list(range(1, len(serials) + 1))
        first = state.events[0]
        assert (first.code, first.logic_id, first.assertion) == (0x80E01801, 1, 2)
        assert (first.severity, first.driver_raised_at_ms) == (2, 1700000000001)
        assert first.name == "made by a test"


async def test_a_library_that_can_never_work(
    small_driver: Callable[[str], SmallDriver],
) -> None:
    async with running(small_driver("no_dcmi").library) as state:
        with pytest.raises(DriverError, match="neither dcmi_init nor dcmiv2_init"):
            await asyncio.wait_for(state.run, patience(5))


@pytest.mark.slow
async def test_missing_dependency_of_the_library_is_named(
    tmp_path: Path,
) -> None:
    needed, path = tmp_path / "libneeded.so", tmp_path / "libdcmi.so"
    gcc = ["gcc", "-shared", "-fPIC", "-x", "c", os.devnull, "-o"]
    linking = ["-x", "none", "-Wl,--no-as-needed", f"-L{tmp_path}", "-lneeded"]
    for command in ([*gcc, str(needed)], [*gcc, str(path), *linking]):
        compiler = await asyncio.create_subprocess_exec(*command)
        assert await compiler.wait() == 0
    needed.unlink()
    async with running(FoundLibrary(path, (), ())) as state:
        with pytest.raises(DriverNotFound, match=r"cannot be loaded: libneeded\.so: cannot open"):
            await asyncio.wait_for(state.run, patience(5))


@pytest.mark.slow
async def test_half_a_library(small_driver: Callable[[str], SmallDriver], tmp_path: Path) -> None:
    whole = small_driver("plain").library.path.read_bytes()
    path = tmp_path / "libdcmi.so"
    path.write_bytes(whole[: len(whole) // 4])
    async with running(FoundLibrary(path, (), ())) as state:
        await state.until(lambda: "while loading or initialising" in state.gaps)
        # It is loaded once the installation is complete.
        path.unlink()
        path.write_bytes(whole)
        assert len((await asyncio.wait_for(state.driver.inventory(), patience(3))).chips) == 2


@pytest.mark.slow
async def test_init_fails_then_works(small_driver: Callable[[str], SmallDriver]) -> None:
    refuses = small_driver("refuses")
    refuses.command("refuse")
    async with running(refuses.library) as state:
        await state.until(lambda: len(refuses.noted("opened")) >= 3)
        assert state.gaps.count("dcmi_init answered -8005") == 1
        assert "not usable in this container" in state.gaps
        refuses.take_back("refuse")
        assert len((await asyncio.wait_for(state.driver.inventory(), patience(2))).chips) == 2


@pytest.mark.slow
async def test_calls_name_the_reason_for_a_missing_driver(
    small_driver: Callable[[str], SmallDriver],
) -> None:
    refuses = small_driver("refuses")
    async with running(refuses.library) as state:
        chip = (await state.driver.inventory()).chips[0]
        refuses.command("refuse")
        pid = state.driver.child_pid
        assert pid is not None
        await _end(pid)
        await state.until(lambda: "-8005" in state.gaps)
        with pytest.raises(DriverGone, match="dcmi_init answered -8005"):
            await state.driver.health(chip)


async def _end(pid: int) -> None:
    process = await asyncio.create_subprocess_exec("kill", "-9", str(pid))
    await process.wait()


@pytest.mark.slow
async def test_opening_hangs_then_works(small_driver: Callable[[str], SmallDriver]) -> None:
    hangs = small_driver("hangs_opening")
    hangs.command("hang-opening")
    settings = type(QUICK)(open_seconds=patience(0.3), retry_first_seconds=0.05)
    async with running(hangs.library, settings) as state:
        await state.until(lambda: "takes longer than " in state.gaps)
        hangs.take_back("hang-opening")
        assert len((await asyncio.wait_for(state.driver.inventory(), patience(2))).chips) == 2


@pytest.mark.slow
async def test_subscription_refused_means_polling_until_it_works(
    small_driver: Callable[[str], SmallDriver],
) -> None:
    refuses = small_driver("refuses")
    refuses.command("occupied")
    async with running(refuses.library) as state:
        chip = (await state.driver.inventory()).chips[0]
        assert "-8020 (resource occupied" in str(state.driver.polling_reason)
        assert state.gaps.count("no events, polls only") == 1
        assert await state.driver.health(chip) == 0
        refuses.take_back("occupied")
        refuses.command("events")
        await state.until(lambda: state.events and state.driver.polling_reason is None)
        assert "driver process was replaced" in state.gaps


@pytest.mark.slow
@pytest.mark.parametrize("trouble", ["hang-subscription", "crash-subscription"])
async def test_subscription_hangs_or_crashes_means_polling_until_it_works(
    small_driver: Callable[[str], SmallDriver], trouble: str
) -> None:
    refuses = small_driver("refuses")
    refuses.command(trouble)
    async with running(refuses.library) as state:
        chip = (await asyncio.wait_for(state.driver.inventory(), patience(2))).chips[0]
        assert await state.driver.health(chip) == 0
        assert "dcmi_subscribe_fault_event" in str(state.driver.polling_reason)
        refuses.take_back(trouble)
        refuses.command("events")
        await state.until(lambda: state.events and state.driver.polling_reason is None)


@pytest.mark.slow
async def test_an_unresolved_symbol_costs_only_its_call(
    small_driver: Callable[[str], SmallDriver],
) -> None:
    async with running(small_driver("unresolved").library, PATIENT) as state:
        good, bad = (await state.driver.inventory()).chips
        with pytest.raises(DriverGone, match="lacks a symbol it needs in dcmi_get_device_health"):
            await state.driver.health(bad)
        assert await state.driver.health(good) == 0
