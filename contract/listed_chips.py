"""Which chips a node has: those that the driver lists, compared with those that are remembered.

A chip is the same one by its die id or by the serial number of its card, where the driver gives one
of them both times, else by its physical id. Ids shift when a card is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class ListedChip(msgspec.Struct, frozen=True, omit_defaults=True):
    """One chip as the driver lists it. ``die`` and ``serial`` are empty where they are not known.

    ``serial`` is the number of the card, ``device`` the place of the chip on it.
    """

    physical_id: int
    logic_id: int
    device: int = 0
    die: str = ""
    serial: str = ""

    def is_same(self, other: ListedChip) -> bool | None:
        """Return whether both are one chip, by what does not depend on its place; ``None``:
        unknown.
        """
        compared = []
        if self.die and other.die:
            compared.append(self.die == other.die)
        if self.serial and other.serial:
            # A card may have several chips, so its number alone does not name one.
            compared.append((self.serial, self.device) == (other.serial, other.device))
        return all(compared) if compared else None


class ChipListComparison(msgspec.Struct, frozen=True):
    """What became of remembered chips, by their physical ids before.

    ``moved`` have another physical id now, ``replaced`` have another chip in their place, and
    ``missing`` are not listed. One of those is also in ``moved`` if its id is another chip's now.
    """

    moved: dict[int, int]
    replaced: frozenset[int]
    missing: frozenset[int]


def compare(
    remembered: Mapping[int, ListedChip | None], listed: Iterable[ListedChip]
) -> ChipListComparison:
    """Compare ``remembered``, by physical id and ``None`` where no more is known, with ``listed``.

    A missing chip whose id another remembered chip has now gets the lowest remembered id that is
    free: its own is taken, and no reader may find its faults on another chip. Where none is free,
    as many chips are listed as are remembered, so it was replaced.
    """
    now = {chip.physical_id: chip for chip in listed}
    stays, moved = set[int](), dict[int, int]()
    for chip_id, before in remembered.items():
        here = now.get(chip_id)
        # Where no identity is known both times, the physical id decides.
        if here is not None and (before is None or before.is_same(here) is not False):
            stays.add(chip_id)
    for chip_id, here in now.items():
        places = [
            other
            for other, before in remembered.items()
            if other not in stays and before is not None and before.is_same(here)
        ]
        # Several remembered chips that fit this one prove nothing.
        if chip_id not in stays and len(places) == 1:
            moved[places[0]] = chip_id
    gone = sorted(remembered.keys() - stays - moved.keys())
    taken = set(moved.values())
    missing = {chip_id for chip_id in gone if chip_id not in now}
    free = sorted(remembered.keys() - now.keys() - missing)
    for chip_id, place in zip((place for place in gone if place in taken), free, strict=False):
        moved[chip_id] = place
        missing.add(chip_id)
    return ChipListComparison(moved, frozenset(gone) - missing, frozenset(missing))
