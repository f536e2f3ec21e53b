"""The kernel's log: one reader of ``/dev/kmsg`` that is woken by the kernel.

What was in the log before this agent ran for the first time on this machine is history: whether it
is over is not known. At a later start every record counts that no earlier run has read; after a
reboot those from the beginning of the log. Lost records are a ``Gap``: other host checks receive it
and check at once, and hung tasks are compared with the kernel's own count.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import re
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import msgspec
from pydantic import AfterValidator, Field

from collectors.answer_tracker import AnswerTracker
from collectors.base import Collector
from collectors.boot import boot_id
from collectors.file_systems.host_mounts import HostMounts
from collectors.kernel_log.messages import DRIVER_PATTERNS, MessageMatch, Messages, Remounted
from collectors.kernel_log.records import LONGEST_TEXT, KernelRecord, Records
from collectors.kernel_log.tracker import KernelLogTracker, LogTime, Position, SavedLogPosition
from collectors.saved_state import read_saved
from contract.codes.host_codes import (
    FILE_SYSTEM,
    FILE_SYSTEMS,
    HUNG_TASK,
    KERNEL_LOG,
    READ_ONLY,
)
from contract.observation import Assertion, Gap, Observation, host_subject
from contract.settings import Section
from pacing.waiting import is_set_within

if TYPE_CHECKING:
    from collections.abc import Iterator

    from collectors.base import CollectorContext
    from contract.observation import Report

_log = logging.getLogger(__name__)

_READ_BYTES = 16_384
_AT_ONCE = 200
"""Records that are read before other tasks may run."""

_KEEP_SECONDS = 300.0
_LIVE_SECONDS = 5.0
_HUNG_TASKS = Path("/proc/sys/kernel/hung_task_detect_count")


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from None
    return text


class KernelLogSection(Section):
    """How the log of the kernel is read; times in seconds."""

    enabled: bool = True
    device: str = "/dev/kmsg"
    hold_seconds: float = Field(default=300.0, ge=1, le=86_400)
    npu_driver_patterns: tuple[Annotated[str, AfterValidator(_pattern)], ...] = DRIVER_PATTERNS


class KernelLogCollector(Collector[KernelLogSection]):
    """Reports faults that the kernel logs.

    ``device`` is ``/dev/kmsg`` or a pipe with its records. A lockup, a hung task and an error of
    the NPU driver hold until they were not repeated for ``hold_seconds``. ``npu_driver_patterns``
    are regular expressions for lines as ``dmesg --raw`` shows them.
    """

    name = KERNEL_LOG
    settings = KernelLogSection
    period_seconds = 60.0
    deadline_seconds = 5.0

    async def run(self, context: CollectorContext) -> NoReturn:
        """Report until cancelled."""
        watch = KernelLogRun(self, context)
        try:
            while True:
                context.progress()
                try:
                    with _opened(self.section.device) as log:
                        await watch.follow(log)
                except OSError as error:
                    watch.report_blind(error)
                    await watch.pause()
        finally:
            watch.save()


class KernelLogRun:
    """One run of the collector."""

    def __init__(self, collector: KernelLogCollector, context: CollectorContext) -> None:
        self._source = collector.name
        self._period_seconds = collector.period_seconds
        self._device = collector.section.device
        self._messages = Messages(collector.section.npu_driver_patterns)
        self._reports_remounts = collector.options.file_systems
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._boot = boot_id()
        kept = read_saved(context.saved_state, self._source, SavedLogPosition)
        same_boot = kept is None or kept.boot == self._boot
        self._is_history = kept is None
        sequence = kept.sequence if kept is not None and same_boot else None
        self._position = Position(self._source, sequence)
        tracked = {code for _, code in context.tracked}
        hold_seconds = collector.section.hold_seconds
        self._tracker = KernelLogTracker(self._source, tracked, kept, hold_seconds)
        self._report(self._tracker.begin(self._now(), same_boot=same_boot))
        self._answers = AnswerTracker(self._source)
        self._is_live = False
        self._kept_at = self._loop.time()
        self._line = ""
        self._unreadable = 0
        self._hung_tasks = _count(_HUNG_TASKS)

    async def follow(self, log: int) -> NoReturn:
        """Read the existing records, then new ones. Raises ``OSError``."""
        readable = asyncio.Event()
        records = Records()
        self._is_live = False
        self._loop.add_reader(log, readable.set)
        try:
            await self._drain(log, records)
            self._is_history = False
            if self._position.finish_reading():
                _log.warning(
                    "%s: the log is another one than before; reading continues at its end",
                    self._source,
                )
            self._is_live = True
            self._report(self._answers.observe_answer(self._context.wall_clock()))
            self.save()
            while True:
                await self._wait(readable)
                readable.clear()
                await self._drain(log, records)
        finally:
            self._loop.remove_reader(log)

    async def pause(self) -> None:
        """Wait one period while nothing can be read; faults end all the same."""
        await self._wait(asyncio.Event())

    async def _wait(self, readable: asyncio.Event) -> None:
        """Wait until there is something to read, or time has changed something."""
        pause = self._period_seconds
        end = self._tracker.next_end()
        if end is not None:
            pause = min(pause, max(0.0, end - self._loop.time()))
        await is_set_within(readable, pause)
        self._context.progress()
        over = self._tracker.expire(self._now())
        self._report(over)
        if over or self._loop.time() - self._kept_at > _KEEP_SECONDS:
            self.save()

    async def _drain(self, log: int, records: Records) -> None:
        count = 0
        while True:
            try:
                data = os.read(log, _READ_BYTES)
            except BlockingIOError:
                return
            except BrokenPipeError:
                self._position.record_overrun()
            else:
                if not data:
                    raise OSError(errno.EIO, "it ended")
                for record in records.feed(data):
                    self._record(record)
                self._note_unreadable(records)
            count += 1
            if count % _AT_ONCE == 0:
                self._context.progress()
                await asyncio.sleep(0)

    def _record(self, record: KernelRecord) -> None:
        position = self._position
        if not position.is_news(record.sequence):
            return
        now = self._now()
        if self._is_history:
            position.sequence = record.sequence
            return
        reports = position.record_read(record.sequence, now.wall_ms)
        if reports:
            reports += self._audited(now)
        text = record.text
        if record.continues:
            text = (self._line + text)[:LONGEST_TEXT]
        # A piece that continues a line must not report again what its beginning has reported.
        front = self._messages.matches(record.level, self._line) if record.continues else ()
        known = {match[:-1] for match in front}
        for match in self._messages.matches(record.level, text):
            if match[:-1] not in known:
                reports += self._assertion_of(match, now, self._age(record))
        self._line = text
        if reports:
            self._report(reports)
            self.save()

    def _assertion_of(
        self, match: MessageMatch | Remounted, now: LogTime, age_seconds: float
    ) -> list[Report]:
        if isinstance(match, Remounted):
            return self._remounted(match, now) if self._reports_remounts else []
        if match.code == HUNG_TASK:
            self._hung_tasks = _count(_HUNG_TASKS)
        reports = self._tracker.observe(match, now, age_seconds)
        if reports:
            _log.info("%s: %s", self._source, match.text)
        return reports

    def _remounted(self, match: Remounted, now: LogTime) -> list[Report]:
        """Return a report for the check of file systems, which finds out when it is over."""
        found = HostMounts().of_block_device(match.device)
        if found is None:
            _log.info("%s: %s: not mounted on this host", self._source, match.text)
            return []
        subject = host_subject(FILE_SYSTEM, found.device)
        text = f"{found.mount_point}: {match.text}"
        return [
            Observation(FILE_SYSTEMS, subject, READ_ONLY, Assertion.OCCUR, now.wall_ms, text=text)
        ]

    def _audited(self, now: LogTime) -> list[Report]:
        """Return a fault if the kernel counted hung tasks whose messages were lost."""
        before, self._hung_tasks = self._hung_tasks, _count(_HUNG_TASKS)
        if before is None or self._hung_tasks is None or self._hung_tasks <= before:
            return []
        text = f"the kernel counted {self._hung_tasks - before} hung tasks; its messages were lost"
        return self._tracker.observe(MessageMatch(HUNG_TASK, text), now, 0.0)

    def _age(self, record: KernelRecord) -> float:
        """Return the age of ``record`` in seconds, 0 while records arrive as they are written."""
        if self._is_live:
            return 0.0
        age = time.monotonic() - record.at_us / 1e6
        return age if age > _LIVE_SECONDS else 0.0

    def _note_unreadable(self, records: Records) -> None:
        if records.unreadable and not self._unreadable:
            _log.warning("%s: %s has lines that are no records", self._source, self._device)
        self._unreadable = records.unreadable

    def report_blind(self, error: OSError) -> None:
        """Report that the log cannot be read, once."""
        reason = explained(self._device, error)
        if begun := self._answers.observe_failure(reason, self._context.wall_clock()):
            _log.warning("%s: %s", self._source, reason)
            self._report(begun)

    def save(self) -> None:
        """Save how far the log was read."""
        if self._is_history:
            return
        self._kept_at = self._loop.time()
        kept = SavedLogPosition(self._boot, self._position.sequence, self._tracker.logged_ms())
        self._context.saved_state.write(msgspec.json.encode(kept))

    def _now(self) -> LogTime:
        return LogTime(self._context.wall_clock(), self._loop.time())

    def _report(self, reports: list[Report]) -> None:
        for report in reports:
            if isinstance(report, Gap):
                _log.warning("%s: %s", self._source, report.reason)
        if reports:
            self._context.report(reports)


@contextlib.contextmanager
def _opened(device: str) -> Iterator[int]:
    mode = Path(device).stat().st_mode
    if not stat.S_ISCHR(mode) and not stat.S_ISFIFO(mode):
        raise OSError(errno.EINVAL, "it is neither a device nor a pipe")
    # A pipe that is open for both has no end when a writer goes.
    access = os.O_RDWR if stat.S_ISFIFO(mode) else os.O_RDONLY
    log = os.open(device, access | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        yield log
    finally:
        os.close(log)


def explained(device: str, error: OSError) -> str:
    """Return why the log cannot be read, and what to do."""
    what = f"{device} cannot be read: {error.strerror or error}"
    if error.errno in (errno.EPERM, errno.EACCES):
        return f"{what}; the agent needs CAP_SYSLOG and, in a container, access to that device"
    if error.errno in (errno.ENOENT, errno.ENXIO):
        return f"{what}; in a container the host's /dev has to be mounted"
    return what


def _count(path: Path) -> int | None:
    """Return a number that the kernel shows; ``None`` where it does not."""
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
