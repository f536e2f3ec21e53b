"""Which faults of one job belong together, and what follows (``docs/spec/clusterd.md#3.10``).

The tables are those that upstream ships in ``relationFaultCustomization.json`` and
``faultDuration.json``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

SEPARATE = "Separate"
SUB_HEALTH = "SubHealth"

CQE_CODES = frozenset({"8C1F8608", "4C1F8608"})
"""Triggers that come late: they count for a link that is well again, too, and in a super pod only
when the time of the fault before them is over."""


class RelationRow(msgspec.Struct, frozen=True):
    """When ``trigger`` and all of ``relations`` hold in a job, ``strategy`` follows."""

    trigger: str
    relations: tuple[str, ...]
    strategy: str


@dataclass(frozen=True)
class RelationTables:
    """``windows_ms``: how long a relation fault waits for its trigger; 0 where none is named."""

    rows: tuple[RelationRow, ...]
    windows_ms: Mapping[str, int]

    @cached_property
    def relations(self) -> frozenset[str]:
        """All codes that wait for a trigger."""
        return frozenset(code for row in self.rows for code in row.relations)

    @cached_property
    def triggers(self) -> frozenset[str]:
        """All codes that others wait for."""
        return frozenset(row.trigger for row in self.rows)


_LINK_DOWN = "81078603"
_SWITCH_PORT_DOWN = "[0x08520003,na,L2,na]"

SHIPPED = RelationTables(
    rows=(
        RelationRow("8C1F8609", (_LINK_DOWN,), SUB_HEALTH),
        RelationRow("8C1F860B", (_LINK_DOWN,), SEPARATE),
        RelationRow("8C1F860B", (_SWITCH_PORT_DOWN,), SEPARATE),
        RelationRow("8C1F8608", (_LINK_DOWN,), SEPARATE),
        RelationRow("4C1F8608", (_LINK_DOWN,), SEPARATE),
    ),
    windows_ms={_LINK_DOWN: 300_000, _SWITCH_PORT_DOWN: 300_000},
)
