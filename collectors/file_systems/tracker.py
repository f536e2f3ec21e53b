"""The tracked state of the host's file systems: read-only, full, out of inodes, failed. Pure.

A file system is a fault only if it *became* read-only: the same mount of it was writable in this
boot, or the kernel logged the change. One that was mounted read-only is meant to be so.

The kernel logs that a file system failed, and its flags do not show it: XFS that was shut down
stays ``rw``. That is over when the kernel no longer holds this file system (``superblocks``), or
when a few bytes were written and read (``probe``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from contract.codes.host_codes import (
    FILE_SYSTEM,
    FILE_SYSTEM_ERRORS,
    FILE_SYSTEM_FAILED,
    FULL,
    NO_INODES,
    READ_ONLY,
)
from contract.observation import Assertion, Observation, Subject, host_subject

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from collectors.file_systems.mounts import FileSystem
    from collectors.file_systems.superblocks import Superblock
    from contract.observation import Report


_LOGGED = (FILE_SYSTEM_FAILED, FILE_SYSTEM_ERRORS)
"""What the kernel logs and no flag shows."""


class FileSystemUsage(NamedTuple):
    """How much of a file system is in use, in percent as ``df`` shows it; ``None``: it has none."""

    space: float | None
    inodes: float | None


class FullThresholds(NamedTuple):
    """Percent: full from ``full`` on, until it is below ``cleared`` again."""

    full: float
    cleared: float


class ProbeOutcome(NamedTuple):
    """The result of writing and reading a few bytes: ``trouble`` is why that failed, else empty."""

    device: int
    trouble: str


class FileSystemTracker:
    """The tracked state, and what a check of all file systems changes."""

    def __init__(
        self,
        source: str,
        tracked: Iterable[tuple[Subject, str]],
        writable: Mapping[int, frozenset[int]],
        thresholds: FullThresholds,
        failing: Mapping[int, Superblock | None] = {},
    ) -> None:
        self._source = source
        self._present = set(tracked)
        self._thresholds = thresholds
        self.writable = dict(writable)
        """The mounts through which each was writable, by device number."""
        self.failing = dict(failing)
        """The file systems about which the kernel logged a fault, as it held them then; ``None``:
        that is not known yet."""
        for subject, code in self._present:
            if code in _LOGGED:
                self.failing.setdefault(subject.id, None)
        self._fresh: set[int] = set()

    def record_logged(self, subject: Subject, code: str) -> None:
        """Record that the kernel logged a fault, and that it was reported."""
        self._fresh.add(subject.id)
        if code != READ_ONLY or (subject, code) not in self._present:
            self.failing[subject.id] = None
        self._present.add((subject, code))

    def record_mounted(self, subject: Subject, code: str) -> None:
        """Record that ``code`` was reported to be over, because the kernel logged a new mount."""
        self._present.discard((subject, code))
        if code in _LOGGED:
            self.failing.pop(subject.id, None)

    def begin_check(self) -> None:
        """Record that a check begins: it may find what was logged before to be over."""
        self._fresh.clear()

    def observe_file_systems(
        self,
        file_systems: Mapping[int, FileSystem],
        usages: Mapping[int, FileSystemUsage],
        now_ms: int,
        superblocks: Mapping[int, Superblock] = {},
        probes: Iterable[ProbeOutcome] = (),
    ) -> list[Report]:
        """Apply a check of all file systems; return what changed.

        One without a usage did not answer, which changes nothing about it. ``superblocks`` are
        those of ``failing`` that the kernel holds.
        """
        reports: list[Report] = []
        self.writable = {
            device: mounts for device, mounts in self.writable.items() if device in file_systems
        }
        probed = {probe.device: probe.trouble for probe in probes}
        reports += self._compare_failing(superblocks, probed, now_ms)
        for key in sorted(self._present):
            # After a lazy unmount, the kernel may hold it without a mount at a path
            # (``superblocks``).
            is_held = key[1] in _LOGGED and key[0].id in self.failing
            if key[0].id not in file_systems and not is_held:
                self._present.discard(key)
                text = "it is not mounted any more"
                reports.append(self._observation(key, Assertion.ABSENT, now_ms, text))
        for device, mounted in file_systems.items():
            subject = host_subject(FILE_SYSTEM, device)
            trouble = probed.get(device) or ("it is shut down" if mounted.shut_down else "")
            if (
                trouble
                and not mounted.read_only
                and (subject, FILE_SYSTEM_FAILED) not in self._present
            ):
                self.failing.setdefault(device, superblocks.get(device))
                text = f"{mounted.mount_point}: {trouble}"
                reports += self._judge((subject, FILE_SYSTEM_FAILED), True, text, now_ms)
            reports += self._judge(
                (subject, READ_ONLY), self._became_read_only(mounted), mounted.mount_point, now_ms
            )
            if mounted.read_only:
                # It cannot fill any more: what was reported of its space is over.
                usage = FileSystemUsage(None, None)
            elif device in usages:
                usage = usages[device]
            else:
                continue
            for code, percent, message in (
                (FULL, usage.space, "of its space"),
                (NO_INODES, usage.inodes, "of its inodes"),
            ):
                text = (
                    "" if percent is None else f"{mounted.mount_point}: {percent:.1f} % {message}"
                )
                reports += self._judge(
                    (subject, code), self._is_full((subject, code), percent), text, now_ms
                )
        return reports

    def _compare_failing(
        self, superblocks: Mapping[int, Superblock], probed: Mapping[int, str], now_ms: int
    ) -> list[Report]:
        """End what the kernel logged of file systems that it dropped, or that work again."""
        reports: list[Report] = []
        for device, before in list(self.failing.items()):
            if device in self._fresh:
                continue  # this check began before the kernel logged it
            now = superblocks.get(device)
            if now is None:
                text = "it is not mounted any more"
            elif before is not None and not before.is_same(now):
                text = "it was mounted anew"
            elif probed.get(device) == "":
                text = "a few bytes were written and read"
            else:
                # Later checks compare with its identity at the first check behind the message.
                self.failing[device] = before or now
                continue
            del self.failing[device]
            for code in _LOGGED:
                key = (host_subject(FILE_SYSTEM, device), code)
                reports += self._judge(key, False, text, now_ms)
        return reports

    def _became_read_only(self, file_system: FileSystem) -> bool:
        subject = host_subject(FILE_SYSTEM, file_system.device)
        is_known = (subject, READ_ONLY) in self._present
        if file_system.read_only:
            if not any((subject, code) in self._present for code in _LOGGED):
                self.failing.pop(file_system.device, None)  # from now on the flag shows it
            before = self.writable.get(file_system.device, frozenset())
            return is_known or not file_system.mounts.isdisjoint(before)
        self.writable[file_system.device] = file_system.mounts
        # Linux 6.12 to 6.14 logs it and shows no flag of it.
        return is_known and file_system.device in self.failing

    def _is_full(self, key: tuple[Subject, str], percent: float | None) -> bool:
        if percent is None:
            return False
        limits = self._thresholds
        # With one limit, a usage that moves around it would begin and end a fault again and again.
        return percent >= (limits.cleared if key in self._present else limits.full)

    def _judge(self, key: tuple[Subject, str], is_so: bool, text: str, now_ms: int) -> list[Report]:
        if is_so == (key in self._present):
            return []
        if is_so:
            self._present.add(key)
            return [self._observation(key, Assertion.PRESENT, now_ms, text)]
        self._present.discard(key)
        return [self._observation(key, Assertion.ABSENT, now_ms, text)]

    def _observation(
        self, key: tuple[Subject, str], assertion: Assertion, now_ms: int, text: str
    ) -> Observation:
        subject, code = key
        return Observation(self._source, subject, code, assertion, now_ms, text=text)
