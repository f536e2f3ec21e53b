"""The switch library in its child: events, the list, and what goes wrong with it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from msgspec.structs import replace

from contract.codes.levels import Severity
from contract.errors import DriverCallError, DriverCallStuck, DriverGone, DriverNotFound
from dcmi_shim.library.discovery import VendorPaths, find_library
from dcmi_shim.library.switch_calls import LIST_LENGTH
from dcmi_shim.library.vendor import LINGQU
from dcmi_shim.switch.driver import SwitchDriver
from dcmi_shim.values import DriverGap, DriverSwitchEvent
from tests.dcmi_shim.conftest import SCALED, dropped, wall_clock
from tests.parts.deadlines import patience, time_passes, until, until_succeeds, wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from dcmi_shim.library.discovery import FoundLibrary
    from tests.dcmi_shim.conftest import SmallDriver

FAULT = DriverSwitchEvent(
    event_type=0x00F1FEF5,
    sub_type=155912,
    peer_device=0,
    peer_port=9,
    chip=2,
    port=3,
    severity=Severity.MAJOR,
    assertion=1,
    seen_at_ms=0,
    driver_raised_at_ms=1700000000001,
    serial=1,
    information="made by a test",
)


class Running:
    """A running ``SwitchDriver``; ``received`` fills with its events and gaps."""

    def __init__(self, driver: SwitchDriver) -> None:
        self.driver = driver
        self.received: list[DriverSwitchEvent | DriverGap] = []

    @property
    def serials(self) -> list[int]:
        return [item.serial for item in self.received if isinstance(item, DriverSwitchEvent)]

    @property
    def gaps(self) -> str:
        return "\n".join(item.reason for item in self.received if isinstance(item, DriverGap))

    async def faults_at_last(self) -> tuple[DriverSwitchEvent, ...]:
        """Return the faults once the library answers."""
        return await until_succeeds(self.driver.faults, DriverGone)

    async def until(self, condition: Callable[[], object], seconds: float = 5.0) -> None:
        await until(condition, lambda: f"received so far:\n{self.received[-5:]}", seconds)


@contextlib.asynccontextmanager
async def running(
    find: Callable[[], FoundLibrary], start_seconds: float = 10.0
) -> AsyncIterator[Running]:
    state = Running(SwitchDriver(find, wall_clock, SCALED, start_seconds))

    async def read() -> None:
        async for item in state.driver.events():
            state.received.append(item)

    tasks = [asyncio.create_task(state.driver.run()), asyncio.create_task(read())]
    try:
        yield state
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def found(driver: SmallDriver) -> Callable[[], FoundLibrary]:
    return lambda: replace(driver.library, vendor=LINGQU)


async def test_list_and_events(small_driver: Callable[[str], SmallDriver]) -> None:
    switch = small_driver("switch")
    switch.command("fault-1")
    async with running(found(switch)) as state:
        assert await state.driver.faults() == (FAULT,)
        assert state.driver.polling_reason is None
        switch.command("fault-2")
        assert [fault.serial for fault in await state.driver.faults()] == [1, 2]
        before_ms = wall_clock()
        switch.command("events")
        await state.until(lambda: len(state.serials) >= 3)
        event = state.received[0]
        assert isinstance(event, DriverSwitchEvent)
        assert before_ms <= event.seen_at_ms <= wall_clock()
        assert event == msgspec.structs.replace(FAULT, assertion=2, seen_at_ms=event.seen_at_ms)


@pytest.mark.slow
async def test_a_hanging_list_costs_no_event_and_ends(
    small_driver: Callable[[str], SmallDriver],
) -> None:
    switch = small_driver("switch")
    async with running(found(switch)) as state:
        assert await state.driver.faults() == ()
        switch.command("hang-list")
        switch.command("events")
        await state.until(lambda: state.serials)
        with pytest.raises(DriverCallStuck, match="lq_dcmi_get_fault_info does not return"):
            await state.driver.faults()
        began = time.monotonic()
        with pytest.raises(DriverCallStuck):
            await state.driver.faults()
        assert time.monotonic() - began < patience(0.4), "it is left out, its deadline is 0.5 s"
        await state.until(lambda: "was replaced" in state.gaps)
        await time_passes(0.3)
        switch.take_back("events")
        switch.take_back("hang-list")
        await state.until(lambda: "lq_dcmi_get_fault_info answers again" in state.gaps)
        assert await state.driver.faults() == ()
        # The new process had subscribed before the old one was killed: there is no hole.
        assert set(state.serials) == set(range(1, max(state.serials) + 1))


@pytest.mark.slow
async def test_a_crash_costs_a_gap(
    small_driver: Callable[[str], SmallDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a machine that is busy its pipe is closed long before its end is known.
    monkeypatch.setattr("dcmi_shim.worker.process._EXIT_SECONDS", patience(0.2))
    switch = small_driver("switch")
    async with running(found(switch)) as state:
        assert await state.driver.faults() == ()
        switch.command("crash-list")
        with pytest.raises(DriverGone, match="ended by SIGSEGV"):
            await state.driver.faults()
        switch.take_back("crash-list")
        switch.command("fault-1")
        # The next process may have asked for the list, and ended, before that was taken back.
        assert await state.faults_at_last() == (FAULT,)
        assert "SIGSEGV" in state.gaps
        switch.command("events")
        await state.until(lambda: state.serials)


@pytest.mark.parametrize("lie", ["lie-129", "lie-billions"])
async def test_a_list_of_more_than_it_can_hold_is_an_error(
    small_driver: Callable[[str], SmallDriver], lie: str
) -> None:
    switch = small_driver("switch")
    switch.command(lie)
    async with running(found(switch)) as state:
        with pytest.raises(DriverCallError, match="not 0 to 128"):
            await state.driver.faults()
        switch.take_back(lie)
        assert await state.driver.faults() == ()


@pytest.mark.slow
async def test_a_list_written_beyond_its_end_does_no_harm(
    small_driver: Callable[[str], SmallDriver],
) -> None:
    switch = small_driver("switch")
    switch.command("lie-overflow")
    async with running(found(switch)) as state:
        first = await state.driver.faults()
        pid = state.driver.child_pid
        assert [fault.serial for fault in first] == list(range(LIST_LENGTH))
        for _ in range(3):
            assert await state.driver.faults() == first
        assert state.driver.child_pid == pid


async def test_noise_becomes_values(small_driver: Callable[[str], SmallDriver]) -> None:
    switch = small_driver("switch")
    switch.command("lie-noise")
    async with running(found(switch)) as state:
        (noise,) = await state.driver.faults()
        assert noise == DriverSwitchEvent(
            event_type=0xFFFFFFFF,
            sub_type=None,
            peer_device=0xFFFF,
            peer_port=0xFFFF,
            chip=0xFFFF,
            port=0xFFFF,
            severity=None,
            assertion=255,
            seen_at_ms=0,
            driver_raised_at_ms=None,
            serial=0xFFFFFFFF,
            information="\ufffd" * 32,
        )


@pytest.mark.slow
async def test_odd_events(small_driver: Callable[[str], SmallDriver]) -> None:
    switch = small_driver("switch")
    async with running(found(switch)) as state:
        await state.driver.faults()
        switch.command("odd-events")
        await state.until(lambda: len(state.serials) == 3)
        assert "the driver sent an event without data" in state.gaps
        assert state.serials == [0xFFFFFFFF, 1, 2]


@pytest.mark.slow
async def test_a_flood_is_counted_not_hidden(small_driver: Callable[[str], SmallDriver]) -> None:
    switch = small_driver("switch")
    async with running(found(switch)) as state:
        await state.driver.faults()
        switch.command("flood")
        wait_until(lambda: switch.noted("flooded"), seconds=20)
        await state.until(lambda: len(state.serials) + dropped(state.gaps) == 50_000, 30)
        assert dropped(state.gaps) > 0
        assert state.serials == sorted(set(state.serials))
        assert await state.driver.faults() == ()


@pytest.mark.slow
async def test_without_the_list_events_go_on(small_driver: Callable[[str], SmallDriver]) -> None:
    switch = small_driver("switch_without_list")
    async with running(found(switch)) as state:
        with pytest.raises(DriverCallError, match="no such function") as caught:
            await state.driver.faults()
        assert caught.value.return_code == -99998
        switch.command("events")
        await state.until(lambda: state.serials)
        assert len(switch.noted("opened")) == 1


@pytest.mark.slow
async def test_without_events_the_list_goes_on(small_driver: Callable[[str], SmallDriver]) -> None:
    switch = small_driver("switch_without_events")
    switch.command("fault-1")
    async with running(found(switch)) as state:
        assert await state.driver.faults() == (FAULT,)
        assert "no such function" in (state.driver.polling_reason or "")
        assert len(switch.noted("opened")) == 1


@pytest.mark.slow
async def test_no_switch_library_at_all(small_driver: Callable[[str], SmallDriver]) -> None:
    other = small_driver("no_dcmi")
    async with running(found(other)) as state:
        with pytest.raises(DriverGone, match="has no lq_dcmi_init: it is not a switch library"):
            await state.driver.faults()


@pytest.mark.slow
async def test_a_refused_start_is_tried_again(small_driver: Callable[[str], SmallDriver]) -> None:
    switch = small_driver("switch")
    switch.command("refuse")
    async with running(found(switch)) as state:
        with pytest.raises(DriverGone, match=r"-8004 .the switch device could not be opened"):
            await state.driver.faults()
        switch.take_back("refuse")
        assert await state.faults_at_last() == ()


@pytest.mark.slow
async def test_a_slow_start_is_let_end_and_keeps_no_caller_waiting(
    small_driver: Callable[[str], SmallDriver],
) -> None:
    switch = small_driver("switch")
    switch.command("hang-init")
    async with running(found(switch), start_seconds=0.2) as state:
        began = time.monotonic()
        for _ in range(2):
            with pytest.raises(DriverGone, match=r"has been starting for 0\.2 s or longer"):
                await state.driver.faults()
        assert time.monotonic() - began < patience(2)
        switch.take_back("hang-init")
        assert await state.faults_at_last() == ()
    assert len(switch.noted("opened")) == 1


async def test_a_library_that_comes_later(
    small_driver: Callable[[str], SmallDriver], tmp_path: Path
) -> None:
    switch = small_driver("switch")
    root = tmp_path / "driver"

    def find() -> FoundLibrary:
        return find_library(VendorPaths(root, True, {}), LINGQU)

    with pytest.raises(DriverNotFound, match=r"no usable liblingqu-dcmi\.so"):
        find()
    async with running(find) as state:
        with pytest.raises(DriverGone, match=r"no usable liblingqu-dcmi\.so"):
            await state.driver.faults()
        place = root / "lib64" / "driver"
        place.mkdir(parents=True)
        (place / "liblingqu-dcmi.so").symlink_to(switch.library.path)
        assert await state.faults_at_last() == ()


async def test_the_end_leaves_no_process(small_driver: Callable[[str], SmallDriver]) -> None:
    switch = small_driver("switch")
    async with running(found(switch)) as state:
        await state.driver.faults()
        switch.command("hang-list")
        call = asyncio.create_task(state.driver.faults())
        await time_passes(0.05)
        pid = state.driver.child_pid
        began = time.monotonic()
        state.driver.close()
        with pytest.raises(DriverGone):
            await call
        assert time.monotonic() - began < patience(0.4)
    await until(lambda: not Path(f"/proc/{pid}").exists(), seconds=3)
