"""What collectors may ask of a driver. ``dcmi_shim.driver.Driver`` is the real one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from dcmi_shim.library.enums import Utilization
    from dcmi_shim.values import Chip, DriverEvent, DriverGap, Inventory, StuckCall


class ChipDriver(Protocol):
    """The calls that the chip collector needs.

    Each call raises ``DriverCallError`` (the driver refused), ``DriverCallStuck`` (no answer within
    the deadline, or left out since), or ``DriverGone`` (no child now). One call's failure never
    delays another chip's call by more than one deadline.
    """

    async def inventory(self) -> Inventory:
        """Chips and identity; waits until the driver has answered once."""

    @property
    def found(self) -> Inventory | None:
        """What ``inventory`` answers; ``None`` until the driver has answered."""

    async def listed(self) -> tuple[Chip, ...]:
        """Return the chips whose ids the driver lists, maybe none, once it has listed its cards."""

    async def error_codes(self, chip: Chip) -> tuple[int, ...]:
        """Fault codes that the driver lists as active on ``chip``, in its order."""

    async def code_lists(self, chips: Sequence[Chip]) -> dict[Chip, tuple[int, ...]]:
        """Fault codes of those of ``chips`` that give them at once, in one message."""

    async def health(self, chip: Chip) -> int | None:
        """0 healthy, 1 minor, 2 major, 3 critical, ``None`` for the driver's "unknown"."""

    async def network_health(self, chip: Chip) -> int:
        """0 or 6: the chip reaches its network; else it does not (``docs/spec/dcmi.md#4.3``)."""

    async def processes(self, chip: Chip) -> tuple[int, ...]:
        """Ids of the processes that use ``chip``, as the host counts them."""

    async def utilization(self, chip: Chip, kind: Utilization) -> int:
        """Percent."""

    def events(self) -> AsyncIterator[DriverEvent | DriverGap]:
        """Fault events as they arrive. One reader only."""

    def stuck_calls(self) -> tuple[StuckCall, ...]:
        """Calls that are left out now."""

    async def is_in_place(self) -> bool:
        """Whether the library that is loaded is the one that is installed now.

        While a driver is replaced on disk, what the old one answers is no chip's failure.
        """

    @property
    def polling_reason(self) -> str | None:
        """Why no events arrive, so that polls must do; ``None`` while subscribed."""
