"""The reader of the kernel's log, on a pipe and on the log of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import pty
import socket
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from collectors.boot import boot_id
from collectors.file_systems.host_mounts import HostMounts
from collectors.kernel_log.collector import KernelLogCollector, KernelLogSection
from collectors.kernel_log.device import explained, opened
from collectors.kernel_log.evidence import KernelEvidence
from collectors.kernel_log.tracker import SavedLogPosition
from contract.codes.host_codes import (
    DRIVER_ERROR,
    FILE_SYSTEM,
    FILE_SYSTEM_FAILED,
    FILE_SYSTEMS,
    HUNG_TASK,
    OOM_KILL,
    READ_ONLY,
    SOFT_LOCKUP,
)
from contract.observation import Observation, Subject, host_subject
from tests.collectors.scripted import RecordedReports, ScriptedDriver
from tests.parts.collector_context import SavedInMemory as Memory
from tests.parts.collector_context import collector_context
from tests.parts.deadlines import patience, stays, time_passes, until
from tests.parts.kernel_log import DRIVER, HARMLESS, HUNG, KILLED, LOCKUP, KernelLogPipe, line
from tests.parts.tasks import beside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

ANSWERED = "node 0 answered"
LOCKED = f"host 0 Kernel occur {SOFT_LOCKUP}"
KERNEL = host_subject("Kernel", 0)


@pytest.fixture(autouse=True)
def reporting_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give collectors a kernel that reports all kinds, whatever is set on this machine."""
    proc = tmp_path / "reporting-kernel"
    proc.mkdir()
    (proc / "stat").symlink_to("/proc/stat")
    reporting = partial(KernelEvidence, proc=proc, rcu=proc)
    monkeypatch.setattr("collectors.kernel_log.collector.KernelEvidence", reporting)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[KernelLogPipe]:
    """Yield a kernel log in the test's own directory."""
    pipe = KernelLogPipe(tmp_path / "kmsg")
    yield pipe
    pipe.close()


@contextlib.asynccontextmanager
async def running(
    device: str | Path,
    memory: Memory,
    tracked: Mapping[tuple[Subject, str], int] | None = None,
    hold_seconds: float = 300.0,
) -> AsyncIterator[RecordedReports]:
    """Run the collector on ``device``; yield its reports."""
    recorded = RecordedReports()
    around = collector_context(
        recorded,
        lambda: time.time_ns() // 1_000_000,
        ScriptedDriver(),
        tracked=tracked,
        saved_state=memory,
    )
    # Shorter than an operator may set.
    settings = KernelLogSection(device=str(device), hold_seconds=hold_seconds)
    collector = KernelLogCollector(settings, around)
    async with beside(collector.run()):
        yield recorded


def remembered(memory: Memory) -> SavedLogPosition:
    assert memory.content is not None
    return msgspec.json.decode(memory.content, type=SavedLogPosition)


