"""What a collector gets from the daemon, for tests: everything that a test does not care about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from collectors.base import CollectorContext, VendorPaths

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from collectors.base import SavedState, Show, Sink, WallClock
    from contract.observation import Subject
    from dcmi_shim.interface import ChipDriver


class Kept:
    """What a collector remembers, without a disk."""

    def __init__(self, content: bytes | None = None) -> None:
        self.content = content

    def read(self) -> bytes | None:
        """See ``SavedState``."""
        return self.content

    def write(self, content: bytes) -> None:
        """See ``SavedState``."""
        self.content = content


def surroundings(
    report: Sink,
    wall_clock: WallClock,
    driver: ChipDriver,
    *,
    tracked: Mapping[tuple[Subject, str], int] | None = None,
    driver_root: Path | None = None,
    environment: Mapping[str, str] | None = None,
    show: Show = lambda subject, name, value: None,
    memory: SavedState | None = None,
    listen: Callable[[Sink], None] = lambda sink: None,
    progress: Callable[[], None] = lambda: None,
    chips: frozenset[int] = frozenset(),
) -> CollectorContext:
    """The surroundings of one collector under test."""
    return CollectorContext(
        report=report,
        wall_clock=wall_clock,
        tracked=tracked or {},
        driver=driver,
        places=VendorPaths(driver_root, True, environment or {}),
        show=show,
        memory=Kept() if memory is None else memory,
        listen=listen,
        progress=progress,
        chips=chips,
    )
