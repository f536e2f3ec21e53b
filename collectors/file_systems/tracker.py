"""The tracked state of the host's file systems: read-only, full, out of inodes. Pure.

A file system is a fault only if it *became* read-only: the same mount of it was writable in this
boot, or the kernel logged the change. One that was mounted read-only is meant to be so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from contract.codes.host_codes import FILE_SYSTEM, FULL, NO_INODES, READ_ONLY
from contract.observation import Assertion, Observation, Subject, host_subject

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from collectors.file_systems.mounts import FileSystem
    from contract.observation import Report


class FileSystemUsage(NamedTuple):
    """How much of a file system is in use, in percent as ``df`` shows it; ``None``: it has none."""

    space: float | None
    inodes: float | None


class FullThresholds(NamedTuple):
    """Percent: full from ``full`` on, until it is below ``cleared`` again."""

    full: float
    cleared: float


class SeenWritable(msgspec.Struct, frozen=True):
    """The mounts (ids) through which each file system (device number) was writable in ``boot``."""

    boot: str
    mounts: dict[int, frozenset[int]]


class FileSystemTracker:
    """The tracked state, and what a check of all file systems changes."""

    def __init__(
        self,
        source: str,
        tracked: Iterable[tuple[Subject, str]],
        writable: Mapping[int, frozenset[int]],
        thresholds: FullThresholds,
    ) -> None:
        self._source = source
        self._present = set(tracked)
        self._thresholds = thresholds
        self.writable = dict(writable)
        """The mounts through which each was writable, by device number."""

    def record_read_only(self, subject: Subject) -> None:
        """Record that the kernel logged the change, and that it was reported."""
        self._present.add((subject, READ_ONLY))

    def observe(
        self,
        file_systems: Mapping[int, FileSystem],
        usages: Mapping[int, FileSystemUsage],
        now_ms: int,
    ) -> list[Report]:
        """Apply a check of all file systems; return what changed.

        One without a usage did not answer, which changes nothing about it.
        """
        reports: list[Report] = []
        self.writable = {
            device: mounts for device, mounts in self.writable.items() if device in file_systems
        }
        gone = sorted(key for key in self._present if key[0].id not in file_systems)
        for key in gone:
            self._present.discard(key)
            reports.append(
                self._observation(key, Assertion.ABSENT, now_ms, "it is not mounted any more")
            )
        for device, found in file_systems.items():
            subject = host_subject(FILE_SYSTEM, device)
            reports += self._judge(
                (subject, READ_ONLY), self._became_read_only(found), found.mount_point, now_ms
            )
            if found.read_only:
                usage = FileSystemUsage(None, None)
            elif device in usages:
                usage = usages[device]
            else:
                continue
            for code, percent, what in (
                (FULL, usage.space, "of its space"),
                (NO_INODES, usage.inodes, "of its inodes"),
            ):
                text = "" if percent is None else f"{found.mount_point}: {percent:.1f} % {what}"
                reports += self._judge(
                    (subject, code), self._is_full((subject, code), percent), text, now_ms
                )
        return reports

    def _became_read_only(self, found: FileSystem) -> bool:
        if not found.read_only:
            self.writable[found.device] = found.mounts
            return False
        known = (host_subject(FILE_SYSTEM, found.device), READ_ONLY) in self._present
        return known or not found.mounts.isdisjoint(self.writable.get(found.device, frozenset()))

    def _is_full(self, key: tuple[Subject, str], percent: float | None) -> bool:
        if percent is None:
            return False
        limits = self._thresholds
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
