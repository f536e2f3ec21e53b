"""Which faults of one job belong together, and what follows (``docs/spec/clusterd.md#3.10``).

The two files of upstream, ``relationFaultCustomization.json`` and ``faultDuration.json``, or what
upstream ships. Where upstream takes half of a wrong file, such a file is refused here, with
everything that is wrong with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec
from msgspec import field

from contract.errors import ConfigurationError, DocumentError, Problem, quoted
from contract.found_problems import FoundProblems
from contract.go.decode import GoStruct, Int64, decode
from contract.go.dropped import dropped

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SEPARATE = "Separate"
SUB_HEALTH = "SubHealth"
_STRATEGIES = (SEPARATE, SUB_HEALTH)
_LONGEST_SECONDS = 86_400

CQE_CODES = frozenset({"8C1F8608", "4C1F8608"})
"""Triggers that come late: they count for a link that is well again, too, and in a super pod only
when the time of the fault before them is over."""


class Row(msgspec.Struct, frozen=True):
    """When ``trigger`` and all of ``relations`` hold in a job, ``strategy`` follows."""

    trigger: str
    relations: tuple[str, ...]
    strategy: str


@dataclass(frozen=True)
class Tables:
    """``windows_ms``: how long a relation fault waits for its trigger; 0 where none is named."""

    rows: tuple[Row, ...]
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

SHIPPED = Tables(
    rows=(
        Row("8C1F8609", (_LINK_DOWN,), SUB_HEALTH),
        Row("8C1F860B", (_LINK_DOWN,), SEPARATE),
        Row("8C1F860B", (_SWITCH_PORT_DOWN,), SEPARATE),
        Row("8C1F8608", (_LINK_DOWN,), SEPARATE),
        Row("4C1F8608", (_LINK_DOWN,), SEPARATE),
    ),
    windows_ms={_LINK_DOWN: 300_000, _SWITCH_PORT_DOWN: 300_000},
)


class _WireRow(GoStruct, frozen=True):
    trigger: str = field(name="TriggerFault", default="")
    relations: list[str] | None = field(name="RelationFaults", default=None)
    strategy: str = field(name="FaultStrategy", default="")


class _WireDuration(GoStruct, frozen=True):
    code: str = field(name="FaultCode", default="")
    kind: str = field(name="FaultType", default="")
    seconds: Int64 = field(name="TimeOutInterval", default=0)


def read_rows(text: str, source: str) -> tuple[Row, ...]:
    """Read a ``relationFaultCustomization.json``. Raises ``ConfigurationError``."""
    problems = FoundProblems()
    try:
        wire = decode(text, list[_WireRow], source)
    except DocumentError as error:
        raise ConfigurationError(source, [Problem(error.where, error.what)]) from None
    problems.extend(dropped(text, list[_WireRow]))
    for index, row in enumerate(wire):
        problems.extend(_row_problems(row, f"$[{index}]"))
    _raise_if_any(source, problems.all())
    return tuple(Row(row.trigger, tuple(row.relations or ()), row.strategy) for row in wire)


def _row_problems(row: _WireRow, where: str) -> Iterable[Problem]:
    if not row.trigger:
        yield Problem(f"{where}.TriggerFault", "is missing or empty")
    if not row.relations or not all(row.relations):
        yield Problem(f"{where}.RelationFaults", "names no code, or an empty one")
    if row.strategy not in _STRATEGIES:
        what = f"{quoted(row.strategy)!r} is none of {', '.join(_STRATEGIES)}"
        yield Problem(f"{where}.FaultStrategy", what)


def read_windows(text: str, source: str) -> dict[str, int]:
    """Read a ``faultDuration.json``: ms by code. Raises ``ConfigurationError``."""
    problems = FoundProblems()
    try:
        wire = decode(text, list[_WireDuration], source)
    except DocumentError as error:
        raise ConfigurationError(source, [Problem(error.where, error.what)]) from None
    problems.extend(dropped(text, list[_WireDuration]))
    for index, one in enumerate(wire):
        if not one.code:
            problems.add(Problem(f"$[{index}].FaultCode", "is missing or empty"))
        if not 0 <= one.seconds <= _LONGEST_SECONDS:
            what = f"{one.seconds} is not from 0 to {_LONGEST_SECONDS}"
            problems.add(Problem(f"$[{index}].TimeOutInterval", what))
    _raise_if_any(source, problems.all())
    return {one.code: one.seconds * 1000 for one in wire}


def _raise_if_any(source: str, problems: tuple[Problem, ...]) -> None:
    if problems:
        raise ConfigurationError(source, problems)
