"""File systems of the host: the tracked state, and the check on a host of its own."""

from __future__ import annotations

import os
import threading
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import pytest

from collectors.boot import boot_id
from collectors.file_systems.collector import (
    FileSystemsCollector,
    FileSystemsSection,
    SavedFileSystems,
    usage_of,
)
from collectors.file_systems.host_mounts import HostMounts
from collectors.file_systems.mounts import FileSystem
from collectors.file_systems.probe import ProbeRound, Probes, absolute_paths
from collectors.file_systems.superblocks import Superblock, held_superblock, superblock_of
from collectors.file_systems.tracker import (
    FileSystemTracker,
    FileSystemUsage,
    FullThresholds,
    ProbeOutcome,
)
from contract.codes.host_codes import (
    FILE_SYSTEM,
    FILE_SYSTEM_ERRORS,
    FILE_SYSTEM_FAILED,
    FILE_SYSTEMS,
    FULL,
    KERNEL_LOG,
    NO_INODES,
    READ_ONLY,
)
from contract.observation import Assertion, Gap, Observation, host_subject
from tests.collectors.scripted import RecordedReports, beside_others, word
from tests.parts import deadlines
from tests.parts.collector_context import SavedInMemory
from tests.parts.deadlines import patience, stays

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from collectors.base import CollectorContext
    from contract.observation import Report

NOW_MS = 1_800_000_000_000
ANSWERED = "node 0 answered"
DEVICE = os.makedev(8, 2)
DISK = host_subject(FILE_SYSTEM, DEVICE)
LIMITS = FullThresholds(95, 93)
HALF = FileSystemUsage(50.0, 50.0)


def disk(*mounts: int, read_only: bool = False) -> dict[int, FileSystem]:
    found = FileSystem(DEVICE, "ext4", "/dev/sda2", "/data", read_only, frozenset(mounts or (1,)))
    return {DEVICE: found}


def tracker(
    *tracked: str, writable: Mapping[int, frozenset[int]] | None = None
) -> FileSystemTracker:
    held = [(DISK, code) for code in tracked]
    return FileSystemTracker(FILE_SYSTEMS, held, writable or {}, LIMITS)


def seen(
    known: FileSystemTracker,
    file_systems: Mapping[int, FileSystem],
    usage: FileSystemUsage | None = HALF,
) -> list[str]:
    usages = {} if usage is None else {DEVICE: usage}
    stats = known.observe_file_systems(file_systems, usages, NOW_MS)
    return [word(one).removeprefix(f"host {DEVICE} File System ") for one in stats]


def test_file_system_that_becomes_read_only_is_a_fault() -> None:
    known = tracker()
    assert seen(known, disk()) == []
    assert seen(known, disk(read_only=True)) == [f"present {READ_ONLY}"]
    assert seen(known, disk(read_only=True)) == []
    assert seen(known, disk()) == [f"absent {READ_ONLY}"]


def test_file_system_mounted_read_only_is_no_fault() -> None:
    known = tracker()
    assert seen(known, disk(read_only=True)) == []
    assert seen(known, disk(1)) == []
    assert seen(known, disk(2, read_only=True)) == [], "another mount of it"
    assert seen(known, {}) == []
    assert seen(known, disk(1, read_only=True)) == [], "the number is another one's now"


def test_a_restart_in_the_same_boot_remembers() -> None:
    first = tracker()
    seen(first, disk(1, 2))
    assert seen(tracker(writable=first.writable), disk(2, 3, read_only=True)) == [
        f"present {READ_ONLY}"
    ]
    again = tracker(READ_ONLY)
    assert seen(again, disk(9, read_only=True)) == [], "it is still so"
    assert seen(again, {}) == [f"absent {READ_ONLY}"]


def test_the_kernel_reports_it_first() -> None:
    known = tracker()
    known.record_logged(DISK, READ_ONLY)
    assert seen(known, disk(7, read_only=True)) == []
    assert seen(known, disk(7)) == [f"absent {READ_ONLY}"]


def held(*mounts: int, inode: int = 7) -> dict[int, Superblock]:
    return {DEVICE: Superblock("/sys/fs/xfs/sda2", inode, frozenset(mounts))}


def failed(code: str = FILE_SYSTEM_FAILED) -> FileSystemTracker:
    known = tracker()
    known.record_logged(DISK, code)
    known.begin_check()
    return known


def words_of(reports: Sequence[Report]) -> list[str]:
    return [word(one).removeprefix(f"host {DEVICE} File System ") for one in reports]


