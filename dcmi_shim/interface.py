"""The interface of a driver for collectors. ``dcmi_shim.driver.Driver`` is the real one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from contract.errors import DriverError
    from dcmi_shim.values import Chip, DriverEvent, DriverGap, Inventory, StuckCall, Utilization


class ChipDriver(Protocol):
    """The calls that collectors of chips need.

    Each call raises ``DriverCallError`` (the driver refused), ``DriverCallStuck`` (no answer within
    the deadline, or left out since), or ``DriverGone`` (no child now). One call's failure never
    delays another chip's call by more than one deadline.
    """

    async def inventory(self) -> Inventory:
        """Return chips and identity; waits until the driver has answered once."""

    @property
    def found(self) -> Inventory | None:
        """The value of ``inventory``; ``None`` until the driver has answered."""

    async def listed(self) -> tuple[Chip, ...]:
        """Return the chips whose ids the driver lists, perhaps none, once it has listed its
        cards.
        """

    async def error_codes(self, chip: Chip) -> tuple[int, ...]:
        """Return the fault codes that the driver lists as active on ``chip``, in its order."""

    async def code_lists(self, chips: Sequence[Chip]) -> dict[Chip, tuple[int, ...] | DriverError]:
        """Return ``error_codes`` of ``chips``, or its error, as far as one message has them.

        Raises ``DriverGone``.
        """

    async def health_words(self, chips: Sequence[Chip]) -> dict[Chip, int | DriverError | None]:
        """Return ``health`` of ``chips``, or its error, as far as one message has them.

        Raises ``DriverGone``.
        """

    async def health(self, chip: Chip) -> int | None:
        """Return 0 healthy, 1 minor, 2 major, 3 critical, or ``None`` for the driver's
        "unknown".
        """

    async def network_health(self, chip: Chip) -> int:
        """Return 0 or 6 if the chip reaches its network, else another code
        (``docs/spec/dcmi.md#4.3``).
        """

    async def processes(self, chip: Chip) -> tuple[int, ...]:
        """Return the ids of the processes that use ``chip``, as the host counts them."""

    async def process_lists(
        self, chips: Sequence[Chip]
    ) -> dict[Chip, tuple[int, ...] | DriverError]:
        """Return ``processes`` of ``chips``, or its error, as far as one message has them.

        Raises ``DriverGone``.
        """

    async def utilization(self, chip: Chip, kind: Utilization) -> int:
        """Return the utilization in percent."""

    def events(self) -> AsyncIterator[DriverEvent | DriverGap]:
        """Yield fault events as they arrive. One reader only."""

    def stuck_calls(self) -> tuple[StuckCall, ...]:
        """Return the calls that are left out now."""

    async def is_in_place(self) -> bool:
        """Return whether the loaded library is the one that is installed now.

        While a driver is replaced on disk, no answer of the old one is a failure of a chip.
        """

    @property
    def polling_reason(self) -> str | None:
        """Why no events arrive, so that only polls work; ``None`` while subscribed."""
