"""File systems of the host: read-only, full, out of inodes.

Only real ones on devices of this host are asked, and in a thread with a deadline. One that does not
answer is left out until it does, and only its own state is not known.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, NamedTuple, NoReturn, Self

import msgspec
from pydantic import Field, model_validator

from collectors.answer_tracker import AnswerTracker
from collectors.base import Collector
from collectors.boot import boot_id
from collectors.file_systems.host_mounts import OF_PODS, HostMounts
from collectors.file_systems.tracker import (
    FileSystemTracker,
    FileSystemUsage,
    FullThresholds,
    SeenWritable,
)
from collectors.saved_state import read_saved
from contract.codes.host_codes import FILE_SYSTEMS, KERNEL_LOG, READ_ONLY
from contract.observation import Assertion, Gap, Observation
from contract.settings import Section, at_most
from pacing.abandonable_thread import AbandonableThread
from pacing.waiting import is_set_within

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collectors.base import AgentOptions, CollectorContext
    from collectors.file_systems.mounts import FileSystem
    from contract.observation import Report

_log = logging.getLogger(__name__)


class FileSystemsSection(Section):
    """When a file system of the host counts as full."""

    enabled: bool = True
    period_seconds: float = Field(default=60.0, ge=0.1, le=3600)
    deadline_seconds: float = Field(default=5.0, ge=0.1, le=60)
    full_percent: float = Field(default=95.0, gt=0, le=100)
    full_cleared_percent: float = Field(default=93.0, gt=0, le=100)
    excluded: tuple[str, ...] = OF_PODS

    @model_validator(mode="after")
    def _clears(self) -> Self:
        return at_most(self, "full_cleared_percent", "full_percent")


class FileSystemsCollector(Collector[FileSystemsSection]):
    """Reports faults of file systems.

    ``full_percent`` of space or inodes is full, until ``full_cleared_percent``. ``excluded``: a
    file system that is mounted only below these paths is not checked.
    """

    name = FILE_SYSTEMS
    settings = FileSystemsSection

    def __init__(
        self, section: FileSystemsSection, options: AgentOptions, host: HostMounts | None = None
    ) -> None:
        super().__init__(section, options)
        self.host = HostMounts(section.excluded) if host is None else host

    async def run(self, context: CollectorContext) -> NoReturn:
        """Report until cancelled."""
        watch = FileSystemsRun(self, context)
        context.listen(watch.observe)
        while True:
            context.progress()
            await watch.check()
            await watch.wait()


class _CheckResult(NamedTuple):
    """The result of one check of all file systems.

    ``failed``: why the usage of one is not known.
    """

    file_systems: dict[int, FileSystem]
    usages: dict[int, FileSystemUsage]
    failed: dict[str, str]


class _Round:
    """One check, in a thread: ``at`` is the file system that is being asked."""

    def __init__(self, host: HostMounts, left_out: frozenset[int]) -> None:
        self._host = host
        self._left_out = left_out
        self.at: FileSystem | None = None

    def __call__(self) -> _CheckResult:
        file_systems, root = self._host.read()
        usages: dict[int, FileSystemUsage] = {}
        failed: dict[str, str] = {}
        for device, found in file_systems.items():
            if found.read_only or device in self._left_out:
                continue
            self.at = found
            try:
                usages[device] = usage_of(os.statvfs(root + found.mount_point))
            except OSError as error:
                failed[found.mount_point] = error.strerror or str(error)
        self.at = None
        return _CheckResult(file_systems, usages, failed)


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


class FileSystemsRun:
    """One run of the collector."""

    def __init__(self, collector: FileSystemsCollector, context: CollectorContext) -> None:
        self._collector = collector
        self._source = collector.name
        self._context = context
        self._boot = boot_id()
        kept = read_saved(context.saved_state, self._source, SeenWritable)
        if kept is None or kept.boot != self._boot:  # ids are valid in one boot only
            kept = SeenWritable(self._boot, {})
        self._kept = kept
        section = collector.section
        thresholds = FullThresholds(section.full_percent, section.full_cleared_percent)
        self._tracker = FileSystemTracker(
            self._source, context.tracked, self._kept.mounts, thresholds
        )
        self._stuck: dict[FileSystem | None, AbandonableThread[_CheckResult]] = {}
        self._answers = AnswerTracker(self._source)
        self._check_now = asyncio.Event()

    def observe(self, reports: Sequence[Report]) -> None:
        """Check again soon: the log reports a read-only file system, or a part of it was lost."""
        for report in reports:
            if isinstance(report, Gap) and report.source == KERNEL_LOG:
                self._check_now.set()
            elif (
                isinstance(report, Observation)
                and report.source == self._source
                and report.code == READ_ONLY
                and report.assertion is Assertion.OCCUR
            ):
                self._tracker.record_read_only(report.subject)
                self._check_now.set()

    async def wait(self) -> None:
        """Wait until the next check is due."""
        await is_set_within(self._check_now, self._collector.period_seconds)

    async def check(self) -> None:
        """Check all file systems that answer."""
        self._check_now.clear()
        self._stuck = {at: work for at, work in self._stuck.items() if work.is_stuck}
        deadline = self._collector.deadline_seconds
        while None not in self._stuck:
            left_out = frozenset(at.device for at in self._stuck if at is not None)
            round_ = _Round(self._collector.host, left_out)
            work = AbandonableThread(round_, f"{self._source} check")
            try:
                seen = await work.result(deadline)
            except TimeoutError:
                self._context.progress()
                self._stuck[round_.at] = work
                continue
            except OSError as error:
                self._report_check([], f"the mounts cannot be read: {error}")
                return
            self._apply(seen)
            return
        self._report_check([], f"the mounts cannot be read within {deadline:g} s")

    def _apply(self, seen: _CheckResult) -> None:
        now_ms = self._context.wall_clock()
        reports = self._tracker.observe(seen.file_systems, seen.usages, now_ms)
        within = f"no answer within {self._collector.deadline_seconds:g} s"
        silent = {at.mount_point: within for at in self._stuck if at is not None}
        unseen = sorted((seen.failed | silent).items())
        self._report_check(reports, "; ".join(f"{point}: {why}" for point, why in unseen) or None)
        if self._tracker.writable != self._kept.mounts:
            self._kept = SeenWritable(self._boot, self._tracker.writable)
            self._context.saved_state.write(msgspec.json.encode(self._kept))

    def _report_check(self, reports: list[Report], blind: str | None) -> None:
        """Report ``reports``, and whether they are complete: ``blind`` is why not."""
        now_ms = self._context.wall_clock()
        if blind is None:
            reports = [*self._answers.observe_answer(now_ms), *reports]
        elif begun := self._answers.observe_failure(blind, now_ms):
            _log.warning("%s: %s", self._source, blind)
            reports = [*reports, *begun]
        if reports:
            self._context.report(reports)
