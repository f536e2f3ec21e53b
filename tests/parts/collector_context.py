"""The context of a collector under test, with defaults for what a test does not use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from collectors.base import AgentOptions, CollectorContext, SavedState
from dcmi_shim.library.discovery import VendorPaths

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from collectors.base import Show, Sink, WallClock
    from contract.observation import Subject
    from dcmi_shim.interface import ChipDriver


class SavedInMemory(SavedState):
    """The saved state of a collector, in memory."""

    def __init__(self, content: bytes | None = None) -> None:
        self.content = content

    @override
    def read(self) -> bytes | None:
        return self.content

    @override
    def write(self, content: bytes) -> None:
        self.content = content


def collector_context(
    report: Sink,
    wall_clock: WallClock,
    driver: ChipDriver,
    *,
    tracked: Mapping[tuple[Subject, str], int] | None = None,
    driver_root: Path | None = None,
    environment: Mapping[str, str] | None = None,
    show: Show = lambda subject, name, value: None,
    saved_state: SavedState | None = None,
    listen: Callable[[Sink], None] = lambda sink: None,
    progress: Callable[[], None] = lambda: None,
    chips: frozenset[int] = frozenset(),
    options: AgentOptions | None = None,
) -> CollectorContext:
    """Return the context of one collector under test; reports go to ``report``."""
    return CollectorContext(
        report=report,
        wall_clock=wall_clock,
        tracked=tracked or {},
        driver=driver,
        paths=VendorPaths(driver_root, True, environment or {}),
        show=show,
        saved_state=SavedInMemory() if saved_state is None else saved_state,
        listen=listen,
        progress=progress,
        options=AgentOptions() if options is None else options,
        chips=chips,
    )