@pytest.mark.parametrize("code", [FILE_SYSTEM_FAILED, FILE_SYSTEM_ERRORS])
def test_a_failed_one_ends_when_it_is_mounted_anew(code: str) -> None:
    known = failed(code)
    assert known.observe_file_systems(disk(1), {}, NOW_MS, held(1)) == []
    assert known.observe_file_systems(disk(2, 3), {}, NOW_MS, held(2, 3)) == [], (
        "another mount of the same"
    )
    assert words_of(known.observe_file_systems(disk(2), {}, NOW_MS, held(2, inode=8))) == [
        f"absent {code}"
    ]
    assert known.failing == {}


def test_one_that_was_unmounted_lazily_is_still_held() -> None:
    known = failed()
    known.observe_file_systems(disk(1), {}, NOW_MS, held(1))
    assert known.observe_file_systems({}, {}, NOW_MS, held(1)) == []
    assert words_of(known.observe_file_systems({}, {}, NOW_MS, {})) == [
        f"absent {FILE_SYSTEM_FAILED}"
    ]


def test_mounts_are_compared_where_the_kernel_shows_no_more() -> None:
    known = failed()
    bare = {DEVICE: Superblock("", 0, frozenset((1, 2)))}
    assert known.observe_file_systems(disk(1, 2), {}, NOW_MS, bare) == []
    assert (
        known.observe_file_systems(
            disk(2, 3), {}, NOW_MS, {DEVICE: Superblock("", 0, frozenset((2, 3)))}
        )
        == []
    )
    anew = {DEVICE: Superblock("", 0, frozenset((9,)))}
    assert words_of(known.observe_file_systems(disk(9), {}, NOW_MS, anew)) == [
        f"absent {FILE_SYSTEM_FAILED}"
    ]


def test_a_probe_is_evidence_unless_the_kernel_logged_something_since() -> None:
    known = failed()
    known.record_logged(DISK, FILE_SYSTEM_ERRORS)
    works = (ProbeOutcome(DEVICE, ""),)
    assert known.observe_file_systems(disk(1), {}, NOW_MS, held(1), works) == []
    known.begin_check()
    assert words_of(known.observe_file_systems(disk(1), {}, NOW_MS, held(1), works)) == [
        f"absent {FILE_SYSTEM_FAILED}",
        f"absent {FILE_SYSTEM_ERRORS}",
    ]
    fails = (ProbeOutcome(DEVICE, "a write and a read in /data fail: Input/output error"),)
    (report,) = known.observe_file_systems(disk(1), {}, NOW_MS, {}, fails)
    assert isinstance(report, Observation)
    assert word(report).endswith(f"present {FILE_SYSTEM_FAILED}")
    assert report.text == "/data: a write and a read in /data fail: Input/output error"
    assert known.observe_file_systems(disk(1), {}, NOW_MS, held(1), fails) == []


def test_a_check_that_began_before_the_message_proves_nothing() -> None:
    known = tracker()
    known.begin_check()
    known.record_logged(DISK, FILE_SYSTEM_FAILED)
    assert known.observe_file_systems(disk(1), {}, NOW_MS, {}) == []
    known.begin_check()
    assert known.observe_file_systems(disk(1), {}, NOW_MS, held(1)) == []
    assert known.failing == held(1)


def test_a_restart_compares_with_what_the_kernel_held_then() -> None:
    first = failed()
    first.observe_file_systems(disk(1), {}, NOW_MS, held(1))
    again = FileSystemTracker(FILE_SYSTEMS, [(DISK, FILE_SYSTEM_FAILED)], {}, LIMITS, first.failing)
    assert words_of(again.observe_file_systems(disk(4), {}, NOW_MS, held(4, inode=9))) == [
        f"absent {FILE_SYSTEM_FAILED}"
    ]


def test_read_only_without_a_flag_holds() -> None:
    known = failed(READ_ONLY)
    assert known.observe_file_systems(disk(1), {}, NOW_MS, held(1)) == []
    assert words_of(known.observe_file_systems(disk(1), {}, NOW_MS, held(1, inode=8))) == [
        f"absent {READ_ONLY}"
    ]


def test_ext4_shows_that_it_was_shut_down() -> None:
    shut_down = {DEVICE: disk(1)[DEVICE]._replace(shut_down=True)}
    assert words_of(tracker().observe_file_systems(shut_down, {}, NOW_MS, held(1))) == [
        f"present {FILE_SYSTEM_FAILED}"
    ]


