"""Calls that hang, libraries that crash, floods, and the end of the agent."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import textwrap
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from contract.errors import DriverCallStuck, DriverGone
from dcmi_shim.emulator.control import Emulator
from dcmi_shim.emulator.install import LIBRARY, install
from dcmi_shim.library.discovery import FoundLibrary
from dcmi_shim.worker.supervisor import open_child
from tests.dcmi_shim.conftest import PATIENT, QUICK, SCALED, dropped, running
from tests.parts.deadlines import (
    patience,
    stand_in_takes,
    time_passes,
    until,
    until_succeeds,
    wait_until,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dcmi_shim.values import Chip
    from tests.dcmi_shim.conftest import SmallDriver


_HEALTH = "dcmi_get_device_health"


def _alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False


@pytest.mark.slow
async def test_a_hanging_call_costs_others_one_deadline_and_no_event(
    small_driver: Callable[[str], SmallDriver],
) -> None:
    plain = small_driver("plain")
    # The other call waits for a new process, up to its deadline.
    async with running(plain.library, SCALED) as state:
        good, bad = (await state.driver.inventory()).chips
        plain.command("hang-health-1")
        plain.command("events")
        await state.until(lambda: state.events)
        began = time.monotonic()
        stuck, health = await asyncio.gather(
            state.driver.health(bad), state.driver.health(good), return_exceptions=True
        )
        assert time.monotonic() - began < patience(1.0)
        assert isinstance(stuck, DriverCallStuck)
        assert health == 0
        assert [(call.function, call.chip) for call in state.driver.stuck_calls()] == [
            ("dcmi_get_device_health", bad)
        ]
        assert await state.driver.error_codes(bad) == ()
        await time_passes(0.1)
        plain.take_back("events")
        plain.take_back("hang-health-1")
        await state.until(lambda: not state.driver.stuck_calls())
        assert await state.driver.health(bad) == 0
        assert "does not return" in state.gaps
        assert "dcmi_get_device_health on chip 1 (card 1 device 0) answers again" in state.gaps
        # The new process had subscribed before the old one was killed: there is no hole.
        serials = {event.serial for event in state.events}
        assert serials == set(range(1, max(serials) + 1))


@pytest.mark.slow
async def test_a_process_that_hangs_is_replaced(
    small_driver: Callable[[str], SmallDriver],
) -> None:
    plain = small_driver("plain")
    never_probed = replace(SCALED, probe_seconds=30.0)
    async with running(plain.library, never_probed) as state:
        good, bad = (await state.driver.inventory()).chips
        old = state.driver.child_pid
        assert old is not None
        plain.command("hang-health-1")
        with pytest.raises(DriverCallStuck):
            await state.driver.health(bad)
        await state.until(lambda: not _alive(old))
        assert state.driver.child_pid not in (None, old)
        assert await state.driver.health(good) == 0


@pytest.mark.slow
async def test_a_late_process_repeats_nothing_of_its_predecessor(
    small_driver: Callable[[str], SmallDriver],
) -> None:
    plain = small_driver("plain")
    async with running(plain.library) as state:
        _, bad = (await state.driver.inventory()).chips
        old = state.driver.child_pid
        assert old is not None
        plain.command("hang-health-1")
        with pytest.raises(DriverCallStuck):
            await state.driver.health(bad)
        await state.until(lambda: state.driver.child_pid is not None)
        late = state.driver.child_pid
        assert late not in (None, old)
        os.kill(late, signal.SIGSTOP)
        plain.command("events")
        await state.until(lambda: not _alive(old))
        reported = len(state.events)
        os.kill(late, signal.SIGCONT)
        # It shows the same events from the first on, and then those that nobody else showed.
        await state.until(lambda: len(state.events) > reported)
        serials = [event.serial for event in state.events]
        assert serials == list(range(1, len(serials) + 1))


@pytest.mark.slow
async def test_each_chip_in_turn_hangs_in_a_question_about_all(tmp_path: Path) -> None:
    install(tmp_path / "driver", tmp_path / "emulator", "a3")
    emulator = Emulator(tmp_path / "emulator")
    # So that neither the probe of a call nor another call may miss its deadline.
    settings = replace(QUICK, call_seconds=patience(0.3), probe_seconds=0.1)
    library = FoundLibrary(tmp_path / "driver" / LIBRARY, (), ())
    try:
        async with running(library, settings) as state:
            driver = state.driver
            chips = (await driver.inventory()).chips
            assert await driver.health_words(chips) == dict.fromkeys(chips, 0)
            for bad in chips:
                emulator.hang(_HEALTH, bad.physical_id)
                answers = await until_succeeds(partial(driver.health_words, chips), DriverGone)
                assert [*answers] == [bad], "the answers before it hang with it"
                assert isinstance(answers[bad], DriverCallStuck)
                assert [call.chip for call in state.driver.stuck_calls()] == [bad]
                others = [chip for chip in chips if chip != bad]
                answers = await until_succeeds(
                    partial(state.driver.health_words, chips), DriverGone
                )
                assert isinstance(answers.pop(bad), DriverCallStuck)
                assert answers == dict.fromkeys(others, 0), "left out, and the others are asked"
                emulator.clear(_HEALTH, bad.physical_id)
                await state.until(lambda: not state.driver.stuck_calls())
    finally:
        emulator.close()


# The child has a tenth of a second for all chips, which no deadline of a test lengthens.
@pytest.mark.alone
async def test_a_deadline_counts_from_the_begin_of_its_own_call(tmp_path: Path) -> None:
    install(tmp_path / "driver", tmp_path / "emulator", "a2")
    emulator = Emulator(tmp_path / "emulator")
    settings = replace(QUICK, call_seconds=0.3, probe_seconds=30.0)
    library = FoundLibrary(tmp_path / "driver" / LIBRARY, (), ())
    try:
        async with running(library, settings) as state:
            chips = (await state.driver.inventory()).chips
            for place in (0, 1):
                emulator.slow(_HEALTH, 45, place)
            emulator.hang(_HEALTH, 2)
            began = time.monotonic()
            answers = await state.driver.health_words(chips)
            assert [*answers] == [chips[2]]
            assert time.monotonic() - began >= 2 * 0.045 + 0.3
    finally:
        emulator.close()


@pytest.mark.slow
async def test_a_call_that_returns_after_its_deadline_is_the_one_that_missed_it(
    small_driver: Callable[[str], SmallDriver],
) -> None:
    plain = small_driver("plain")
    child = await open_child(plain.library, PATIENT, lambda *_: None, lambda *_: None)
    plain.command("hang-health-0")
    deadline = 0.05

    def hang() -> None:
        wait_until(lambda: plain.noted("hangs"))
        stand_in_takes(deadline)

    def return_late() -> None:
        plain.take_back("hang-health-0")
        # The child begins the next call, unless 0.1 s are over.
        stand_in_takes(deadline)

    try:
        each = [(0, 0), (1, 0)]
        asking = asyncio.create_task(child.request_each(_HEALTH, each, [deadline, deadline]))
        await asyncio.sleep(0)
        # One turn of the loop has both timers: the deadline, and behind it the return.
        loop = asyncio.get_running_loop()
        loop.call_soon(hang)
        loop.call_later(1.1 * deadline, return_late)
        with pytest.raises(TimeoutError):
            await asking
        assert len(child.begun) == 1
        child.close()
        assert len(child.begun) == 1
    finally:
        child.close()


async def test_a_pipe_without_place_for_a_begin_shortens_the_answer(
    small_driver: Callable[[str], SmallDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    # 256 begins: the kernel gives a user with many pipes so little for each further one.
    smallest, make_pipe = 4096, os.pipe

    def small_pipe() -> tuple[int, int]:
        ends = make_pipe()
        fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, smallest)
        return ends

    monkeypatch.setattr(os, "pipe", small_pipe)
    library = small_driver("plain").library
    child = await open_child(library, PATIENT, lambda *_: None, lambda *_: None)
    try:
        for _ in range(2):
            answer = await child.request_each(_HEALTH, [(0, 0)] * 300, [PATIENT.call_seconds] * 300)
            assert 0 < len(answer.each) == len(child.begun) <= smallest // 16
    finally:
        child.close()


async def test_a_crash_in_a_question_about_all_counts_for_its_own_chip(
    small_driver: Callable[[str], SmallDriver],
) -> None:
    plain = small_driver("plain")
    async with running(plain.library, replace(PATIENT, probe_seconds=30.0)) as state:
        good, bad = (await state.driver.inventory()).chips
        plain.command("crash-health-1")
        for _ in range(2):
            with pytest.raises(DriverGone, match="on chip 1"):
                await state.driver.health_words((good, bad))
        assert [call.chip for call in state.driver.stuck_calls()] == [bad]
        answers = await state.driver.health_words((good, bad))
        assert answers[good] == 0
        assert isinstance(answers[bad], DriverCallStuck)


@pytest.mark.alone
async def test_a_slow_call_is_given_more_time(
    small_driver: Callable[[str], SmallDriver],
) -> None:
    plain = small_driver("plain")
    async with running(plain.library, QUICK) as state:
        good, bad = (await state.driver.inventory()).chips
        assert await state.driver.health(bad) == 0
        plain.command("slow-health-1")
        with pytest.raises(DriverCallStuck):
            await state.driver.health(bad)
        await state.until(lambda: not state.driver.stuck_calls())
        again = "dcmi_get_device_health on chip 1 (card 1 device 0) answers again, after 0."
        await state.until(lambda: again in state.gaps)
        for _ in range(2):
            assert await state.driver.health(bad) == 0
        assert await state.driver.health(good) == 0
        assert not state.driver.stuck_calls()


@pytest.mark.slow
async def test_a_call_that_is_left_out_fails_at_once(
    small_driver: Callable[[str], SmallDriver],
) -> None:
    plain = small_driver("plain")
    async with running(plain.library) as state:
        bad = (await state.driver.inventory()).chips[1]
        plain.command("hang-codes-1")
        with pytest.raises(DriverCallStuck):
            await state.driver.error_codes(bad)
        began = time.monotonic()
        # Without a time: whoever shows it shows since when, and once is enough.
        with pytest.raises(DriverCallStuck, match=r"errorcode_v2 on chip 1 .* does not return$"):
            await state.driver.error_codes(bad)
        assert time.monotonic() - began < patience(0.4), "it is left out, its deadline is 0.5 s"


@pytest.mark.slow
async def test_hangs_and_probes_leave_no_processes(
    small_driver: Callable[[str], SmallDriver],
) -> None:
    plain = small_driver("plain")
    async with running(plain.library) as state:
        bad = (await state.driver.inventory()).chips[1]
        plain.command("hang-health-1")
        plain.command("hang-codes-1")

        async def is_stuck(ask: Callable[[Chip], Awaitable[object]]) -> None:
            with pytest.raises(DriverCallStuck):
                await ask(bad)

        for ask in (state.driver.health, state.driver.error_codes):
            # The process of the call before may be replaced meanwhile.
            await until_succeeds(partial(is_stuck, ask), DriverGone)
        await state.until(lambda: len(plain.noted("opened")) >= 7)
        # Probes do not take one of the machine's few places for subscribers.
        assert len(plain.noted("subscribed")) == 3
        others = set(plain.noted("opened")) - {state.driver.child_pid}
        assert sum(_alive(pid) for pid in others) <= 1
    await _gone(plain)


async def _gone(driver: SmallDriver) -> None:
    await until(lambda: not any(_alive(pid) for pid in driver.noted("opened")), seconds=3)


@pytest.mark.slow
async def test_identity_that_hangs_leaves_the_other_chip_working(
    small_driver: Callable[[str], SmallDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = small_driver("liar")
    plain.command("hang-identity")
    began = time.monotonic()
    async with running(plain.library) as state:
        inventory = await state.driver.inventory()
        assert time.monotonic() - began < patience(2)
        assert [chip.physical_id for chip in inventory.chips] == [0, 1]
        plain.take_back("hang-identity")
        await state.until(lambda: "other chips than before" in state.gaps)
        assert len((await state.driver.inventory()).chips) == 3


@pytest.mark.alone
async def test_a_crash_costs_a_gap_and_a_restart(
    small_driver: Callable[[str], SmallDriver],
) -> None:
    plain = small_driver("plain")
    async with running(plain.library, PATIENT) as state:
        good, bad = (await state.driver.inventory()).chips
        plain.command("crash-health-1")
        # On a machine that is busy its pipe is closed long before its end is known.
        ended = r"(ended by SIGSEGV|closed its pipe) in dcmi_get_device_health on"
        for _ in range(2):
            with pytest.raises(DriverGone, match=ended):
                await state.driver.health(bad)
            assert await state.driver.health(good) == 0
        assert "SIGSEGV" in state.gaps or "closed its pipe" in state.gaps
        with pytest.raises(DriverCallStuck):
            await state.driver.health(bad)
        plain.take_back("crash-health-1")
        await state.until(lambda: not state.driver.stuck_calls())
        assert await state.driver.health(bad) == 0


@pytest.mark.slow
async def test_a_killed_child_is_replaced(small_driver: Callable[[str], SmallDriver]) -> None:
    plain = small_driver("plain")
    async with running(plain.library, PATIENT) as state:
        chip = (await state.driver.inventory()).chips[0]
        for _ in range(3):
            killed = state.driver.child_pid
            assert killed is not None
            os.kill(killed, signal.SIGKILL)
            # A call that was under way fails, one that waited for its turn gets the new process.
            with contextlib.suppress(DriverGone):
                await state.driver.health(chip)
            assert await state.driver.health(chip) == 0
        # It was not the call's fault.
        assert state.driver.stuck_calls() == ()
        assert "ended by SIGKILL" in state.gaps
        plain.command("events")
        await state.until(lambda: state.events)


@pytest.mark.slow
async def test_a_flood_is_counted_not_hidden(small_driver: Callable[[str], SmallDriver]) -> None:
    flood = small_driver("flood")
    # Serials begin anew in another process.
    async with running(flood.library, PATIENT) as state:
        chip = (await state.driver.inventory()).chips[0]
        pid = state.driver.child_pid
        assert pid is not None
        flood.command("flood")
        # The agent does not read for a while; the library's thread is not held up by that.
        wait_until(lambda: flood.noted("flooded"), seconds=20)
        await state.until(lambda: len(state.events) + dropped(state.gaps) == 50_000, 30)
        assert dropped(state.gaps) > 0
        serials = [event.serial for event in state.events]
        assert serials == sorted(set(serials))
        assert await state.driver.health(chip) == 0


_AGENT = """
    import asyncio, os, sys
    from pathlib import Path
    from dcmi_shim.library.discovery import FoundLibrary
    from dcmi_shim.driver import Driver

    async def main():
        driver = Driver(FoundLibrary(Path(sys.argv[1]), (), ()), lambda: 0)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(driver.run())
            chip = (await driver.inventory()).chips[1]
            Path(sys.argv[2], "hang-health-1").touch()
            tasks.create_task(driver.health(chip))
            await asyncio.sleep(0.1)
            print("hangs", flush=True)
            await asyncio.sleep(60)

    asyncio.run(main())
"""


@pytest.mark.slow
async def test_nothing_is_left_after_kill_9(small_driver: Callable[[str], SmallDriver]) -> None:
    plain = small_driver("plain")
    agent = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", textwrap.dedent(_AGENT), plain.library.path, plain.directory],
        stdout=subprocess.PIPE,
    )
    with agent:
        try:
            assert agent.stdout is not None
            assert await asyncio.to_thread(agent.stdout.readline) == b"hangs\n"
            assert _alive(plain.noted("opened")[-1])
        finally:
            agent.kill()
    await _gone(plain)


@pytest.mark.slow
async def test_the_end_does_not_wait_for_a_hanging_call(
    small_driver: Callable[[str], SmallDriver],
) -> None:
    plain = small_driver("plain")
    async with running(plain.library) as state:
        bad = (await state.driver.inventory()).chips[1]
        plain.command("hang-health-1")
        call = asyncio.create_task(state.driver.health(bad))
        await time_passes(0.05)
        began = time.monotonic()
        state.driver.close()
        with pytest.raises(DriverGone):
            await call
        assert time.monotonic() - began < patience(0.4)
    await _gone(plain)
