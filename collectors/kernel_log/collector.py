"""The kernel's log: one reader of ``/dev/kmsg`` that is woken by the kernel.

What was in the log before this agent ran for the first time on this machine is history: whether it
is over is not known. At a later start every record counts that no earlier run has read; after a
reboot those from the beginning of the log. Lost records are a ``Gap``: other host checks receive it
and check at once, hung tasks are compared with the kernel's own count, and the silence of each
fault begins anew. While the log cannot be read no fault ends. A kind that the kernel does not
report at present is blindness with its reason (``evidence``).
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import re
import time
from typing import TYPE_CHECKING, Annotated, NoReturn

import msgspec
from msgspec import Meta

from collectors.answer_tracker import AnswerTracker
from collectors.base import Collector
from collectors.boot import boot_id
from collectors.file_systems.host_mounts import HostMounts
from collectors.kernel_log.device import DEFAULT_DEVICE, explained, opened
from collectors.kernel_log.evidence import KernelEvidence
from collectors.kernel_log.messages import (
    DRIVER_PATTERNS,
    FileSystemMessage,
    MessageMatch,
    Messages,
    Suppressed,
)
from collectors.kernel_log.records import MAX_TEXT, KernelRecord, Records
from collectors.kernel_log.tracker import KernelLogTracker, LogTime, Position, SavedLogPosition
from collectors.saved_state import read_saved
from contract.codes.host_codes import (
    FILE_SYSTEM,
    FILE_SYSTEM_FAILED,
    FILE_SYSTEMS,
    HUNG_TASK,
    KERNEL_LOG,
    READ_ONLY,
)
from contract.observation import NODE, Assertion, Gap, Observation, host_subject
from contract.plural import plural
from contract.settings import Section, ValueRule
from pacing.waiting import TICK_SECONDS, wait_for_event

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collectors.base import CollectorContext
    from collectors.kernel_log.messages import Match
    from contract.observation import Report, Subject

_log = logging.getLogger(__name__)

_READ_BYTES = 16_384
_MAX_READS_WITHOUT_PAUSE = 200
"""Records that are read before other tasks may run."""

_KEEP_SECONDS = 300.0
_LIVE_SECONDS = 5.0
_UNMOUNTED_SECONDS = 1.0
_MAX_UNMOUNTED = 64
READS_PIPE = "reads_pipe"
"""The reading of NODE that is 1 while the log is a pipe and not the kernel's device."""


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is not a valid regular expression: {error}") from None
    return text


class KernelLogSection(Section, frozen=True):
    """How the log of the kernel is read; times in seconds."""

    enabled: bool = True
    device: str = DEFAULT_DEVICE
    hold_seconds: Annotated[float, Meta(ge=1, le=86_400)] = 300.0
    npu_driver_patterns: tuple[Annotated[str, ValueRule(_pattern)], ...] = DRIVER_PATTERNS