def test_the_kernel_shows_a_superblock(tmp_path: Path) -> None:
    (tmp_path / "dev/block").mkdir(parents=True)
    (tmp_path / "devices/dm-4").mkdir(parents=True)
    (tmp_path / "dev/block/8:2").symlink_to("../../devices/dm-4")
    (tmp_path / "fs/xfs/dm-4").mkdir(parents=True)
    (tmp_path / "fs/btrfs/961067eb/devices").mkdir(parents=True)
    (tmp_path / "fs/btrfs/961067eb/devices/nvme9n1").touch()
    mounted = disk(5)[DEVICE]._replace(kind="xfs")
    before = superblock_of(mounted, tmp_path)
    assert before.place == str(tmp_path / "fs/xfs/dm-4")
    assert before.is_held()
    (tmp_path / "fs/xfs/dm-4").rename(tmp_path / "fs/xfs/away")
    assert not before.is_held()
    (tmp_path / "fs/xfs/dm-4").mkdir()
    assert not before.is_same(superblock_of(mounted, tmp_path))
    on_btrfs = mounted._replace(kind="btrfs", source="/dev/nvme9n1")
    assert superblock_of(on_btrfs, tmp_path).place == str(tmp_path / "fs/btrfs/961067eb")
    held_one = held_superblock(DEVICE, tmp_path)
    assert held_one is not None
    assert held_one.place == str(tmp_path / "fs/xfs/dm-4")
    assert held_superblock(os.makedev(8, 9), tmp_path) is None
    assert superblock_of(mounted._replace(kind="vfat"), tmp_path) == Superblock(
        "", 0, frozenset((5,))
    )


async def test_a_probe_of_a_directory_that_works_leaves_nothing(tmp_path: Path) -> None:
    round_ = await Probes((str(tmp_path), str(tmp_path / "missing")), 10).run(lambda: None)
    assert [one.trouble for one in round_.results] == [""]
    assert round_.unusable == {str(tmp_path / "missing"): "no probe: No such file or directory"}
    assert list(tmp_path.iterdir()) == []
    assert await Probes((), 1).run(lambda: None) == ProbeRound({}, (), {})


async def test_a_probe_without_an_answer_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "collectors.file_systems.probe._PROGRAM",
        "import time; print(1, flush=True); time.sleep(60)",
    )
    round_ = await Probes((str(tmp_path),), 0.3).run(lambda: None)
    assert [one.trouble for one in round_.results] == [
        f"a write and a read in {tmp_path} fail: no answer within 0.3 s"
    ]


def test_directories_of_probes_are_absolute() -> None:
    assert absolute_paths(("/data/x/",)) == ("/data/x",)
    with pytest.raises(ValueError, match="'data' is not an absolute path"):
        absolute_paths(("data",))


@pytest.mark.parametrize("code", [FULL, NO_INODES])
def test_full_has_a_hysteresis(code: str) -> None:
    known, stats = tracker(), []
    for percent in (94.9, 95.0, 94.0, 93.0, 92.9, 94.0, 100.0):
        usage = FileSystemUsage(percent, 1.0) if code == FULL else FileSystemUsage(None, percent)
        stats += seen(known, disk(), usage)
    assert stats == [f"present {code}", f"absent {code}", f"present {code}"]


def test_silent_file_system_keeps_its_state_and_a_read_only_one_is_not_full() -> None:
    known = tracker(FULL)
    assert seen(known, disk(), None) == []
    assert seen(known, disk(), FileSystemUsage(99.0, None)) == []
    assert seen(known, disk(read_only=True)) == [f"present {READ_ONLY}", f"absent {FULL}"]
    fresh = tracker()
    assert seen(fresh, disk(read_only=True), FileSystemUsage(100.0, 100.0)) == []


def test_usage_is_that_of_df() -> None:
    stats = os.statvfs_result((4096, 4096, 1000, 100, 50, 200, 20, 10, 0, 255))
    assert usage_of(stats) == FileSystemUsage(100 * 900 / 950, 100 * 180 / 190)
    assert usage_of(os.statvfs_result((0,) * 10)) == FileSystemUsage(None, None)


class Host:
    """A host below a directory: two file systems, whose mount points are real directories."""

    def __init__(self, place: Path) -> None:
        self.proc = place
        for point in ("data", "other"):
            (place / "1/root" / point).mkdir(parents=True)
        (place / "filesystems").write_text("\text4\n")
        self.mount()

    def mount(self, *, data: str = "rw", others: str = "") -> None:
        lines = f"5 1 8:2 / /data {data} - ext4 /dev/sda2 {data}\n"
        lines += "6 1 8:3 / /other rw - ext4 /dev/sda3 rw\n"
        (self.proc / "1/mountinfo").write_text(lines + others)

    def collector(
        self, full_percent: float = 100.0, deadline_seconds: float = 5.0
    ) -> Callable[[CollectorContext], FileSystemsCollector]:
        return partial(
            FileSystemsCollector,
            FileSystemsSection(
                full_percent=full_percent,
                full_cleared_percent=full_percent,
                deadline_seconds=deadline_seconds,
            ),
            host=HostMounts((), self.proc),
        )


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """Return a host in the test's own directory."""
    return Host(tmp_path)


