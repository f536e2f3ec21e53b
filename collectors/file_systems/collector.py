"""File systems of the host: read-only, full, out of inodes, failed.

Only real ones on devices of this host are asked, and in a thread with a deadline. One that does not
answer is left out until it does, and only its own state is not known. What the kernel logs about
one is reported by ``kernel-log`` in the name of this source, which finds out when it is over.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Annotated, NamedTuple, NoReturn

import msgspec
from msgspec import Meta

from collectors.answer_tracker import AnswerTracker
from collectors.base import Collector
from collectors.boot import boot_id
from collectors.file_systems.host_mounts import OF_PODS, HostMounts
from collectors.file_systems.probe import Probes, absolute_paths
from collectors.file_systems.superblocks import Superblock, held_superblock, superblock_of
from collectors.file_systems.tracker import (
    FileSystemTracker,
    FileSystemUsage,
    FullThresholds,
)
from collectors.saved_state import read_saved
from contract.codes.host_codes import (
    FILE_SYSTEM_ERRORS,
    FILE_SYSTEM_FAILED,
    FILE_SYSTEMS,
    KERNEL_LOG,
    READ_ONLY,
)
from contract.observation import Assertion, Gap, Observation
from contract.settings import Section, ValueRule, check_at_most
from pacing.abandonable_thread import AbandonableThread
from pacing.waiting import shared_pause, wait_for_event

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from collectors.base import CollectorContext
    from collectors.file_systems.mounts import FileSystem
    from collectors.file_systems.probe import ProbeRound
    from contract.observation import Report

_log = logging.getLogger(__name__)

_LOGGED = (READ_ONLY, FILE_SYSTEM_FAILED, FILE_SYSTEM_ERRORS)
"""What ``kernel-log`` reports in the name of this source."""


class FileSystemsSection(Section, frozen=True):
    """When a file system of the host counts as full."""

    enabled: bool = True
    period_seconds: Annotated[float, Meta(ge=0.1, le=3600)] = 60.0
    deadline_seconds: Annotated[float, Meta(ge=0.1, le=60)] = 5.0
    full_percent: Annotated[float, Meta(gt=0, le=100)] = 95.0
    full_cleared_percent: Annotated[float, Meta(gt=0, le=100)] = 93.0
    excluded: tuple[str, ...] = OF_PODS
    probe_directories: Annotated[tuple[str, ...], ValueRule(absolute_paths)] = ()

    def __post_init__(self) -> None:
        check_at_most(self, "full_cleared_percent", "full_percent")


class SavedFileSystems(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the next process needs, by device number, which is valid in ``boot`` only.

    ``mounts`` are the mounts (ids) through which each file system was writable, ``failing`` those
    about which the kernel logged a fault until ``at_ms``.
    """

    boot: str
    mounts: dict[int, frozenset[int]]
    failing: dict[int, Superblock | None] = {}
    at_ms: int = 0


class _CheckResult(NamedTuple):
    """The result of one check of all file systems.

    ``failed``: why the usage of one is not known. ``superblocks`` are those of file systems about
    which the kernel logged a fault, as far as it holds them.
    """

    file_systems: dict[int, FileSystem]
    usages: dict[int, FileSystemUsage]
    failed: dict[str, str]
    superblocks: dict[int, Superblock]


class _Round:
    """One check, in a thread: ``at`` is the file system that is being asked."""

    def __init__(
        self,
        host: HostMounts,
        left_out: frozenset[int],
        failing: Mapping[int, Superblock | None],
    ) -> None:
        self._host = host
        self._left_out = left_out
        self._failing = failing
        self.at: FileSystem | None = None

    def __call__(self) -> _CheckResult:
        file_systems, root = self._host.read()
        superblocks = {
            device: superblock_of(mounted)
            for device, mounted in file_systems.items()
            if device in self._failing or mounted.shut_down
        }
        for device, before in self._failing.items():
            if device in file_systems:
                continue
            now = held_superblock(device) if before is None else before
            if now is not None and now.is_held():
                superblocks[device] = now  # unmounted lazily, and still in use
        usages: dict[int, FileSystemUsage] = {}
        failed: dict[str, str] = {}
        for device, result in file_systems.items():
            if result.read_only or device in self._left_out:
                continue
            self.at = result
            try:
                usages[device] = usage_of(os.statvfs(root + result.mount_point))
            except OSError as error:
                failed[result.mount_point] = error.strerror or str(error)
        self.at = None
        return _CheckResult(file_systems, usages, failed, superblocks)


def usage_of(stats: os.statvfs_result) -> FileSystemUsage:
    """Return the share in use, in percent of what users other than root may use."""
    used = stats.f_blocks - stats.f_bfree
    space = _percent(used, used + stats.f_bavail)
    inodes = stats.f_files - stats.f_ffree
    return FileSystemUsage(
        space, _percent(inodes, inodes + stats.f_favail) if stats.f_files else None
    )


def _percent(part: int, whole: int) -> float | None:
    return 100 * part / whole if whole > 0 else None