class KernelLogCollector(Collector[KernelLogSection]):
    """Reports faults that the kernel logs.

    ``device`` is ``/dev/kmsg`` or a pipe with its records. A lockup, a hung task and an error of
    the NPU driver hold until they were not repeated for ``hold_seconds``, although they could have
    been. ``npu_driver_patterns`` are regular expressions for lines as ``dmesg --raw`` shows them.
    """

    name = KERNEL_LOG
    settings = KernelLogSection
    period_seconds = 60.0
    deadline_seconds = 5.0

    def __init__(self, section: KernelLogSection, context: CollectorContext) -> None:
        super().__init__(section, context)
        self._messages = Messages(section.npu_driver_patterns)
        self._reports_file_systems = context.options.file_systems
        excluded = context.options.excluded
        self._host = HostMounts() if excluded is None else HostMounts(excluded)
        self._unmounted: dict[str, float] = {}
        self._loop = asyncio.get_running_loop()
        self._boot = boot_id()
        saved = read_saved(context.saved_state, self.name, SavedLogPosition)
        same_boot = saved is None or saved.boot == self._boot
        self._is_history = saved is None
        sequence = saved.sequence if saved is not None and same_boot else None
        self._position = Position(self.name, sequence)
        tracked = {code for _, code in context.tracked}
        self._evidence = KernelEvidence(section.hold_seconds)
        # A lockup of another boot is over, and its CPUs count ticks from 0 again.
        for code, cpus in ({} if saved is None or not same_boot else saved.cpus).items():
            self._evidence.record_lockup(code, cpus)
        self._tracker = KernelLogTracker(self.name, tracked, saved, self._evidence.silence_seconds)
        self._same_boot = same_boot
        self._answers = AnswerTracker(self.name)
        self._failing: dict[Subject, set[str]] = {}
        """What was reported of each file system and is not over."""
        self._held: dict[str, set[str]] = {}
        """The same sets, by the name of the device."""
        self._reason: str | None = ""
        self._silenced: set[str] = set()
        self._is_live = False
        self._kept_at = self._refreshed_at = self._loop.time()
        self._line = ""
        self._unreadable = 0

    async def run(self) -> NoReturn:
        """Report until cancelled."""
        self._report(self._tracker.start_boot_log(self._now(), same_boot=self._same_boot))
        self.context.listen(self._observe)
        try:
            while True:
                self.context.progress()
                try:
                    with opened(self.section.device) as log:
                        self.context.show(NODE, READS_PIPE, 1.0 if log.is_pipe else None)
                        await self._follow(log.descriptor)
                except OSError as error:
                    self._observe_view(explained(self.section.device, error))
                    await self._pause()
        finally:
            self._save()

    async def _follow(self, log: int) -> NoReturn:
        """Read the existing records, then new ones. Raises ``OSError``."""
        readable = asyncio.Event()
        records = Records()
        self._is_live = False
        # Before the first read: a record written meanwhile wakes the wait.
        self._loop.add_reader(log, readable.set)
        try:
            await self._drain(log, records)
            self._is_history = False
            if self._position.finish_reading():
                _log.warning(
                    "%s: the log is another one than before; reading continues at its end",
                    self.name,
                )
            # Not before all was read: a repetition in the rest of the log would come too late.
            self._is_live = True
            self._judge_silence()
            self._save()
            while True:
                await self._wait(readable)
                readable.clear()
                await self._drain(log, records)
                self._judge_silence()
        finally:
            self._loop.remove_reader(log)

    async def _pause(self) -> None:
        """Wait one period while nothing can be read; no fault ends, because none could be seen."""
        self._is_live = False
        await asyncio.sleep(self.period_seconds)

    async def _wait(self, readable: asyncio.Event) -> None:
        """Wait until there is something to read, or time has changed something."""
        # No shared wake-up: it may be early, and the refresh would then wait for the next one.
        due = self._refreshed_at + self.period_seconds
        end = self._tracker.next_end()
        if end is not None:
            due = min(due, end)
        await wait_for_event(readable, max(TICK_SECONDS, due - self._loop.time()))
        self.context.progress()

    def _judge_silence(self) -> None:
        """End what the kernel would have repeated, and report what it would not report."""
        now = self._now()
        if now.steady - self._refreshed_at >= self.period_seconds:
            self._refreshed_at = now.steady
            self._evidence.refresh()
            self._report(self._counted(now))
        elif HUNG_TASK in self._tracker.lasting:
            self._report(self._counted(now))  # before its silence is judged
        silenced = self._evidence.silenced(now.steady)
        # A silence counts from when the kernel reports the kind again.
        self._tracker.restart_silence(silenced.keys() | self._silenced, now)
        self._silenced = set(silenced)
        over = self._tracker.expire(now, self._evidence.can_end)
        self._report(over)
        self._observe_view("; ".join(silenced.values()) or None)
        if over or now.steady - self._kept_at > _KEEP_SECONDS:
            self._save()

    def _observe_view(self, reason: str | None) -> None:
        """Report that the log shows everything, or ``reason`` why not; another one again."""
        if reason == self._reason:
            return
        if reason is None:
            if self._reason:
                _log.warning("%s: everything is reported again", self.name)
            self._report(self._answers.observe_answer(self.context.wall_clock()))
        else:
            _log.warning("%s: %s", self.name, reason)
            # Forgotten, so that another reason is reported, too.
            self._answers.is_answering = None
            self._report(self._answers.observe_failure(reason, self.context.wall_clock()))
        self._reason = reason

    async def _drain(self, log: int, records: Records) -> None:
        count = 0
        while True:
            try:
                data = os.read(log, _READ_BYTES)
            except BlockingIOError:
                return
            # The kernel's answer for records that it overwrote before they were read.
            except BrokenPipeError:
                self._position.record_overrun()
            else:
                if not data:
                    raise OSError(errno.EIO, "it ended")
                for record in records.feed(data):
                    self._record(record)
                self._note_unreadable(records)
            count += 1
            if count % _MAX_READS_WITHOUT_PAUSE == 0:
                self.context.progress()
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
            # What was lost may have been a repetition.
            self._tracker.restart_silence(self._tracker.lasting, now)
            reports += self._counted(now)
        text = record.text
        if record.continues:
            # A line may have any number of pieces, and each is searched with all before it.
            text = (self._line + text)[:MAX_TEXT]
        # A piece that continues a line must not report again what its beginning has reported.
        front = self._messages.matches(record.level, self._line) if record.continues else ()
        before = {match._replace(text="") for match in front}
        for match in self._messages.matches(record.level, text):
            if match._replace(text="") not in before:
                reports += self._assertion_of(match, now, self._age(record))
        self._line = text
        if reports:
            self._report(reports)
            self._save()

    def _assertion_of(self, match: Match, now: LogTime, age_seconds: float) -> list[Report]:
        if isinstance(match, FileSystemMessage):
            return self._of_file_system(match, now) if self._reports_file_systems else []
        if isinstance(match, Suppressed):
            at = now.steady - age_seconds
            self._evidence.observe_suppressed(match, self._tracker.lasting, at)
            return []
        if match.code == HUNG_TASK:
            self._evidence.record_hung_task()
        reports = self._tracker.observe_message(match, now, age_seconds)
        if match.cpu is not None:
            self._evidence.record_lockup(match.code, (match.cpu,))
        if reports:
            _log.info("%s: %s", self.name, match.text)
        return reports

    def _of_file_system(self, match: FileSystemMessage, now: LogTime) -> list[Report]:
        """Return a report for the check of file systems, which finds out when it is over.

        A device that fails may log thousands of lines, for each of which the mounts were read.
        """
        if match.code in self._held.get(match.device, ()):
            return []
        # Volumes of pods log their mounts, too: the mounts are read only where one may end a fault.
        if not match.code and not any(self._failing.values()):
            return []
        if self._unmounted.get(match.device, 0.0) > now.steady:
            return []
        mounted = self._host.of_block_device(match.device)
        if mounted is None:
            # Names come from the log, so there may be any number of them.
            if len(self._unmounted) >= _MAX_UNMOUNTED:
                self._unmounted.clear()
            self._unmounted[match.device] = now.steady + _UNMOUNTED_SECONDS
            if match.code:
                _log.info("%s: %s: not mounted on this host", self.name, match.text)
            return []
        subject = host_subject(FILE_SYSTEM, mounted.device)
        text = f"{mounted.mount_point}: {match.text}"
        active_codes = self._held[match.device] = self._failing.setdefault(subject, set())
        if not match.code:
            return [
                Observation(FILE_SYSTEMS, subject, code, Assertion.ABSENT, now.wall_ms, text=text)
                for code in sorted(active_codes)
            ]
        # One that was shut down fails everything, again and again.
        if match.code in active_codes or (
            match.code != READ_ONLY and FILE_SYSTEM_FAILED in active_codes
        ):
            return []
        active_codes.add(match.code)
        _log.warning("%s: %s", self.name, text)
        return [
            Observation(FILE_SYSTEMS, subject, match.code, Assertion.OCCUR, now.wall_ms, text=text)
        ]

    def _observe(self, reports: Sequence[Report]) -> None:
        """Apply what the check of file systems found to be over."""
        for report in reports:
            if (
                isinstance(report, Observation)
                and report.source == FILE_SYSTEMS
                and report.assertion is Assertion.ABSENT
            ):
                self._failing.get(report.subject, set()).discard(report.code)

    def _counted(self, now: LogTime) -> list[Report]:
        """Return a fault if the kernel counted hung tasks that its log does not have."""
        count = self._evidence.newly_hung()
        if not count:
            return []
        text = f"the kernel counted {plural(count, 'hung task')} that its log does not have"
        return self._tracker.observe_message(MessageMatch(HUNG_TASK, text), now, 0.0)

    def _age(self, record: KernelRecord) -> float:
        """Return the age of ``record`` in seconds, 0 while records arrive as they are written."""
        if self._is_live:
            return 0.0
        age = time.monotonic() - record.at_us / 1e6
        return age if age > _LIVE_SECONDS else 0.0

    def _note_unreadable(self, records: Records) -> None:
        if records.unreadable and not self._unreadable:
            _log.warning(
                "%s: %s has lines that are not valid records", self.name, self.section.device
            )
        self._unreadable = records.unreadable

    def _save(self) -> None:
        """Save how far the log was read."""
        if self._is_history:
            return
        self._kept_at = self._loop.time()
        position = SavedLogPosition(
            self._boot,
            self._position.sequence,
            self._tracker.logged_ms(),
            self._evidence.locked_cpus(),
        )
        self.context.saved_state.write(msgspec.json.encode(position))

    def _now(self) -> LogTime:
        return LogTime(self.context.wall_clock(), self._loop.time())

    def _report(self, reports: list[Report]) -> None:
        for report in reports:
            if isinstance(report, Gap):
                _log.warning("%s: %s", self.name, report.reason)
        if reports:
            self.context.report(reports)