def fresh(sequence: int, text: str) -> str:
    return line(sequence, text, at_us=time.monotonic_ns() // 1000)


async def test_the_first_start_begins_at_the_end(log: KernelLogPipe) -> None:
    memory = Memory()
    log.write(line(1, LOCKUP), line(2, KILLED))
    async with running(log.path, memory) as recorded:
        await until(lambda: recorded.words() == [ANSWERED])
        assert remembered(memory) == SavedLogPosition(boot_id(), 2)
        log.write(line(3, HARMLESS, 6), line(4, LOCKUP))
        await until(lambda: recorded.words() == [ANSWERED, LOCKED])
        assert remembered(memory).sequence == 4


async def test_later_start_continues_behind_the_saved_position(log: KernelLogPipe) -> None:
    memory = Memory(msgspec.json.encode(SavedLogPosition(boot_id(), 2)))
    log.write(line(2, KILLED), fresh(3, LOCKUP), line(4, HARMLESS, 6))
    async with running(log.path, memory) as recorded:
        await until(lambda: ANSWERED in recorded.words())
        assert recorded.words() == [LOCKED, ANSWERED]
    assert remembered(memory).sequence == 4


async def test_all_records_of_another_boot_are_new(log: KernelLogPipe) -> None:
    memory = Memory(msgspec.json.encode(SavedLogPosition("another", 1000, {SOFT_LOCKUP: 1})))
    log.write(fresh(1, HUNG), line(2, HARMLESS, 6))
    async with running(log.path, memory, {(KERNEL, SOFT_LOCKUP): 1}) as recorded:
        await until(lambda: ANSWERED in recorded.words())
    absent, hung = f"host 0 Kernel absent {SOFT_LOCKUP}", f"host 0 Kernel occur {HUNG_TASK}"
    assert recorded.words() == [absent, hung, ANSWERED]
    assert remembered(memory).boot == boot_id()


async def test_a_gap_is_reported_before_what_follows(log: KernelLogPipe) -> None:
    async with running(log.path, Memory()) as recorded:
        await until(lambda: recorded.words() == [ANSWERED])
        log.write(line(5, HARMLESS, 6), "nonsense\n", line(9, KILLED))
        await until(lambda: len(recorded.words()) == 3)
    assert recorded.words()[1:] == [
        "gap: 3 records of the kernel's log were lost before 9",
        f"host 0 Host Memory once {OOM_KILL}",
    ]


async def test_a_line_in_pieces_is_one(log: KernelLogPipe) -> None:
    front, back = LOCKUP[:30], LOCKUP[30:]
    async with running(log.path, Memory()) as recorded:
        await until(lambda: recorded.words() == [ANSWERED])
        log.write(line(1, front, flags="c"), line(2, back, flags="+"), line(3, "!", flags="+"))
        await until(lambda: LOCKED in recorded.words())
        log.write(line(4, KILLED), line(5, " and more", flags="+"), line(6, HUNG))
        await until(lambda: len(recorded.words()) == 4)
    assert recorded.words()[2:] == [
        f"host 0 Host Memory once {OOM_KILL}",
        f"host 0 Kernel occur {HUNG_TASK}",
    ]


async def test_code_ends_when_its_message_is_not_repeated(log: KernelLogPipe) -> None:
    async with running(log.path, Memory(), hold_seconds=0.1) as recorded:
        await until(lambda: recorded.words() == [ANSWERED])
        log.write(line(1, LOCKUP))
        await until(lambda: recorded.words()[1:] == [LOCKED, f"host 0 Kernel absent {SOFT_LOCKUP}"])


@pytest.mark.slow
async def test_ten_thousand_lines_do_not_starve_others(log: KernelLogPipe) -> None:
    async with running(log.path, Memory()) as recorded:
        await until(lambda: recorded.words() == [ANSWERED])
        sequence = 0
        for _ in range(100):
            lines = [line(sequence + one, HARMLESS, 6) for one in range(1, 101)]
            sequence += 100
            log.write(*lines)
            await asyncio.sleep(0)
            await time_passes(0.0005)
        log.write(line(sequence + 1, LOCKUP))
        await until(lambda: recorded.words() == [ANSWERED, LOCKED])


async def test_a_missing_log_is_blindness_and_ends_nothing(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    held = {(KERNEL, SOFT_LOCKUP): 1}
    async with running(path, Memory(), held, hold_seconds=0.05) as recorded:
        await until(lambda: len(recorded.words()) == 1)
        await stays(0.2, because="the fault would end after hold_seconds, 0.05")
    (blind,) = recorded.words()
    assert blind.startswith("node 0 blind: ")
    assert "/dev" in blind


def test_what_is_not_the_log_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text(line(1, LOCKUP))
    (tmp_path / "directory").mkdir()
    terminal, other = pty.openpty()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        for place, kind in (
            (tmp_path / "file", "a file"),
            (tmp_path / "directory", "a directory"),
            (tmp_path / "socket", "a socket"),
            (Path("/dev/null"), "character device 1:3"),
            (Path(os.ttyname(other)), "character device 136:"),
        ):
            with (
                pytest.raises(OSError, match=rf"it is {kind}.*kernel_log\.device") as raised,
                opened(str(place)),
            ):
                pass
            assert str(place) in explained(str(place), raised.value)
    os.close(terminal)
    os.close(other)


def test_a_pipe_at_the_default_place_is_not_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    with opened(str(path)) as log:
        assert log.is_pipe
    monkeypatch.setattr("collectors.kernel_log.device.DEFAULT_DEVICE", str(path))
    with pytest.raises(OSError, match="it is a pipe"), opened(str(path)):
        pass


async def test_a_terminal_is_blindness(tmp_path: Path) -> None:
    terminal, other = pty.openpty()
    async with running(os.ttyname(other), Memory()) as recorded:
        await until(lambda: bool(recorded.words()))
    os.close(terminal)
    os.close(other)
    (blind,) = recorded.words()
    assert "it is character device 136:" in blind


async def test_suppressed_reports_are_blindness_and_no_recovery(log: KernelLogPipe) -> None:
    async with running(log.path, Memory(), hold_seconds=0.1) as recorded:
        await until(lambda: recorded.words() == [ANSWERED])
        log.write(
            line(1, HUNG),
            line(
                2, "Future hung task reports are suppressed, see sysctl kernel.hung_task_warnings"
            ),
        )
        await until(lambda: len(recorded.words()) == 3)
        await stays(0.3, because="what is held ends after hold_seconds")
    _, occur, blind = recorded.words()
    assert occur == f"host 0 Kernel occur {HUNG_TASK}"
    assert blind.startswith("node 0 blind: further hung tasks are not reported")


async def test_the_kernels_count_keeps_a_hung_task(
    log: KernelLogPipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = iter((1, 2, 3))
    monkeypatch.setattr(KernelEvidence, "newly_hung", lambda _: next(counts, 0))
    async with running(log.path, Memory(), hold_seconds=0.2) as recorded:
        await until(lambda: recorded.words() == [ANSWERED])
        begun = time.monotonic()
        log.write(line(1, HUNG))
        await until(lambda: f"host 0 Kernel absent {HUNG_TASK}" in recorded.words())
    assert time.monotonic() - begun > 0.4, "it was counted after its message"


@pytest.mark.looptime
async def test_the_kernels_settings_are_read_once_a_minute(
    log: KernelLogPipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    refreshed: list[float] = []
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(KernelEvidence, "refresh", lambda _: refreshed.append(loop.time()))
    async with running(log.path, Memory()):
        await time_passes(90)
        # A record does not put off what is due.
        log.write(line(1, HARMLESS, 6))
        await time_passes(220)
    assert refreshed == pytest.approx([0, 60, 120, 180, 240, 300], abs=0.5)


@pytest.mark.slow
async def test_an_error_of_the_driver_outlasts_its_rate_limit(log: KernelLogPipe) -> None:
    hold_seconds = patience(0.4)
    async with running(log.path, Memory(), hold_seconds=hold_seconds) as recorded:
        await until(lambda: recorded.words() == [ANSWERED])
        log.write(line(1, DRIVER, 5), line(2, "net_ratelimit: 9 callbacks suppressed", 4))
        await time_passes(0.2)
        begun = time.monotonic()
        log.write(line(3, "devdrv_ioctl: 9 callbacks suppressed", 4))
        await until(lambda: len(recorded.words()) == 3)
        await until(lambda: f"host 0 NPU Driver absent {DRIVER_ERROR}" in recorded.words())
    assert time.monotonic() - begun > hold_seconds
    assert "rate limit (devdrv_ioctl: 9 callbacks suppressed)" in recorded.words()[2]


@pytest.mark.slow
async def test_lost_records_restart_the_silence(log: KernelLogPipe) -> None:
    hold_seconds = patience(0.4)
    async with running(log.path, Memory(), hold_seconds=hold_seconds) as recorded:
        await until(lambda: recorded.words() == [ANSWERED])
        log.write(line(1, LOCKUP))
        await time_passes(0.6 * hold_seconds)
        log.write(line(9, HARMLESS, 6))
        await stays(0.6 * hold_seconds, because="the fault would end after hold_seconds")
        assert f"host 0 Kernel absent {SOFT_LOCKUP}" not in recorded.words()
        await until(lambda: f"host 0 Kernel absent {SOFT_LOCKUP}" in recorded.words())


async def test_a_failure_before_the_start_that_is_over_ends(log: KernelLogPipe) -> None:
    mounted = [one for one in HostMounts().read()[0].values() if one.source.startswith("/dev/")]
    name = Path(mounted[0].source).name if mounted else "no-such"
    log.write(
        line(3, f"XFS ({name}): User initiated shutdown received.", 1),
        line(4, f"XFS ({name}): Ending clean mount", 6),
    )
    memory = Memory(msgspec.json.encode(SavedLogPosition(boot_id(), 2)))
    async with running(log.path, memory) as recorded:
        await until(lambda: ANSWERED in recorded.words())
    assert recorded.words() == [
        *(
            f"{host_subject(FILE_SYSTEM, one.device)} {word} {FILE_SYSTEM_FAILED}"
            for one in mounted[:1]
            for word in ("occur", "absent")
        ),
        ANSWERED,
    ]


async def test_a_flood_about_one_device_is_read_quickly(log: KernelLogPipe) -> None:
    mounted = [one for one in HostMounts().read()[0].values() if one.source.startswith("/dev/")]
    name = Path(mounted[0].source).name if mounted else "no-such"
    async with running(log.path, Memory()) as recorded:
        await until(lambda: recorded.words() == [ANSWERED])
        sequence = 0
        for device in (name, "no-such"):
            text = f"Buffer I/O error on dev {device}, logical block 7, async page read"
            for _ in range(20):
                log.write(*(line(sequence + one, text) for one in range(1, 101)))
                sequence += 100
                await time_passes(0.001)
        log.write(line(sequence + 1, LOCKUP))
        await until(lambda: LOCKED in recorded.words())
    assert len(recorded.words()) == 2 + len(mounted[:1])


async def test_a_shut_down_file_system_is_reported_for_its_own_check(log: KernelLogPipe) -> None:
    mounted = [one for one in HostMounts().read()[0].values() if one.source.startswith("/dev/")]
    name = Path(mounted[0].source).name if mounted else "no-such"
    async with running(log.path, Memory()) as recorded:
        await until(lambda: recorded.words() == [ANSWERED])
        log.write(line(1, f"XFS ({name}): I/O Error Detected. Shutting down filesystem", 1))
        log.write(line(2, LOCKUP))
        await until(lambda: LOCKED in recorded.words())
    subjects = [host_subject(FILE_SYSTEM, one.device) for one in mounted[:1]]
    assert recorded.words()[1:-1] == [f"{one} occur {FILE_SYSTEM_FAILED}" for one in subjects]


async def test_a_pipe_does_not_end_when_a_writer_goes(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    async with running(path, Memory()) as recorded:
        await until(lambda: recorded.words() == [ANSWERED])
        for sequence, text in ((1, HARMLESS), (2, LOCKUP)):
            end = os.open(path, os.O_WRONLY)
            os.write(end, line(sequence, text).encode())
            os.close(end)
            await time_passes(0.02)
        await until(lambda: recorded.words() == [ANSWERED, LOCKED])


async def test_a_file_system_that_is_made_read_only_is_reported_for_its_own_check(
    log: KernelLogPipe,
) -> None:
    mounted = [one for one in HostMounts().read()[0].values() if one.source.startswith("/dev/")]
    name = Path(mounted[0].source).name if mounted else "no-such"
    async with running(log.path, Memory()) as recorded:
        await until(lambda: recorded.words() == [ANSWERED])
        log.write(line(1, "EXT4-fs (no-such): Remounting filesystem read-only", 2))
        log.write(line(2, f"EXT4-fs ({name}): Remounting filesystem read-only", 2), line(3, LOCKUP))
        await until(lambda: LOCKED in recorded.words())
    found = [one for _, batch in recorded.batches for one in batch if isinstance(one, Observation)]
    assert [(one.source, one.subject, one.code) for one in found if one.code == READ_ONLY] == [
        (FILE_SYSTEMS, host_subject(FILE_SYSTEM, one.device), READ_ONLY) for one in mounted[:1]
    ]


async def test_undecodable_saved_position_counts_as_a_first_start(log: KernelLogPipe) -> None:
    log.write(line(1, LOCKUP))
    async with running(log.path, Memory(b"{")) as recorded:
        await until(lambda: recorded.words() == [ANSWERED])


def test_reason_of_blindness_has_the_remedy() -> None:
    for number, hint in ((errno.EPERM, "CAP_SYSLOG"), (errno.ENOENT, "/dev"), (errno.EIO, "Input")):
        assert hint in explained("kmsg", OSError(number, os.strerror(number)))


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="there is no log to be read")
async def test_the_log_of_this_machine() -> None:
    memory = Memory()
    async with running("/dev/kmsg", memory) as recorded:
        await until(lambda: bool(recorded.words()))
    if recorded.words() != [ANSWERED]:
        assert "CAP_SYSLOG" in recorded.words()[0], "a container without the right"
    else:
        assert (remembered(memory).sequence or 0) > 0