class FileSystemsCollector(Collector[FileSystemsSection]):
    """Reports faults of file systems.

    ``full_percent`` of space or inodes is full, until ``full_cleared_percent``. ``excluded``: a
    file system that is mounted only below these paths is not checked. In each of
    ``probe_directories`` a few bytes are written and read in each period.
    """

    name = FILE_SYSTEMS
    settings = FileSystemsSection

    def __init__(
        self,
        section: FileSystemsSection,
        context: CollectorContext,
        host: HostMounts | None = None,
    ) -> None:
        super().__init__(section, context)
        self._host = HostMounts(section.excluded) if host is None else host
        self._boot = boot_id()
        saved = read_saved(context.saved_state, self.name, SavedFileSystems)
        if saved is None or saved.boot != self._boot:  # ids are valid in one boot only
            saved = SavedFileSystems(self._boot, {})
        self._kept = saved
        self._is_unsaved = False
        failing = dict(saved.failing)
        for (subject, _), seen_ms in context.tracked.items():
            if seen_ms > saved.at_ms and subject.id in failing:
                failing[subject.id] = None  # it failed anew, and the process ended before it saved
        thresholds = FullThresholds(section.full_percent, section.full_cleared_percent)
        self._tracker = FileSystemTracker(
            self.name, context.tracked, saved.mounts, thresholds, failing
        )
        self._probes = Probes(section.probe_directories, section.deadline_seconds)
        self._stuck: dict[FileSystem | None, AbandonableThread[_CheckResult]] = {}
        self._answers = AnswerTracker(self.name)
        self._check_now = asyncio.Event()

    async def run(self) -> NoReturn:
        """Report until cancelled."""
        self.context.listen(self._observe)
        while True:
            self.context.progress()
            await self._check()
            await self._wait()

    def _observe(self, reports: Sequence[Report]) -> None:
        """Check again soon: the log reports a fault of a file system, or a part of it was lost."""
        for report in reports:
            if isinstance(report, Gap) and report.source == KERNEL_LOG:
                self._check_now.set()
            elif (
                isinstance(report, Observation)
                and report.source == self.name
                and report.code in _LOGGED
            ):
                if report.assertion is Assertion.OCCUR:
                    self._is_unsaved = True
                    self._tracker.record_logged(report.subject, report.code)
                    self._check_now.set()
                elif report.assertion is Assertion.ABSENT:
                    self._tracker.record_mounted(report.subject, report.code)

    async def _wait(self) -> None:
        """Wait until the next check is due."""
        await wait_for_event(self._check_now, shared_pause(self.period_seconds))

    async def _check(self) -> None:
        """Check all file systems that answer."""
        self._check_now.clear()
        self._tracker.begin_check()
        probed = await self._probes.run(self.context.progress)
        self._stuck = {at: work for at, work in self._stuck.items() if work.is_stuck}
        deadline = self.deadline_seconds
        # ``None``: the mounts themselves hang, and one more thread would hang with them.
        while None not in self._stuck:
            left_out = frozenset(at.device for at in self._stuck if at is not None)
            round_ = _Round(self._host, left_out, dict(self._tracker.failing))
            work = AbandonableThread(round_, f"{self.name} check")
            try:
                seen = await work.result(deadline)
            except TimeoutError:
                self.context.progress()
                # The thread cannot be ended. Its file system is left out until it answers.
                self._stuck[round_.at] = work
                continue
            except OSError as error:
                self._report_check([], f"the mounts cannot be read: {error}")
                return
            self._apply(seen, probed)
            return
        self._report_check([], f"the mounts cannot be read within {deadline:g} s")

    def _apply(self, seen: _CheckResult, probed: ProbeRound) -> None:
        now_ms = self.context.wall_clock()
        reports = self._tracker.observe_file_systems(
            seen.file_systems, seen.usages, now_ms, seen.superblocks, probed.results
        )
        within = f"no answer within {self.deadline_seconds:g} s"
        silent = {at.mount_point: within for at in self._stuck if at is not None}
        elsewhere = {
            directory: "no probe: it is not on a local file system of the host that is checked"
            for directory, device in probed.devices.items()
            if device not in seen.file_systems
        }
        unseen = sorted((seen.failed | silent | elsewhere | probed.unusable).items())
        self._report_check(
            reports, "; ".join(f"{point}: {reason}" for point, reason in unseen) or None
        )
        mounts, failing = self._tracker.writable, dict(self._tracker.failing)
        is_changed = (mounts, failing) != (self._kept.mounts, self._kept.failing)
        if is_changed or self._is_unsaved:
            self._is_unsaved = False
            self._kept = SavedFileSystems(self._boot, mounts, failing, now_ms if failing else 0)
            self.context.saved_state.write(msgspec.json.encode(self._kept))

    def _report_check(self, reports: list[Report], blind: str | None) -> None:
        """Report ``reports``, and whether they are complete: ``blind`` is why not."""
        now_ms = self.context.wall_clock()
        if blind is None:
            reports = [*self._answers.observe_answer(now_ms), *reports]
        elif begun := self._answers.observe_failure(blind, now_ms):
            _log.warning("%s: %s", self.name, blind)
            reports = [*reports, *begun]
        if reports:
            self.context.report(reports)