async def until(recorded: RecordedReports, count: int) -> list[str]:
    await deadlines.until(lambda: len(recorded.words()) >= count, seconds=5)
    return recorded.words()


async def test_the_kernel_wakes_the_check(host: Host) -> None:
    memory = SavedInMemory()
    async with beside_others(host.collector(), memory) as (recorded, push):
        assert await until(recorded, 1) == [ANSWERED]
        host.mount(data="ro")
        push([Gap(KERNEL_LOG, 1, "lost")])
        assert (await until(recorded, 2))[1:] == [f"{DISK} present {READ_ONLY}"]
        host.mount()
        push([Observation(FILE_SYSTEMS, DISK, READ_ONLY, Assertion.OCCUR, 1)])
        assert (await until(recorded, 3))[2:] == [f"{DISK} absent {READ_ONLY}"]
    assert memory.content is not None
    kept = msgspec.json.decode(memory.content, type=SavedFileSystems)
    assert kept == SavedFileSystems(
        boot_id(), {DEVICE: frozenset({5}), os.makedev(8, 3): frozenset({6})}
    )


@pytest.mark.parametrize("boot", ["this", "another"])
async def test_only_this_boot_is_remembered(host: Host, boot: str) -> None:
    seen_in = boot_id() if boot == "this" else boot
    memory = SavedInMemory(msgspec.json.encode(SavedFileSystems(seen_in, {DEVICE: frozenset({5})})))
    host.mount(data="ro")
    async with beside_others(host.collector(), memory) as (recorded, _):
        await until(recorded, 1)
    assert recorded.words()[1:] == ([f"{DISK} present {READ_ONLY}"] if boot == "this" else [])


async def test_a_full_one_is_reported_with_its_mount_point(host: Host) -> None:
    async with beside_others(host.collector(full_percent=1e-9)) as (recorded, _):
        await until(recorded, 3)
    stats = [one for _, batch in recorded.batches for one in batch if isinstance(one, Observation)]
    assert {one.subject for one in stats if one.code == FULL} == {
        host_subject(FILE_SYSTEM, os.makedev(8, minor)) for minor in (2, 3)
    }
    assert any(one.text.startswith("/data: ") for one in stats)


async def test_hanging_file_system_blinds_no_other(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, asked = threading.Event(), []
    statvfs = os.statvfs

    def hanging(path: str) -> os.statvfs_result:
        asked.append(path)
        if path.endswith("/data") and not release.is_set():
            release.wait(patience(10))
        return statvfs(path)

    monkeypatch.setattr(os, "statvfs", hanging)
    deadline_seconds = patience(0.05)
    async with beside_others(host.collector(1e-9, deadline_seconds)) as (recorded, push):
        words = await until(recorded, 2)
        assert all(one.startswith(f"host {os.makedev(8, 3)} File System") for one in words[:-1])
        assert words[-1] == f"node 0 blind: /data: no answer within {deadline_seconds:g} s"
        before = len(asked)
        push([Gap(KERNEL_LOG, 1, "lost")])
        await deadlines.until(lambda: len(asked) > before, "it looks again")
        await stays(0.05, because="another look follows a gap at once")
        assert len(asked) == before + 1, "it is left out"
        release.set()

        def looks_again() -> bool:
            push([Gap(KERNEL_LOG, 1, "lost")])
            return ANSWERED in recorded.words()

        await deadlines.until(looks_again, "it answers", 5, deadline_seconds)
        assert any(f"{DISK} present" in one for one in recorded.words())


async def test_file_system_that_cannot_be_asked_is_blindness(host: Host) -> None:
    host.mount(others="7 1 8:4 / /gone rw - ext4 /dev/sda4 rw\n")
    async with beside_others(host.collector()) as (recorded, _):
        assert await until(recorded, 1) == ["node 0 blind: /gone: No such file or directory"]
    (host.proc / "filesystems").unlink()
    async with beside_others(host.collector()) as (recorded, _):
        (blind,) = await until(recorded, 1)
    assert "the mounts cannot be read" in blind


async def test_undecodable_saved_state_is_dropped(host: Host) -> None:
    async with beside_others(host.collector(), SavedInMemory(b"{")) as (recorded, _):
        assert await until(recorded, 1) == [ANSWERED]
